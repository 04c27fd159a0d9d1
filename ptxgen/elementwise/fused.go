package elementwise

import (
	"cmp"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

const fusedThreads = 256 // per CTA; each has one Vec4

// Fused computes, for rows of Width elements,
//
//	y[r,i] = act(softcap((x[r,i] + bias[i]) * scale)) * up[r,i] + residual[r,i]
//
// where softcap(z) = cap * tanh(z/cap). With ClampedSwiGLU, up[r,i] is limited, and 1 is added to it. A launch leaves out the operations that it does not
// need: the kernel adds a bias or a residual, multiplies, scales, caps or activates, or does
// several of these. Every operation is rounded separately, in this order.
func Fused() kernel.Typed[FusedArgs] { return kernel.New("elementwise", buildFused, launchFused) }

type fusedParams struct {
	X, Bias, Up, Residual, Y   ptx.Global
	Width                      ptx.U32
	Parts                      ptx.U32 // CTAs per row
	XStride, UpStride, YStride ptx.U32
	Scale, Cap                 ptx.F32
	Activation                 ptx.U32
}

func buildFused(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("y = act(cap((x + bias) * scale)) * up + residual")
	var p fusedParams
	ptx.Declare(b, &p)

	r := b.BlockX().Div(p.Parts)
	i := b.BlockX().Sub(r.Mul(p.Parts)).MulN(fusedThreads).Add(b.ThreadX())
	at := func(x ptx.Global, stride ptx.U32) device.Row {
		return device.RowAt(b, quant.F32, x.AtBytes(r.MulWide(stride).ShlN(2)).Aligned(4), p.Width)
	}
	in := at(p.X, p.XStride)
	b.ReturnIf(i.Ge(in.Vec4s()))
	v := in.Load(i, 0)
	combine := func(x ptx.Global, stride ptx.U32, op func(a, c ptx.F32) ptx.F32) {
		b.If(device.NonNil(b, x), func() {
			for j, c := range at(x, stride).Load(i, 0) {
				ptx.Set(v[j], op(v[j], c))
			}
		})
	}
	combine(p.Bias, b.U32(0), ptx.F32.Add)
	for j := range v {
		ptx.Set(v[j], v[j].Mul(p.Scale))
	}
	b.If(p.Cap.Gt(b.F32(0)), func() {
		for j := range v {
			ptx.Set(v[j], device.Softcap(b, v[j], p.Cap))
		}
	})
	for j := range v {
		v[j] = device.Activate(b, p.Activation, v[j])
	}
	combine(p.Up, p.UpStride, func(a, up ptx.F32) ptx.F32 {
		u := ptx.Var(up)
		b.If(p.Activation.EqN(device.ClampedSwiGLU), func() { ptx.Set(u, device.UpFactor(b, device.ClampedSwiGLU, up)) })
		return a.Mul(u)
	})
	combine(p.Residual, p.YStride, ptx.F32.Add)
	at(p.Y, p.YStride).Store(i, v)
	return b.Finish(ptx.MaxThreads(fusedThreads))
}

// FusedArgs are the arguments of a launch of Fused. Strides are in elements from row to row;
// 0 stands for Width.
type FusedArgs struct {
	X          ptx.Address // f32 [Rows, Width]
	Bias       ptx.Address // f32 [Width]; 0: none
	Up         ptx.Address // f32 [Rows, Width]; 0: none
	Residual   ptx.Address // f32 [Rows, Width], with the stride of Y; 0: none
	Y          ptx.Address // f32 [Rows, Width]; may be X, Up or Residual
	Rows       int
	Width      int
	XStride    int
	UpStride   int
	YStride    int
	Scale      float32 // 0: 1
	Cap        float32 // 0: none
	Activation Activation
}

func launchFused(k *ptx.Kernel, a FusedArgs) (ptx.Launch, error) {
	a.XStride, a.UpStride, a.YStride = cmp.Or(a.XStride, a.Width), cmp.Or(a.UpStride, a.Width), cmp.Or(a.YStride, a.Width)
	if a.Scale == 0 {
		a.Scale = 1
	}
	if err := host.Valid(k, host.Bound("Rows", a.Rows, 1, host.MaxSize), host.Bound("Width", a.Width, 1, host.MaxSize),
		host.Bound("XStride", a.XStride, a.Width, host.MaxSize), host.Bound("UpStride", a.UpStride, a.Width, host.MaxSize),
		host.Bound("YStride", a.YStride, a.Width, host.MaxSize), host.Bound("Activation", int(a.Activation), int(Identity), int(Sigmoid)),
		host.NonNil("X", a.X), host.NonNil("Y", a.Y), host.NonNegative("Cap", a.Cap)); err != nil {
		return ptx.Launch{}, err
	}
	contiguous := a.XStride == a.Width && a.UpStride == a.Width && a.YStride == a.Width
	if contiguous && a.Bias == 0 && a.Rows <= host.MaxSize/a.Width { // one long row leaves fewer threads idle
		a.Width *= a.Rows
		a.Rows = 1
	}
	parts := host.CeilDiv(a.Width, 4*fusedThreads)
	if err := host.Valid(k, host.Bound("Rows", a.Rows, 1, host.MaxSize/parts)); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Rows * parts), 1, 1}, fusedThreads, 0, &fusedParams{
		X: ptx.Addr(a.X), Bias: ptx.Addr(a.Bias), Up: ptx.Addr(a.Up), Residual: ptx.Addr(a.Residual), Y: ptx.Addr(a.Y),
		Width: ptx.Uint(a.Width), Parts: ptx.Uint(parts),
		XStride: ptx.Uint(a.XStride), UpStride: ptx.Uint(a.UpStride), YStride: ptx.Uint(a.YStride),
		Scale: ptx.Float(a.Scale), Cap: ptx.Float(a.Cap), Activation: ptx.Uint(uint32(a.Activation)),
	})
}
