package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Argmax finds the index of the largest of a row of logits, the lowest on a tie. NaN
// never wins, nor does -Inf: where there is nothing else the result is NoIndex, as
// model.Argmax gives -1.
//
// It takes two launches. The first gives the best of each slice of a row as a pair of
// ordered value and index; the second, with Merge, the best of the pairs. Both choose
// the largest pair by integers, so that no order of evaluation matters.
type Argmax struct{ Merge bool }

// NoIndex is the index of nothing.
const NoIndex = math.MaxUint32

const (
	argmaxThreads = 256
	argmaxSlice   = 4 * argmaxThreads * 2 // logits of a CTA
)

func argmaxSpecs() []Spec { return []Spec{Argmax{}, Argmax{Merge: true}} }

// Name implements Spec.
func (s Argmax) Name() string {
	if s.Merge {
		return "argmax_merge"
	}
	return "argmax_slice"
}

// best is the first in order so far: the ordered bits of a value, and its index.
type best struct{ value, index ptx.U32 }

// ordered maps a float32 to an integer of the same order, in which -0 and 0 are one.
// NaN has no place in it.
func ordered(b *ptx.Builder, x ptx.F32) ptx.U32 {
	bits := x.Add(b.F32(0)).Bits()
	return bits.Xor(bits.S32().ShrN(31).U32().Or(b.U32(1 << 31)))
}

// overWarp is the first in order of the 32 lanes.
func (x best) overWarp(b *ptx.Builder) best {
	top := x.value.WarpReduce("max")
	return best{top, ptx.Select(x.value.Eq(top), x.index, b.U32(NoIndex)).WarpReduce("min")}
}

// overCTA is the first in order of all threads.
func (x best) overCTA(b *ptx.Builder) best {
	slots, lane := b.Shared("team_best", 8*32, 8), b.Lane()
	x = x.overWarp(b)
	b.If(lane.EqN(0), func() { slots.At(b.Warp(), 8).StoreU32x2([2]ptx.U32{x.value, x.index}) })
	b.Barrier()
	y := best{ptx.Var(b.U32(0)), ptx.Var(b.U32(NoIndex))}
	b.If(lane.Lt(b.ThreadsX().ShrN(5)), func() {
		pair := slots.At(lane, 8).LoadU32x2()
		ptx.Set(y.value, pair[0])
		ptx.Set(y.index, pair[1])
	})
	return y.overWarp(b)
}

// Build implements Spec.
func (s Argmax) Build() (*ptx.Kernel, error) {
	if s.Merge {
		return s.merge()
	}
	b := begin(s)
	b.Doc("best[row][slice] = the largest logit of the slice, as ordered bits, and its lowest index")
	logits, out := b.Global("logits", 4), b.Global("best", 8)
	vocab, stride := b.ParamU32("vocab"), b.ParamU32("stride")
	slice, r := b.BlockX(), b.BlockY()
	in := rowAt(b, quant.F32, logits.AtBytes(r.MulWide(stride).ShlN(2)).Aligned(4), vocab)
	value, index := ptx.Var(b.F32(float32(math.Inf(-1)))), ptx.Var(b.U32(NoIndex))
	first := slice.MulN(argmaxSlice / 4)
	b.For(first.Add(b.ThreadX()), first.AddN(argmaxSlice/4), b.U32(argmaxThreads), func(i ptx.U32) {
		for j, x := range in.load(i, float32(math.Inf(-1))) {
			better := x.Gt(value) // false for NaN, and for a later equal
			ptx.Set(value, ptx.Select(better, x, value))
			ptx.Set(index, ptx.Select(better, i.MulN(4).AddN(j), index))
		}
	})
	won := best{ordered(b, value), index}.overCTA(b)
	b.If(b.ThreadX().EqN(0), func() {
		out.At(r.Mul(b.GridX()).Add(slice), 8).StoreU32x2([2]ptx.U32{won.value, won.index})
	})
	return b.Finish(ptx.MaxThreads(argmaxThreads))
}

func (s Argmax) merge() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("token[row][lengths[row] mod 2] = the index of the largest of best[row][0 .. slices-1], the lowest on a tie")
	in, token, next, slices := b.Global("best", 8), b.Global("token", 4), b.Global("next", 4), b.ParamU32("slices")
	positions, lengths := b.Global("positions", 4), b.Global("lengths", 4)
	r := b.BlockX()
	mine := best{ptx.Var(b.U32(0)), ptx.Var(b.U32(NoIndex))}
	b.For(b.ThreadX(), slices, b.U32(argmaxThreads), func(i ptx.U32) {
		pair := in.AtBytes(r.MulWide(slices).Add(i.U64()).ShlN(3)).Aligned(8).LoadU32x2()
		better := pair[0].Gt(mine.value) // slices come in the order of their indices
		ptx.Set(mine.value, ptx.Select(better, pair[0], mine.value))
		ptx.Set(mine.index, ptx.Select(better, pair[1], mine.index))
	}, ptx.NoUnroll)
	won := mine.overCTA(b)
	b.If(b.ThreadX().EqN(0), func() {
		length := ptx.Var(b.U32(0))
		b.If(given(b, lengths), func() { ptx.Set(length, lengths.At(r, 4).LoadU32()) })
		token.At(r.ShlN(1).Or(length.AndN(1)), 4).StoreU32(won.index)
		b.If(given(b, next).And(won.index.Ne(b.U32(NoIndex))), func() { next.At(r, 4).StoreU32(won.index) })
		b.If(length.Ne(b.U32(0)), func() {
			positions.At(r, 4).StoreU32(length)
			lengths.At(r, 4).StoreU32(length.AddN(1))
		})
	})
	return b.Finish(ptx.MaxThreads(argmaxThreads))
}

// ArgmaxArgs are the arguments of both launches.
type ArgmaxArgs struct {
	Logits Address // f32 [Rows, Vocab]
	Best   Address // scratch of the first launch for the second: 8 bytes [Rows, Slices(Vocab)]
	Token  Address // u32 [Rows, 2], of which a row's is the one at the parity of its length, or at 0 without Lengths: steps that follow each other leave each other's alone
	Next   Address // u32 [Rows], or 0: where the next step reads its token; not written where Token is NoIndex
	Rows   int
	Vocab  int
	Stride int // elements between the rows of Logits; 0 means Vocab

	// Where the next step reads how long each sequence is with its token, and the token's
	// position in it: u32 [Rows] each, or both 0. A length of 0, which is no sequence,
	// stays. Any other is that of this step, and goes on: the position becomes it, and
	// then it becomes one more.
	Positions, Lengths Address
}

// Slices is the number of parts that a row of logits is cut into.
func (Argmax) Slices(vocab int) int { return ceilDiv(vocab, argmaxSlice) }

// Launch makes a launch.
func (s Argmax) Launch(k *ptx.Kernel, a ArgmaxArgs) (ptx.Launch, error) {
	a.Stride = orElse(a.Stride, a.Vocab)
	if err := checkBounds(k, bound{"Rows", a.Rows, 1, 65535}, bound{"Vocab", a.Vocab, 1, maxSize}, bound{"Stride", a.Stride, a.Vocab, maxSize}); err != nil {
		return ptx.Launch{}, err
	}
	slices := s.Slices(a.Vocab)
	if s.Merge {
		need := []pointer{{"Best", a.Best}, {"Token", a.Token}}
		if a.Positions != 0 || a.Lengths != 0 {
			need = append(need, pointer{"Positions", a.Positions}, pointer{"Lengths", a.Lengths})
		}
		if err := checkPointers(k, need...); err != nil {
			return ptx.Launch{}, err
		}
		return k.Launch([3]uint32{uint32(a.Rows), 1, 1}, argmaxThreads, 0,
			ptx.Addr(a.Best), ptx.Addr(a.Token), ptx.Addr(a.Next), ptx.Uint(slices), ptx.Addr(a.Positions), ptx.Addr(a.Lengths))
	}
	if err := checkPointers(k, pointer{"Logits", a.Logits}, pointer{"Best", a.Best}); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(slices), uint32(a.Rows), 1}, argmaxThreads, 0,
		ptx.Addr(a.Logits), ptx.Addr(a.Best), ptx.Uint(a.Vocab), ptx.Uint(a.Stride))
}
