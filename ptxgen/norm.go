package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Norm normalizes rows of Width numbers, one by one:
//
//	RMSNorm    y = x / sqrt(mean(x^2) + eps) * w + b + residual
//	LayerNorm  y = (x - mean(x)) / sqrt(var(x) + eps) * w + b + residual
//
// Sums are kept to twice the precision of a float32 in an order that the width
// fixes, so what an element is off by comes from a handful of single roundings.
// Rows whose squares a float32 cannot hold, or hardly, are taken at another scale, a
// power of two.
// Its readable twin is norm in package ref.
type Norm struct {
	Layer bool // LayerNorm; else RMSNorm
	// PerWarp gives each warp a row, for many short rows such as the heads of the QK
	// norms; else each CTA has one.
	PerWarp bool
	To      quant.Format // of y: F32, F16 or BF16
}

const normWarps = 4 // of a CTA in which each has a row

func normSpecs() []Spec {
	return []Spec{
		Norm{}, Norm{PerWarp: true}, Norm{To: quant.F16}, Norm{To: quant.BF16},
		Norm{Layer: true}, Norm{Layer: true, To: quant.F16}, Norm{Layer: true, To: quant.BF16},
	}
}

// Name implements Spec.
func (s Norm) Name() string {
	name := "rmsnorm"
	if s.Layer {
		name = "layernorm"
	}
	if s.PerWarp {
		name += "_warp"
	}
	return name + formatSuffix(s.To)
}

// Build implements Spec.
func (s Norm) Build() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias + residual; RMSNorm: mean = 0")
	size := checkFormat(b, s.To)
	x, weight, bias, residual, y := b.Global("x", 4), b.Global("weight", 4), b.Global("bias", 4), b.Global("residual", 4), b.Global("y", size)
	heads, width, rows := b.ParamU32("heads"), b.ParamU32("width"), b.ParamU32("rows")
	xStride, yStride, eps := b.ParamU32("x_stride"), b.ParamU32("y_stride"), b.ParamF32("eps")

	var t team
	index, threads := b.BlockX(), 1024
	if s.PerWarp {
		t, threads = warpTeam(b), 32*normWarps
		index = index.MulN(normWarps).Add(b.Warp())
		b.ReturnIf(index.Ge(rows)) // whole warps: the shuffles below stay full
	} else {
		t = ctaTeam(b)
	}
	token := index.Div(heads)
	head := index.Sub(token.Mul(heads)).Mul(width)
	at := func(format quant.Format, p ptx.Global, stride ptx.U32) row {
		size := format.BlockBytes()
		return rowAt(b, format, p.AtBytes(token.MulWide(stride).Add(head.U64()).Mul(b.U64(uint64(size)))).Aligned(size), width)
	}
	b.Comment("the row, all of a thread's loads before the first is used")
	in := t.keep(at(quant.F32, x, xStride), s.kept())
	m := s.moments(in, eps)
	b.Comment("the second pass: normalize")
	m.normalize(in, at(s.To, y, yStride), rowAt(b, quant.F32, weight, width), []row{
		rowAt(b, quant.F32, bias, width), at(quant.F32, residual, yStride),
	}, []ptx.Pred{given(b, bias), given(b, residual)})
	return b.Finish(ptx.MaxThreads(threads))
}

// kept is how many quads of a row a thread keeps in registers. Sums to twice the
// precision, and more so their tree over the threads, are many instructions: threads
// that have more of the row are fewer.
func (s Norm) kept() int {
	if s.PerWarp {
		return 2
	}
	return 4
}

// threads is how many threads of a CTA take a row of so many elements.
func (s Norm) threads(width int) int { return rowThreads(ceilDiv(width, s.kept())) }

// keptRow is a row of which every thread of a team has its first quads in registers.
type keptRow struct {
	row
	t     team
	first []quad
}

// keep loads the first n quads of each thread.
func (t team) keep(r row, n int) keptRow {
	k := keptRow{row: r, t: t}
	for q := range n {
		k.first = append(k.first, r.load(k.quad(q), 0))
	}
	return k
}

// quad is the number in the row of the thread's quad q.
func (k keptRow) quad(q int) ptx.U32 {
	if q == 0 {
		return k.t.rank()
	}
	return k.t.rank().Add(k.t.size().MulN(q))
}

// each calls do for the thread's quads, in order. What is not in registers is loaded
// again.
func (k keptRow) each(do func(i ptx.U32, v quad)) {
	b := k.t.b
	for q, v := range k.first {
		i := k.quad(q)
		b.If(i.Lt(k.quads()), func() { do(i, v) })
	}
	b.For(k.quad(len(k.first)), k.quads(), k.t.size(), func(i ptx.U32) { do(i, k.load(i, 0)) }, ptx.NoUnroll)
}

// normalize writes the row, adding of the rows more those that are present.
func (m moments) normalize(in keptRow, out, weight row, more []row, present []ptx.Pred) {
	b := in.t.b
	in.each(func(i ptx.U32, v quad) {
		gain := weight.load(i, 0)
		for j := range v {
			v[j] = ptx.Var(m.normal(v[j]).Mul(gain[j]))
		}
		for r, add := range more {
			b.If(present[r], func() {
				for j, c := range add.load(i, 0) {
					ptx.Set(v[j], v[j].Add(c))
				}
			})
		}
		out.store(i, v)
	})
}

// moments are what a row is normalized by: ((x*scale - mean) - rest) * inverse.
type moments struct {
	scale, inverse ptx.F32
	mean, rest     ptx.F32 // of LayerNorm; mean + rest is the mean of x*scale, beyond the digits of one float32
	layer          bool
}

// deviation is x*scale less the mean.
func (m moments) deviation(x ptx.F32) ptx.F32 {
	x = x.Mul(m.scale)
	if m.layer {
		x = x.Sub(m.mean).Sub(m.rest)
	}
	return x
}

func (m moments) normal(x ptx.F32) ptx.F32 { return m.deviation(x).Mul(m.inverse) }

// statistics takes the moments of a row of which nothing is kept in registers.
func (s Norm) statistics(t team, in row, eps ptx.F32) moments { return s.moments(t.keep(in, 0), eps) }

// moments takes the row's moments, again at another scale where squares overflow or
// nearly vanish.
func (s Norm) moments(in keptRow, eps ptx.F32) moments {
	const (
		down, up  = 0x1p-80, 0x1p60
		least     = 0x1p-80 // a sum of squares below it has lost digits
		leastMean = 0x1p-40 // a mean from it on might not bear the factor up
	)
	b := in.t.b
	m := moments{scale: ptx.Var(b.F32(1)), inverse: ptx.Var(b.F32(0)), layer: s.Layer}
	m.mean, m.rest = ptx.Var(b.F32(0)), ptx.Var(b.F32(0))
	n, again := in.width.F32(), ptx.Var(b.U32(1))
	b.Comment("the first pass: moments; a second try at another scale if need be")
	b.While(func() ptx.Pred { return again.Ne(b.U32(0)) }, func() {
		if s.Layer {
			ptx.Set(m.mean, b.F32(0))
			ptx.Set(m.rest, b.F32(0))
			sum := m.sum(in, total.add)
			mean := sum.high.Div(n)
			ptx.Set(m.rest, mean.Neg().FMA(n, sum.high).Add(sum.low).Div(n)) // the remainder is exact
			ptx.Set(m.mean, mean)
		}
		square := m.sum(in, total.addSquare).value(b)
		floor := eps.Mul(m.scale).Mul(m.scale)
		ptx.Set(m.inverse, square.Div(n).Add(floor).Sqrt().Rcp())
		tooLarge := square.Lt(b.F32(float32(math.Inf(1)))).Not() // or NaN
		tooSmall := square.Lt(b.F32(least)).And(m.mean.Abs().Lt(b.F32(leastMean)))
		first := m.scale.Eq(b.F32(1))
		ptx.Set(again, ptx.Select(first.And(tooLarge.Or(tooSmall)), b.U32(1), b.U32(0)))
		ptx.Set(m.scale, ptx.Select(again.Ne(b.U32(0)), ptx.Select(tooLarge, b.F32(down), b.F32(up)), m.scale))
	}, ptx.NoUnroll)
	return m
}

// sum adds up the row's scaled deviations from the mean so far, by add.
func (m moments) sum(in keptRow, add func(sum total, v ptx.F32)) total {
	b := in.t.b
	sum := zeroTotal(b)
	in.each(func(i ptx.U32, v quad) {
		for j := range v {
			d := m.deviation(v[j])
			if m.layer { // what fills the last quad has none
				d = ptx.Select(i.MulN(4).AddN(j).Lt(in.width), d, b.F32(0))
			}
			add(sum, d)
		}
	})
	return in.t.sum(sum)
}

// NormArgs are a launch's arguments. A row is one of Heads neighbors within a
// token: row h of token t begins at element t*stride + h*Width.
type NormArgs struct {
	X        Address // f32
	Weight   Address // f32 [Width]
	Bias     Address // f32 [Width], or 0
	Residual Address // f32, laid out as Y, or 0: added last
	Y        Address // To, may be X
	Tokens   int
	Heads    int // rows of a token; 0 means 1
	Width    int
	XStride  int // elements between tokens; 0 means Heads * Width
	YStride  int
	Eps      float32
}

// Launch makes a launch.
func (s Norm) Launch(k *ptx.Kernel, a NormArgs) (ptx.Launch, error) {
	a.Heads = orElse(a.Heads, 1)
	row := a.Heads * a.Width
	a.XStride, a.YStride = orElse(a.XStride, row), orElse(a.YStride, row)
	if err := checkBounds(k, bound{"Heads", a.Heads, 1, maxSize}, bound{"Tokens", a.Tokens, 1, maxSize / a.Heads}, bound{"Width", a.Width, 1, maxSize},
		bound{"XStride", a.XStride, row, maxSize}, bound{"YStride", a.YStride, row, maxSize}); err != nil {
		return ptx.Launch{}, err
	}
	if err := firstError(checkNumbers(k, number{"Eps", a.Eps}),
		checkPointers(k, pointer{"X", a.X}, pointer{"Weight", a.Weight}, pointer{"Y", a.Y})); err != nil {
		return ptx.Launch{}, err
	}
	rows := a.Tokens * a.Heads
	grid, threads := rows, s.threads(a.Width)
	if s.PerWarp {
		grid, threads = ceilDiv(rows, normWarps), 32*normWarps
	}
	return k.Launch([3]uint32{uint32(grid), 1, 1}, threads, 0,
		ptx.Addr(a.X), ptx.Addr(a.Weight), ptx.Addr(a.Bias), ptx.Addr(a.Residual), ptx.Addr(a.Y),
		ptx.Uint(a.Heads), ptx.Uint(a.Width), ptx.Uint(rows), ptx.Uint(a.XStride), ptx.Uint(a.YStride), ptx.Float(a.Eps))
}
