package conformance

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// productCases are products of several vectors with a norm in front, of the largest
// quants and scales, and such whose sums are zeros or meet in memory.
func productCases() []KernelCase {
	all := []KernelCase{{
		Operation: "gemv", Format: quant.Q8_0.String(), Name: "Q8_0/minus zero",
		Reason: "how a row is cut has no part in the sign of a zero", Run: checkMinusZero,
	}, {
		Operation: "gemv", Format: quant.Q4_0.String(), Name: "Q4_0/one workspace",
		Reason: "launches of any shape use one after the other", Run: checkOneWorkspace,
	}}
	for f := range blockScales {
		all = append(all, KernelCase{
			Operation: "gemv", Format: f.String(), Name: fmt.Sprintf("%v/extremes", f),
			Reason: "sums of the largest quants, scales and digits fit 32 bits", Run: func(r *KernelRig) { checkExtremes(r, f, false) },
		}, KernelCase{
			Operation: "gemv batch", Format: f.String(), Name: fmt.Sprintf("%v/extremes", f), Long: true,
			Reason: "so do those of several vectors' kernel", Run: func(r *KernelRig) { checkExtremes(r, f, true) },
		})
	}
	slices.SortFunc(all, func(a, b KernelCase) int { return strings.Compare(a.ID(), b.ID()) })
	for _, t := range []struct {
		reason  string
		kernel  int // its columns
		columns int
	}{
		{"an unused column is staged, too", 4, 3},
		{"more vectors than a CTA has warps", 16, 16},
		{"other CTAs take what the kernel has no columns for", 1, 16},
	} {
		for _, norm := range []ptxgen.NormKind{ptxgen.RMSNorm, ptxgen.LayerNorm} {
			c := gemvCase{spec: ptxgen.Gemv{Format: quant.F16, Columns: t.kernel}, rows: 5, k: 1024, columns: t.columns}
			all = append(all, KernelCase{
				Operation: "gemv columns", Format: c.spec.Format.String(),
				Name:   fmt.Sprintf("%v/%d normed by %d in a kernel of %d", c.spec.Format, t.columns, norm, t.kernel),
				Reason: t.reason, Run: func(r *KernelRig) { checkNormedColumns(r, c, norm) },
			})
		}
	}
	return all
}

// checkNormedColumns compares every column with a launch of its own. The vectors are of
// unlike sizes; one's squares overflow, so that it is staged in another way.
func checkNormedColumns(r *KernelRig, c gemvCase, norm ptxgen.NormKind) {
	data := r.Vector(Gaussian, c.columns*c.k)
	for i := range data {
		switch column := i / c.k; column {
		case 1:
			data[i] *= 0x1p70
		default:
			data[i] *= float32(1 + column)
		}
	}
	x, weight := r.F32s("x", data), r.F32s("weight", r.Vector(Gaussian, c.k))
	w, _ := r.packed("w", c.spec.Format, c.rows, c.k)
	y := r.Output("y", 4*c.columns*c.rows)
	a := c.args(x, w, y)
	a.Norm, a.NormWeight, a.Eps = norm, weight.Addr(), 1
	c.launch(r, c.spec, a)
	one := c.spec
	one.Columns = 1
	alone := r.Output("alone", 4*c.columns*c.rows)
	for i := range c.columns {
		b := a
		b.X, b.Y, b.Columns = x.At(4*i*c.k), alone.At(4*i*c.rows), 1
		c.launch(r, one, b)
	}
	Exact(r, fmt.Sprintf("norm %d", norm), y.F32s(), alone.F32s())
}

// checkMinusZero cuts a row whose every product is a negative number too small for a
// float32 in different ways.
func checkMinusZero(r *KernelRig) {
	const blocks = 16 // as many parts
	spec := ptxgen.Gemv{Format: quant.Q8_0}
	c := gemvCase{spec: spec, rows: 1, k: blocks * 256, columns: 1}
	var file []byte
	for range c.k / 32 {
		file = append(file, 1, 0) // the least scale, 2^-24
		file = append(file, slices.Repeat([]byte{1}, 32)...)
	}
	w := r.Bytes("w", packedBytes(spec.Format, file, c.rows, c.k))
	x := r.F32s("x", slices.Repeat([]float32{-(0x1p-139 + 0x1p-147)}, c.k))
	want := []float32{float32(math.Copysign(0, -1))}
	for _, most := range []int{0, 2, blocks} {
		c.slices = most
		y := r.Output("y", 4)
		c.launch(r, spec, c.args(x, w, y))
		Exact(r, fmt.Sprintf("at most %d slices", most), y.F32s(), want)
	}
}

// checkOneWorkspace launches products of few and many rows, cut into slices, with one
// workspace and with one each.
func checkOneWorkspace(r *KernelRig) {
	spec := ptxgen.Gemv{Format: quant.Q4_0}
	k := r.Kernel(spec)
	var own []int
	var args []ptxgen.GemvArgs
	var together, alone []*Mem
	for _, rows := range []int{33, 1700, 17} {
		c := gemvCase{spec: spec, rows: rows, k: 512, slices: 2}
		w, _ := r.packed("w", spec.Format, rows, c.k)
		together, alone = append(together, r.Output("together", 4*rows)), append(alone, r.Output("alone", 4*rows))
		a := c.fit(spec, k, c.args(r.F32s("x", r.Vector(Gaussian, c.k)), w, alone[len(alone)-1]))
		bytes, err := spec.Workspace(k, a)
		if err != nil {
			r.Fatalf("%v", err)
		}
		own, args = append(own, bytes), append(args, a)
	}
	workspace := func(bytes int) uint64 {
		return uint64(r.Output("workspace", bytes).Set(0, make([]byte, bytes)).Addr())
	}
	shared := workspace(slices.Max(own))
	for i, a := range args {
		a.Workspace = workspace(own[i])
		r.Launch(spec.Launch(k, a))
		a.Workspace, a.Y = shared, together[i].Addr()
		r.Launch(spec.Launch(k, a))
		Exact(r, fmt.Sprintf("%d rows", a.Rows), together[i].F32s(), alone[i].F32s())
	}
}

// blockScales is where a block has its float16 scales: from one byte to another.
var blockScales = map[quant.Format][2]int{
	quant.Q4_0: {0, 2}, quant.Q4_1: {0, 4}, quant.Q5_0: {0, 2}, quant.Q5_1: {0, 4}, quant.Q8_0: {0, 2},
	quant.Q2_K: {80, 84}, quant.Q3_K: {108, 110}, quant.Q4_K: {0, 4}, quant.Q5_K: {0, 4}, quant.Q6_K: {208, 210},
	quant.IQ4_NL: {0, 2}, quant.IQ4_XS: {0, 2},
}

// checkExtremes multiplies blocks all of whose bytes but the float16 scales are one
// value by numbers whose digits to the base of 256 are the least: -63 and three times
// -128. Together says whether the kernel of several vectors does so, too.
func checkExtremes(r *KernelRig, f quant.Format, together bool) {
	spec := ptxgen.Gemv{Format: f}
	c := gemvCase{spec: spec, k: 512, columns: 1}
	var file []byte
	for _, fill := range []byte{0x00, 0x7F, 0x80, 0x88, 0xF0, 0x0F, 0xFF} {
		block := slices.Repeat([]byte{fill}, f.BlockBytes())
		for at := subScales[f][0]; at < subScales[f][1] && fill == 0xFF; at++ {
			block[at] = 0x80
		}
		for at := blockScales[f][0]; at < blockScales[f][1]; at += 2 {
			block[at], block[at+1] = 0x00, 0x3C // 1
		}
		file = append(file, slices.Repeat(block, c.k/f.BlockLen())...)
		c.rows++
	}
	x := slices.Repeat([]float32{-0x3F808080}, c.k)
	y := r.Output("y", 4*c.rows)
	xs, ws := r.F32s("x", x), r.Bytes("w", packedBytes(f, file, c.rows, c.k))
	vector, w := xs.Addr(), ws.Addr()
	c.launch(r, spec, c.args(xs, ws, y))
	r.Close("y", y.F32s(), MatVecRef(f, file, c.rows, c.k, x), c.rows, Tolerance{L: spec.Depth(c.k), Correlated: true})
	if !together {
		return
	}
	for _, wide := range []bool{false, true} {
		batch := batchCase{spec: ptxgen.GemvBatch{Format: f, Columns: 4}, wide: wide, rows: c.rows, k: c.k}
		if wide && (len(wideCasesOf(f)) == 0 || !takesWarpgroups(r)) {
			continue
		}
		before := batch.kernel().Digits()
		digits, several := r.Output("digits", int(before.Bytes(c.k, 1))), r.Output("y of several", 4*c.rows)
		r.Launch(before.Launch(r.Kernel(before), ptxgen.DigitsArgs{X: vector, Out: digits.Addr(), K: c.k, Vectors: 1}))
		batch.launch(r, ptxgen.GemvBatchArgs{Digits: digits.Addr(), W: w, Y: several.Addr(), Rows: c.rows, K: c.k, Columns: 1, Shared: gemvShared})
		Exact(r, fmt.Sprintf("y of several, wide %v", wide), several.F32s(), y.F32s())
	}
}

// subScales is where a block has a byte of scale a sub-block, which may be the least there is
// while its quants are the largest.
var subScales = map[quant.Format][2]int{quant.Q6_K: {192, 208}}
