// Package sample holds the kernels that choose tokens from logits.
package sample

import (
	"cmp"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// NoIndex is the argmax of a row whose elements are all -Inf or NaN.
const NoIndex = device.NoIndex

const (
	argmaxThreads = 256
	argmaxSlice   = 4 * argmaxThreads * 2 // logits per CTA
)

// Slices returns the number of slices that Argmax cuts a row of vocab logits into.
func Slices(vocab int) int { return host.CeilDiv(vocab, argmaxSlice) }

// Argmax finds the largest logit of each slice of a row, as a pair of its ordered bits (an
// integer with the order of the float32) and its index; the lowest index among equals. NaN
// and -Inf never win. ArgmaxMerge chooses among the slices. The result does not depend on the
// order of comparisons.
func Argmax() kernel.Typed[ArgmaxArgs] { return kernel.New("argmax_slice", buildArgmax, launchArgmax) }

type argmaxParams struct {
	Logits        ptx.Global
	Best          ptx.Global `align:"8"`
	Vocab, Stride ptx.U32
}

func buildArgmax(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("best[row][slice] = the largest logit of the slice, as ordered bits, and its lowest index")
	var p argmaxParams
	ptx.Declare(b, &p)
	slice, r := b.BlockX(), b.BlockY()
	in := device.RowAt(b, quant.F32, p.Logits.AtBytes(r.MulWide(p.Stride).ShlN(2)).Aligned(4), p.Vocab)
	minusInf := float32(math.Inf(-1))
	value, index := ptx.Var(b.F32(minusInf)), ptx.Var(b.U32(NoIndex))
	first := slice.MulN(argmaxSlice / 4)
	b.For(first.Add(b.ThreadX()), first.AddN(argmaxSlice/4), b.U32(argmaxThreads), func(i ptx.U32) {
		for j, x := range in.Load(i, minusInf) {
			better := x.Gt(value) // false for NaN, and for an equal value of a higher index
			ptx.Set(value, ptx.Select(better, x, value))
			ptx.Set(index, ptx.Select(better, i.MulN(4).AddN(j), index))
		}
	})
	best := device.Best{Value: device.OrderedBits(b, value), Index: index}.OverCTA(b)
	b.If(b.ThreadX().EqN(0), func() {
		p.Best.At(r.Mul(b.GridX()).Add(slice), 8).StoreU32x2([2]ptx.U32{best.Value, best.Index})
	})
	return b.Finish(ptx.MaxThreads(argmaxThreads))
}

// ArgmaxArgs are the arguments of a launch of Argmax.
type ArgmaxArgs struct {
	Logits ptx.Address // f32 [Rows, Vocab]
	Best   ptx.Address // u32 [Rows, Slices(Vocab), 2], written
	Rows   int
	Vocab  int
	Stride int // elements from row to row of Logits; 0: Vocab
}

func launchArgmax(k *ptx.Kernel, a ArgmaxArgs) (ptx.Launch, error) {
	a.Stride = cmp.Or(a.Stride, a.Vocab)
	if err := host.Valid(k, host.Bound("Rows", a.Rows, 1, 65535), host.Bound("Vocab", a.Vocab, 1, host.MaxSize),
		host.Bound("Stride", a.Stride, a.Vocab, host.MaxSize), host.NonNil("Logits", a.Logits), host.NonNil("Best", a.Best)); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(Slices(a.Vocab)), uint32(a.Rows), 1}, argmaxThreads, 0, &argmaxParams{
		Logits: ptx.Addr(a.Logits), Best: ptx.Addr(a.Best), Vocab: ptx.Uint(a.Vocab), Stride: ptx.Uint(a.Stride),
	})
}

// ArgmaxMerge merges the slices of each row to the token with the largest logit, or NoIndex.
// It also prepares the next step of each sequence on the device: it stores the token as the
// next input, and advances the sequence's position and length.
func ArgmaxMerge() kernel.Typed[ArgmaxMergeArgs] {
	return kernel.New("argmax_merge", buildArgmaxMerge, launchArgmaxMerge)
}

type argmaxMergeParams struct {
	Best               ptx.Global `align:"8"`
	Token, Next        ptx.Global
	Slices             ptx.U32
	Positions, Lengths ptx.Global
}

func buildArgmaxMerge(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("token[row][lengths[row] mod 2] = the index of the largest of best[row][0 .. slices-1], the lowest on a tie")
	var p argmaxMergeParams
	ptx.Declare(b, &p)
	r := b.BlockX()
	mine := device.NewBest(b)
	b.For(b.ThreadX(), p.Slices, b.U32(argmaxThreads), func(i ptx.U32) {
		pair := p.Best.AtBytes(r.MulWide(p.Slices).Add(i.U64()).ShlN(3)).Aligned(8).LoadU32x2()
		better := pair[0].Gt(mine.Value) // slices come in the order of their indices
		ptx.Set(mine.Value, ptx.Select(better, pair[0], mine.Value))
		ptx.Set(mine.Index, ptx.Select(better, pair[1], mine.Index))
	}, ptx.NoUnroll)
	best := mine.OverCTA(b)
	b.If(b.ThreadX().EqN(0), func() {
		length := ptx.Var(b.U32(0))
		b.If(device.NonNil(b, p.Lengths), func() { ptx.Set(length, p.Lengths.At(r, 4).LoadU32()) })
		p.Token.At(r.ShlN(1).Or(length.AndN(1)), 4).StoreU32(best.Index)
		b.If(device.NonNil(b, p.Next).And(best.Index.Ne(b.U32(NoIndex))), func() { p.Next.At(r, 4).StoreU32(best.Index) })
		b.If(length.Ne(b.U32(0)), func() {
			p.Positions.At(r, 4).StoreU32(length)
			p.Lengths.At(r, 4).StoreU32(length.AddN(1))
		})
	})
	return b.Finish(ptx.MaxThreads(argmaxThreads))
}

// ArgmaxMergeArgs are the arguments of a launch of ArgmaxMerge.
type ArgmaxMergeArgs struct {
	Best ptx.Address // u32 [Rows, Slices(Vocab), 2], as Argmax wrote it
	// Token is u32 [Rows, 2], double-buffered: row r writes Token[r][Lengths[r]&1], so that a
	// step never overwrites the token of the previous step. Without Lengths it writes Token[r][0].
	Token ptx.Address
	Next  ptx.Address // u32 [Rows], the input token of the next step; 0: none. NoIndex is not written to it.
	// Lengths holds the number of positions of each sequence in this step, Positions those of
	// the input tokens: u32 [Rows] each; or both are 0. Where Lengths[r] is not 0, the launch
	// sets Positions[r] to Lengths[r], then adds 1 to Lengths[r].
	Positions, Lengths ptx.Address
	Rows               int
	Vocab              int
}

func launchArgmaxMerge(k *ptx.Kernel, a ArgmaxMergeArgs) (ptx.Launch, error) {
	checks := []host.Check{
		host.Bound("Rows", a.Rows, 1, 65535), host.Bound("Vocab", a.Vocab, 1, host.MaxSize),
		host.NonNil("Best", a.Best), host.NonNil("Token", a.Token),
	}
	if a.Positions != 0 || a.Lengths != 0 {
		checks = append(checks, host.NonNil("Positions", a.Positions), host.NonNil("Lengths", a.Lengths))
	}
	if err := host.Valid(k, checks...); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Rows), 1, 1}, argmaxThreads, 0, &argmaxMergeParams{
		Best: ptx.Addr(a.Best), Token: ptx.Addr(a.Token), Next: ptx.Addr(a.Next), Slices: ptx.Uint(Slices(a.Vocab)),
		Positions: ptx.Addr(a.Positions), Lengths: ptx.Addr(a.Lengths),
	})
}
