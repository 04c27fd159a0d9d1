package deltanet

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const gatesThreads = 128 // per CTA; each has one head of a token

// Gates computes the two factors of each token and value head:
//
//	y[t,h,0] = e^(a[h] * ln(1 + e^(alpha[t,h] + bias[h])))     the decay of S; a[h] is negative
//	y[t,h,1] = 1 / (1 + e^-beta[t,h])                          β
func Gates() kernel.Typed[GatesArgs] { return kernel.New("deltanet_gates", buildGates, launchGates) }

type gatesParams struct {
	Alpha, Beta, A, Bias ptx.Global
	Y                    ptx.Global `align:"8"`
	Stride, Heads, Count ptx.U32
}

func buildGates(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("y[t,h] = (exp(a * log(1 + exp(alpha + bias))), sigmoid(beta))")
	var p gatesParams
	ptx.Declare(b, &p)
	i := b.BlockX().MulN(gatesThreads).Add(b.ThreadX())
	b.ReturnIf(i.Ge(p.Count))
	token := i.Div(p.Heads)
	head := i.Sub(token.Mul(p.Heads))
	load := func(x ptx.Global) ptx.F32 {
		return x.AtBytes(token.MulWide(p.Stride).ShlN(2)).Aligned(4).At(head, 4).LoadF32()
	}
	x := load(p.Alpha).Add(p.Bias.At(head, 4).LoadF32())
	decay := device.Exp(b, p.A.At(head, 4).LoadF32().Mul(softplus(b, x)))
	p.Y.At(i, 8).StoreF32x2([2]ptx.F32{decay, device.Sigmoid(b, load(p.Beta))})
	return b.Finish(ptx.MaxThreads(gatesThreads))
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
	positive := x.Add(x.Abs()).MulN(0.5) // max(x, 0), and NaN if x is NaN or -Inf
	return z.MulN(2).FMA(sum, positive)
}

// GatesArgs are the arguments of a launch of Gates.
type GatesArgs struct {
	Alpha, Beta ptx.Address // f32 [Tokens, Heads]
	Stride      int         // elements from token to token, of both
	A, Bias     ptx.Address // f32 [Heads]
	Y           ptx.Address // f32 [Tokens, Heads, 2]
	Tokens      int
	Heads       int
}

func launchGates(k *ptx.Kernel, a GatesArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("Heads", a.Heads, 1, 1<<14), host.Bound("Tokens", a.Tokens, 1, host.MaxSize/max(a.Heads, 1)),
		host.Bound("Stride", a.Stride, a.Heads, host.MaxSize), host.NonNil("Alpha", a.Alpha), host.NonNil("Beta", a.Beta),
		host.NonNil("A", a.A), host.NonNil("Bias", a.Bias), host.NonNil("Y", a.Y)); err != nil {
		return ptx.Launch{}, err
	}
	count := a.Tokens * a.Heads
	return k.Launch([3]uint32{uint32(host.CeilDiv(count, gatesThreads)), 1, 1}, gatesThreads, 0, &gatesParams{
		Alpha: ptx.Addr(a.Alpha), Beta: ptx.Addr(a.Beta), A: ptx.Addr(a.A), Bias: ptx.Addr(a.Bias), Y: ptx.Addr(a.Y),
		Stride: ptx.Uint(a.Stride), Heads: ptx.Uint(a.Heads), Count: ptx.Uint(count),
	})
}
