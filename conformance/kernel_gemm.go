package conformance

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// gemmCase is one product.
type gemmCase struct {
	name, reason string
	spec         ptxgen.GEMM
	m, n, k      int
	dist         Distribution
	long         bool

	bias, residual bool
	act            ptxgen.Activation
	gap            int // elements between the rows of y
	check          func(r *KernelRig, c gemmCase)
}

// gemmShape is the reachable shape for m rows on a device that has room for any.
func gemmShape(f, input quant.Format, m int) ptxgen.GEMM {
	return ptxgen.GEMMFor(f, input, m, 4096, 132, 1<<18)
}

func gemmCases() []KernelCase {
	cases := gemmReachable()
	cases = append(cases, gemmWidths()...)
	cases = append(cases, gemmNumbers()...)
	cases = append(cases, gemmTiles()...)
	cases = append(cases, gemmEpilogues()...)
	cases = append(cases, gemmLarge()...)
	var all []KernelCase
	for _, c := range cases {
		if c.check == nil {
			c.check = checkGEMM
		}
		all = append(all, KernelCase{
			Operation: "gemm", Format: c.spec.Format.String(), Reason: c.reason, Long: c.long,
			Name: fmt.Sprintf("%v/%v/%s", c.spec.Format, c.spec.Input, c.name),
			Run:  func(r *KernelRig) { c.check(r, c) },
		})
	}
	return append(all, gemmExpertCases()...)
}

// gemmReachable is a tile, not quite full, for every kernel that engines use, and a few columns.
func gemmReachable() []gemmCase {
	var all []gemmCase
	for _, s := range ptxgen.Reachable() {
		spec, ok := s.(ptxgen.GEMM)
		if !ok {
			continue
		}
		k := 256
		if spec.Format.BlockLen() <= 32 {
			k = 224 // no multiple of BlockK
		}
		all = append(all, gemmCase{
			name:   fmt.Sprintf("tile %dx%dx%d", spec.BlockM, spec.BlockN, spec.BlockK),
			reason: "each kernel, with a tile that rows and columns do not fill, and stages filled again",
			spec:   spec, m: spec.BlockM - 3, n: spec.BlockN - 5, k: k,
		}, gemmCase{
			name:   fmt.Sprintf("tile %dx%dx%d, columns", spec.BlockM, spec.BlockN, spec.BlockK),
			reason: "each kernel, with columns that end between the second and the third of four, and copies under way to where the sums go",
			spec:   spec, m: 1, n: 6, k: max(2*spec.BlockK, spec.Format.BlockLen()),
		})
	}
	return all
}

// gemmWidths is every format with every row length, a few rows and columns.
func gemmWidths() []gemmCase {
	var all []gemmCase
	for _, f := range quant.Formats() {
		for _, k := range Widths(f) {
			all = append(all, gemmCase{
				name: fmt.Sprintf("k=%d", k), reason: WidthReason(k), spec: gemmShape(f, quant.F16, 1),
				m: 3, n: 5, k: k, long: k > 4096,
			})
		}
	}
	return all
}

// gemmNumbers is kinds of numbers, for a format of each kind of decoding.
func gemmNumbers() []gemmCase {
	var all []gemmCase
	add := func(f, input quant.Format, k int) {
		for _, d := range Distributions() {
			all = append(all, gemmCase{
				name: fmt.Sprintf("%v", d), reason: "such numbers", spec: gemmShape(f, input, 1), m: 9, n: 33, k: k, dist: d,
			})
		}
	}
	for _, f := range []quant.Format{quant.Q4_K, quant.Q6_K, quant.Q8_0, quant.F16, quant.F32} {
		add(f, quant.F16, 512)
	}
	for _, f := range []quant.Format{quant.Q4_0, quant.Q5_0, quant.IQ4_NL} { // rounded in half arithmetic
		add(f, quant.F16, 96)
	}
	add(quant.F32, quant.BF16, 512)
	add(quant.BF16, quant.BF16, 512)
	for _, input := range []quant.Format{quant.F16, quant.BF16} {
		all = append(all, gemmCase{
			name: "not numbers", reason: "NaN and infinities stay in their row and column", spec: gemmShape(quant.F32, input, 1),
			m: 7, n: 9, k: 70, check: checkGEMMNotNumbers,
		})
	}
	return all
}

// gemmTiles is other tile sizes and stages, which must not change a bit.
func gemmTiles() []gemmCase {
	var all []gemmCase
	for _, s := range []struct {
		reason string
		ptxgen.GEMM
	}{
		{"one warp, chunks of half a line", ptxgen.GEMM{BlockM: 16, BlockN: 32, BlockK: 32, Stages: 2, WarpsM: 1, WarpsN: 1}},
		{"a deep ring", ptxgen.GEMM{BlockM: 16, BlockN: 64, BlockK: 32, Stages: 5, WarpsM: 1, WarpsN: 2}},
		{"two units a thread", ptxgen.GEMM{BlockM: 32, BlockN: 64, BlockK: 64, Stages: 2, WarpsM: 1, WarpsN: 2}},
		{"rows that are no pair of passes, pairs of units one after the other", ptxgen.GEMM{BlockM: 64, BlockN: 32, BlockK: 128, Stages: 3, WarpsM: 4, WarpsN: 1}},
	} {
		for _, f := range []quant.Format{quant.Q4_K, quant.Q5_0, quant.F16, quant.BF16} {
			spec := s.GEMM
			spec.Format, spec.Input = f, quant.F16
			all = append(all, gemmCase{
				name: fmt.Sprintf("%dx%dx%d, %d stages", s.BlockM, s.BlockN, s.BlockK, s.Stages), reason: s.reason,
				spec: spec, m: 2*s.BlockM + 1, n: s.BlockN + 7, k: 512, check: checkGEMMShapes,
			})
		}
	}
	for _, f := range []quant.Format{quant.Q8_0, quant.BF16} {
		all = append(all, gemmCase{
			name: "alone", reason: "a row's bits do not depend on how many there are, nor on its place", spec: gemmShape(f, quant.BF16, 1),
			m: 19, n: 34, k: 288, check: checkGEMMAlone,
		})
	}
	return all
}

// gemmEpilogues is what happens to the sums.
func gemmEpilogues() []gemmCase {
	table := []gemmCase{
		{name: "bias", reason: "added to every row", m: 5, n: 40, bias: true},
		{name: "residual", reason: "in place", m: 35, n: 64, residual: true},
		{name: "all, odd", reason: "rows of y that begin at no multiple of 16 bytes", m: 33, n: 67, bias: true, residual: true, act: ptxgen.GELU},
		{name: "all, stride", reason: "rows of y inside a wider buffer", m: 6, n: 36, gap: 8, bias: true, residual: true, act: ptxgen.SiLU},
		{name: "silu", reason: "an activation without a bias", m: 2, n: 32, act: ptxgen.SiLU},
	}
	var all []gemmCase
	for _, f := range []quant.Format{quant.Q8_0, quant.F16} { // decoded and as they are
		for _, c := range table {
			c.spec, c.k = gemmShape(f, quant.F16, 1), 96
			all = append(all, c)
		}
	}
	return all
}

// gemmLarge is products as a model has them, on the shapes that they get.
func gemmLarge() []gemmCase {
	var all []gemmCase
	for _, f := range []quant.Format{quant.Q4_K, quant.Q6_K, quant.Q8_0, quant.F16} {
		for _, m := range []int{17, 130, 300} {
			all = append(all, gemmCase{
				name: fmt.Sprintf("m=%d", m), reason: "many steps on many tiles", spec: gemmShape(f, quant.F16, 8*m), m: m, n: 389, k: 4096, long: true,
			})
		}
	}
	all = append(all, gemmCase{name: "m=2048", reason: "a whole prompt", spec: gemmShape(quant.BF16, quant.BF16, 2048), m: 2048, n: 259, k: 2048, long: true})
	return all
}

// gemmStep is what a step of 16 products may lose, relative to the sum of all terms'
// sizes: the products and the sum before are aligned to the largest term and truncated
// to so many bits, then the sum is rounded toward zero (see alu.Accumulate).
func gemmStep(r *KernelRig) float64 {
	if cc := r.Properties().ComputeCapability; cc != 0 && cc < 90 {
		return 2 * (0x1p-23 + 9*0x1p-24) // two steps of 8
	}
	return 0x1p-23 + 17*0x1p-25
}

// tolerance: truncation errs toward zero, so the errors do have a mean. Where sums grow
// steadily they add up, and only the hard bound holds.
func (c gemmCase) tolerance(r *KernelRig) Tolerance {
	return Tolerance{L: c.spec.Depth(c.k) + 2, U: gemmStep(r), Correlated: true}
}

func checkGEMM(r *KernelRig, c gemmCase) {
	in := newGEMMInputs(r, c)
	got := in.run(r, c.spec)
	want := in.sums()
	t := c.tolerance(r)
	if c.act == ptxgen.Identity && c.dist != SameSign && c.dist != Constant {
		for i := range want {
			want[i] = want[i].Plus(float64(in.bias[i%c.n])).Plus(float64(in.residual[i]))
		}
		r.Close("y", got, want, c.n, t)
		return
	}
	y, bound := make([]float64, len(want)), make([]float64, len(want))
	for i, w := range want {
		w = w.Plus(float64(in.bias[i%c.n]))
		hard := float64(t.L) * t.U * w.S
		act := activationRefs[c.act](w.Y)
		y[i] = act + float64(in.residual[i])
		// 1.2 is beyond the largest slope of an activation.
		bound[i] = 1.2*hard + 16*unit*(math.Abs(act)+math.Abs(y[i]))
	}
	r.Within("y", got, y, bound)
}
