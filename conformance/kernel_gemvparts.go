package conformance

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// gemvBlock is how many weights of a row a warp takes at a time.
func gemvBlock(f quant.Format) int {
	if f.BlockLen() == 1 {
		return 1024
	}
	return 256
}

// fewBlocks is a width of a few blocks of which the last is not whole, where that may be.
func fewBlocks(f quant.Format, n int) int {
	switch f.BlockLen() {
	case 1:
		return min(n, 9)*gemvBlock(f) - 38 // no whole quads, either; of more blocks the warps take turns as of nine
	case 32:
		return n*gemvBlock(f) - 32
	}
	return n * gemvBlock(f)
}

// gemvKinds has a format of each way to multiply: as numbers, with a scale a unit, with
// integer scales, and with those of half a unit.
var gemvKinds = []quant.Format{quant.F16, quant.Q4_1, quant.Q4_K, quant.Q6_K}

// addGemvParts adds cases of how rows and vectors are cut up.
func addGemvParts(add addGemv, f quant.Format) {
	list := []gemvCase{
		{name: "rounds", reason: "a CTA with more tiles than it finishes at a time", rows: 151, k: 8 * gemvBlock(f), ctas: 2},
		{name: "slices", reason: "a vector of which little fits: the parts meet in memory, or the warps of a row wait for each", rows: 37, k: fewBlocks(f, 5), slices: 16, ctas: 1},
	}
	if slices.Contains(gemvKinds, f) {
		if f.BlockLen() == 1 {
			addGemvColumnParts(add, f)
		}
		list = append(list,
			gemvCase{name: "rows=1", reason: "most of a tile is beyond the matrix", rows: 1, k: fewBlocks(f, 6)},
			gemvCase{name: "rows=16", reason: "a whole tile", rows: 16, k: 256},
			gemvCase{name: "rows=600", reason: "a block a row: as many tiles as a CTA has warps, several times", rows: 600, k: gemvBlock(f), ctas: 1},
			gemvCase{name: "rounds after rounds", reason: "the first buffer of results has its second turn", rows: 300, k: 8 * gemvBlock(f), ctas: 1},
			gemvCase{name: "turns", reason: "a CTA's tiles, whose rows warps share, take turns with two buffers", rows: 21, k: 2048, ctas: 1},
			gemvCase{name: "two slices", reason: "of several parts each, in several CTAs", rows: 300, k: fewBlocks(f, 5), slices: 2, ctas: 4},
			gemvCase{name: "many slices", reason: "as many as there may be", rows: 5, k: fewBlocks(f, 17), slices: 16},
			gemvCase{name: "one long row", reason: "a warp stages several parts of a long vector at a time", rows: 1, k: 28672},
			gemvCase{name: "slices, many CTAs", reason: "any of which may be the last", rows: 600, k: 5120, slices: 16, long: true},
		)
	}
	for _, c := range list {
		c.spec.Format = f
		if f.BlockLen() == 1 {
			c.rows = min(c.rows, 81) // many tiles
		}
		add("gemv", c, checkGemvTwice)
	}
	spec := ptxgen.Gemv{Format: f}
	add("gemv", gemvCase{name: "block by block", reason: "each block has its own power of two, up to the largest and down to the least", spec: spec, rows: 5, k: fewBlocks(f, 3)}, checkGemvBlocks)
	add("gemv", gemvCase{name: "no number", reason: "one NaN or infinite element and no row is a number", spec: spec, rows: 21, k: fewBlocks(f, 3)}, checkGemvNaN)
	if slices.Contains(gemvKinds, f) {
		add("gemv", gemvCase{name: "no number, slices", reason: "NaN is a sum like others where slices meet", spec: spec, rows: 5, k: fewBlocks(f, 5), slices: 16}, checkGemvNaN)
	}
}

// addGemvColumnParts adds cases of how several vectors are cut up.
func addGemvColumnParts(add addGemv, f quant.Format) {
	one, two := ptxgen.Gemv{Format: f, Columns: 4}, ptxgen.Gemv{Format: f, Columns: 4, Gated: true}
	list := []gemvCase{
		{name: "slices", reason: "how much is staged at a time has no part in the bits", spec: one, k: fewBlocks(f, 17), columns: 4, slices: 16},
		{name: "slices, gated", reason: "two matrices wait for what is staged", spec: two, k: fewBlocks(f, 5), columns: 3, slices: 2, ctas: 4},
		{name: "rounds", reason: "tile after tile for several vectors", spec: one, k: fewBlocks(f, 9), columns: 3, ctas: 1},
		{name: "rounds, gated", reason: "the results of two matrices take turns", spec: two, k: fewBlocks(f, 17), columns: 4, ctas: 1},
		{name: "RMSNorm", reason: "each vector has its own moments", spec: one, k: fewBlocks(f, 3), columns: 4, norm: ptxgen.RMSNorm},
		{name: "RMSNorm, slices", reason: "of a norm that needs all of the vector", spec: two, k: fewBlocks(f, 3), columns: 3, slices: 2, norm: ptxgen.RMSNorm},
		{name: "LayerNorm", reason: "each vector is staged after its own moments", spec: one, k: fewBlocks(f, 3), columns: 3, norm: ptxgen.LayerNorm},
		{name: "LayerNorm, gated", reason: "before two matrices, too", spec: two, k: fewBlocks(f, 5), columns: 4, norm: ptxgen.LayerNorm},
		{name: "more than the kernel has", reason: "other CTAs take them", spec: one, k: fewBlocks(f, 2), columns: 9, norm: ptxgen.RMSNorm},
	}
	for _, c := range list {
		c.rows = 21 // some tiles
		add("gemv columns", c, checkGemvColumns)
	}
}

// checkGemvTwice launches a product twice: the first launch leaves the workspace as it
// was.
func checkGemvTwice(r *KernelRig, c gemvCase) {
	x := r.Vector(c.dist, c.k)
	w, file := r.packed("w", c.spec.Format, c.rows, c.k)
	first, second := r.Output("first", 4*c.rows), r.Output("second", 4*c.rows)
	a := c.launch(r, c.spec, c.args(r.F32s("x", x), w, first))
	a.Y = second.Addr()
	c.launch(r, c.spec, a)
	r.Close("y", first.F32s(), MatVecRef(c.spec.Format, file, c.rows, c.k, x), c.rows, Tolerance{L: c.spec.Depth(c.k), Correlated: true})
	Exact(r, "again", second.F32s(), first.F32s())
}

// checkGemvBlocks multiplies vectors of which one block alone is not zero, and that is of
// a given size. The exponents are those around which integers are scaled differently.
func checkGemvBlocks(r *KernelRig, c gemvCase) {
	w, file := r.packed("w", c.spec.Format, c.rows, c.k)
	block := gemvBlock(c.spec.Format)
	for i, exponent := range []int{-126, -112, -111, -110, -109, -64, -63, -62, 0, 64, 118} {
		x := make([]float32, c.k)
		at := i * block % c.k
		data := r.Vector(Gaussian, min(block, c.k-at))
		var largest float64
		for _, v := range data {
			largest = max(largest, math.Abs(float64(v)))
		}
		for j, v := range data {
			x[at+j] = float32(math.Ldexp(float64(v)/largest*1.5, exponent))
		}
		out := r.Output("y", 4*c.rows)
		c.launch(r, c.spec, c.args(r.F32s("x", x), w, out))
		r.Close(fmt.Sprintf("2^%d", exponent), out.F32s(), MatVecRef(c.spec.Format, file, c.rows, c.k, x), c.rows, Tolerance{L: c.spec.Depth(c.k), Correlated: true})
	}
}

// checkGemvNaN multiplies vectors with an element that is no finite number. Where weights
// are numbers by themselves, an infinite one may give infinite rows.
func checkGemvNaN(r *KernelRig, c gemvCase) {
	w, _ := r.packed("w", c.spec.Format, c.rows, c.k)
	for i, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := r.Vector(Gaussian, c.k)
		x[(i*gemvBlock(c.spec.Format)+7)%c.k] = float32(odd)
		out := r.Output("y", 4*c.rows)
		c.launch(r, c.spec, c.args(r.F32s("x", x), w, out))
		got, want := out.F32s(), make([]float32, c.rows)
		for j := range want {
			want[j] = float32(math.NaN())
			if c.spec.Format.BlockLen() == 1 && math.IsInf(float64(got[j]), 0) && i > 0 {
				want[j] = got[j]
			}
		}
		Exact(r, fmt.Sprintf("with %v", odd), got, want)
	}
}
