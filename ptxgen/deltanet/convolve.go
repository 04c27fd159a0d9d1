package deltanet

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const convolveWarps = 8 // per CTA

// Convolve computes the channels of each token, one warp per head:
//
//	y[t,c] = SiLU(w[0,c]*u[p-Taps+1,c] + … + w[Taps-1,c]*u[p,c])        u[p] is x at position p of the token's sequence
//
// and divides each head of queries and keys by max(|y|, Eps). A chain of fused multiply-adds computes the sum, from the
// oldest tap. |y|² is a chain of fused multiply-adds per lane, over the lane's channels l, l+32, …, then a butterfly
// over the lanes.
func Convolve(dim int) kernel.Typed[ConvolveArgs] {
	return kernel.New(fmt.Sprintf("deltanet_convolve_d%d", dim), func(b *ptx.Builder) (*ptx.Kernel, error) { return buildConvolve(b, dim) },
		func(k *ptx.Kernel, a ConvolveArgs) (ptx.Launch, error) { return launchConvolve(k, a, dim) })
}

type convolveParams struct {
	X, W, Sequence, Y              ptx.Global
	XStride, Channels, Taps, Parts ptx.U32
	AllHeads, UnitHeads            ptx.U32
	Window                         ptx.U32 // where it begins in a state
	Eps                            ptx.F32
}

func buildConvolve(b *ptx.Builder, dim int) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("y = silu(causal convolution of x), heads of queries and keys divided by their length")
	var p convolveParams
	ptx.Declare(b, &p)
	var in batchParams
	ptx.Declare(b, &in)
	token := b.BlockX().Div(p.Parts)
	head := b.BlockX().Sub(token.Mul(p.Parts)).MulN(convolveWarps).Add(b.Warp())
	b.ReturnIf(head.Ge(p.AllHeads)) // whole warps
	sequence := p.Sequence.At(token, 4).LoadU32()
	slot := in.Slots.At(sequence, 4).LoadU32()
	b.ReturnIf(slot.Eq(b.U32(NoState)))
	position := in.Positions.At(token, 4).LoadU32()
	index := token.Sub(in.Starts.At(sequence, 4).LoadU32()) // of the token in the batch, from the sequence's first
	window := in.state(slot).At(p.Window, 4)
	last := p.Taps.AddN(-1)

	var y []ptx.F32
	square := ptx.Var(b.F32(0))
	for at := 0; at < dim; at += 32 {
		sum := ptx.Var(b.F32(0))
		within := func(do func(channel ptx.U32)) {
			lane := b.Lane().AddN(at)
			body := func() { do(head.MulN(dim).Add(lane)) }
			if at+32 <= dim {
				body()
				return
			}
			b.If(lane.LtN(dim), body)
		}
		within(func(channel ptx.U32) {
			b.For(b.U32(0), p.Taps, b.U32(1), func(tap ptx.U32) {
				back := last.Sub(tap) // positions before the token's
				u := ptx.Var(b.F32(0))
				b.If(back.Le(position), func() {
					b.IfElse(back.Le(index), func() {
						ptx.Set(u, p.X.AtBytes(token.Sub(back).MulWide(p.XStride).ShlN(2)).Aligned(4).At(channel, 4).LoadF32())
					}, func() {
						ptx.Set(u, window.AtBytes(index.Add(tap).MulWide(p.Channels).ShlN(2)).Aligned(4).At(channel, 4).LoadF32())
					})
				})
				ptx.Set(sum, p.W.At(tap.Mul(p.Channels).Add(channel), 4).LoadF32().FMA(u, sum))
			}, ptx.NoUnroll)
			ptx.Set(sum, device.ActivateN(b, device.SiLU, sum))
			ptx.Set(square, sum.FMA(sum, square))
		})
		y = append(y, sum)
	}
	length := ptx.WarpSum(square).Sqrt().Max(p.Eps)
	length = ptx.Select(head.Lt(p.UnitHeads), length, b.F32(1))
	for i, v := range y {
		lane := b.Lane().AddN(32 * i)
		store := func() {
			p.Y.AtBytes(token.MulWide(p.Channels).ShlN(2)).Aligned(4).At(head.MulN(dim).Add(lane), 4).StoreF32(v.Div(length))
		}
		if 32*i+32 <= dim {
			store()
		} else {
			b.If(lane.LtN(dim), store)
		}
	}
	return b.Finish(ptx.MaxThreads(32 * convolveWarps))
}

// ConvolveArgs are the arguments of a launch of Convolve.
type ConvolveArgs struct {
	X       ptx.Address // f32: the channels of each token, queries, keys, then values
	XStride int         // elements from token to token
	W       ptx.Address // f32 [Taps, channels]
	Y       ptx.Address // f32 [Tokens, channels]
	Eps     float32
	Shape   Shape
	Batch   Batch
}

func launchConvolve(k *ptx.Kernel, a ConvolveArgs, dim int) (ptx.Launch, error) {
	s := a.Shape
	if err := checkBoth(k, s, a.Batch); err != nil {
		return ptx.Launch{}, err
	}
	if err := host.Valid(k, host.Refuse(s.Dim != dim, "Dim", "%d, the kernel has %d", s.Dim, dim), host.Bound("XStride", a.XStride, s.channels(), host.MaxSize),
		host.Number("Eps", a.Eps), host.Refuse(a.Eps == 0, "Eps", "it is 0"), host.NonNil("X", a.X), host.NonNil("W", a.W),
		host.NonNil("Sequence", a.Batch.Sequence), host.NonNil("Y", a.Y)); err != nil {
		return ptx.Launch{}, err
	}
	heads := 2*s.KeyHeads + s.ValueHeads
	parts := host.CeilDiv(heads, convolveWarps)
	in := a.Batch.params()
	return k.Launch([3]uint32{uint32(a.Batch.Tokens * parts), 1, 1}, 32*convolveWarps, 0, &convolveParams{
		X: ptx.Addr(a.X), W: ptx.Addr(a.W), Sequence: ptx.Addr(a.Batch.Sequence), Y: ptx.Addr(a.Y),
		XStride: ptx.Uint(a.XStride), Channels: ptx.Uint(s.channels()), Taps: ptx.Uint(s.Taps),
		AllHeads: ptx.Uint(heads), UnitHeads: ptx.Uint(2 * s.KeyHeads), Parts: ptx.Uint(parts), Window: ptx.Uint(s.matrixFloats()), Eps: ptx.Float(a.Eps),
	}, &in)
}

func checkBoth(k *ptx.Kernel, s Shape, a Batch) error {
	if err := s.check(k); err != nil {
		return err
	}
	return a.check(k, s)
}
