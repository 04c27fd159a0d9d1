package altup

import (
	"cmp"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// ScaleTo scales rows of Width elements to the length of others, one CTA per row:
//
//	y = (x * |like| / |x| + residual) * scale        |x| = sqrt(sum(x^2))
//
// Sums are those of norm.Rows. There is no epsilon, as in llama.cpp, so a row of zeros gives NaN.
func ScaleTo() kernel.Typed[ScaleToArgs] {
	return kernel.New("scale_to_length", buildScaleTo, launchScaleTo)
}

// scaleCached is how many Vec4s of a row each thread holds in registers.
const scaleCached = 4

type scaleParams struct {
	X, Like, Residual, Y ptx.Global
	Width                ptx.U32
	Scale                ptx.F32
}

func buildScaleTo(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("y = (x * sqrt(sum(like^2) / sum(x^2)) + residual) * scale")
	var p scaleParams
	ptx.Declare(b, &p)
	cta := device.CTA(b, 2)
	row := func(x ptx.Global, width ptx.U32) device.Row {
		return device.RowAt(b, quant.F32, x.AtBytes(b.BlockX().MulWide(p.Width).ShlN(2)).Aligned(4), width)
	}
	x, like := cta.LoadRow(row(p.X, p.Width), scaleCached), cta.LoadRow(row(p.Like, p.Width), scaleCached)
	hasResidual := device.NonNil(b, p.Residual)
	residual := cta.LoadRow(row(p.Residual, ptx.Select(hasResidual, p.Width, b.U32(0))), 0)
	m, y := device.MomentsOf(false, b.F32(0), x, like), row(p.Y, p.Width)
	length := m[1].InvStd.Rcp().Mul(m[1].Scale.Rcp())
	x.EachWith(func(i ptx.U32, rows []device.Vec4) {
		v := rows[0]
		for j := range v {
			v[j] = m[0].Normalize(v[j]).Mul(length)
			v[j] = ptx.Select(hasResidual, v[j].Add(rows[1][j]), v[j]).Mul(p.Scale)
		}
		y.Store(i, v)
	}, residual)
	return b.Finish(ptx.MaxThreads(1024))
}

// ScaleToArgs are the arguments of a launch of ScaleTo.
type ScaleToArgs struct {
	X, Like  ptx.Address // f32 [Rows, Width]
	Residual ptx.Address // f32 [Rows, Width]; 0: none
	Y        ptx.Address // f32 [Rows, Width]; may be any of them
	Rows     int
	Width    int
	Scale    float32 // 0: 1
}

func launchScaleTo(k *ptx.Kernel, a ScaleToArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("Rows", a.Rows, 1, host.MaxSize), host.Bound("Width", a.Width, 1, host.MaxSize),
		host.NonNil("X", a.X), host.NonNil("Like", a.Like), host.NonNil("Y", a.Y)); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Rows), 1, 1}, device.RowThreads(host.CeilDiv(a.Width, scaleCached)), 0, &scaleParams{
		X: ptx.Addr(a.X), Like: ptx.Addr(a.Like), Residual: ptx.Addr(a.Residual), Y: ptx.Addr(a.Y),
		Width: ptx.Uint(a.Width), Scale: ptx.Float(cmp.Or(a.Scale, 1)),
	})
}
