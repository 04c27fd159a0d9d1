package ptx

// sink is where a result goes that nobody reads.
var sink = operand{kind: special, name: "_"}

// MBarrier is a barrier of eight bytes in shared memory that counts arrivals of
// threads and bytes of bulk copies. It needs sm_90.
type MBarrier struct{ at place }

// NewMBarrier makes the eight bytes at p a barrier whose phase ends after so many
// arrivals. One thread calls it; FenceMBarrierInit and a Barrier come before its use.
func (b *Builder) NewMBarrier(p Shared, arrivals int) MBarrier {
	p.checkAlign("mbarrier", "u64", 1)
	b.effect("mbarrier.init.shared.b64", 0, at(p.base, p.off), number(int64(arrivals)))
	return MBarrier{p.place}
}

// MBarrierAt is the barrier that was made at p.
func MBarrierAt(p Shared) MBarrier { return MBarrier{p.place} }

// FenceMBarrierInit shows fresh barriers to the copy engine.
func (b *Builder) FenceMBarrierInit() { b.effect("fence.mbarrier_init.release.cluster", 0) }

// ArriveExpect arrives once and lets the phase wait for so many bytes more.
func (m MBarrier) ArriveExpect(bytes U32) {
	m.at.b.effect("mbarrier.arrive.expect_tx.shared.b64", 1, one(sink), at(m.at.base, m.at.off), one(bytes.op))
}

// Arrive arrives once.
func (m MBarrier) Arrive() {
	m.at.b.effect("mbarrier.arrive.shared.b64", 1, one(sink), at(m.at.base, m.at.off))
}

// Wait waits until the phase of that parity, 0 or 1, has ended. The phase before
// the first counts as ended with parity 1.
func (m MBarrier) Wait(parity U32) {
	m.at.b.While(func() Pred {
		done, r := fresh[Pred](m.at.b)
		m.at.b.effect("mbarrier.try_wait.parity.shared.b64", 1, one(r), at(m.at.base, m.at.off), one(parity.op))
		return done.Not()
	}, func() {})
}

// BulkLoad lets the copy engine bring bytes, a multiple of 16, from global to shared
// memory and count them at the barrier.
func (b *Builder) BulkLoad(dst Shared, src Global, bytes U32, m MBarrier) {
	dst.checkAlign("bulk copy", "u32", 4)
	src.checkAlign("bulk copy", "u32", 4)
	b.effect("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", 0,
		at(dst.base, dst.off), at(src.base, src.off), one(bytes.op), at(m.at.base, m.at.off))
}
