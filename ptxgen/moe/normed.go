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

// normedLoads is combineLoads of CombineNormed.
const normedLoads = 4

type normedParams struct {
	Shared, ExpertNorm, SharedNorm, Weight ptx.Global
	Residual, Mixed, Y                     ptx.Global
	Eps, Scale                             ptx.F32
}

func buildCombineNormed(b *ptx.Builder) (*ptx.Kernel, error) {
	b.LaunchDependents()
	b.Doc("m = norm(sum over s of w[t,s] * out[t*k+s]) * expert_norm + norm(shared) * shared_norm\ny = (norm(m) * weight + residual) * scale")
	var experts sumParams
	ptx.Declare(b, &experts)
	var p normedParams
	ptx.Declare(b, &p)
	cta, token := device.CTA(b, 2), b.BlockX()
	row := func(x ptx.Global) device.Row { return experts.row(b, x, token) }
	gains := func(x ptx.Global) device.CachedRow {
		return cta.LoadRow(device.RowAt(b, quant.F32, x, experts.Width), 1, ptx.ReadOnly)
	}
	expertNorm, sharedNorm, weight := gains(p.ExpertNorm), gains(p.SharedNorm), gains(p.Weight)
	b.WaitForPrior()
	mixed := row(p.Mixed)
	shared := cta.LoadRow(row(p.Shared), 1)
	b.Comment("the first Vec4 of each thread stays in registers; the others are in mixed")
	routed := shared.Map(mixed, func(i ptx.U32, _ []device.Vec4) device.Vec4 { return experts.sum(b, token, i, normedLoads) })
	residual := cta.LoadRow(row(p.Residual), 1)
	norms := device.MomentsOf(false, p.Eps, routed, shared)
	sum := routed.Map(mixed, func(_ ptx.U32, v []device.Vec4) (m device.Vec4) {
		for j := range m {
			m[j] = norms[0].Normalize(v[0][j]).Mul(v[2][j]).Add(norms[1].Normalize(v[1][j]).Mul(v[3][j]))
		}
		return m
	}, shared, expertNorm, sharedNorm)
	m, y := sum.Moments(false, p.Eps), row(p.Y)
	sum.EachWith(func(i ptx.U32, rows []device.Vec4) {
		v := rows[0]
		for j := range v {
			v[j] = m.Normalize(v[j]).Mul(rows[1][j]).Add(rows[2][j]).Mul(p.Scale)
		}
		y.Store(i, v)
	}, weight, residual)
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
		host.Bound("Tokens", a.Tokens, 1, host.MaxSize/maxChosen), host.NonNegative("Eps", a.Eps), host.NonNil("Out", a.Out), host.NonNil("Shared", a.Shared),
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
