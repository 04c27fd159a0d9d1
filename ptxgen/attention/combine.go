package attention

import (
	"cmp"
	"math"
	"math/bits"
	"strconv"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const (
	combineSums  = 16 // partial sums, each over every 16th page
	combineVec4s = 8  // maximum Vec4s of a head per CTA
)

// Combine merges the results of Decode for the pages of a sequence. For each head of each sequence it computes
//
//	M   = max_i m[i]
//	out = Σ_i exp(m[i] − M)·o[i] / (Σ_i exp(m[i] − M)·l[i] + exp(sink − M))
//
// over the visible pages i; without sinks, the last term is 0. Order of additions: page i is added to partial sum
// i mod 16, in rising order; then the 16 sums are added to 0 in order, then the sink. If the length is 0, it writes nothing.
// headDim is as Shape.HeadDim. Several CTAs share the elements of a head, so that
// many threads read the pages of a long sequence.
func Combine(headDim int) kernel.Typed[CombineArgs] {
	s := combineShape{headDim: headDim, vec4s: headDim / 4}
	for s.vec4s%2 == 0 && s.vec4s > combineVec4s {
		s.vec4s /= 2
	}
	s.threads = min(512, host.CeilDiv(combineSums*s.vec4s, 32)*32)
	return kernel.New("attention_combine_d"+strconv.Itoa(headDim), s.build, s.launch)
}

// combineShape says how the elements of a head are divided among CTAs and threads.
type combineShape struct {
	headDim int
	vec4s   int // of a head, per CTA
	threads int // per CTA
}

type combineParams struct {
	Sums              ptx.Global `align:"16"` // (m, l) of each page
	Parts             ptx.Global `align:"16"` // o of each page
	Lengths, Sinks    ptx.Global
	Out               ptx.Global `align:"16"`
	OutStride         ptx.U32
	MaxPages          ptx.U32
	PageLog2          ptx.U32
	Window, ChunkMask ptx.U32 // see Scoring.span
}

func (s combineShape) build(b *ptx.Builder) (*ptx.Kernel, error) {
	if err := checkHeadDim(s.headDim); err != nil {
		b.Failf("%v", err)
		return b.Finish()
	}
	b.Doc("out = sum exp(m[i]-M) * o[i] / sum exp(m[i]-M) * l[i], M = max m[i], over the visible\n"+
		"pages i of head ctaid.x of sequence ctaid.y, of %d elements from %d*ctaid.z on; head dim %d", 4*s.vec4s, 4*s.vec4s, s.headDim)
	var p combineParams
	ptx.Declare(b, &p)
	head, sequence := b.BlockX(), b.BlockY()
	b.LaunchDependents()
	length := p.Lengths.At(sequence, 4).LoadU32(ptx.Volatile) // no kernel writes Lengths; Volatile keeps the compiler from moving the load after the wait
	b.WaitForPrior()
	b.ReturnIf(length.EqN(0))
	row := sequence.Mul(b.GridX()).Add(head).Mul(p.MaxPages)
	c := combineGenerator{
		shape: s, b: b, sink: headSink{p.Sinks, head},
		pages: pageResults{p.Sums.At(row, 8), p.Parts.At(row, 4*s.headDim).At(b.BlockZ(), 16*s.vec4s), s.headDim},
		first: windowStart(length, p.Window, p.ChunkMask).Shr(p.PageLog2), end: length.AddN(-1).Shr(p.PageLog2).AddN(1),
		merged: b.Shared("merged", combineSums*16*s.vec4s, 16), total: b.Shared("total", 4*combineSums, 16),
	}
	c.addPages()
	b.Barrier()
	c.merge(p.Out.At(sequence.Mul(p.OutStride), 4).Aligned(16).At(head, 4*s.headDim).At(b.BlockZ(), 16*s.vec4s))
	return b.Finish(ptx.MaxThreads(s.threads))
}

// combineGenerator is the state of the kernel while it is generated.
type combineGenerator struct {
	shape         combineShape
	b             *ptx.Builder
	pages         pageResults
	first, end    ptx.U32 // the visible pages
	top           ptx.F32 // M
	sink          headSink
	merged, total ptx.Shared // [combineSums][vec4s] of o, [combineSums] of l
}

// addPages adds the pages to the partial sums and stores these in shared memory.
func (c *combineGenerator) addPages() {
	b := c.b
	b.Comment("M: every warp for itself")
	m := ptx.Var(minusInf(b))
	b.For(c.first.Add(b.Lane()), c.end, b.U32(32), func(i ptx.U32) {
		ptx.Set(m, m.Max(c.pages.sums.At(i, 8).LoadF32()))
	})
	c.top = ptx.WarpMax(m)
	b.Comment("partial sum i mod %d of page i, from the first visible page on", combineSums)
	b.For(b.ThreadX(), b.N(combineSums*c.shape.vec4s), b.N(c.shape.threads), func(item ptx.U32) {
		which, vec := item.DivN(c.shape.vec4s), item.RemN(c.shape.vec4s)
		sum := newPageSum(b)
		page := ptx.Var(c.first.Add(which.Sub(c.first).AndN(combineSums - 1)))
		const inFlight = 4 // pages
		b.While(func() ptx.Pred { return page.AddN((inFlight - 1) * combineSums).Lt(c.end) },
			func() { c.add(inFlight, page, vec, sum) }, ptx.NoUnroll)
		b.While(func() ptx.Pred { return page.Lt(c.end) },
			func() { c.add(1, page, vec, sum) }, ptx.NoUnroll)
		c.merged.At(item, 16).StoreF32x4(sum.o)
		b.When(vec.EqN(0), func() { c.total.At(which, 4).StoreF32(sum.l) })
	})
}

// add adds n pages from page on, combineSums apart, and advances page beyond them.
func (c *combineGenerator) add(n int, page, vec ptx.U32, sum pageSum) {
	pages, results := c.pages.from(page, vec), make([]pageResult, n)
	for j := range results {
		results[j] = pages.load(j * combineSums)
	}
	for _, r := range results {
		sum.add(r, c.top)
	}
	ptx.Set(page, page.AddN(n*combineSums))
}

// merge adds the partial sums and stores the quotient.
func (c *combineGenerator) merge(out ptx.Global) {
	b := c.b
	b.Comment("the %d sums in order, and the quotient", combineSums)
	b.For(b.ThreadX(), b.N(c.shape.vec4s), b.N(c.shape.threads), func(vec ptx.U32) {
		all := newPageSum(b)
		for i := range combineSums {
			all.merge(pageSum{c.merged.Plus(16*c.shape.vec4s*i).At(vec, 16).LoadF32x4(), c.total.Plus(4 * i).LoadF32()})
		}
		out.At(vec, 16).StoreF32x4(all.quotient(b, c.top, c.sink))
	})
}

// pageResults are the results of Decode for the pages of one head, in scratch memory.
type pageResults struct {
	sums, parts ptx.Global // of page 0: (m, l), and o
	headDim     int
}

// pageResult is the result of Decode for one page: four elements of o.
type pageResult struct {
	m, l ptx.F32
	o    [4]ptx.F32
}

// from returns the results from a page and from element 4·vec of o on.
func (p pageResults) from(page, vec ptx.U32) pageResults {
	return pageResults{p.sums.At(page, 8), p.parts.At(page, 4*p.headDim).At(vec, 16), p.headDim}
}

// load loads the result of a page, the first four elements of o.
func (p pageResults) load(page int) pageResult {
	ml := p.sums.Plus(8 * page).LoadF32x2()
	return pageResult{ml[0], ml[1], p.parts.Plus(4 * p.headDim * page).LoadF32x4()}
}

// pageSum holds variables with sums over pages i: of exp(m[i] − M)·o[i], four elements, and of
// exp(m[i] − M)·l[i].
type pageSum struct {
	o [4]ptx.F32
	l ptx.F32
}

func newPageSum(b *ptx.Builder) (s pageSum) {
	for e := range s.o {
		s.o[e] = ptx.Var(b.F32(0))
	}
	s.l = ptx.Var(b.F32(0))
	return s
}

// add adds the result of a page. top is M.
func (s pageSum) add(r pageResult, top ptx.F32) {
	w := r.m.Sub(top).MulN(math.Log2E).Ex2Approx()
	for e, x := range r.o {
		ptx.Set(s.o[e], w.FMA(x, s.o[e]))
	}
	ptx.Set(s.l, w.FMA(r.l, s.l))
}

// merge adds another sum.
func (s pageSum) merge(other pageSum) {
	for e, x := range other.o {
		ptx.Set(s.o[e], s.o[e].Add(x))
	}
	ptx.Set(s.l, s.l.Add(other.l))
}

// headSink is the sink of a head, if sinks is not 0: see Scoring.
type headSink struct {
	sinks ptx.Global
	head  ptx.U32
}

// quotient returns the output. top is M.
func (s pageSum) quotient(b *ptx.Builder, top ptx.F32, sink headSink) (out [4]ptx.F32) {
	l := addSink(b, s.l, sink.sinks, sink.head, func(x ptx.F32) ptx.F32 { return x.Sub(top).MulN(math.Log2E).Ex2Approx() })
	for e, x := range s.o {
		out[e] = x.Div(l)
	}
	return out
}

// combineInOrder returns what Combine stores, computed by one thread: four elements of a head
// from pages first to end−1. It adds a page to each of atOnce partial sums at a time.
func combineInOrder(b *ptx.Builder, pages pageResults, first, end, vec ptx.U32, top ptx.F32, sink headSink) [4]ptx.F32 {
	const atOnce = 4
	all := newPageSum(b)
	b.For(b.U32(0), b.U32(combineSums), b.U32(atOnce), func(which ptx.U32) {
		var sums [atOnce]pageSum
		for j := range sums {
			sums[j] = newPageSum(b)
		}
		b.For(first.DivN(combineSums).MulN(combineSums).Add(which), end, b.U32(combineSums), func(page ptx.U32) {
			var visible [atOnce]ptx.Pred
			var results [atOnce]pageResult
			pages := pages.from(page, vec)
			for j := range results {
				visible[j] = page.AddN(j).Ge(first).And(page.AddN(j).Lt(end))
				b.When(visible[j], func() { results[j] = pages.load(j) })
			}
			for j, r := range results {
				b.When(visible[j], func() { sums[j].add(r, top) })
			}
		}, ptx.NoUnroll)
		for _, s := range sums {
			all.merge(s)
		}
	}, ptx.NoUnroll)
	return all.quotient(b, top, sink)
}

// CombineArgs are the arguments of a launch of Combine.
type CombineArgs struct {
	Scratch          ptx.Address // as Decode wrote it
	Lengths          ptx.Address // u32 [Sequences]
	Out              ptx.Address // f32 [Sequences] rows of [Heads][head dim], OutStride apart
	Sequences, Heads int
	OutStride        int     // in elements, a multiple of 4
	MaxPages, Page   int     // as in Decode's launch; Page 0: PageTokens
	Scoring          Scoring // as in Decode's launch
}

func (s combineShape) launch(k *ptx.Kernel, a CombineArgs) (ptx.Launch, error) {
	page := cmp.Or(a.Page, PageTokens)
	checks := []host.Check{
		host.Bound("Sequences", a.Sequences, 1, 65535), host.Bound("Heads", a.Heads, 1, host.MaxSize),
		host.Bound("Page", page, 1, host.MaxSize), host.Refuse(page&(page-1) != 0, "Page", "%d is no power of two", page),
		checkPages(a.Sequences, a.MaxPages, page),
		host.NonNil("Scratch", a.Scratch), host.NonNil("Lengths", a.Lengths), host.NonNil("Out", a.Out),
	}
	checks = append(checks, a.Scoring.checks()...)
	checks = append(checks, checkStride("OutStride", a.OutStride, a.Heads*s.headDim, host.MaxSize/max(a.Sequences, 1))...)
	if err := host.Valid(k, checks...); err != nil {
		return ptx.Launch{}, err
	}
	window, chunkMask := a.Scoring.span()
	return k.Launch([3]uint32{uint32(a.Heads), uint32(a.Sequences), uint32(s.headDim / 4 / s.vec4s)}, s.threads, 0, &combineParams{
		Sums: ptx.Addr(a.Scratch), Parts: ptx.Addr(a.Scratch + uint64(scratchSums(a.Sequences, a.Heads, a.MaxPages))),
		Lengths: ptx.Addr(a.Lengths), Sinks: ptx.Addr(a.Scoring.Sinks), Out: ptx.Addr(a.Out), OutStride: ptx.Uint(a.OutStride), MaxPages: ptx.Uint(a.MaxPages),
		PageLog2: ptx.Uint(bits.TrailingZeros(uint(page))), Window: window, ChunkMask: chunkMask,
	})
}
