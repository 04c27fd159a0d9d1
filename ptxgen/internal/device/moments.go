package device

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// CachedRow is a row. Each thread of a group holds the first of its Vec4s in registers.
type CachedRow struct {
	row    Row
	g      Group
	cached []Vec4
}

// LoadRow loads the first n Vec4s of each thread: thread t has Vec4s t, t+Size, t+2*Size, ….
func (g Group) LoadRow(r Row, n int, cache ...ptx.CacheOp) CachedRow {
	c := CachedRow{row: r, g: g}
	for j := range n {
		c.cached = append(c.cached, r.Load(c.index(j), 0, cache...))
	}
	return c
}

// Map returns a row whose Vec4 i is compute(i, v), where v has Vec4 i of c and of each of others: see EachWith. The result
// caches as many Vec4s per thread as c. Map stores the remaining ones in to, which may be the memory of c.
func (c CachedRow) Map(to Row, compute func(i ptx.U32, v []Vec4) Vec4, others ...CachedRow) CachedRow {
	y := CachedRow{row: to, g: c.g}
	for range c.cached {
		var v Vec4
		for e := range v {
			v[e] = ptx.Var(c.g.b.F32(0))
		}
		y.cached = append(y.cached, v)
	}
	j := 0
	c.EachWith(func(i ptx.U32, v []Vec4) {
		result := compute(i, v)
		if j == len(y.cached) {
			to.Store(i, result)
			return
		}
		for e, x := range result {
			ptx.Set(y.cached[j][e], x)
		}
		j++
	}, others...)
	return y
}

// index returns the index in the row of the thread's Vec4 j.
func (c CachedRow) index(j int) ptx.U32 {
	if j == 0 {
		return c.g.Rank()
	}
	return c.g.Rank().Add(c.g.Size().MulN(j))
}

// Each calls do for the Vec4s of the thread, in order. It loads those that are not cached.
func (c CachedRow) Each(do func(i ptx.U32, v Vec4)) {
	c.EachWith(func(i ptx.U32, v []Vec4) { do(i, v[0]) })
}

// EachWith calls do for the Vec4s of the thread in c and in other rows of the same width. It loads those that are not
// cached. An absent row has the width 0 and is full of zeros.
func (c CachedRow) EachWith(do func(i ptx.U32, v []Vec4), others ...CachedRow) {
	b := c.g.b
	all := func(i ptx.U32, j int) (list []Vec4) {
		for _, r := range append([]CachedRow{c}, others...) {
			if j < len(r.cached) {
				list = append(list, r.cached[j])
			} else {
				list = append(list, r.row.Load(i, 0))
			}
		}
		return list
	}
	var cached [][]Vec4 // all loads before the first is used
	for j := range c.cached {
		cached = append(cached, all(c.index(j), j))
	}
	for j, v := range cached {
		i := c.index(j)
		b.If(i.Lt(c.row.Vec4s()), func() { do(i, v) })
	}
	b.For(c.index(len(c.cached)), c.row.Vec4s(), c.g.Size(), func(i ptx.U32) { do(i, all(i, len(c.cached))) }, ptx.NoUnroll)
}

// Moments hold the statistics that normalize a row: a normalized element is
//
//	((x*Scale - Mean) - MeanLow) * InvStd
//
// Mean + MeanLow is the mean of x*Scale in twice the precision. RMSNorm has neither.
type Moments struct {
	Scale, InvStd ptx.F32
	Mean, MeanLow ptx.F32
	Centered      bool // LayerNorm: subtract the mean
}

// deviation returns x*Scale less the mean.
func (m Moments) deviation(x ptx.F32) ptx.F32 {
	x = x.Mul(m.Scale)
	if m.Centered {
		x = x.Sub(m.Mean).Sub(m.MeanLow)
	}
	return x
}

// Normalize returns the normalized x.
func (m Moments) Normalize(x ptx.F32) ptx.F32 { return m.deviation(x).Mul(m.InvStd) }

// Moments computes the statistics of a row: see MomentsOf.
func (c CachedRow) Moments(centered bool, eps ptx.F32) Moments { return MomentsOf(centered, eps, c)[0] }

// MomentsOf computes the statistics of rows of a group: centered for LayerNorm, not centered for
// RMSNorm. If the squares of a row overflow, or are so small that they lose bits, it computes them
// again with another Scale of the row, a power of two.
func MomentsOf(centered bool, eps ptx.F32, rows ...CachedRow) []Moments {
	const (
		down, up = 0x1p-80, 0x1p60
		least    = 0x1p-80 // a smaller sum of squares has lost bits
		mostMean = 0x1p-40 // a larger mean might overflow if scaled up
	)
	b := rows[0].g.b
	var list []Moments
	for range rows {
		m := Moments{Scale: ptx.Var(b.F32(1)), InvStd: ptx.Var(b.F32(0)), Centered: centered}
		m.Mean, m.MeanLow = ptx.Var(b.F32(0)), ptx.Var(b.F32(0))
		list = append(list, m)
	}
	sums := func(add func(sum Sum2, v ptx.F32)) []Sum2 {
		var parts []Sum2
		for i, m := range list {
			parts = append(parts, m.sum(rows[i], add))
		}
		return rows[0].g.Sums(parts)
	}
	again := ptx.Var(b.U32(1))
	b.Comment("first pass: moments; again at another scale if the squares overflow or vanish")
	b.While(func() ptx.Pred { return again.Ne(b.U32(0)) }, func() {
		ptx.Set(again, b.U32(0))
		if centered {
			for _, m := range list {
				ptx.Set(m.Mean, b.F32(0))
				ptx.Set(m.MeanLow, b.F32(0))
			}
			for i, sum := range sums(Sum2.Add) {
				m, n := list[i], rows[i].row.Width.F32()
				mean := sum.high.Div(n)
				ptx.Set(m.MeanLow, mean.Neg().FMA(n, sum.high).Add(sum.low).Div(n)) // the remainder is exact
				ptx.Set(m.Mean, mean)
			}
		}
		for i, sum := range sums(Sum2.AddSquare) {
			m, square := list[i], sum.Value(b)
			floor := eps.Mul(m.Scale).Mul(m.Scale)
			ptx.Set(m.InvStd, square.Div(rows[i].row.Width.F32()).Add(floor).Sqrt().Rcp())
			tooLarge := square.Lt(b.F32(float32(math.Inf(1)))).Not() // or NaN
			tooSmall := square.Lt(b.F32(least)).And(m.Mean.Abs().Lt(b.F32(mostMean)))
			rescale := m.Scale.Eq(b.F32(1)).And(tooLarge.Or(tooSmall))
			ptx.Set(m.Scale, ptx.Select(rescale, ptx.Select(tooLarge, b.F32(down), b.F32(up)), m.Scale))
			ptx.Set(again, ptx.Select(rescale, b.U32(1), again))
		}
	}, ptx.NoUnroll)
	return list
}

// sum returns the thread's part of the sum over the row of what add makes of each deviation from m.Mean.
func (m Moments) sum(c CachedRow, add func(sum Sum2, v ptx.F32)) Sum2 {
	b := c.g.b
	sum := NewSum2(b)
	c.Each(func(i ptx.U32, v Vec4) {
		for j := range v {
			d := m.deviation(v[j])
			if m.Centered { // the elements that fill the last Vec4 must not count
				d = ptx.Select(i.MulN(4).AddN(j).Lt(c.row.Width), d, b.F32(0))
			}
			add(sum, d)
		}
	})
	return sum
}
