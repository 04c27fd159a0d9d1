package product

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// barriers are mbarriers at consecutive addresses, with the same number of arrivals per phase.
type barriers struct {
	at              ptx.Shared
	count, arrivals ptx.U32
}

// initBarriers initializes barriers. The threads of the CTA may use them after they have waited for each other. One lane
// of each warp initializes some: lanes of one warp would do it one after another.
func initBarriers(b *ptx.Builder, list []barriers) {
	b.If(b.Lane().EqN(0), func() {
		for _, l := range list {
			b.For(b.Warp(), l.count, b.ThreadsX().ShrN(5), func(i ptx.U32) { b.NewMBarrier(l.at.At(i, 8), l.arrivals) }, ptx.NoUnroll)
		}
	})
	b.FenceMBarrierInit()
}
