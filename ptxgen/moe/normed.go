package moe

import (
	"cmp"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// CombineNormed adds the weighted results of each token's experts and normalizes them, the shared expert's results, and
// the sum of both. One CTA per token computes
//
//	e[t,i] = w[t,0]*out[r(t,0),i] + w[t,1]*out[r(t,1),i] + …        r(t,s) as in Combine
//	m[t,i] = norm(e[t])[i]*expertNorm[i] + norm(shared[t])[i]*sharedNorm[i]
//	y[t,i] = (norm(m[t])[i]*weight[i] + residual[t,i]) * scale
//
// where norm(x) is x / sqrt(mean(x²) + Eps), and w[t,s] is 1 without Weights. e is summed as in Combine. The sums of
// squares are compensated, and their order depends on Width alone, as in norm.Rows.
func CombineNormed() kernel.Typed[CombineNormedArgs] {
	return kernel.New("moe_combine_normed", buildCombineNormed, launchCombineNormed)
}

type normedParams struct {
	Shared, ExpertNorm, SharedNorm, Weight ptx.Global
	Residual, Mixed, Y                     ptx.Global
	Eps, Scale                             ptx.F32
}

func buildCombineNormed(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("m = norm(sum over s of w[t,s] * out[t*k+s]) * expert_norm + norm(shared) * shared_norm\ny = (norm(m) * weight + residual) * scale")
	var experts sumParams
	ptx.Declare(b, &experts)
	var p normedParams
	ptx.Declare(b, &p)
	cta, token := device.CTA(b, 1), b.BlockX()
	row := func(x ptx.Global) device.Row { return experts.row(b, x, token) }
	gains := func(x ptx.Global) device.Row { return device.RowAt(b, quant.F32, x, experts.Width) }
	b.Comment("each thread reads only what it stored in mixed itself")
	mixed, expertNorm, sharedNorm := row(p.Mixed), gains(p.ExpertNorm), gains(p.SharedNorm)
	b.For(b.ThreadX(), mixed.Vec4s(), b.ThreadsX(), func(i ptx.U32) { mixed.Store(i, experts.sum(b, token, i)) }, ptx.NoUnroll)
	shared, routed := cta.Cache(row(p.Shared), 1), cta.Cache(mixed, 1)
	ofShared, ofRouted := shared.Moments(false, p.Eps), routed.Moments(false, p.Eps)
	shared.Each(func(i ptx.U32, v device.Vec4) {
		x, gain, sharedGain := mixed.Load(i, 0), expertNorm.Load(i, 0), sharedNorm.Load(i, 0)
		for j := range v {
			v[j] = ofRouted.Normalize(x[j]).Mul(gain[j]).Add(ofShared.Normalize(v[j]).Mul(sharedGain[j]))
		}
		mixed.Store(i, v)
	})
	sum, weight, residual, y := cta.Cache(mixed, 1), gains(p.Weight), row(p.Residual), row(p.Y)
	m := sum.Moments(false, p.Eps)
	sum.Each(func(i ptx.U32, v device.Vec4) {
		gain, r := weight.Load(i, 0), residual.Load(i, 0)
		for j := range v {
			v[j] = m.Normalize(v[j]).Mul(gain[j]).Add(r[j]).Mul(p.Scale)
		}
		y.Store(i, v)
	})
	return b.Finish(ptx.MaxThreads(1024))
}

// CombineNormedArgs are the arguments of a launch of CombineNormed.
type CombineNormedArgs struct {
	Weights    ptx.Address // f32 [Tokens, K], as Route wrote them; 0: all 1
	Out        ptx.Address // f32 [Tokens*K, Width], the experts' results
	Place      ptx.Address // u32 [Tokens, K], the row of Out of each choice; 0: in order
	Shared     ptx.Address // f32 [Tokens, Width], the shared expert's results
	ExpertNorm ptx.Address // f32 [Width]
	SharedNorm ptx.Address // f32 [Width]
	Weight     ptx.Address // f32 [Width]
	Residual   ptx.Address // f32 [Tokens, Width]
	Mixed      ptx.Address // f32 [Tokens, Width], scratch memory
	Y          ptx.Address // f32 [Tokens, Width]; may be Residual
	Tokens     int
	K          int // experts per token
	Width      int
	Eps        float32
	Scale      float32 // 0: 1
}

func launchCombineNormed(k *ptx.Kernel, a CombineNormedArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("Width", a.Width, 1, host.MaxSize), host.Bound("K", a.K, 1, maxChosen),
		host.Bound("Tokens", a.Tokens, 1, host.MaxSize/maxChosen), host.Number("Eps", a.Eps), host.NonNil("Out", a.Out), host.NonNil("Shared", a.Shared),
		host.NonNil("ExpertNorm", a.ExpertNorm), host.NonNil("SharedNorm", a.SharedNorm), host.NonNil("Weight", a.Weight),
		host.NonNil("Residual", a.Residual), host.NonNil("Mixed", a.Mixed), host.NonNil("Y", a.Y)); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Tokens), 1, 1}, device.RowThreads(a.Width), 0, &sumParams{
		Weights: ptx.Addr(a.Weights), Out: ptx.Addr(a.Out), Place: ptx.Addr(a.Place), Width: ptx.Uint(a.Width), K: ptx.Uint(a.K),
	}, &normedParams{
		Shared: ptx.Addr(a.Shared), ExpertNorm: ptx.Addr(a.ExpertNorm), SharedNorm: ptx.Addr(a.SharedNorm), Weight: ptx.Addr(a.Weight),
		Residual: ptx.Addr(a.Residual), Mixed: ptx.Addr(a.Mixed), Y: ptx.Addr(a.Y), Eps: ptx.Float(a.Eps), Scale: ptx.Float(cmp.Or(a.Scale, 1)),
	})
}
