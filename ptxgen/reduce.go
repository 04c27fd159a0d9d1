package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// total is a sum kept to about twice the precision of a float32: high is what plain
// additions give, low collects what they lost.
type total struct{ high, low ptx.F32 }

func zeroTotal(b *ptx.Builder) total { return total{ptx.Var(b.F32(0)), ptx.Var(b.F32(0))} }

// twoSum is x + y and, exactly, what rounding it lost (Knuth).
func twoSum(x, y ptx.F32) (sum, lost ptx.F32) {
	sum = x.Add(y)
	part := sum.Sub(x)
	return sum, x.Sub(sum.Sub(part)).Add(y.Sub(part))
}

// add adds x to a total made by zeroTotal.
func (t total) add(x ptx.F32) {
	sum, lost := twoSum(t.high, x)
	ptx.Set(t.high, sum)
	ptx.Set(t.low, t.low.Add(lost))
}

// addSquare adds x*x, its rounding error too.
func (t total) addSquare(x ptx.F32) {
	s := x.Mul(x)
	ptx.Set(t.low, t.low.Add(x.FMA(x, s.Neg())))
	t.add(s)
}

// merge is the sum of two totals; the order does not change a bit.
func (t total) merge(u total) total {
	sum, lost := twoSum(t.high, u.high)
	return total{sum, t.low.Add(u.low).Add(lost)}
}

// value rounds the total to a float32. Where the plain sum is Inf or NaN, that is it:
// what rounding lost is then Inf - Inf.
func (t total) value(b *ptx.Builder) ptx.F32 {
	return ptx.Select(t.high.Abs().Lt(b.F32(float32(math.Inf(1)))), t.high.Add(t.low), t.high)
}

// warpTotal is the total over the 32 lanes, the same bits in each.
func warpTotal(t total) total {
	for mask := 16; mask > 0; mask /= 2 {
		t = t.merge(total{ptx.ShuffleXor(t.high, mask), ptx.ShuffleXor(t.low, mask)})
	}
	return t
}

// team is who works on a row: a warp, or a CTA of any number of warps.
type team struct {
	b     *ptx.Builder
	slots ptx.Shared // 8 bytes a warp; unused by a warp alone
	cta   bool
	first int // threads of the CTA that work; 0 means all
}

// warpTeam is a warp alone.
func warpTeam(b *ptx.Builder) team { return team{b: b} }

// ctaTeam is the CTA. All its threads take part in each of its sums and maxima.
func ctaTeam(b *ptx.Builder) team {
	return team{b: b, slots: b.Shared("team_slots", 8*32, 8), cta: true}
}

// firstThreads is as many threads of the CTA, so that sums are the same in a larger one.
// The others take part in sums and maxima with nothing.
func firstThreads(b *ptx.Builder, n int) team {
	t := ctaTeam(b)
	t.first = n
	return t
}

// rank is the thread's index in the team, size the number of threads. Threads that do
// not work have ranks beyond any row.
func (t team) rank() ptx.U32 {
	if !t.cta {
		return t.b.Lane()
	}
	x := t.b.ThreadX()
	if t.first > 0 {
		x = ptx.Select(x.LtN(t.first), x, x.AddN(1<<28))
	}
	return x
}

func (t team) size() ptx.U32 {
	switch {
	case !t.cta:
		return t.b.U32(32)
	case t.first > 0:
		return t.b.N(t.first)
	}
	return t.b.ThreadsX()
}

// sum is the total of all threads: over the lanes by a butterfly, then over the
// warps by another. The order depends on the number of threads alone.
func (t team) sum(x total) total {
	x = warpTotal(x)
	if !t.cta {
		return x
	}
	parts := t.exchange([2]ptx.F32{x.high, x.low}, 0)
	return warpTotal(total{parts[0], parts[1]})
}

// max is the largest x of all threads; a NaN loses to a number.
func (t team) max(x ptx.F32) ptx.F32 {
	x = ptx.WarpMax(x)
	if !t.cta {
		return x
	}
	return ptx.WarpMax(t.exchange([2]ptx.F32{x, x}, float32(math.Inf(-1)))[0])
}

// exchange gives lane w of each warp what warp w brought, the others fill.
func (t team) exchange(x [2]ptx.F32, fill float32) [2]ptx.F32 {
	b, lane := t.b, t.b.Lane()
	b.Barrier() // what an earlier exchange left has been read
	b.If(lane.EqN(0), func() { t.slots.At(b.Warp(), 8).StoreF32x2(x) })
	b.Barrier()
	y := [2]ptx.F32{ptx.Var(b.F32(fill)), ptx.Var(b.F32(fill))}
	b.If(lane.Lt(b.ThreadsX().ShrN(5)), func() {
		for i, v := range t.slots.At(lane, 8).LoadF32x2() {
			ptx.Set(y[i], v)
		}
	})
	return y
}

// rowThreads is the size of a CTA that takes a row of so many elements, a quad a
// thread as far as they go round. It depends on the width alone, and so does the
// order of a row's sums.
func rowThreads(width int) int { return min(max(ceilDiv(width, 128)*32, 32), 1024) }
