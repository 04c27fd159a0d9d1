// Package norm holds the kernel of RMSNorm and LayerNorm.
package norm

import (
	"cmp"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Kind is a normalization of a row.
type Kind uint32

// The normalizations, before weight and bias.
const (
	None  Kind = iota // x
	RMS               // x / sqrt(mean(x^2) + eps)
	Layer             // (x - mean(x)) / sqrt(var(x) + eps)
)

// cachedVec4s is how many Vec4s of a row each thread holds in registers. Compensated sums
// and their tree over the threads take many instructions. So a CTA has few threads, each with
// several Vec4s.
const cachedVec4s = 4

// Rows normalizes rows of Width elements, one CTA per row:
//
//	y = (norm(x) * weight + bias + residual) * scale
//
// kind is RMS or Layer; to is the format of y: F32, F16 or BF16.
//
// Sums are compensated, with about twice the precision of a float32. Their order depends on
// Width alone: each thread adds its elements, then the threads' sums are added by a
// butterfly. If the squares of a row overflow or vanish in float32, the row is computed at
// another scale, a power of two. Function norm of package ref computes the same.
func Rows(kind Kind, to quant.Format) kernel.Typed[RowsArgs] {
	name := "rmsnorm"
	if kind == Layer {
		name = "layernorm"
	}
	if to != quant.F32 {
		name += "_" + host.FormatName(to)
	}
	return kernel.New(name, func(b *ptx.Builder) (*ptx.Kernel, error) { return build(b, kind, to) }, launch)
}

type params struct {
	X, Weight, Bias, Residual, Y ptx.Global
	Heads, Width                 ptx.U32
	XStride, YStride             ptx.U32
	WeightStride                 ptx.U32
	Eps, Scale                   ptx.F32
}

func build(b *ptx.Builder, kind Kind, to quant.Format) (*ptx.Kernel, error) {
	b.LaunchDependents()
	b.Doc("y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias + residual, times scale; RMSNorm: mean = 0")
	p := params{Y: ptx.AlignedTo(device.FloatBytes(b, to))}
	ptx.Declare(b, &p)

	cta := device.CTA(b, 1)
	token := b.BlockX().Div(p.Heads)
	head := b.BlockX().Sub(token.Mul(p.Heads))
	offset := head.Mul(p.Width)
	parameter := func(x ptx.Global) device.Row {
		return device.RowAt(b, quant.F32, x.At(head.Mul(p.WeightStride), 4), p.Width)
	}
	at := func(format quant.Format, x ptx.Global, stride, width ptx.U32) device.Row {
		size := format.BlockBytes()
		return device.RowAt(b, format, x.AtBytes(token.MulWide(stride).Add(offset.U64()).Mul(b.U64(uint64(size)))).Aligned(size), width)
	}
	hasBias, hasResidual := device.NonNil(b, p.Bias), device.NonNil(b, p.Residual)
	weight, bias := cta.LoadRow(parameter(p.Weight), cachedVec4s, ptx.ReadOnly), parameter(p.Bias)
	b.WaitForPrior()
	b.Comment("the row, all of a thread's loads before the first is used")
	in := cta.LoadRow(at(quant.F32, p.X, p.XStride, p.Width), cachedVec4s)
	cachedResidual := cachedVec4s - 1 // registers do not suffice for more
	if kind == Layer {
		cachedResidual = 0
	}
	residual := cta.LoadRow(at(quant.F32, p.Residual, p.YStride, ptx.Select(hasResidual, p.Width, b.U32(0))), cachedResidual)
	m := in.Moments(kind == Layer, p.Eps)
	b.Comment("second pass: normalize")
	out := at(to, p.Y, p.YStride, p.Width)
	in.EachWith(func(i ptx.U32, rows []device.Vec4) {
		v, weight, residual := rows[0], rows[1], rows[2]
		for j := range v {
			v[j] = ptx.Var(m.Normalize(v[j]).Mul(weight[j]))
		}
		b.If(hasBias, func() {
			for j, c := range bias.Load(i, 0) {
				ptx.Set(v[j], v[j].Add(c))
			}
		})
		for j := range v {
			v[j] = ptx.Select(hasResidual, v[j].Add(residual[j]), v[j]).Mul(p.Scale)
		}
		out.Store(i, v)
	}, weight, residual)
	return b.Finish(ptx.MaxThreads(1024))
}

// RowsArgs are the arguments of a launch of Rows. Each token has Heads consecutive rows:
// row h of token t begins at element t*stride + h*Width.
type RowsArgs struct {
	X        ptx.Address // f32
	Weight   ptx.Address // f32 [Width]; with WeightStride, [Heads, Width]. It is read before WaitForPrior, so no kernel that may still run may write it
	Bias     ptx.Address // in the shape of Weight; 0: none
	Residual ptx.Address // f32, with the stride of Y; 0: none
	Y        ptx.Address // may be X
	Tokens   int
	Heads    int // 0: 1
	Width    int
	XStride  int // elements from token to token; 0: Heads*Width
	YStride  int // elements from token to token; 0: Heads*Width
	Eps      float32
	Scale    float32 // 0: 1

	WeightStride int // elements from head to head of Weight and Bias; 0: all heads have the same
}

func launch(k *ptx.Kernel, a RowsArgs) (ptx.Launch, error) {
	a.Heads, a.Scale = cmp.Or(a.Heads, 1), cmp.Or(a.Scale, 1)
	row := a.Heads * a.Width
	a.XStride, a.YStride = cmp.Or(a.XStride, row), cmp.Or(a.YStride, row)
	if err := host.Valid(k, host.Bound("Heads", a.Heads, 1, host.MaxSize), host.Bound("Tokens", a.Tokens, 1, host.MaxSize/max(a.Heads, 1)),
		host.Bound("Width", a.Width, 1, host.MaxSize), host.Bound("XStride", a.XStride, row, host.MaxSize), host.Bound("YStride", a.YStride, row, host.MaxSize),
		host.Bound("WeightStride", a.WeightStride, 0, host.MaxSize/max(a.Heads, 1)),
		host.NonNegative("Eps", a.Eps), host.NonNil("X", a.X), host.NonNil("Weight", a.Weight), host.NonNil("Y", a.Y)); err != nil {
		return ptx.Launch{}, err
	}
	threads := device.RowThreads(host.CeilDiv(a.Width, cachedVec4s))
	return k.Launch([3]uint32{uint32(a.Tokens * a.Heads), 1, 1}, threads, 0, &params{
		X: ptx.Addr(a.X), Weight: ptx.Addr(a.Weight), Bias: ptx.Addr(a.Bias), Residual: ptx.Addr(a.Residual), Y: ptx.Addr(a.Y),
		Heads: ptx.Uint(a.Heads), Width: ptx.Uint(a.Width),
		XStride: ptx.Uint(a.XStride), YStride: ptx.Uint(a.YStride), WeightStride: ptx.Uint(a.WeightStride), Eps: ptx.Float(a.Eps), Scale: ptx.Float(a.Scale),
	})
}
