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
	combineBlock    = 8  // pages per block
	combineWarps    = 16 // maximum of a CTA: each adds the pages of a block
	combineElements = 64 // of a head per CTA: a lane has two
)

// Combine merges the results of Decode for the pages of a sequence. For each head of each sequence it computes
//
//	M   = max_i m[i]
//	out = Σ_i exp(m[i] − M)·o[i] / (Σ_i exp(m[i] − M)·l[i] + exp(sink − M))
//
// over the visible pages i; without sinks, the last term is 0. Order of additions: the pages of each block of eight, counted from page 0, one
// after another; then the blocks one after another; then the sink. Both sums are relative to the largest m so far. If the length is 0, it writes
// nothing. headDim is as Shape.HeadDim. Several CTAs share the elements of a head.
func Combine(headDim int) kernel.Typed[CombineArgs] {
	s := combineShape{headDim}
	return kernel.New("attention_combine_d"+strconv.Itoa(headDim), s.build, s.launch)
}

type combineShape struct{ headDim int }

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
		"pages i of head ctaid.x of sequence ctaid.y, of %d elements from %d*ctaid.z on; head dim %d", combineElements, combineElements, s.headDim)
	var p combineParams
	ptx.Declare(b, &p)
	head, sequence := b.BlockX(), b.BlockY()
	b.LaunchDependents()
	length := p.Lengths.At(sequence, 4).LoadU32(ptx.Volatile) // no prior kernel may write Lengths; Volatile keeps the compiler from moving the load after the wait
	b.WaitForPrior()
	b.ReturnIf(length.EqN(0))
	row := sequence.Mul(b.GridX()).Add(head).Mul(p.MaxPages)
	element := b.BlockZ().MulN(combineElements).Add(b.Lane().MulN(2)) // of the lane
	exists := element.LtN(s.headDim)
	element = element.Min(b.N(s.headDim - 2))
	c := combineGenerator{
		shape: s, b: b, pages: pageResults{p.Sums.At(row, 8), p.Parts.At(row, 4*s.headDim).At(element.ShrN(1), 8)},
		first: windowStart(length, p.Window, p.ChunkMask).Shr(p.PageLog2), end: length.AddN(-1).Shr(p.PageLog2).AddN(1),
		sums: b.Shared("block_sums", 8*combineWarps, 8), parts: b.Shared("block_parts", 4*combineElements*combineWarps, 8),
		total: newRunningSum(b, 2),
	}
	c.addBlocks()
	out := p.Out.At(sequence.Mul(p.OutStride), 4).Aligned(16).At(head, 4*s.headDim).At(element.ShrN(1), 8)
	quotient := [2]ptx.F32(c.total.quotient(b, headSink{p.Sinks, head}))
	b.When(exists.And(b.Warp().EqN(0)), func() { out.StoreF32x2(quotient) })
	return b.Finish(ptx.MaxThreads(32 * combineWarps))
}

// combineGenerator is the state of the kernel while it is generated.
type combineGenerator struct {
	shape       combineShape
	b           *ptx.Builder
	pages       pageResults // of the lane's elements
	first, end  ptx.U32     // the visible pages
	sums, parts ptx.Shared  // of a block per warp: (m, l), and o
	total       runningSum  // of the lane's elements, in the first warp
}

// addBlocks adds the blocks. In each round, every warp sums one block of pages; then the first warp adds these sums in order.
func (c *combineGenerator) addBlocks() {
	b, warps := c.b, c.b.ThreadsX().ShrN(5)
	begin, end := c.first.DivN(combineBlock), c.end.CeilDivN(combineBlock)
	b.For(begin, end, warps, func(first ptx.U32) {
		count := end.Sub(first).Min(warps)
		b.If(b.Warp().Lt(count), func() { c.addPages(first.Add(b.Warp())) })
		b.Barrier()
		b.If(b.Warp().EqN(0), func() {
			b.For(b.U32(0), count, b.U32(1), func(i ptx.U32) {
				ml, o := c.sums.At(i, 8).LoadF32x2(), c.parts.At(i, 4*combineElements).At(b.Lane(), 8).LoadF32x2()
				c.total.add(b, ml[0], ml[1], o[:])
			})
		})
		b.If(first.Add(warps).Lt(end), b.Barrier)
	}, ptx.NoUnroll)
}

// addPages stores the sums of the pages of a block in shared memory.
func (c *combineGenerator) addPages(block ptx.U32) {
	b := c.b
	var results [combineBlock][4]ptx.F32 // m, l and two elements
	var visible [combineBlock]ptx.Pred
	for i := range results {
		page := block.MulN(combineBlock).AddN(i)
		visible[i] = page.Ge(c.first).And(page.Lt(c.end))
		results[i] = zeros(b, 1)[0]
		b.If(visible[i], func() {
			ml, o := c.pages.sums.At(page, 8).LoadF32x2(), c.pages.parts.At(page, 4*c.shape.headDim).LoadF32x2()
			for j, x := range []ptx.F32{ml[0], ml[1], o[0], o[1]} {
				ptx.Set(results[i][j], x)
			}
		})
	}
	sum := newRunningSum(b, 2)
	for i, r := range results {
		b.If(visible[i], func() { sum.add(b, r[0], r[1], r[2:]) })
	}
	c.parts.At(b.Warp(), 4*combineElements).At(b.Lane(), 8).StoreF32x2([2]ptx.F32(sum.o))
	b.When(b.Lane().EqN(0), func() { c.sums.At(b.Warp(), 8).StoreF32x2([2]ptx.F32{sum.top, sum.l}) })
}

// pageResults are the results of Decode for the pages of one head, in scratch memory.
type pageResults struct {
	sums, parts ptx.Global // of page 0: (m, l), and o
}

// runningSum holds variables with sums over pages, relative to the largest m so far: of exp(m[i] − M)·o[i], some elements, and of
// exp(m[i] − M)·l[i].
type runningSum struct {
	top, l ptx.F32
	o      []ptx.F32
}

func newRunningSum(b *ptx.Builder, elements int) runningSum {
	s := runningSum{top: ptx.Var(minusInf(b)), l: ptx.Var(b.F32(0))}
	for range elements {
		s.o = append(s.o, ptx.Var(b.F32(0)))
	}
	return s
}

// reset sets the sums to those of no pages.
func (s runningSum) reset(b *ptx.Builder) {
	ptx.Set(s.top, minusInf(b))
	ptx.Set(s.l, b.F32(0))
	for _, x := range s.o {
		ptx.Set(x, b.F32(0))
	}
}

// add adds the results of a page, or sums of pages.
func (s runningSum) add(b *ptx.Builder, m, l ptx.F32, o []ptx.F32) {
	top := s.top.Max(m)
	base := finiteMax(b, top)
	weight := func(m ptx.F32) ptx.F32 { return m.Sub(base).MulN(math.Log2E).Ex2Approx() }
	before, now := weight(s.top), weight(m)
	for i, x := range o {
		ptx.Set(s.o[i], now.FMA(x, s.o[i].Mul(before)))
	}
	ptx.Set(s.l, now.FMA(l, s.l.Mul(before)))
	ptx.Set(s.top, top)
}

// quotient returns the output.
func (s runningSum) quotient(b *ptx.Builder, sink headSink) (out []ptx.F32) {
	l := addSink(b, s.l, sink.sinks, sink.head, func(x ptx.F32) ptx.F32 { return x.Sub(s.top).MulN(math.Log2E).Ex2Approx() })
	for _, x := range s.o {
		out = append(out, x.Div(l))
	}
	return out
}

// headSink is the sink of a head, if sinks is not 0: see Scoring.
type headSink struct {
	sinks ptx.Global
	head  ptx.U32
}

// CombineArgs are the arguments of a launch of Combine.
type CombineArgs struct {
	Scratch          ptx.Address // as Decode wrote it
	Lengths          ptx.Address // u32 [Sequences]
	Out              ptx.Address // f32 [Sequences] rows of [Heads][head dim], OutStride apart
	Sequences, Heads int
	OutStride        int     // in elements, a multiple of 4
	MaxPages, Page   int     // as in Decode's launch; Page 0: PageTokens
	Pages            int     // estimate of the longest sequence's pages, which decides only the number of threads; 0: MaxPages
	Scoring          Scoring // as in Decode's launch
}

func (s combineShape) launch(k *ptx.Kernel, a CombineArgs) (ptx.Launch, error) {
	page := cmp.Or(a.Page, PageTokens)
	checks := []host.Check{
		host.Bound("Sequences", a.Sequences, 1, 65535), host.Bound("Heads", a.Heads, 1, host.MaxSize),
		host.Bound("Pages", a.Pages, 0, a.MaxPages), host.Bound("Page", page, 1, host.MaxSize), host.Refuse(page&(page-1) != 0, "Page", "%d is no power of two", page),
		checkPages(a.Sequences, a.MaxPages, page),
		host.NonNil("Scratch", a.Scratch), host.NonNil("Lengths", a.Lengths), host.NonNil("Out", a.Out),
	}
	checks = append(checks, a.Scoring.checks()...)
	checks = append(checks, checkStride("OutStride", a.OutStride, a.Heads*s.headDim, host.MaxSize/max(a.Sequences, 1))...)
	if err := host.Valid(k, checks...); err != nil {
		return ptx.Launch{}, err
	}
	window, chunkMask := a.Scoring.span()
	warps := min(combineWarps, host.CeilDiv(min(cmp.Or(a.Pages, a.MaxPages), a.Scoring.pages(page)), combineBlock)+1)
	grid := [3]uint32{uint32(a.Heads), uint32(a.Sequences), uint32(host.CeilDiv(s.headDim, combineElements))}
	return k.Launch(grid, 32*warps, 0, &combineParams{
		Sums: ptx.Addr(a.Scratch), Parts: ptx.Addr(a.Scratch + uint64(scratchSums(a.Sequences, a.Heads, a.MaxPages))),
		Lengths: ptx.Addr(a.Lengths), Sinks: ptx.Addr(a.Scoring.Sinks), Out: ptx.Addr(a.Out), OutStride: ptx.Uint(a.OutStride), MaxPages: ptx.Uint(a.MaxPages),
		PageLog2: ptx.Uint(bits.TrailingZeros(uint(page))), Window: window, ChunkMask: chunkMask,
	})
}
