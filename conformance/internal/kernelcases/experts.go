package kernelcases

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// expertCase is the choice of k experts per token.
type expertCase struct {
	name, reason       string
	tokens, k, experts int
	width              int // of an expert's output
	place, residual    bool
	shared, gate       bool // results of a shared expert, and their weights
	unweighted         bool // all weights of experts are 1
	noPlace            bool // group without Place
	skew               bool // no token chooses some experts
	offset             int  // elements of float32 before the first row
	long               bool
}

func expertCases() []harness.Case {
	var all []harness.Case
	for _, c := range []expertCase{
		{name: "one token", reason: "decode", tokens: 1, k: 2, experts: 8},
		{name: "prompt", reason: "each warp has a range of tokens", tokens: 130, k: 8, experts: 40},
		{name: "odd", reason: "the last range is partial", tokens: 37, k: 3, experts: 5},
		{name: "unused experts", reason: "unchosen experts, such as the first and the last, have empty ranges", tokens: 20, k: 2, experts: 9, skew: true},
		{name: "no place", reason: "the positions of the choices are not wanted", tokens: 20, k: 2, experts: 9, noPlace: true},
		{name: "all warps", reason: "every warp has choices of every expert", tokens: 64, k: 8, experts: 8},
		{name: "long prompt", reason: "many iterations per warp", tokens: 3000, k: 8, experts: 128, long: true},
	} {
		all = append(all, harness.Case{Operation: "group", Format: "U32", Name: c.name, Reason: c.reason, Long: c.long, Run: func(r *harness.Fixture) { checkGroup(r, c) }})
	}
	rows := []expertCase{
		{name: "decode", reason: "the rows of a token are adjacent", tokens: 2, k: 2, width: 100},
		{name: "grouped", reason: "rows are sorted by expert", tokens: 5, k: 8, width: 131, place: true},
		{name: "residual", reason: "the residual is added last, in place", tokens: 3, k: 4, width: 1030, place: true, residual: true},
		{name: "shared", reason: "a shared expert's result is added", tokens: 3, k: 2, width: 1030, shared: true},
		{name: "weighted shared", reason: "a shared expert's result is weighted, and the residual is added last", tokens: 5, k: 4, width: 131, place: true, shared: true, gate: true, residual: true},
		{name: "unweighted", reason: "the weights are in the experts' inputs", tokens: 3, k: 2, width: 131, place: true, shared: true, residual: true, unweighted: true},
		{name: "unaligned", reason: "whole Vec4s at addresses that are not aligned to one", tokens: 2, k: 2, width: 100, offset: 1, residual: true},
		{name: "unaligned shared", reason: "the same of a shared expert", tokens: 2, k: 2, width: 100, offset: 1, shared: true, gate: true},
		{name: "one expert", reason: "one choice per token, and one element after whole Vec4s", tokens: 3, k: 1, width: 9, residual: true},
	}
	for k := 1; k <= 10; k++ {
		for _, place := range []bool{false, true} {
			rows = append(rows, expertCase{
				name: fmt.Sprintf("k=%d, place=%v", k, place), reason: "loads in flight beyond the last expert", tokens: 2, k: k, width: 20, place: place,
			})
		}
	}
	for _, c := range rows {
		all = append(all, harness.Case{Operation: "combine", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkCombine(r, c) }})
	}
	return all
}

func checkGroup(r *harness.Fixture, c expertCase) {
	var chosen []uint32
	for range c.tokens {
		if !c.skew {
			for _, e := range r.Rand().Perm(c.experts)[:c.k] {
				chosen = append(chosen, uint32(e))
			}
			continue
		}
		chosen = append(chosen, 5, uint32(2+r.Rand().IntN(2)))
	}
	n := len(chosen)
	offsets, order, place := r.Output("offsets", 4*(c.experts+1)), r.Output("order", 4*n), r.Output("place", 4*n)
	a := moe.GroupArgs{
		Chosen: r.U32s("chosen", chosen).Addr(), Offsets: offsets.Addr(), Order: order.Addr(), Place: place.Addr(),
		Tokens: c.tokens, K: c.k, Experts: c.experts,
	}
	if c.noPlace {
		a.Place = 0
	}
	spec := moe.Group()
	r.Launch(spec.Launch(r.Kernel(spec), a))
	wantOffsets, wantPlace := []uint32{0}, make([]uint32, n)
	var wantOrder []uint32
	for e := range uint32(c.experts) {
		for i, x := range chosen {
			if x == e {
				wantPlace[i] = uint32(len(wantOrder))
				wantOrder = append(wantOrder, uint32(i))
			}
		}
		wantOffsets = append(wantOffsets, uint32(len(wantOrder)))
	}
	harness.Exact(r, "offsets", offsets.U32s(), wantOffsets)
	harness.Exact(r, "order", order.U32s(), wantOrder)
	if c.noPlace {
		place.Untouched(0, 4*n)
		return
	}
	harness.Exact(r, "place", place.U32s(), wantPlace)
}

// places returns the row of the experts' results of each of n choices, and the address that a launch takes: 0 if they are in
// order.
func places(r *harness.Fixture, n int, permuted bool) (place []int, at ptx.Address) {
	if !permuted {
		return upTo(n), 0
	}
	var rows []uint32
	for _, p := range r.Rand().Perm(n) {
		place, rows = append(place, p), append(rows, uint32(p))
	}
	return place, r.U32s("place", rows).Addr()
}

func checkCombine(r *harness.Fixture, c expertCase) {
	n := c.tokens * c.k
	w, out, residual := r.Vector(harness.Gaussian, n), r.Vector(harness.Gaussian, n*c.width), r.Vector(harness.Gaussian, c.tokens*c.width)
	first := 4 * c.offset
	y := r.Output("y", first+4*len(residual))
	a := moe.CombineArgs{
		Out: r.Input("out", first+4*len(out)).SetF32s(first, out).At(first), Y: y.At(first),
		Tokens: c.tokens, K: c.k, Width: c.width,
	}
	var place []int
	if c.unweighted {
		w = slices.Repeat([]float32{1}, n)
	} else {
		a.Weights = r.F32s("weights", w).Addr()
	}
	place, a.Place = places(r, n, c.place)
	if c.residual {
		a.Residual = y.SetF32s(first, residual).At(first)
	}
	shared, gate := r.Vector(harness.Gaussian, c.tokens*c.width), slices.Repeat([]float32{1}, c.tokens)
	if c.shared {
		a.Shared = r.Input("shared", first+4*len(shared)).SetF32s(first, shared).At(first)
	}
	if c.gate {
		gate = r.Vector(harness.Gaussian, c.tokens)
		a.SharedWeights = r.F32s("shared weights", gate).Addr()
	}
	spec := moe.Combine()
	r.Launch(spec.Launch(r.Kernel(spec), a))
	var want []harness.Ref
	for t := range c.tokens {
		for i := range c.width {
			column := make([]float32, c.k)
			for s := range column {
				column[s] = out[place[t*c.k+s]*c.width+i]
			}
			ref := harness.Dot(w[t*c.k:][:c.k], column)
			if c.shared {
				ref = ref.Plus(float64(gate[t]) * float64(shared[t*c.width+i]))
			}
			if c.residual {
				ref = ref.Plus(float64(residual[t*c.width+i]))
			}
			want = append(want, ref)
		}
	}
	y.Untouched(0, first)
	r.Close(fmt.Sprintf("%d of %d", c.k, n), y.FloatsAt(quant.F32, first, len(residual)), want, c.width, harness.Tolerance{L: c.k + 2})
}
