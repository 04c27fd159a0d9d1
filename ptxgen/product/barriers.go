package product

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// barriers are mbarriers at consecutive addresses, with the same number of arrivals per phase.
type barriers struct {
	at              ptx.Shared
	count, arrivals ptx.U32
}

// initBarriers initializes barriers, and waits until all threads of the CTA may use them. One lane of each warp
// initializes some: lanes of one warp would do it one after another.
func initBarriers(b *ptx.Builder, threads int, list []barriers) {
	b.If(b.Lane().EqN(0), func() {
		for _, l := range list {
			b.For(b.Warp(), l.count, b.N(threads/lanes), func(i ptx.U32) { b.NewMBarrier(l.at.At(i, 8), l.arrivals) }, ptx.NoUnroll)
		}
	})
	b.FenceMBarrierInit()
	b.Barrier()
}
