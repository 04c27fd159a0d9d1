package device

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Group is a cooperative group of threads that share a row: a warp or a CTA.
type Group struct {
	b       *ptx.Builder
	cta     bool
	sums    int        // per call of Sums, at most
	perWarp ptx.Shared // [sums, 32 warps] of 8 bytes; unused if the group is a warp
}

// Warp returns the group of the threads of a warp.
func Warp(b *ptx.Builder) Group { return Group{b: b} }

// CTA returns the group of the threads of a CTA. All of them must call Sums and Max together. One call of Sums adds at most
// sums values. A kernel calls CTA once.
func CTA(b *ptx.Builder, sums int) Group {
	return Group{b: b, cta: true, sums: sums, perWarp: b.Shared("warp_sums", warpSums*sums, 8)}
}

const warpSums = 8 * 32 // bytes per sum

// Rank returns the index of the thread in the group.
func (g Group) Rank() ptx.U32 {
	if !g.cta {
		return g.b.Lane()
	}
	return g.b.ThreadX()
}

// Size returns the number of threads in the group.
func (g Group) Size() ptx.U32 {
	if !g.cta {
		return g.b.U32(32)
	}
	return g.b.ThreadsX()
}

// Sums returns the sum of each x over the threads, with the same bits in each of them. Order of
// additions: the lanes of each warp by a butterfly, then the warps by another butterfly.
func (g Group) Sums(x []Sum2) []Sum2 {
	x = overWarp(x)
	if !g.cta {
		return x
	}
	if len(x) > g.sums {
		g.b.Failf("%d sums of a group that has room for %d", len(x), g.sums)
		return x
	}
	var parts [][2]ptx.F32
	for _, t := range x {
		parts = append(parts, [2]ptx.F32{t.high, t.low})
	}
	for i, y := range g.exchange(parts, 0) {
		x[i] = Sum2{y[0], y[1]}
	}
	return overWarp(x)
}

// Max returns the maximum over the threads, ignoring NaN.
func (g Group) Max(x ptx.F32) ptx.F32 {
	x = ptx.WarpMax(x)
	if !g.cta {
		return x
	}
	return ptx.WarpMax(g.exchange([][2]ptx.F32{{x, x}}, float32(math.Inf(-1)))[0][0])
}

// exchange returns, in lane w of each warp, the x of warp w. Lanes without a warp get fill.
func (g Group) exchange(x [][2]ptx.F32, fill float32) [][2]ptx.F32 {
	b, lane := g.b, g.b.Lane()
	b.Barrier() // all warps have read the values of an earlier exchange
	b.If(lane.EqN(0), func() {
		for i, v := range x {
			g.perWarp.At(b.Warp(), 8).Plus(warpSums * i).StoreF32x2(v)
		}
	})
	b.Barrier()
	y := make([][2]ptx.F32, len(x))
	for i := range y {
		y[i] = [2]ptx.F32{ptx.Var(b.F32(fill)), ptx.Var(b.F32(fill))}
	}
	b.If(lane.Lt(b.ThreadsX().ShrN(5)), func() {
		for i := range y {
			for j, v := range g.perWarp.At(lane, 8).Plus(warpSums * i).LoadF32x2() {
				ptx.Set(y[i][j], v)
			}
		}
	})
	return y
}

// RowThreads returns the size of a CTA for a row of width elements: one Vec4 per thread, up
// to 1024 threads. The order of a row's sums depends on it, so it depends on width alone.
func RowThreads(width int) int { return min(max(host.CeilDiv(width, 128)*32, 32), 1024) }
