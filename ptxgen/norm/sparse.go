package norm

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Sparsify is the activation sparsity of Gemma 3n. It changes rows of Width elements, one CTA per row:
//
//	x = max(x - mean(x) - sparsity*sd(x), 0)        sd(x)^2 = sum((x - mean(x))^2) / (Width - 1)
//
// Sums are those of Rows. A row of equal numbers becomes 0.
func Sparsify() kernel.Typed[SparsifyArgs] {
	return kernel.New("sparsify", buildSparsify, launchSparsify)
}

type sparsifyParams struct {
	X          ptx.Global
	Width      ptx.U32
	Deviations ptx.F32 // the sparsity in units of sqrt(mean((x - mean)^2))
}

func buildSparsify(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("x = max(x - mean - deviations * sqrt(mean((x - mean)^2)), 0)")
	var p sparsifyParams
	ptx.Declare(b, &p)
	row := device.RowAt(b, quant.F32, p.X.AtBytes(b.BlockX().MulWide(p.Width).ShlN(2)).Aligned(4), p.Width)
	x := device.CTA(b, 1).LoadRow(row, cachedVec4s)
	m := x.Moments(true, b.F32(0))
	half := m.InvStd.Rcp().Mul(m.Scale.Rcp()).Mul(b.F32(0.5)) // of the deviation
	constant := m.InvStd.Eq(b.F32(float32(math.Inf(1))))
	x.Each(func(i ptx.U32, v device.Vec4) {
		for j := range v {
			over := m.Normalize(v[j]).Sub(p.Deviations)
			v[j] = ptx.Select(constant, b.F32(0), over.Add(over.Abs()).Mul(half)) // z + |z| is 2*max(z, 0), or NaN
		}
		row.Store(i, v)
	})
	return b.Finish(ptx.MaxThreads(1024))
}

// SparsifyArgs are the arguments of a launch of Sparsify.
type SparsifyArgs struct {
	X        ptx.Address // f32 [Rows, Width]
	Rows     int
	Width    int     // at least 2
	Sparsity float32 // in standard deviations above the mean
}

func launchSparsify(k *ptx.Kernel, a SparsifyArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("Rows", a.Rows, 1, host.MaxSize), host.Bound("Width", a.Width, 2, host.MaxSize),
		host.NonNegative("Sparsity", a.Sparsity), host.NonNil("X", a.X)); err != nil {
		return ptx.Launch{}, err
	}
	n := float64(a.Width)
	return k.Launch([3]uint32{uint32(a.Rows), 1, 1}, device.RowThreads(host.CeilDiv(a.Width, cachedVec4s)), 0, &sparsifyParams{
		X: ptx.Addr(a.X), Width: ptx.Uint(a.Width), Deviations: ptx.Float(float32(float64(a.Sparsity) * math.Sqrt(n/(n-1)))),
	})
}
