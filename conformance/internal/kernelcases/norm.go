package kernelcases

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// normCase normalizes tokens × heads rows of width numbers.
type normCase struct {
	name, reason  string
	kind          norm.Kind
	to            quant.Format // of the output
	dist          harness.Distribution
	tokens, heads int
	width         int
	pad           int // elements between tokens, after the heads
	outPad        int // the same in the output and the residual, if not in place; 0: pad
	offset        int // elements before the first row
	bias, add     bool
	own           bool // weights and biases of each head
	inPlace       bool
	shift         float32         // added to each number, for a mean far from 0
	zero          bool            // all numbers are 0
	absorbed      bool            // the first number of most threads is 1, and float32 sums of squares lose the others
	scale         float32         // of all numbers; 0: 1
	spread        bool            // the scale doubles from token to token and is that of the one in the middle
	skew          int             // elements before weight and bias
	plant         map[int]float32 // index to value in the input
	eps           float32         // 0: 1e-5
	outScale      float32         // of the output; 0: 1
	long          bool
}

// normKinds are RMSNorm and LayerNorm.
var normKinds = []norm.Kind{norm.RMS, norm.Layer}

func normCases() []harness.Case {
	rows := normHeads()
	for _, f := range []quant.Format{quant.F32, quant.F16, quant.BF16} {
		rows = append(rows, normTable(f)...)
	}
	for _, kind := range normKinds {
		for _, width := range []int{1, 31, 33, 64, 255, 257, 2880, 4096, 11008, 16384, 28672} {
			rows = append(rows, normCase{
				name: fmt.Sprintf("width=%d", width), reason: WidthReason(width), kind: kind,
				tokens: 2, width: width, long: width > 4096,
			})
		}
		rows = append(rows, normCase{name: "strides", reason: "input and output have strides of their own", kind: kind, tokens: 3, heads: 2, width: 40, pad: 7, outPad: 12, add: true})
		rows = append(rows, normCase{name: "weights of heads", reason: "each head has weights and biases of its own", kind: kind, own: true, bias: true, tokens: 2, heads: 3, width: 37, pad: 5})
		rows = append(rows, normCase{name: "absorbed", reason: "each square after a thread's first is below half an ulp of its sum, and the row's sum nearly overflows", kind: kind, tokens: 1, width: 1 << 17, absorbed: true, scale: 0x1p59})
		rows = append(rows, normCase{name: "beyond registers", reason: "a row longer than the registers of a CTA", kind: kind, tokens: 1, width: 17003})
		for _, wide := range []normCase{
			{name: "wide", reason: "each thread adds bias and residual to several vec4", tokens: 2, width: 901},
			{name: "wide, stride", reason: "each thread has several vec4 of buffers that are not aligned to 16 bytes", tokens: 1, width: 901, offset: 1, skew: 1},
			{name: "beyond registers", reason: "bias and residual are added to elements that no register holds", tokens: 1, width: 16390},
		} {
			wide.name = "bias and residual, small, " + wide.name
			wide.kind, wide.bias, wide.add, wide.scale, wide.eps = kind, true, true, 0x1p-30, 1e-30 // squares are far below the numbers
			rows = append(rows, wide)
		}
		for _, d := range harness.Distributions() {
			rows = append(rows, normCase{name: "896/" + d.String(), reason: "the distribution of a row", kind: kind, dist: d, tokens: 2, width: 896})
		}
		for _, f := range []quant.Format{quant.F16, quant.BF16} {
			for _, width := range []int{37, 320} {
				rows = append(rows, normCase{name: fmt.Sprintf("to %v, width=%d", f, width), reason: "an output format of 16 bits, with and without a tail", kind: kind, to: f, tokens: 3, width: width})
			}
		}
	}
	var all []harness.Case
	for _, c := range rows {
		operation := "rmsnorm"
		if c.kind == norm.Layer {
			operation = "layernorm"
		}
		all = append(all, harness.Case{
			Operation: operation, Format: c.to.String(), Name: c.name, Reason: c.reason, Long: c.long,
			Run: func(r *harness.Fixture) { checkNorm(r, c) },
		})
	}
	return all
}

// normTable returns the cases of both kinds for an output format.
func normTable(f quant.Format) []normCase {
	rows := []normCase{
		{name: "bias and residual", reason: "bias and residual are added after the weight, in this order", bias: true, add: true, tokens: 3, width: 131},
		{name: "bias and residual, whole vec4", reason: "vec4 loads of bias and residual", bias: true, add: true, tokens: 3, width: 132},
		{name: "bias and residual, tail of 1", reason: "one element after whole vec4 accesses", bias: true, add: true, tokens: 3, width: 129},
		{name: "bias and residual, tail of 2", reason: "two elements after whole vec4 accesses", bias: true, add: true, tokens: 3, width: 130},
		{name: "bias and residual, stride", reason: "no buffer is aligned to 16 bytes", bias: true, add: true, tokens: 3, width: 128, pad: 3, offset: 1, skew: 1},
		{name: "bias, residual and scale", reason: "the sum is scaled", bias: true, add: true, outScale: -0.3, tokens: 3, width: 131},
		{name: "nearly vanishing squares", reason: "a sum of squares around 2^-80, where another scale begins", scale: 0x1p-43, tokens: 9, width: 66, spread: true, eps: 1e-30},
		{name: "mean where scaling ends", reason: "squares vanish around a mean between 2^-41 and 2^-40", scale: 0x1p-46, shift: 0x1.8p-41, tokens: 2, width: 66, eps: 1e-30},
		{name: "subnormal squares", reason: "squares lose bits at the scale of the row, and eps does not hide it", scale: 0x1p-66, tokens: 2, width: 66, eps: 0x1p-140},
		{name: "in place", reason: "the output overwrites the input", inPlace: true, tokens: 3, width: 132},
		{name: "stride", reason: "rows in a wider buffer that are not aligned to 16 bytes", tokens: 3, width: 128, pad: 3, offset: 1},
		{name: "squares overflow", reason: "squares overflow float32 while the result is near 1", plant: map[int]float32{0: 3e38, 7: -2e30, 40: 1e25}, tokens: 2, width: 64},
		{name: "squares overflow, wide", reason: "squares overflow in a row of several warps", plant: map[int]float32{3: 3e38, 700: -2e30}, tokens: 2, width: 901},
		{name: "squares nearly overflow", reason: "a sum of squares between 2^127 and 2^128 needs no scaling", plant: map[int]float32{1: 1.5e19}, tokens: 2, width: 70},
		{name: "several heads per token", reason: "adjacent rows per token, indexed by token and head", heads: 3, tokens: 2, width: 40, pad: 5},
		{name: "constant, large", reason: "large numbers without variance", shift: 1e25, tokens: 2, width: 70},
		{name: "constant, large and negative", reason: "large numbers without variance would overflow at a larger scale", shift: -1e25, tokens: 2, width: 70},
		{name: "zeros", reason: "a row of zeros gives zeros", zero: true, tokens: 2, width: 70},
		{name: "tiny", reason: "squares underflow, so eps dominates", dist: harness.Subnormal, tokens: 2, width: 64, eps: 1e-12},
		{name: "infinity", reason: "an infinity gives 0 and NaN in its own row only", plant: map[int]float32{5: float32(math.Inf(1))}, tokens: 3, width: 64},
		{name: "NaN", reason: "a NaN gives NaN in its own row only", plant: map[int]float32{70: float32(math.NaN())}, tokens: 3, width: 64},
	}
	rows = slices.DeleteFunc(rows, func(c normCase) bool { return c.inPlace && f != quant.F32 })
	for i := range rows {
		rows[i].name = f.String() + "/" + rows[i].name
		rows[i].kind, rows[i].to = norm.RMS, f
		layer := rows[i]
		layer.kind = norm.Layer
		rows = append(rows, layer)
	}
	rows = append(rows, normCase{
		name: f.String() + "/mean very far from 0", reason: "the rounding error of the mean is as large as the deviations",
		kind: norm.Layer, to: f, shift: 1e5, tokens: 2, width: 770,
	})
	return append(rows, normCase{
		name: f.String() + "/mean far from 0", reason: "the rounding error of the mean is as large as the spacing of the deviations",
		kind: norm.Layer, to: f, shift: 1000, tokens: 2, width: 768,
	})
}

// normHeads returns the cases of the rows of a QK norm, several per token.
func normHeads() []normCase {
	var rows []normCase
	for _, dim := range []int{32, 64, 80, 96, 128, 256} {
		rows = append(rows, normCase{
			name: fmt.Sprintf("heads/dim=%d", dim), reason: "QK norm: the heads of a fused buffer",
			kind: norm.RMS, tokens: 3, heads: 5, width: dim, pad: 2 * dim, offset: dim, inPlace: true, eps: 1e-6,
		})
	}
	return rows
}

// normRun is a case with its data.
type normRun struct {
	c            normCase
	stride       int // elements between tokens
	outStride    int // the same in the output
	x, w         []float32
	biases, adds []float32 // nil if the case has none
	out          *harness.Buffer
	at           int // byte offset of the first row in the output
}

func (c normCase) input(r *harness.Fixture, n int) []float32 {
	x := r.Vector(c.dist, n)
	if c.absorbed {
		copy(x, absorbed(c.tokens, c.width, 768)) // the sum of 768 squares of 2^59 is between 2^127 and 2^128
	}
	for i := range x {
		if c.scale != 0 {
			x[i] *= c.scale
		}
		if c.spread { // tokens around c.scale
			x[i] *= float32(math.Exp2(float64(i/(n/c.tokens) - c.tokens/2)))
		}
		x[i] += c.shift
		if c.zero {
			x[i] = 0
		}
	}
	for i, v := range c.plant {
		x[i] = v
	}
	return x
}

// absorbed returns rows of width numbers for threads that each take every threads-th vec4. The
// first number of a thread is 1. The squares of the others are 0, or just below 2^-24, so that
// sums of float32 lose them. Row k loses them in the lanes that have bit k set, so that each
// step of a butterfly must combine them, and the last row loses them in all lanes.
func absorbed(rows, width, threads int) []float32 {
	x := make([]float32, rows*width)
	for i := range x {
		k, at := i/width, i%width
		switch {
		case at%4 == 0 && at < 4*threads:
			x[i] = 1
		case k == rows-1 || at/4%32>>k&1 == 1:
			x[i] = float32(math.Copysign(0x1.fap-13, float64(i%2)-0.5))
		}
	}
	return x
}

func checkNorm(r *harness.Fixture, c normCase) {
	c.heads = max(c.heads, 1)
	if c.eps == 0 {
		c.eps = 1e-5
	}
	if c.outPad == 0 {
		c.outPad = c.pad
	}
	t := normRun{c: c, stride: c.heads*c.width + c.pad, outStride: c.heads*c.width + c.outPad}
	n := c.tokens * t.stride
	weights := c.width
	if c.own {
		weights *= c.heads
	}
	t.x, t.w = c.input(r, n), r.Vector(harness.Gaussian, weights)
	in := r.Output("x", 4*(n+c.offset)).SetF32s(4*c.offset, t.x)
	t.out, t.at = in, 4*c.offset
	if !c.inPlace {
		t.out, t.at = r.Output("y", c.to.BlockBytes()*c.tokens*t.outStride), 0
	}
	a := norm.RowsArgs{
		X: in.At(4 * c.offset), Weight: t.parameter(r, "weight", t.w), Y: t.out.At(t.at),
		Tokens: c.tokens, Heads: c.heads, Width: c.width, XStride: t.stride, YStride: t.outStride, Eps: c.eps, Scale: c.outScale,
	}
	if c.own {
		a.WeightStride = c.width
	}
	if c.bias {
		t.biases = r.Vector(harness.Gaussian, weights)
		a.Bias = t.parameter(r, "bias", t.biases)
	}
	if c.add {
		t.adds = r.Vector(harness.Gaussian, c.tokens*t.outStride)
		a.Residual = t.parameter(r, "residual", t.adds)
	}
	spec := norm.Rows(c.kind, c.to)
	r.Launch(spec.Launch(r.Kernel(spec), a))
	for token := range c.tokens {
		for head := range c.heads {
			own := 0 // where the weights of the head begin
			if c.own {
				own = head * c.width
			}
			t.checkRow(r, fmt.Sprintf("token %d head %d", token, head), token*t.stride+head*c.width, token*t.outStride+head*c.width, own)
		}
		if size := c.to.BlockBytes(); !c.inPlace && c.outPad > 0 {
			t.out.Untouched(t.at+size*(token*t.outStride+c.heads*c.width), size*c.outPad)
		}
	}
}

// parameter allocates an input that ends with its last element, skew elements after its
// begin.
func (t *normRun) parameter(r *harness.Fixture, name string, data []float32) ptx.Address {
	return r.Input(name, 4*(len(data)+t.c.skew)).SetF32s(4*t.c.skew, data).At(4 * t.c.skew)
}

// checkRow compares the row at element j of the output, computed from that at element i of the
// input with the weights from element own on, with the reference: within 8 ulp of float32, of
// the largest term if terms may cancel, or within 1 ulp of a 16-bit format.
func (t *normRun) checkRow(r *harness.Fixture, what string, i, j, own int) {
	f := t.c.to
	got := t.out.FloatsAt(f, t.at+f.BlockBytes()*j, t.c.width)
	want := normRef(t.x[i:i+t.c.width], t.w[own:own+t.c.width], t.c.kind == norm.Layer, float64(t.c.eps))
	bound := make([]float64, t.c.width)
	for e := range want {
		terms := math.Abs(want[e])
		if t.c.bias {
			terms += math.Abs(float64(t.biases[own+e]))
			want[e] += float64(t.biases[own+e])
		}
		if t.c.add {
			terms += math.Abs(float64(t.adds[j+e]))
			want[e] += float64(t.adds[j+e])
		}
		if t.c.outScale != 0 {
			want[e] *= float64(t.c.outScale)
			terms *= math.Abs(float64(t.c.outScale))
		}
		bound[e] = float64(8*harness.UnitRoundoff*terms) + 0x1p-149
	}
	switch {
	case f != quant.F32:
		r.ULP(what, f, got, want, 1)
	case t.c.bias || t.c.add:
		r.Within(what, got, want, bound)
	default:
		r.ULP(what, quant.F32, got, want, 8)
	}
}

// normRef normalizes a row in float64. It computes n·x − Σx, which is exact up to the last
// operation, to subtract the mean before rounding.
func normRef(x, w []float32, layer bool, eps float64) []float64 {
	n, d := float64(len(x)), make([]float64, len(x))
	var high, low float64
	for _, v := range x {
		s := high + float64(v)
		part := s - high
		low += (high - (s - part)) + (float64(v) - part)
		high = s
	}
	var squares float64
	for i, v := range x {
		d[i] = float64(v)
		if layer {
			d[i] = ((float64(n*float64(v)) - high) - low) / n
		}
		squares += float64(d[i] * d[i])
	}
	scale := 1 / math.Sqrt(squares/n+eps)
	for i := range d {
		d[i] = float64(d[i]*scale) * float64(w[i])
	}
	return d
}
