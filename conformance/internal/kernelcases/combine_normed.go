package kernelcases

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// combineNormedCase combines the results of k experts per token and normalizes them.
type combineNormedCase struct {
	name, reason     string
	tokens, k, width int
	place            bool
	unweighted       bool    // all weights are 1
	scale            float32 // of the result; 0: 1
	experts, shared  float32 // scales of the results of the experts and of the shared expert; 0: 1
	norms            float32 // scale of the weights of the first norms; 0: 1
	eps              float32 // 0: 1e-6
	offset           int     // elements before the first row
	spikes           bool    // one number of each row is large
}

func combineNormedCases() []harness.Case {
	rows := []combineNormedCase{
		{name: "decode", reason: "the rows of a token are adjacent", tokens: 1, k: 8, width: 390},
		{name: "grouped", reason: "rows are sorted by expert, and the result is scaled", tokens: 3, k: 5, width: 131, place: true, scale: -0.3},
		{name: "unweighted", reason: "the weights are in the experts' inputs", tokens: 2, k: 2, width: 132, unweighted: true},
		{name: "seven experts", reason: "one of the loads in flight is beyond the last expert; a tail of two elements", tokens: 2, k: 7, width: 130},
		{name: "one expert", reason: "a row with less than one vec4 per lane", tokens: 3, k: 1, width: 9},
		{name: "whole CTA", reason: "each thread has one vec4", tokens: 1, k: 1, width: 128},
		{name: "squares overflow, wide", reason: "squares overflow in a row of several warps", tokens: 1, k: 1, width: 300, experts: 0x1p100, shared: 0x1p100, norms: 0x1p100},
		{name: "beyond registers", reason: "a row longer than the registers of a CTA; the sum of one warp is nearly that of all", tokens: 2, k: 2, width: 4230, spikes: true},
		{name: "unaligned", reason: "whole Vec4s at addresses that are not aligned to one", tokens: 2, k: 3, width: 132, offset: 1},
		{name: "small", reason: "squares are far below the numbers", tokens: 2, k: 3, width: 38, experts: 0x1p-20, shared: 0x1p-20, norms: 0x1p-20, eps: 1e-30},
	}
	for _, scale := range []float32{0x1p-45, 0x1p-44, 0x1p-43, 0x1p60, 0x1.ap60, 0x1p100} {
		reason := "a sum of squares that overflows, vanishes or nearly does"
		rows = append(rows,
			combineNormedCase{name: fmt.Sprintf("experts, scale=%g", scale), reason: reason, tokens: 1, k: 2, width: 64, experts: scale, eps: 1e-30},
			combineNormedCase{name: fmt.Sprintf("shared, scale=%g", scale), reason: reason, tokens: 1, k: 2, width: 64, shared: scale, eps: 1e-30},
			combineNormedCase{name: fmt.Sprintf("sum, scale=%g", scale), reason: reason, tokens: 1, k: 2, width: 64, norms: scale, eps: 1e-30})
	}
	var all []harness.Case
	for _, c := range rows {
		all = append(all, harness.Case{Operation: "combine and norm", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkCombineNormed(r, c) }})
	}
	return all
}

func checkCombineNormed(r *harness.Fixture, c combineNormedCase) {
	n, first, eps := c.tokens*c.k, 4*c.offset, cmp.Or(c.eps, 1e-6)
	vector := func(n int, scale float32) []float32 {
		x := r.Vector(harness.Gaussian, n)
		for i := range x {
			x[i] *= cmp.Or(scale, 1)
		}
		return x
	}
	input := func(name string, x []float32) ptx.Address {
		return r.Input(name, first+4*len(x)).SetF32s(first, x).At(first)
	}
	w, out, shared := vector(n, 1), vector(n*c.width, c.experts), vector(c.tokens*c.width, c.shared)
	if c.spikes {
		out[21*c.width/32], shared[10*c.width/32] = 1000, 1000
	}
	residual, expertNorm, sharedNorm, weight := vector(c.tokens*c.width, 1), vector(c.width, c.norms), vector(c.width, c.norms), vector(c.width, 1)
	y := r.Output("y", first+4*len(residual)).SetF32s(first, residual)
	a := moe.CombineNormedArgs{
		Out: input("out", out), Shared: input("shared", shared), ExpertNorm: input("expert norm", expertNorm), SharedNorm: input("shared norm", sharedNorm),
		Weight: input("weight", weight), Residual: y.At(first), Mixed: r.Scratch("mixed", first+4*len(residual)).At(first), Y: y.At(first),
		Tokens: c.tokens, K: c.k, Width: c.width, Eps: eps, Scale: c.scale,
	}
	var place []int
	if c.unweighted {
		w = slices.Repeat([]float32{1}, n)
	} else {
		a.Weights = r.F32s("weights", w).Addr()
	}
	place, a.Place = places(r, n, c.place)
	spec := moe.CombineNormed()
	r.Launch(spec.Launch(r.Kernel(spec), a))

	const u = harness.UnitRoundoff
	for t := range c.tokens {
		sum, bound := make([]float64, c.width), make([]float64, c.width)
		for s := range c.k {
			for i, v := range out[place[t*c.k+s]*c.width:][:c.width] {
				product := float64(w[t*c.k+s]) * float64(v)
				sum[i] += product
				bound[i] += gamma(c.k) * math.Abs(product)
			}
		}
		sum, bound = normWithin(sum, bound, expertNorm, float64(eps))
		of, ofBound := make([]float64, c.width), make([]float64, c.width)
		for i := range of {
			of[i] = float64(shared[t*c.width+i])
		}
		of, ofBound = normWithin(of, ofBound, sharedNorm, float64(eps))
		for i, v := range of {
			sum[i] += v
			bound[i] += ofBound[i] + u*(math.Abs(sum[i])+bound[i])
		}
		sum, bound = normWithin(sum, bound, weight, float64(eps))
		scale := float64(cmp.Or(c.scale, 1))
		for i := range sum {
			sum[i] = (sum[i] + float64(residual[t*c.width+i])) * scale
			bound[i] = bound[i]*math.Abs(scale) + 2.01*u*math.Abs(sum[i]) + 0x1p-149
		}
		r.Within(fmt.Sprintf("token %d", t), y.FloatsAt(quant.F32, first+4*t*c.width, c.width), sum, bound)
	}
	y.Untouched(0, first)
}

// normWithin normalizes a row, and propagates the bounds of its errors. The norm itself adds 8u.
func normWithin(x, bound []float64, w []float32, eps float64) (y, yBound []float64) {
	square, cross := eps, 0.0
	for i, v := range x {
		square += v * v / float64(len(x))
		cross += (math.Abs(v)*bound[i] + bound[i]*bound[i]) / float64(len(x))
	}
	for i, v := range x {
		v *= float64(w[i]) / math.Sqrt(square)
		y = append(y, v)
		yBound = append(yBound, 1.01*(bound[i]*math.Abs(float64(w[i]))/math.Sqrt(square)+math.Abs(v)*cross/square)+8*harness.UnitRoundoff*math.Abs(v))
	}
	return y, yBound
}
