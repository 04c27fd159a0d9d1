package ptxgen

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// AttentionCombine ends what AttentionDecode began. For each head of each sequence
//
//	M   = max_i m[i]
//	out = Σ_i exp(m[i] − M)·o[i] / Σ_i exp(m[i] − M)·l[i]
//
// over the visible pages i. Page i is added to sum i mod 16, in order; then these
// sums are added in order. Nothing is written where the length is 0. CTAs share the
// elements of a head, so that many read the pages of a long sequence.
type AttentionCombine struct {
	HeadDim int // a multiple of 8 up to 256
}

const combineSums = 16

// Name implements Spec.
func (s AttentionCombine) Name() string { return fmt.Sprintf("attention_combine_d%d", s.HeadDim) }

// quads is how many elements of a head a CTA has, by four: at most so many that a warp or
// more reads them, and no part is left over.
func (s AttentionCombine) quads() int {
	quads := s.HeadDim / 4
	for quads%2 == 0 && quads > combineQuads {
		quads /= 2
	}
	return quads
}

const combineQuads = 8

func (s AttentionCombine) threads() int { return min(512, ceilDiv(combineSums*s.quads(), 32)*32) }

// Build implements Spec.
func (s AttentionCombine) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	if s.HeadDim < 8 || s.HeadDim > 256 || s.HeadDim%8 != 0 {
		b.Failf("HeadDim: %d is no multiple of 8 up to 256", s.HeadDim)
		return b.Finish()
	}
	b.Doc("out = sum exp(m[i]-M) * o[i] / sum exp(m[i]-M) * l[i], M = max m[i], over the visible\n"+
		"pages i of head ctaid.x of sequence ctaid.y, of %d elements from %d*ctaid.z on; head dim %d", 4*s.quads(), 4*s.quads(), s.HeadDim)
	sums, parts := b.Global("sums", 16), b.Global("parts", 16)
	lengths, out := b.Global("lengths", 4), b.Global("out", 16)
	stride, maxPages := b.ParamU32("out_stride"), b.ParamU32("max_pages")
	pageLog2, window := b.ParamU32("page_log2"), b.ParamU32("window")
	head, sequence := b.BlockX(), b.BlockY()
	b.LaunchDependents()
	length := lengths.At(sequence, 4).LoadU32(ptx.Volatile) // which no kernel writes; not behind the wait
	b.WaitForPrior()
	b.ReturnIf(length.EqN(0))
	row := sequence.Mul(b.GridX()).Add(head).Mul(maxPages)
	c := combining{
		b: b, headDim: s.HeadDim, quads: s.quads(), threads: s.threads(),
		sums: sums.At(row, 8), parts: parts.At(row, 4*s.HeadDim).At(b.BlockZ(), 16*s.quads()),
		first: windowStart(b, length, window).Shr(pageLog2), end: length.AddN(-1).Shr(pageLog2).AddN(1),
		merged: b.Shared("merged", combineSums*16*s.quads(), 16), total: b.Shared("total", 4*combineSums, 16),
	}
	c.addPages()
	b.Barrier()
	c.merge(out.At(sequence.Mul(stride), 4).Aligned(16).At(head, 4*s.HeadDim).At(b.BlockZ(), 16*s.quads()))
	return b.Finish(ptx.MaxThreads(c.threads))
}

// combining is the merge of one head's pages while it is generated.
type combining struct {
	b              *ptx.Builder
	headDim        int
	quads, threads int        // of a CTA
	sums, parts    ptx.Global // of page 0: (m, l), and o
	first, end     ptx.U32    // the visible pages
	merged, total  ptx.Shared // [combineSums][quads], [combineSums]
}

// addPages leaves the 16 sums in shared memory.
func (c *combining) addPages() {
	b := c.b
	b.Comment("M: every warp for itself")
	most := ptx.Var(minusInf(b))
	b.For(c.first.Add(b.Lane()), c.end, b.U32(32), func(i ptx.U32) {
		ptx.Set(most, most.Max(c.sums.At(i, 8).LoadF32()))
	})
	top := ptx.WarpMax(most)
	b.Comment("the pages of one number modulo %d, from the first visible one on", combineSums)
	quads := c.quads
	b.For(b.ThreadX(), b.N(combineSums*quads), b.N(c.threads), func(item ptx.U32) {
		which, quad := item.DivN(quads), item.RemN(quads)
		var sum [5]ptx.F32 // of o, and of l
		for j := range sum {
			sum[j] = ptx.Var(b.F32(0))
		}
		page := ptx.Var(c.first.Add(which.Sub(c.first).AndN(combineSums - 1)))
		const ahead = 4 // pages under way
		b.While(func() ptx.Pred { return page.AddN((ahead - 1) * combineSums).Lt(c.end) },
			func() { c.add(ahead, page, quad, top, sum) }, ptx.NoUnroll)
		b.While(func() ptx.Pred { return page.Lt(c.end) },
			func() { c.add(1, page, quad, top, sum) }, ptx.NoUnroll)
		c.merged.At(item, 16).StoreF32x4([4]ptx.F32(sum[:]))
		b.When(quad.EqN(0), func() { c.total.At(which, 4).StoreF32(sum[4]) })
	})
}

// add adds n pages from page on, combineSums apart, and moves page behind them.
func (c *combining) add(n int, page, quad ptx.U32, top ptx.F32, sum [5]ptx.F32) {
	ml, o := make([][2]ptx.F32, n), make([][4]ptx.F32, n)
	for j := range n {
		at := page.AddN(j * combineSums)
		ml[j], o[j] = c.sums.At(at, 8).LoadF32x2(), c.parts.At(at, 4*c.headDim).At(quad, 16).LoadF32x4()
	}
	for j := range n {
		w := ml[j][0].Sub(top).MulN(math.Log2E).Ex2Approx()
		for e, x := range o[j] {
			ptx.Set(sum[e], w.FMA(x, sum[e]))
		}
		ptx.Set(sum[4], w.FMA(ml[j][1], sum[4]))
	}
	ptx.Set(page, page.AddN(n*combineSums))
}

// merge adds the 16 sums and stores the quotient.
func (c *combining) merge(out ptx.Global) {
	b := c.b
	b.Comment("the %d sums in order, and the quotient", combineSums)
	b.For(b.ThreadX(), b.N(c.quads), b.N(c.threads), func(quad ptx.U32) {
		sum, total := c.merged.At(quad, 16).LoadF32x4(), c.total.LoadF32()
		for i := 1; i < combineSums; i++ {
			x := c.merged.Plus(16*c.quads*i).At(quad, 16).LoadF32x4()
			for j := range sum {
				sum[j] = sum[j].Add(x[j])
			}
			total = total.Add(c.total.Plus(4 * i).LoadF32())
		}
		for j := range sum {
			sum[j] = sum[j].Div(total)
		}
		out.At(quad, 16).StoreF32x4(sum)
	})
}

// AttentionCombineArgs are a launch's arguments.
type AttentionCombineArgs struct {
	Scratch          Address // what AttentionDecode wrote
	Lengths          Address // u32 [Sequences]
	Out              Address // f32 [Sequences] rows of [Heads][HeadDim], OutStride apart
	Sequences, Heads int
	OutStride        int // in elements, a multiple of 4
	MaxPages, Page   int // as AttentionDecode had them; Page 0: 64
	Window           int // the same
}

// Launch makes a launch.
func (s AttentionCombine) Launch(k *ptx.Kernel, a AttentionCombineArgs) (ptx.Launch, error) {
	page := orElse(a.Page, defaultPage)
	if err := firstError(checkBounds(k, bound{"Sequences", a.Sequences, 1, 65535}, bound{"Heads", a.Heads, 1, maxSize},
		bound{"Page", page, 1, maxSize}, bound{"Window", a.Window, 0, maxSize}),
		checkPages(k, max(a.Sequences, 1), a.MaxPages, page),
		checkStride(k, "OutStride", a.OutStride, a.Heads*s.HeadDim, maxSize/max(a.Sequences, 1)),
		checkPointers(k, pointer{"Scratch", a.Scratch}, pointer{"Lengths", a.Lengths}, pointer{"Out", a.Out})); err != nil {
		return ptx.Launch{}, err
	}
	if page&(page-1) != 0 {
		return ptx.Launch{}, argumentError(k, "Page", "%d is no power of two", page)
	}
	return k.Launch([3]uint32{uint32(a.Heads), uint32(a.Sequences), uint32(s.HeadDim / 4 / s.quads())}, s.threads(), 0,
		ptx.Addr(a.Scratch), ptx.Addr(a.Scratch+uint64(scratchSums(a.Sequences, a.Heads, a.MaxPages))),
		ptx.Addr(a.Lengths), ptx.Addr(a.Out), ptx.Uint(a.OutStride), ptx.Uint(a.MaxPages),
		ptx.Uint(bits.TrailingZeros(uint(page))), ptx.Uint(a.Window))
}
