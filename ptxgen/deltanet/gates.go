package deltanet

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

type gatesParams struct {
	Alpha, Beta, A, Bias       ptx.Global
	Gates                      ptx.Global `align:"8"`
	XStride, ValueHeads, Count ptx.U32
}

// emitGates emits the factors of Inputs, one thread per token and value head.
func emitGates(b *ptx.Builder) {
	device.Overlap(b)
	var p gatesParams
	ptx.Declare(b, &p)
	i := b.BlockX().MulN(32 * inputsWarps).Add(b.ThreadX())
	b.ReturnIf(i.Ge(p.Count))
	token := i.Div(p.ValueHeads)
	head := i.Sub(token.Mul(p.ValueHeads))
	load := func(x ptx.Global) ptx.F32 {
		return x.AtBytes(token.MulWide(p.XStride).ShlN(2)).Aligned(4).At(head, 4).LoadF32()
	}
	x := load(p.Alpha).Add(p.Bias.At(head, 4).LoadF32())
	decay := device.Exp(b, p.A.At(head, 4).LoadF32().Mul(softplus(b, x)))
	p.Gates.At(i, 8).StoreF32x2([2]ptx.F32{decay, device.Sigmoid(b, load(p.Beta))})
}

// softplus returns ln(1 + e^x) = max(x, 0) + ln(1 + u), u = e^-|x|. With z = u/(2+u), which is at most 1/3,
// ln(1+u) is 2·(z + z³/3 + z⁵/5 + …). The first term that is left out is below 2^-29 of the sum.
func softplus(b *ptx.Builder, x ptx.F32) ptx.F32 {
	u := device.ExpWithin(b, x.Abs().Neg().Max(b.F32(-30))) // a smaller u leaves the decay 1, or adds nothing to x
	z := u.Div(u.AddN(2))
	square := z.Mul(z)
	sum := b.F32(1.0 / 15)
	for n := 13; n >= 1; n -= 2 {
		sum = sum.FMA(square, b.F32(float32(1/float64(n))))
	}
	positive := ptx.Select(x.Lt(b.F32(0)), b.F32(0), x) // max(x, 0), and NaN if x is NaN
	return z.MulN(2).FMA(sum, positive)
}

func (a InputsArgs) gatesPart() ptx.Part {
	count := a.Batch.Tokens * a.Shape.ValueHeads
	return ptx.Part{CTAs: host.CeilDiv(count, 32*inputsWarps), Threads: 32 * inputsWarps, Params: []any{&gatesParams{
		Alpha: ptx.Addr(a.Alpha), Beta: ptx.Addr(a.Beta), A: ptx.Addr(a.A), Bias: ptx.Addr(a.Bias), Gates: ptx.Addr(a.Gates),
		XStride: ptx.Uint(a.XStride), ValueHeads: ptx.Uint(a.Shape.ValueHeads), Count: ptx.Uint(count),
	}}}
}
