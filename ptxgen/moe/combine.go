package moe

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

const (
	combineThreads = 256 // per CTA; each has one Vec4
	combineLoads   = 8   // results of experts that a thread has in flight
)

// Combine adds the weighted results of each token's experts, in the order of choice:
//
//	y[t,i] = w[t,0]*out[r(t,0),i] + w[t,1]*out[r(t,1),i] + … + u[t]*shared[t,i] + residual[t,i]
//
// where r(t,s) = place[t*K+s], or t*K+s without Place, w[t,s] is 1 without Weights, and u[t] is 1 without SharedWeights.
// The sum is a chain of fused multiply-adds from 0; then the residual is added.
func Combine() kernel.Typed[CombineArgs] {
	return kernel.New("moe_combine", buildCombine, launchCombine)
}

type combineParams struct {
	Shared, SharedWeights, Residual, Y ptx.Global
	Parts                              ptx.U32 // CTAs per token
}

// sumParams are the parameters of the weighted sum over the experts of each token.
type sumParams struct {
	Weights, Out, Place ptx.Global
	Width, K            ptx.U32
}

// row returns row r of a matrix with Width columns.
func (p *sumParams) row(b *ptx.Builder, x ptx.Global, r ptx.U32) device.Row {
	return device.RowAt(b, quant.F32, x.AtBytes(r.MulWide(p.Width).ShlN(2)).Aligned(4), p.Width)
}

// optional returns row r of a matrix, or a row of width 0 if there is no matrix.
func (p *sumParams) optional(b *ptx.Builder, x ptx.Global, r ptx.U32) device.Row {
	row := p.row(b, x, r)
	row.Width = ptx.Select(device.NonNil(b, x), p.Width, b.U32(0))
	return row
}

// sum returns Vec4 i of the weighted sum over the experts of a token, in variables. A thread has the given number of
// experts' results in flight.
func (p *sumParams) sum(b *ptx.Builder, token, i ptx.U32, loads int) device.Vec4 {
	var sum device.Vec4
	for j := range sum {
		sum[j] = ptx.Var(b.F32(0))
	}
	hasPlace, hasWeights := device.NonNil(b, p.Place), device.NonNil(b, p.Weights)
	b.For(b.U32(0), p.K, b.N(loads), func(first ptx.U32) {
		choice := token.Mul(p.K).Add(first)
		place, weight := p.Place.At(choice, 4), p.Weights.At(choice, 4)
		exists, r, w, x := make([]ptx.Pred, loads), make([]ptx.U32, loads), make([]ptx.F32, loads), make([]device.Vec4, loads)
		for n := range x {
			exists[n] = first.AddN(n).Lt(p.K)
			r[n], w[n] = ptx.Var(ptx.Select(exists[n], choice.AddN(n), choice)), ptx.Var(b.F32(1))
			b.When(hasPlace.And(exists[n]), func() { ptx.Set(r[n], place.Plus(4*n).LoadU32()) })
			b.When(hasWeights.And(exists[n]), func() { ptx.Set(w[n], weight.Plus(4*n).LoadF32()) })
		}
		for n := range x {
			x[n] = p.row(b, p.Out, r[n]).Load(i, 0)
		}
		for n := range x {
			b.If(exists[n], func() {
				for j, v := range x[n] {
					ptx.Set(sum[j], w[n].FMA(v, sum[j]))
				}
			})
		}
	}, ptx.NoUnroll)
	return sum
}

func buildCombine(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("y[t,i] = sum over s of w[t,s] * out[place[t*k+s],i], then shared_weights[t] * shared[t,i] and residual[t,i]")
	var experts sumParams
	ptx.Declare(b, &experts)
	var p combineParams
	ptx.Declare(b, &p)
	token := b.BlockX().Div(p.Parts)
	i := b.BlockX().Sub(token.Mul(p.Parts)).MulN(combineThreads).Add(b.ThreadX())
	dst := experts.row(b, p.Y, token)
	b.ReturnIf(i.Ge(dst.Vec4s()))
	hasShared, hasResidual := device.NonNil(b, p.Shared), device.NonNil(b, p.Residual)
	shared, residual, w := experts.optional(b, p.Shared, token).Load(i, 0), experts.optional(b, p.Residual, token).Load(i, 0), ptx.Var(b.F32(1))
	b.When(device.NonNil(b, p.SharedWeights), func() { ptx.Set(w, p.SharedWeights.At(token, 4).LoadF32()) })
	sum := experts.sum(b, token, i, combineLoads)
	for j, v := range sum {
		v = ptx.Select(hasShared, w.FMA(shared[j], v), v)
		sum[j] = ptx.Select(hasResidual, v.Add(residual[j]), v)
	}
	dst.Store(i, sum)
	return b.Finish(ptx.MaxThreads(combineThreads), ptx.MinCTAs(3)) // registers for all loads in flight
}

// CombineArgs are the arguments of a launch of Combine.
type CombineArgs struct {
	Weights       ptx.Address // f32 [Tokens, K], as Route wrote them; 0: all 1
	Out           ptx.Address // f32 [Tokens*K, Width], the experts' results
	Place         ptx.Address // u32 [Tokens, K], the row of Out of each choice; 0: in order
	Shared        ptx.Address // f32 [Tokens, Width], the shared expert's results; 0: none
	SharedWeights ptx.Address // f32 [Tokens], as Route wrote them; 0: all 1
	Residual      ptx.Address // f32 [Tokens, Width]; 0: none
	Y             ptx.Address // f32 [Tokens, Width]; may be Residual
	Tokens        int
	K             int // experts per token
	Width         int
}

func launchCombine(k *ptx.Kernel, a CombineArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("Width", a.Width, 1, host.MaxSize), host.Bound("K", a.K, 1, maxChosen)); err != nil {
		return ptx.Launch{}, err
	}
	parts := host.CeilDiv(a.Width, 4*combineThreads)
	if err := host.Valid(k, host.Bound("Tokens", a.Tokens, 1, host.MaxSize/max(parts, maxChosen)),
		host.NonNil("Out", a.Out), host.NonNil("Y", a.Y),
		host.Refuse(a.SharedWeights != 0 && a.Shared == 0, "SharedWeights", "there are no results of a shared expert")); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Tokens * parts), 1, 1}, combineThreads, 0, &sumParams{
		Weights: ptx.Addr(a.Weights), Out: ptx.Addr(a.Out), Place: ptx.Addr(a.Place), Width: ptx.Uint(a.Width), K: ptx.Uint(a.K),
	}, &combineParams{
		Shared: ptx.Addr(a.Shared), SharedWeights: ptx.Addr(a.SharedWeights), Residual: ptx.Addr(a.Residual), Y: ptx.Addr(a.Y), Parts: ptx.Uint(parts),
	})
}
