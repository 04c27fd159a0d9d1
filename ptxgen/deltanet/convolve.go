package deltanet

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

type convolveParams struct {
	X, W, Sequence, Y              ptx.Global
	XStride, Channels, Taps, Parts ptx.U32
	AllHeads, UnitHeads            ptx.U32
	Window                         ptx.U32 // where it begins in a state
	Eps                            ptx.F32
}

// emitConvolve emits the convolution of Inputs.
func emitConvolve(b *ptx.Builder, dim int) {
	device.Overlap(b)
	var p convolveParams
	ptx.Declare(b, &p)
	var in batchParams
	ptx.Declare(b, &in)
	token := b.BlockX().Div(p.Parts)
	head := b.BlockX().Sub(token.Mul(p.Parts)).MulN(inputsWarps).Add(b.Warp())
	b.ReturnIf(head.Ge(p.AllHeads)) // whole warps
	sequence := p.Sequence.At(token, 4).LoadU32()
	index := in.StateIndex.At(sequence, 4).LoadU32()
	b.ReturnIf(index.Eq(b.U32(NoState)))
	position := in.Positions.At(token, 4).LoadU32()
	offset := token.Sub(in.Starts.At(sequence, 4).LoadU32()) // from the sequence's first token in the batch
	window := in.state(index).At(p.Window, 4)
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
					b.IfElse(back.Le(offset), func() {
						ptx.Set(u, p.X.AtBytes(token.Sub(back).MulWide(p.XStride).ShlN(2)).Aligned(4).At(channel, 4).LoadF32())
					}, func() {
						ptx.Set(u, window.AtBytes(offset.Add(tap).MulWide(p.Channels).ShlN(2)).Aligned(4).At(channel, 4).LoadF32())
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
}

func (a InputsArgs) convolvePart() ptx.Part {
	s, in := a.Shape, a.Batch.params()
	heads := 2*s.KeyHeads + s.ValueHeads
	parts := host.CeilDiv(heads, inputsWarps)
	return ptx.Part{CTAs: a.Batch.Tokens * parts, Threads: 32 * inputsWarps, Params: []any{&convolveParams{
		X: ptx.Addr(a.X), W: ptx.Addr(a.W), Sequence: ptx.Addr(a.Batch.Sequence), Y: ptx.Addr(a.Y),
		XStride: ptx.Uint(a.XStride), Channels: ptx.Uint(s.channels()), Taps: ptx.Uint(s.Taps),
		AllHeads: ptx.Uint(heads), UnitHeads: ptx.Uint(2 * s.KeyHeads), Parts: ptx.Uint(parts), Window: ptx.Uint(s.matrixFloats()), Eps: ptx.Float(a.Eps),
	}, &in}}
}
