package product

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// barriers are mbarriers at consecutive addresses, with the same number of arrivals per phase.
type barriers struct {
	at       ptx.Shared
	count    int
	arrivals int
}

// initBarriers initializes barriers by the calling thread. Other threads may use them after they have waited for it. The addresses are constants:
// else the compiler puts a fence before each barrier.
func initBarriers(b *ptx.Builder, list ...barriers) {
	for _, l := range list {
		for i := range l.count {
			b.NewMBarrier(l.at.Plus(8*i), b.N(l.arrivals))
		}
	}
	b.FenceMBarrierInit()
}

// beginWithBarriers initializes barriers by one thread. All threads of the CTA wait for it.
func beginWithBarriers(b *ptx.Builder, list ...barriers) {
	b.If(b.ThreadX().EqN(0), func() { initBarriers(b, list...) })
	b.Barrier()
}

// arriveAsWarp arrives once, after all lanes of the warp.
func arriveAsWarp(b *ptx.Builder, lane ptx.U32, at ptx.MBarrier) {
	b.WarpSync()
	b.When(lane.EqN(0), at.Arrive)
}

// ringPosition is a stage of a ring that a warp goes around, and how often it has done so, mod 2: the parity of the phase of
// the stage's barriers. It saves dividing a count by the number of stages.
type ringPosition struct {
	stages        int
	stage, parity ptx.U32 // variables
}

func newRingPosition(b *ptx.Builder, first ptx.U32, stages int) ringPosition {
	return ringPosition{stages, ptx.Var(first), ptx.Var(b.U32(0))}
}

// advance moves on by some stages, at most all.
func (p ringPosition) advance(b *ptx.Builder, by int) {
	ptx.Set(p.stage, p.stage.AddN(by))
	b.When(p.stage.GeN(p.stages), func() {
		ptx.Set(p.stage, p.stage.AddN(-p.stages))
		ptx.Set(p.parity, p.parity.Xor(b.U32(1)))
	})
}

// stageOf returns the stage of a ring that has the segment counted by seg, and the parity of its phase then.
func stageOf(seg ptx.U32, ring int) (at, parity ptx.U32) {
	return seg.RemN(ring), seg.DivN(ring).AndN(1)
}
