package deltanet

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

const gatedNormWarps = 4 // per CTA

// GatedNorm normalizes each head of Recur's results in place, and multiplies it by SiLU(z), one warp per head:
//
//	y[t,h,i] = y[t,h,i] / sqrt(mean(y[t,h]²) + Eps) * weight[i] * SiLU(z[t,h,i])
//
// The order of additions is that of norm.Rows.
func GatedNorm() kernel.Typed[GatedNormArgs] {
	return kernel.New("deltanet_gated_norm", buildGatedNorm, launchGatedNorm)
}

type gatedNormParams struct {
	Y, Z, Weight                    ptx.Global
	ZStride, ValueHeads, Dim, Count ptx.U32
	Eps                             ptx.F32
}

func buildGatedNorm(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("y = y / sqrt(mean(y^2) + eps) * weight * silu(z), of each head")
	var p gatedNormParams
	ptx.Declare(b, &p)
	index := b.BlockX().MulN(gatedNormWarps).Add(b.Warp())
	b.ReturnIf(index.Ge(p.Count)) // whole warps
	token := index.Div(p.ValueHeads)
	head := index.Sub(token.Mul(p.ValueHeads))
	row := func(x ptx.Global) device.Row { return device.RowAt(b, quant.F32, x, p.Dim) }
	y := row(p.Y.AtBytes(index.MulWide(p.Dim).ShlN(2)).Aligned(4))
	z := row(p.Z.AtBytes(token.MulWide(p.ZStride).Add(head.MulWide(p.Dim)).ShlN(2)).Aligned(4))
	weight := row(p.Weight)
	in := device.Warp(b).LoadRow(y, 0)
	m := in.Moments(false, p.Eps)
	in.Each(func(i ptx.U32, v device.Vec4) {
		gate, gain := z.Load(i, 0), weight.Load(i, 0)
		for j := range v {
			v[j] = m.Normalize(v[j]).Mul(gain[j]).Mul(device.ActivateN(b, device.SiLU, gate[j]))
		}
		y.Store(i, v)
	})
	return b.Finish(ptx.MaxThreads(32 * gatedNormWarps))
}

// GatedNormArgs are the arguments of a launch of GatedNorm.
type GatedNormArgs struct {
	Y       ptx.Address // f32 [Tokens, value heads, Dim]
	Z       ptx.Address // f32 [Tokens, value heads, Dim]
	ZStride int         // elements from token to token
	Weight  ptx.Address // f32 [Dim]
	Eps     float32
	Tokens  int
	Shape   Shape
}

func launchGatedNorm(k *ptx.Kernel, a GatedNormArgs) (ptx.Launch, error) {
	s := a.Shape
	if err := s.check(k); err != nil {
		return ptx.Launch{}, err
	}
	values := s.ValueHeads * s.Dim
	if err := host.Valid(k, host.Bound("Tokens", a.Tokens, 1, host.MaxSize/values), host.Bound("ZStride", a.ZStride, values, host.MaxSize),
		host.NonNegative("Eps", a.Eps), host.NonNil("Y", a.Y), host.NonNil("Z", a.Z), host.NonNil("Weight", a.Weight)); err != nil {
		return ptx.Launch{}, err
	}
	count := a.Tokens * s.ValueHeads
	return k.Launch([3]uint32{uint32(host.CeilDiv(count, gatedNormWarps)), 1, 1}, 32*gatedNormWarps, 0, &gatedNormParams{
		Y: ptx.Addr(a.Y), Z: ptx.Addr(a.Z), Weight: ptx.Addr(a.Weight), ZStride: ptx.Uint(a.ZStride),
		ValueHeads: ptx.Uint(s.ValueHeads), Dim: ptx.Uint(s.Dim), Count: ptx.Uint(count), Eps: ptx.Float(a.Eps),
	})
}
