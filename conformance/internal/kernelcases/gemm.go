package kernelcases

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/quant"
)

// gemmCase is one product.
type gemmCase struct {
	name, reason string
	spec         matmul.GEMM
	m, n, k      int
	dist         harness.Distribution
	long         bool

	bias, residual bool
	act            elementwise.Activation
	gap            int // elements between the rows of y
	check          func(r *harness.Fixture, c gemmCase)
}

// gemmShape is the reachable shape for m rows on a device that has room for any.
func gemmShape(f, input quant.Format, m int) matmul.GEMM {
	return matmul.GEMMFor(f, input, m, 4096, 132, 1<<18)
}

func gemmCases() []harness.Case {
	cases := gemmReachable()
	cases = append(cases, gemmWidths()...)
	cases = append(cases, gemmNumbers()...)
	cases = append(cases, gemmTiles()...)
	cases = append(cases, gemmEpilogues()...)
	cases = append(cases, gemmLarge()...)
	var all []harness.Case
	for _, c := range cases {
		if c.check == nil {
			c.check = checkGEMM
		}
		all = append(all, harness.Case{
			Operation: "gemm", Format: c.spec.Format.String(), Reason: c.reason, Long: c.long,
			Name: fmt.Sprintf("%v/%v/%s", c.spec.Format, c.spec.Input, c.name),
			Run:  func(r *harness.Fixture) { c.check(r, c) },
		})
	}
	return append(all, gemmExpertCases()...)
}

// gemmReachable is a tile, not quite full, for every kernel that engines use, and a few columns.
func gemmReachable() []gemmCase {
	var all []gemmCase
	for _, s := range ptxgen.Reachable() {
		spec, ok := s.(matmul.GEMM)
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
	for _, f := range matmul.Formats() {
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
		for _, d := range harness.Distributions() {
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
		matmul.GEMM
	}{
		{"one warp, chunks of half a line", matmul.GEMM{BlockM: 16, BlockN: 32, BlockK: 32, Stages: 2, WarpsM: 1, WarpsN: 1}},
		{"a deep ring", matmul.GEMM{BlockM: 16, BlockN: 64, BlockK: 32, Stages: 5, WarpsM: 1, WarpsN: 2}},
		{"two units a thread", matmul.GEMM{BlockM: 32, BlockN: 64, BlockK: 64, Stages: 2, WarpsM: 1, WarpsN: 2}},
		{"rows that are no pair of passes, pairs of units one after the other", matmul.GEMM{BlockM: 64, BlockN: 32, BlockK: 128, Stages: 3, WarpsM: 4, WarpsN: 1}},
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
		{name: "all, odd", reason: "rows of y that begin at no multiple of 16 bytes", m: 33, n: 67, bias: true, residual: true, act: elementwise.GELU},
		{name: "all, stride", reason: "rows of y inside a wider buffer", m: 6, n: 36, gap: 8, bias: true, residual: true, act: elementwise.SiLU},
		{name: "silu", reason: "an activation without a bias", m: 2, n: 32, act: elementwise.SiLU},
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
func gemmStep(r *harness.Fixture) float64 {
	if cc := r.Properties().ComputeCapability; cc != 0 && cc < 90 {
		return 2 * (0x1p-23 + 9*0x1p-24) // two steps of 8
	}
	return 0x1p-23 + 17*0x1p-25
}

// gemmDepth returns the number of accumulations in a sum over k, each of 16 products.
func gemmDepth(k int) int { return (k + 15) / 16 }

// tolerance: truncation errs toward zero, so the errors do have a mean. Where sums grow
// steadily they add up, and only the worst-case bound holds.
func (c gemmCase) tolerance(r *harness.Fixture) harness.Tolerance {
	return harness.Tolerance{L: gemmDepth(c.k) + 2, U: gemmStep(r), Correlated: true}
}

func checkGEMM(r *harness.Fixture, c gemmCase) {
	in := newGEMMInputs(r, c)
	got := in.run(r, c.spec)
	want := in.sums()
	t := c.tolerance(r)
	if c.act == elementwise.Identity && c.dist != harness.SameSign && c.dist != harness.Constant {
		for i := range want {
			want[i] = want[i].Plus(float64(in.bias[i%c.n])).Plus(float64(in.residual[i]))
		}
		r.Close("y", got, want, c.n, t)
		return
	}
	y, bound := make([]float64, len(want)), make([]float64, len(want))
	for i, w := range want {
		w = w.Plus(float64(in.bias[i%c.n]))
		worstCase := float64(t.L) * t.U * w.S
		act := activationRefs[c.act](w.Y)
		y[i] = act + float64(in.residual[i])
		// 1.2 is beyond the largest slope of an activation.
		bound[i] = 1.2*worstCase + 16*harness.UnitRoundoff*(math.Abs(act)+math.Abs(y[i]))
	}
	r.Within("y", got, y, bound)
}

// gemmExpertCases is products of tokens with the matrices of their experts.
func gemmExpertCases() []harness.Case {
	var all []harness.Case
	for _, c := range []struct {
		name, reason string
		counts       []int // choices of each expert
		share        int
	}{
		{"tokens", "each row of x serves its token's choices", []int{5, 40, 0, 33}, 2},
		{"choices", "the second product of an expert reads a row of its own for each choice", []int{0, 0, 7, 1}, 1},
		{"one expert", "all choose one, the others have nothing to do", []int{0, 34, 0}, 1},
	} {
		for _, f := range []quant.Format{quant.Q4_K, quant.F16} {
			all = append(all, harness.Case{
				Operation: "gemm", Format: f.String(), Name: fmt.Sprintf("%v/F16/experts, %s", f, c.name), Reason: c.reason,
				Run: func(r *harness.Fixture) { checkGEMMExperts(r, f, c.counts, c.share) },
			})
		}
	}
	return all
}

func checkGEMMExperts(r *harness.Fixture, f quant.Format, counts []int, share int) {
	const n, k = 37, 256
	rows, offsets := 0, []uint32{0}
	for _, c := range counts {
		rows += c
		offsets = append(offsets, uint32(rows))
	}
	var order []uint32
	for _, i := range r.Rand().Perm(rows) {
		order = append(order, uint32(i))
	}
	spec := gemmShape(f, quant.F16, 1)
	tokens := newGEMMInputs(r, gemmCase{spec: spec, m: rows / share, n: 1, k: k})
	var packed []byte
	var experts []*gemmInputs
	for range counts {
		e := newGEMMInputs(r, gemmCase{spec: spec, m: 1, n: n, k: k})
		experts, packed = append(experts, e), append(packed, e.packed...)
	}
	bias := r.Vector(harness.Gaussian, len(counts)*n)
	y := r.Output("y", 4*rows*n)
	r.Launch(spec.Launch(r.Kernel(spec), matmul.GEMMArgs{
		X: r.Floats("x", spec.Input, tokens.cells).Addr(), Scale: r.F32s("scale", tokens.scale).Addr(),
		W: r.Bytes("w", packed).Addr(), Y: y.Addr(), Bias: r.F32s("bias", bias).Addr(),
		M: rows, N: n, K: k, Experts: len(counts), ExpertBytes: len(experts[0].packed), RowsPerX: share,
		Offsets: r.U32s("offsets", offsets).Addr(), Order: r.U32s("order", order).Addr(),
	}))
	want := make([]harness.Ref, rows*n)
	for e, in := range experts {
		for _, row := range order[offsets[e]:offsets[e+1]] {
			x := tokens.x[int(row)/share*k:][:k]
			for j := range n {
				want[int(row)*n+j] = harness.Dot(in.w[j*k:][:k], x).Plus(float64(bias[e*n+j]))
			}
		}
	}
	r.Close("y", y.F32s(), want, n, harness.Tolerance{L: gemmDepth(k) + 1, U: gemmStep(r), Correlated: true})
}

// gemmInputs is what a product is made of, rounded as the kernel's inputs are.
type gemmInputs struct {
	gemmCase
	x      []float32 // [m, k]: cells times scale
	cells  []float32 // [m, padded]
	scale  []float32 // [m], powers of two; nil for BF16
	packed []byte    // [n, RowBytes]
	w      []float32 // [n, k]
	bias   []float32 // [n], zeros if there is none

	residual []float32 // [m, n], zeros if there is none
}

func newGEMMInputs(r *harness.Fixture, c gemmCase) *gemmInputs {
	in := &gemmInputs{gemmCase: c, bias: make([]float32, c.n), residual: make([]float32, c.m*c.n)}
	in.setX(r.Vector(c.dist, c.m*c.k))
	weights := c.dist
	if c.dist == harness.Subnormal && c.spec.Format.BlockLen() == 1 {
		weights = harness.Gaussian // a product of two such numbers is nothing
	}
	in.setWeights(r.Weights(c.spec.Format, weights, c.n, c.k))
	if c.bias {
		in.bias = r.Vector(harness.Gaussian, c.n)
	}
	if c.residual {
		in.residual = r.Vector(harness.Gaussian, c.m*c.n)
	}
	return in
}

// setX rounds rows to Input, over a power of two if it is F16, and pads them.
func (in *gemmInputs) setX(x []float32) {
	padded := elementwise.PaddedWidth(in.k)
	in.cells, in.x = make([]float32, in.m*padded), make([]float32, in.m*in.k)
	for i := range in.m {
		row, scale := x[i*in.k:][:in.k], float32(1)
		if in.spec.Input == quant.F16 {
			scale = castScale(row)
			in.scale = append(in.scale, scale)
		}
		for j, v := range row {
			v = float32(harness.RoundTo(in.spec.Input, float64(v)/float64(scale)))
			in.cells[i*padded+j] = v
			in.x[i*in.k+j] = v * scale
		}
	}
}

func (in *gemmInputs) setWeights(src []byte) {
	p := matmul.Packing{Format: in.spec.Format, K: in.k}
	in.packed = make([]byte, p.Bytes(in.n))
	p.Pack(in.packed, src, in.n)
	in.w = make([]float32, in.n*in.k)
	quant.Decode(in.spec.Format, in.w, src)
	for i, v := range in.w {
		in.w[i] = float32(harness.RoundTo(in.spec.Input, float64(v)))
	}
}

// sums are the references of all products, [m, n].
func (in *gemmInputs) sums() []harness.Ref {
	var list []harness.Ref
	for i := range in.m {
		for j := range in.n {
			list = append(list, harness.Dot(in.w[j*in.k:][:in.k], in.x[i*in.k:][:in.k]))
		}
	}
	return list
}

// run gives y without what lies between its rows.
func (in *gemmInputs) run(r *harness.Fixture, spec matmul.GEMM) []float32 {
	r.T.Helper()
	stride := in.n + in.gap
	y := r.Output("y", 4*(in.m*stride-in.gap))
	a := matmul.GEMMArgs{
		X: r.Floats("x", spec.Input, in.cells).Addr(), W: r.Bytes("w", in.packed).Addr(), Y: y.Addr(),
		M: in.m, N: in.n, K: in.k, YStride: stride, Activation: in.act,
	}
	if in.scale != nil {
		a.Scale = r.F32s("scale", in.scale).Addr()
	}
	if in.gemmCase.bias {
		a.Bias = r.F32s("bias", in.bias).Addr()
	}
	if in.gemmCase.residual {
		for i := range in.m {
			y.SetF32s(4*i*stride, in.residual[i*in.n:][:in.n])
		}
		a.Residual = y.Addr()
	}
	r.Launch(spec.Launch(r.Kernel(spec), a))
	var got []float32
	for i := range in.m {
		got = append(got, y.FloatsAt(quant.F32, 4*i*stride, in.n)...)
		if i+1 < in.m && in.gap > 0 {
			y.Untouched(4*(i*stride+in.n), 4*in.gap)
		}
	}
	return got
}

// rows keeps some rows of x.
func (in *gemmInputs) rows(which ...int) *gemmInputs {
	out := *in
	out.m, out.cells, out.x, out.scale, out.residual = len(which), nil, nil, nil, nil
	padded := len(in.cells) / in.m
	for _, i := range which {
		out.cells = append(out.cells, in.cells[i*padded:][:padded]...)
		out.x = append(out.x, in.x[i*in.k:][:in.k]...)
		out.residual = append(out.residual, in.residual[i*in.n:][:in.n]...)
		if in.scale != nil {
			out.scale = append(out.scale, in.scale[i])
		}
	}
	return &out
}

// checkGEMMShapes holds a kernel of any shape to the bits of the smallest reachable one,
// and that one to the reference.
func checkGEMMShapes(r *harness.Fixture, c gemmCase) {
	in := newGEMMInputs(r, c)
	small := in.run(r, gemmShape(c.spec.Format, c.spec.Input, 1))
	harness.Exact(r, "y of two shapes", in.run(r, c.spec), small)
	r.Close("y", small, in.sums(), c.n, c.tolerance(r))
}

// checkGEMMAlone holds rows that come alone, or in another order, to the bits that they
// have among all.
func checkGEMMAlone(r *harness.Fixture, c gemmCase) {
	in := newGEMMInputs(r, c)
	all := in.run(r, c.spec)
	for _, which := range [][]int{{0}, {c.m - 1}, {7, 2, 11}} {
		var want []float32
		for _, i := range which {
			want = append(want, all[i*c.n:][:c.n]...)
		}
		harness.Exact(r, "rows by themselves", in.rows(which...).run(r, c.spec), want)
	}
	r.Close("y", all, in.sums(), c.n, c.tolerance(r))
}

// checkGEMMNotNumbers puts NaN and infinities into single rows and columns.
func checkGEMMNotNumbers(r *harness.Fixture, c gemmCase) {
	in := newGEMMInputs(r, c)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x, w := r.Vector(harness.Gaussian, c.m*c.k), r.Vector(harness.Gaussian, c.n*c.k)
	x[1*c.k+69], x[3*c.k], x[4*c.k+40], x[6*c.k+9] = nan, inf, -inf, 3e37
	// An infinity in a row's last unit meets the zeros that fill the step, if it is read.
	w[2*c.k+69], w[5*c.k+1], w[6*c.k+68], w[8*c.k+33] = nan, -inf, inf, 70000
	in.scale = nil
	in.setX(x)
	src := make([]byte, 4*len(w))
	if err := quant.F32.Encode(src, w); err != nil {
		r.Fatalf("weights: %v", err)
	}
	in.setWeights(src)
	want := make([]float64, c.m*c.n)
	bound := make([]float64, len(want))
	for i, ref := range in.sums() {
		want[i], bound[i] = ref.Y, float64(gemmDepth(c.k))*gemmStep(r)*ref.S
	}
	r.Within("y", in.run(r, c.spec), want, bound)
}
