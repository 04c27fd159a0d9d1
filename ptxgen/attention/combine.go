package attention

import (
	"math/bits"
	"strconv"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const (
	combineThreads  = 128
	combineSplits   = 32 // splits whose results are in shared memory at a time, one per lane of a warp
	combineElements = 64 // of a head per CTA: a lane has two
)

// Combine merges the results of Decode for the splits of a sequence, for each head of each sequence. If the length is 0, it writes
// nothing. headDim is as Shape.HeadDim. Several CTAs share the elements of a head.
func Combine(headDim int) kernel.Typed[CombineArgs] {
	s := combineShape{headDim}
	return kernel.New("attention_combine_d"+strconv.Itoa(headDim), s.build, s.launch)
}

type combineShape struct{ headDim int }

type combineParams struct {
	Sums      ptx.Global `align:"16"` // (m, l) of each split
	Parts     ptx.Global `align:"16"` // o of each split
	Lengths   ptx.Global
	Out       ptx.Global `align:"16"`
	OutStride ptx.U32
	MaxSplits ptx.U32
	KeysLog2  ptx.U32 // of the keys per split
}

func (s combineShape) build(b *ptx.Builder) (*ptx.Kernel, error) {
	if err := checkHeadDim(s.headDim); err != nil {
		b.Failf("%v", err)
		return b.Finish()
	}
	b.Doc("out = sum 2^(m[i]-M) * o[i] / sum 2^(m[i]-M) * l[i], M = max m[i], over the visible\n"+
		"splits i of head ctaid.x of sequence ctaid.y, of %d elements from %d*ctaid.z on; head dim %d", combineElements, combineElements, s.headDim)
	var p combineParams
	var scoring scoringParams
	ptx.Declare(b, &p)
	ptx.Declare(b, &scoring)
	head, sequence := b.BlockX(), b.BlockY()
	b.LaunchDependents()
	length := p.Lengths.At(sequence, 4).LoadU32(ptx.Volatile) // no prior kernel may write Lengths; Volatile keeps the compiler from moving the load after the wait
	b.WaitForPrior()
	b.ReturnIf(length.EqN(0))
	row := sequence.Mul(b.GridX()).Add(head).Mul(p.MaxSplits)
	first := b.BlockZ().MulN(combineElements) // element of the CTA
	c := combineGenerator{
		b: b, results: splitResults{p.Sums.At(row, 8), p.Parts.At(row, 4*s.headDim).At(first.ShrN(2), 16)}, headDim: s.headDim,
		elements: b.N(s.headDim).Sub(first).Min(b.N(combineElements)),
		first:    scoring.windowStart(length).Shr(p.KeysLog2), end: length.AddN(-1).Shr(p.KeysLog2).AddN(1),
		factors: b.Shared("split_factors", 16*combineSplits, 16), values: b.Shared("split_parts", 4*combineElements*combineSplits, 16),
		softmax: newSoftmax(b), all: [2]ptx.F32{ptx.Var(b.F32(0)), ptx.Var(b.F32(0))},
	}
	c.addSplits()
	inverse := c.softmax.inverseSum(b, &scoring, head)
	element := b.ThreadX().MulN(2)
	b.When(element.Lt(c.elements), func() {
		out := p.Out.At(sequence.Mul(p.OutStride), 4).Aligned(16).At(head, 4*s.headDim).At(first.Add(element).ShrN(1), 8)
		out.StoreF32x2([2]ptx.F32{quotient(b, c.all[0], inverse), quotient(b, c.all[1], inverse)})
	})
	return b.Finish(ptx.MaxThreads(combineThreads))
}

// combineGenerator is the state of the kernel while it is generated.
type combineGenerator struct {
	b          *ptx.Builder
	results    splitResults // from the CTA's first element on
	headDim    int
	elements   ptx.U32    // of the CTA
	first, end ptx.U32    // the visible splits
	factors    ptx.Shared // [split]: before, now, l, and the largest m so far
	values     ptx.Shared // [split][element]: o
	softmax    softmax
	all        [2]ptx.F32 // weighted values of the lane's elements
}

// addSplits adds the splits. In each round all threads copy the results of some splits to shared memory, and the first warp computes by which
// factors these are added. Then it adds them one after another.
func (c *combineGenerator) addSplits() {
	b := c.b
	b.For(c.first, c.end, b.N(combineSplits), func(first ptx.U32) {
		count := c.end.Sub(first).Min(b.N(combineSplits))
		const chunks = combineElements / 4 // of 16 bytes
		chunk := b.ThreadX().RemN(chunks)
		b.For(b.ThreadX().DivN(chunks), count, b.N(combineThreads/chunks), func(i ptx.U32) {
			b.When(chunk.MulN(4).Lt(c.elements), func() {
				b.CopyAsync(c.values.At(i, 4*combineElements).At(chunk, 16), c.results.values.At(first.Add(i), 4*c.headDim).At(chunk, 16))
			})
		})
		b.CopyCommit()
		b.If(b.Warp().EqN(0), func() { c.computeFactors(first, count) })
		b.CopyWait(0)
		b.Barrier()
		b.If(b.Warp().EqN(0), func() { c.addRound(count) })
		b.If(first.AddN(combineSplits).Lt(c.end), b.Barrier)
	}, ptx.NoUnroll)
}

// computeFactors stores the factors of count splits from the first one on. Each lane has a split.
func (c *combineGenerator) computeFactors(first, count ptx.U32) {
	b, m, l := c.b, ptx.Var(minusInf(c.b)), ptx.Var(c.b.F32(0))
	b.If(b.Lane().Lt(count), func() {
		ml := c.results.sums.At(first.Add(b.Lane()), 8).LoadF32x2()
		ptx.Set(m, ml[0])
		ptx.Set(l, ml[1])
	})
	b.Comment("the largest m of the splits up to this one, and of those before it")
	top := m
	for n := 1; n < 32; n *= 2 {
		top = top.Max(ptx.ShuffleUp(top, n))
	}
	before := ptx.Select(b.Lane().EqN(0), minusInf(b), ptx.ShuffleUp(top, 1)).Max(c.softmax.allTop)
	top = top.Max(c.softmax.allTop)
	was, is := mergeFactors(b, before, m, top)
	c.factors.At(b.Lane(), 16).StoreF32x4([4]ptx.F32{was, is, l, top})
	ptx.Set(c.softmax.allTop, ptx.ShuffleIdx(top, b.U32(31)))
}

// addRound adds count splits.
func (c *combineGenerator) addRound(count ptx.U32) {
	b := c.b
	column := c.values.At(b.Lane().Min(c.elements.ShrN(1).AddN(-1)), 8) // a lane without elements repeats the last ones
	b.For(b.U32(0), count, b.U32(1), func(i ptx.U32) {
		f, o := c.factors.At(i, 16).LoadF32x4(), column.At(i, 4*combineElements).LoadF32x2()
		before, now := f[0], f[1]
		ptx.Set(c.softmax.allSum, now.FMA(f[2], c.softmax.allSum.Mul(before)))
		for j, x := range c.all {
			ptx.Set(x, now.FMA(o[j], x.Mul(before)))
		}
	})
}

// splitResults are the results of Decode for the splits of one head, in scratch memory.
type splitResults struct {
	sums, values ptx.Global // of split 0: (m, l), and o
}

// CombineArgs are the arguments of a launch of Combine.
type CombineArgs struct {
	Scratch          ptx.Address // as Decode wrote it
	Lengths          ptx.Address // u32 [Sequences]
	Out              ptx.Address // f32 [Sequences] rows of [Heads][head dim], OutStride apart
	Sequences, Heads int
	OutStride        int     // in elements, a multiple of 4
	MaxSplits        int     // per sequence in Scratch
	SplitKeys        int     // keys per split, a power of two
	Scoring          Scoring // as in Decode's launch
}

func (s combineShape) launch(k *ptx.Kernel, a CombineArgs) (ptx.Launch, error) {
	checks := []host.Check{
		host.Bound("Sequences", a.Sequences, 1, 65535), host.Bound("Heads", a.Heads, 1, host.MaxSize),
		host.Bound("SplitKeys", a.SplitKeys, 1, host.MaxSize), host.Refuse(a.SplitKeys&(a.SplitKeys-1) != 0, "SplitKeys", "%d is no power of two", a.SplitKeys),
		host.Bound("MaxSplits", a.MaxSplits, 1, host.MaxSize/max(a.SplitKeys, a.Sequences, 1)),
		host.NonNil("Scratch", a.Scratch), host.NonNil("Lengths", a.Lengths), host.NonNil("Out", a.Out),
	}
	checks = append(checks, a.Scoring.checks()...)
	checks = append(checks, checkStride("OutStride", a.OutStride, a.Heads*s.headDim, host.MaxSize/max(a.Sequences, 1))...)
	if err := host.Valid(k, checks...); err != nil {
		return ptx.Launch{}, err
	}
	grid := [3]uint32{uint32(a.Heads), uint32(a.Sequences), uint32(host.CeilDiv(s.headDim, combineElements))}
	return k.Launch(grid, combineThreads, 0, &combineParams{
		Sums: ptx.Addr(a.Scratch), Parts: ptx.Addr(a.Scratch + uint64(scratchSums(int64(a.Sequences*a.Heads*a.MaxSplits)))),
		Lengths: ptx.Addr(a.Lengths), Out: ptx.Addr(a.Out), OutStride: ptx.Uint(a.OutStride), MaxSplits: ptx.Uint(a.MaxSplits),
		KeysLog2: ptx.Uint(bits.TrailingZeros(uint(a.SplitKeys))),
	}, a.Scoring.params())
}
