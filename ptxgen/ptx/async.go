package ptx

import "slices"

// CopyAsync emits cp.async.cg: an asynchronous copy of 16 bytes from global to shared memory.
// The copy is complete for this thread after CopyWait, and for other threads after a barrier.
func (b *Builder) CopyAsync(dst Shared, src Global) {
	checkCopy("copy", dst, src)
	b.emit("cp.async.cg.shared.global", 0, at(dst.base, dst.off), at(src.base, src.off), number(16))
}

// CopyAsyncZeroFill emits cp.async.cg with a source size: it copies the first 0 to 16 bytes of src, as many as bytes says,
// and fills the rest of the 16 bytes with zeros. With 0 it does not read src. With ReadOnce, it hints that L2 should fetch the 128 bytes
// around src.
func (b *Builder) CopyAsyncZeroFill(dst Shared, src Global, bytes U32, cache ...CacheOp) {
	checkCopy("copy", dst, src)
	op := "cp.async.cg.shared.global"
	switch {
	case slices.Equal(cache, []CacheOp{ReadOnce}):
		op += ".L2::128B"
	case len(cache) > 0:
		b.fail("copy: cache operators %v, want ReadOnce or none", cache)
	}
	b.emit(op, 0, at(dst.base, dst.off), at(src.base, src.off), number(16), one(bytes.op))
}

// CopyCommit emits cp.async.commit_group: it closes a group of copies of this thread.
func (b *Builder) CopyCommit() { b.emit("cp.async.commit_group", 0) }

// CopyWait emits cp.async.wait_group: it waits until at most the last n groups of this thread
// are incomplete.
func (b *Builder) CopyWait(n int) { b.emit("cp.async.wait_group", 0, number(int64(n))) }

func checkCopy(what string, dst Shared, src Global) {
	dst.checkAlign(what, "u32", 4)
	src.checkAlign(what, "u32", 4)
}

// MBarrier is an mbarrier object: eight bytes in shared memory that count arrivals of threads
// and bytes of bulk copies. It needs sm_90.
type MBarrier struct{ at Pointer }

// sink discards a result.
var sink = operand{kind: special, name: "_"}

// NewMBarrier emits mbarrier.init: each phase of the barrier at p ends after the given number
// of arrivals. One thread executes it, and FenceMBarrierInit if bulk copies use it. Other threads use it after a barrier.
func (b *Builder) NewMBarrier(p Shared, arrivals U32) MBarrier {
	p.checkAlign("mbarrier", "u64", 1)
	b.emit("mbarrier.init.shared.b64", 0, at(p.base, p.off), one(arrivals.op))
	return MBarrier{p.Pointer}
}

// MBarrierAt returns the barrier that was initialized at p. It emits nothing.
func MBarrierAt(p Shared) MBarrier { return MBarrier{p.Pointer} }

// FenceMBarrierInit emits fence.mbarrier_init: it makes initialized barriers visible to bulk
// copies.
func (b *Builder) FenceMBarrierInit() { b.emit("fence.mbarrier_init.release.cluster", 0) }

// Arrive emits mbarrier.arrive.
func (m MBarrier) Arrive() {
	m.at.b.emit("mbarrier.arrive.shared.b64", 1, one(sink), at(m.at.base, m.at.off))
}

// ArriveExpectTx emits mbarrier.arrive.expect_tx: it arrives, and the phase also waits for the
// given number of bytes.
func (m MBarrier) ArriveExpectTx(bytes U32) {
	m.at.b.emit("mbarrier.arrive.expect_tx.shared.b64", 1, one(sink), at(m.at.base, m.at.off), one(bytes.op))
}

// Wait emits a loop around mbarrier.try_wait.parity: it waits until the phase with that parity,
// 0 or 1, has ended. On a new barrier, parity 1 does not wait.
func (m MBarrier) Wait(parity U32) {
	m.at.b.While(func() Pred {
		done, r := fresh[Pred](m.at.b)
		m.at.b.emit("mbarrier.try_wait.parity.shared.b64", 1, one(r), at(m.at.base, m.at.off), one(parity.op))
		return done.Not()
	}, func() {})
}

// CachePolicy says which priority lines have in L2.
type CachePolicy struct{ op operand }

// EvictFirst emits createpolicy.fractional.L2::evict_first: a policy for data that is read once.
func (b *Builder) EvictFirst() CachePolicy {
	_, r := fresh[U64](b)
	b.emit("createpolicy.fractional.L2::evict_first.b64", 1, one(r))
	return CachePolicy{r}
}

const bulkLoad = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"

// HasBulkLoad reports whether devices of t, and drivers that accept its PTX version, have Builder.BulkLoad.
func (t Target) HasBulkLoad() bool { return t.has(bulkLoad) }

// BulkLoad emits cp.async.bulk from global to shared memory. bytes is a multiple of 16. The
// current phase of m must expect the bytes: see ArriveExpectTx. At most one policy says how L2 treats
// the data.
func (b *Builder) BulkLoad(dst Shared, src Global, bytes U32, m MBarrier, policy ...CachePolicy) {
	checkCopy("bulk copy", dst, src)
	op := bulkLoad
	args := []arg{at(dst.base, dst.off), at(src.base, src.off), one(bytes.op), at(m.at.base, m.at.off)}
	if len(policy) > 1 {
		b.fail("bulk copy: %d cache policies, want at most 1", len(policy))
	}
	for _, p := range policy {
		op, args = op+".L2::cache_hint", append(args, one(p.op))
	}
	b.emit(op, 0, args...)
}

// PrefetchL2 emits prefetch.global.L2: it brings the line at p to L2. It changes no result.
func (p Global) PrefetchL2() { p.b.emit("prefetch.global.L2", 0, at(p.base, p.off)) }
