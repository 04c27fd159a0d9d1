package deltanet

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Columns of S are independent: each belongs to one element of the values. A warp has columnsPerWarp columns, and
// lanesPerColumn lanes share a column.
const (
	lanesPerColumn = 4
	columnsPerWarp = 32 / lanesPerColumn
)

// Recur advances the states. Two parts run side by side: see ptx.Builder.Beside.
//
// The first part computes the recurrence of each sequence and value head, token by token, with S in registers:
//
//	S[i,j] = decay*S[i,j]
//	c[j]   = β * (v[j] - Σ_i S[i,j]*k[i])
//	S[i,j] = S[i,j] + k[i]*c[j]
//	y[j]   = (Σ_i S[i,j]*q[i]) / sqrt(Dim)
//
// Each lane has the elements i = 16n+4l to 16n+4l+3 of a column, where l is its lane modulo 4. It adds their products
// in four chains of fused multiply-adds, one per i%4, then the chains in pairs. A butterfly adds the four lanes.
//
// The second part replaces the window of each sequence by the Taps-1 inputs of the convolution before the next token:
//
//	window[r] = u[p-Taps+1+r]        r from 0 to Taps-2, p is the position after the last token
//
// u is 0 before position 0. Inputs of the same tokens must run before Recur: it reads the window that Recur replaces.
func Recur(dim int) kernel.Typed[RecurArgs] {
	return kernel.New(fmt.Sprintf("deltanet_recur_d%d", dim), func(b *ptx.Builder) (*ptx.Kernel, error) { return buildRecur(b, dim) },
		func(k *ptx.Kernel, a RecurArgs) (ptx.Launch, error) { return launchRecur(k, a, dim) })
}

func buildRecur(b *ptx.Builder, dim int) (*ptx.Kernel, error) {
	if dim%16 != 0 {
		b.Failf("heads of %d elements, want a multiple of 16", dim)
		return b.Finish(ptx.MaxThreads(32))
	}
	b.Doc("per token: S = decay*S; S += k * (beta*(v - transpose(S)*k)); y = transpose(S)*q / sqrt(dim)")
	b.Doc("window = the last inputs of the convolution")
	threads := 32 * recurWarps(dim)
	b.Beside(func() { emitRecurrence(b, dim) }, func() { emitShift(b, threads) })
	return b.Finish(ptx.MaxThreads(threads))
}

// recurWarps returns the warps per CTA. All columns of a CTA belong to one head.
func recurWarps(dim int) int {
	if dim%(4*columnsPerWarp) == 0 {
		return 4
	}
	return 2
}

type recurParams struct {
	X           ptx.Global `align:"16"`
	Gates       ptx.Global `align:"8"`
	Y           ptx.Global
	Channels    ptx.U32
	KeyHeads    ptx.U32
	ValueHeads  ptx.U32
	HeadsPerKey ptx.U32 // value heads that read one key head
	Tiled       ptx.U32 // 1: value head h reads key head h % key heads
}

// emitRecurrence emits the recurrence of Recur.
func emitRecurrence(b *ptx.Builder, dim int) {
	device.Overlap(b)
	var p recurParams
	ptx.Declare(b, &p)
	var in batchParams
	ptx.Declare(b, &in)
	warps := recurWarps(dim)
	blocks := dim / (warps * columnsPerWarp) // CTAs per head
	group := b.BlockX().DivN(blocks)
	column := b.BlockX().Sub(group.MulN(blocks)).MulN(warps).Add(b.Warp()).MulN(columnsPerWarp).Add(b.Lane().DivN(lanesPerColumn))
	sequence := group.Div(p.ValueHeads)
	head := group.Sub(sequence.Mul(p.ValueHeads))
	part := b.Lane().AndN(lanesPerColumn - 1)
	stores := part.EqN(lanesPerColumn - 1) // all lanes of a column have its result
	first, end := in.Starts.At(sequence, 4).LoadU32(), in.Starts.At(sequence, 4).Plus(4).LoadU32()
	b.ReturnIf(first.Ge(end))
	width := p.ValueHeads.MulN(dim)
	element := head.MulN(dim).Add(column) // of the token's values
	out := func(token ptx.U32) ptx.Global {
		return p.Y.AtBytes(token.MulWide(width).ShlN(2)).Aligned(4).At(element, 4)
	}
	index := in.StateIndex.At(sequence, 4).LoadU32()
	one := b.U32(1)
	b.If(index.Eq(b.U32(NoState)), func() {
		b.If(stores, func() {
			b.For(first, end, one, func(token ptx.U32) { out(token).StoreF32(b.F32(0)) }, ptx.NoUnroll)
		})
	})
	b.ReturnIf(index.Eq(b.U32(NoState)))

	keyHead := ptx.Select(p.Tiled.Ne(b.U32(0)), head.Rem(p.KeyHeads), head.Div(p.HeadsPerKey))
	elements := part.MulN(4) // the first of the lane's
	state := in.state(index).At(element, 4*dim).At(elements, 4).Aligned(16)
	var s [][4]ptx.F32
	b.Comment("S, or 0 before position 0")
	for range dim / 16 {
		var four [4]ptx.F32
		for e := range four {
			four[e] = ptx.Var(b.F32(0))
		}
		s = append(s, four)
	}
	b.If(in.Positions.At(first, 4).LoadU32().Ne(b.U32(0)), func() {
		for n := range s {
			for e, v := range state.Plus(64 * n).LoadF32x4() {
				ptx.Set(s[n][e], v)
			}
		}
	})
	b.For(first, end, one, func(token ptx.U32) {
		row := p.X.AtBytes(token.MulWide(p.Channels).ShlN(2)).Aligned(16)
		load := func(keyHead ptx.U32) (x [][4]ptx.F32) {
			at := row.At(keyHead, 4*dim).At(elements, 4).Aligned(16)
			for n := range s {
				x = append(x, at.Plus(64*n).LoadF32x4())
			}
			return x
		}
		q, k := load(keyHead), load(keyHead.Add(p.KeyHeads))
		v := row.At(p.KeyHeads.MulN(2*dim).Add(element), 4).LoadF32()
		gates := p.Gates.At(token.Mul(p.ValueHeads).Add(head), 8).LoadF32x2()
		decay, beta := gates[0], gates[1]
		for n := range s {
			for e, x := range s[n] {
				ptx.Set(s[n][e], x.Mul(decay))
			}
		}
		c := v.Sub(columnDot(b, s, k)).Mul(beta)
		for n := range s {
			for e, x := range s[n] {
				ptx.Set(s[n][e], k[n][e].FMA(c, x))
			}
		}
		y := columnDot(b, s, q).MulN(float32(1 / math.Sqrt(float64(dim))))
		b.If(stores, func() { out(token).StoreF32(y) })
	}, ptx.NoUnroll)
	for n := range s {
		state.Plus(64 * n).StoreF32x4(s[n])
	}
}

// columnDot returns the sum of products over the elements of a column, with the same bits in each of its lanes.
func columnDot(b *ptx.Builder, s, x [][4]ptx.F32) ptx.F32 {
	var chains [4]ptx.F32
	for e := range chains {
		chains[e] = s[0][e].Mul(x[0][e])
		for n := 1; n < len(s); n++ {
			chains[e] = s[n][e].FMA(x[n][e], chains[e])
		}
	}
	sum := chains[0].Add(chains[1]).Add(chains[2].Add(chains[3]))
	for distance := 1; distance < lanesPerColumn; distance *= 2 {
		sum = sum.Add(ptx.ShuffleXor(sum, distance))
	}
	return sum
}

// RecurArgs are the arguments of a launch of Recur.
type RecurArgs struct {
	X     ptx.Address // f32 [Tokens, channels], as Inputs wrote it
	Gates ptx.Address // f32 [Tokens, value heads, 2], as Inputs wrote it
	Y     ptx.Address // f32 [Tokens, value heads, Dim]

	Inputs       ptx.Address // f32: the inputs of the convolution, InputsArgs.X
	InputsStride int         // elements from token to token

	Shape Shape
	Batch Batch
}

func launchRecur(k *ptx.Kernel, a RecurArgs, dim int) (ptx.Launch, error) {
	s := a.Shape
	if err := checkBoth(k, s, a.Batch); err != nil {
		return ptx.Launch{}, err
	}
	if err := host.Valid(k, host.Refuse(s.Dim != dim, "Dim", "%d, the kernel has %d", s.Dim, dim),
		host.Refuse(a.Batch.Stride%4 != 0, "Stride", "%d is no multiple of 4", a.Batch.Stride),
		host.Bound("InputsStride", a.InputsStride, s.channels(), host.MaxSize), host.NonNil("X", a.X), host.NonNil("Gates", a.Gates),
		host.NonNil("Y", a.Y), host.NonNil("Inputs", a.Inputs)); err != nil {
		return ptx.Launch{}, err
	}
	threads := 32 * recurWarps(dim)
	return k.LaunchBeside(a.recurrencePart(threads), a.shiftPart(threads))
}

func (a RecurArgs) recurrencePart(threads int) ptx.Part {
	s, in := a.Shape, a.Batch.params()
	p := recurParams{
		X: ptx.Addr(a.X), Gates: ptx.Addr(a.Gates), Y: ptx.Addr(a.Y),
		Channels: ptx.Uint(s.channels()), KeyHeads: ptx.Uint(s.KeyHeads), ValueHeads: ptx.Uint(s.ValueHeads),
		HeadsPerKey: ptx.Uint(s.ValueHeads / s.KeyHeads), Tiled: ptx.Uint(0),
	}
	if s.Tiled {
		p.Tiled = ptx.Uint(1)
	}
	columns := threads / lanesPerColumn // per CTA
	return ptx.Part{CTAs: a.Batch.Sequences * s.ValueHeads * (s.Dim / columns), Threads: threads, Params: []any{&p, &in}}
}
