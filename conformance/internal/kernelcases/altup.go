package kernelcases

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/altup"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/quant"
)

// altUpStreams is the number of residual streams of Gemma 3n.
const altUpStreams = 4

// altUpCase changes the residual streams of tokens.
type altUpCase struct {
	name, reason  string
	tokens, width int
	gap           int // elements between the streams
	offset        int // elements before the first stream
}

func altUpCases() []harness.Case {
	var all []harness.Case
	for _, c := range []altUpCase{
		{name: "one token", reason: "a decode step with a row of several CTAs and a tail of one element", tokens: 1, width: 2049},
		{name: "tokens", reason: "rows that are not aligned to 16 bytes, with a tail of three elements", tokens: 3, width: 131, gap: 8},
		{name: "whole vec4", reason: "rows without a tail", tokens: 2, width: 1028, gap: 4},
		{name: "unaligned", reason: "whole vec4s at addresses that are no multiples of 16 bytes, with a tail of two elements", tokens: 2, width: 38, gap: 3, offset: 1},
		{name: "unaligned, no tail", reason: "the same where the last vec4 is whole", tokens: 2, width: 40, gap: 3, offset: 1},
		{name: "short", reason: "a row shorter than a vec4", tokens: 5, width: 2},
	} {
		all = append(all,
			harness.Case{Operation: "altup predict", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkPredict(r, c) }},
			harness.Case{Operation: "altup correct", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkCorrect(r, c, false) }})
	}
	c := altUpCase{name: "in place", reason: "the scaled stream overwrites the layer's result", tokens: 2, width: 133}
	return append(all, harness.Case{Operation: "altup correct", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkCorrect(r, c, true) }})
}

// altUpRun is a case with its data.
type altUpRun struct {
	altUpCase
	x    [altUpStreams][]float32 // before the launch
	m, w []float32
	out  *harness.Buffer
	args altup.Args
}

func newAltUpRun(r *harness.Fixture, c altUpCase, rows int) *altUpRun {
	t := &altUpRun{altUpCase: c, m: r.Vector(harness.Gaussian, c.tokens*altUpStreams), w: r.Vector(harness.Gaussian, rows*altUpStreams)}
	stride := c.tokens*c.width + c.gap
	t.out = r.Output("streams", 4*(c.offset+altUpStreams*stride-c.gap))
	for j := range t.x {
		t.x[j] = r.Vector(harness.Gaussian, c.tokens*c.width)
		t.out.SetF32s(4*(c.offset+j*stride), t.x[j])
	}
	t.args = altup.Args{
		X: t.out.At(4 * c.offset), Stride: stride, M: r.F32s("m", t.m).Addr(), W: r.F32s("w", t.w).Addr(), Tokens: c.tokens, Width: c.width,
	}
	return t
}

// coefficient returns start + row r of w times m of a token, and the sum of the magnitudes.
func (t *altUpRun) coefficient(start float64, r, token int) (c, magnitude float64) {
	c, magnitude = start, start
	for n, m := range t.m[token*altUpStreams:][:altUpStreams] {
		v := float64(t.w[r*altUpStreams+n]) * float64(m)
		c, magnitude = c+v, magnitude+math.Abs(v)
	}
	return c, magnitude
}

// check compares stream j, and that the kernel leaves what is between streams.
func (t *altUpRun) check(r *harness.Fixture, j int, want, bound []float64) {
	at := 4 * (t.offset + j*t.args.Stride)
	r.Within(fmt.Sprintf("stream %d", j), t.out.FloatsAt(quant.F32, at, len(want)), want, bound)
	if t.gap > 0 && j < altUpStreams-1 {
		t.out.Untouched(at+4*len(want), 4*t.gap)
	}
}

// Rounding errors per element: the coefficient's multiply-adds, and those of the streams.
func checkPredict(r *harness.Fixture, c altUpCase) {
	t := newAltUpRun(r, c, altUpStreams*altUpStreams)
	spec := altup.Predict(altUpStreams)
	r.Launch(spec.Launch(r.Kernel(spec), t.args))
	for j := range altUpStreams {
		want, bound := make([]float64, len(t.x[j])), make([]float64, len(t.x[j]))
		for e, v := range t.x[j] {
			want[e], bound[e] = float64(v), math.Abs(float64(v))
			for i := range altUpStreams {
				factor, magnitude := t.coefficient(0, j*altUpStreams+i, e/c.width)
				want[e] += factor * float64(t.x[i][e])
				bound[e] += magnitude * math.Abs(float64(t.x[i][e]))
			}
			bound[e] *= gamma(2 * altUpStreams)
		}
		t.check(r, j, want, bound)
	}
}

func checkCorrect(r *harness.Fixture, c altUpCase, inPlace bool) {
	t := newAltUpRun(r, c, altUpStreams)
	y, scale := r.Vector(harness.Gaussian, c.tokens*c.width), r.Vector(harness.Gaussian, c.width)
	scaled := r.Output("scaled", 4*len(y))
	t.args.Y, t.args.Scale, t.args.Scaled = scaled.SetF32s(0, y).Addr(), r.Input("scale", 4*(c.offset+c.width)).SetF32s(4*c.offset, scale).At(4*c.offset), scaled.Addr()
	if !inPlace {
		t.args.Y = r.F32s("y", y).Addr()
	}
	spec := altup.Correct(altUpStreams)
	r.Launch(spec.Launch(r.Kernel(spec), t.args))
	for j := range altUpStreams {
		want, bound := make([]float64, len(y)), make([]float64, len(y))
		for e := range y {
			change := float64(y[e]) - float64(t.x[0][e])
			factor, magnitude := t.coefficient(1, j, e/c.width)
			want[e] = float64(t.x[j][e]) + factor*change
			bound[e] = gamma(2+altUpStreams) * (math.Abs(float64(t.x[j][e])) + magnitude*math.Abs(change))
		}
		t.check(r, j, want, bound)
		if j > 0 {
			continue
		}
		for e := range want {
			s := float64(scale[e%c.width])
			want[e] *= s
			bound[e] = bound[e]*math.Abs(s) + 1.01*harness.UnitRoundoff*math.Abs(want[e])
		}
		r.Within("scaled", scaled.FloatsAt(quant.F32, 0, len(want)), want, bound)
	}
}

// scaleToCase scales rows to the length of others.
type scaleToCase struct {
	name, reason string
	rows, width  int
	x, like      float32 // scales of the inputs; 0: 1
	residual     bool
	inPlace      bool // the result overwrites the rows whose length it gets
	scale        float32
	offset       int
	zeros        bool // the other rows are 0
	absorbed     bool // float32 sums of squares lose most numbers: see absorbed
}

func scaleToCases() []harness.Case {
	rows := []scaleToCase{
		{name: "plain", reason: "several rows with a tail of three elements", rows: 3, width: 131},
		{name: "residual", reason: "the residual is added before the scale", rows: 2, width: 132, residual: true, scale: -0.25},
		{name: "in place", reason: "the result overwrites the other rows, and threads have several vec4", rows: 2, width: 901, residual: true, scale: 0.25, inPlace: true},
		{name: "beyond registers", reason: "rows longer than the registers of a CTA", rows: 1, width: 17002, residual: true},
		{name: "unaligned", reason: "whole vec4s at addresses that are no multiples of 16 bytes", rows: 2, width: 128, offset: 1, residual: true},
		{name: "one element", reason: "the sign of a row of one element", rows: 5, width: 1},
		{name: "squares overflow", reason: "squares of the row overflow", rows: 2, width: 901, x: 0x1p100},
		{name: "squares vanish", reason: "squares of the row vanish", rows: 2, width: 70, x: 0x1p-100},
		{name: "other squares overflow", reason: "squares of the other row overflow", rows: 2, width: 70, like: 0x1p100},
		{name: "other squares vanish", reason: "squares of the other row vanish", rows: 2, width: 901, like: 0x1p-100},
		{name: "zeros", reason: "rows of length 0", rows: 2, width: 70, zeros: true},
		{name: "absorbed", reason: "each square of the row after a thread's first is below half an ulp of its sum", rows: 3, width: 1 << 16, absorbed: true, x: 1},
		{name: "absorbed, other", reason: "the same in the other row", rows: 3, width: 1 << 16, absorbed: true},
	}
	var all []harness.Case
	for _, c := range rows {
		all = append(all, harness.Case{Operation: "scale to length", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkScaleTo(r, c) }})
	}
	return all
}

func checkScaleTo(r *harness.Fixture, c scaleToCase) {
	n, first := c.rows*c.width, 4*c.offset
	vector := func(scale float32) []float32 {
		x := r.Vector(harness.Gaussian, n)
		for i := range x {
			if scale != 0 {
				x[i] *= scale
			}
		}
		return x
	}
	x, like, residual := vector(c.x), vector(c.like), make([]float32, n)
	switch {
	case c.zeros:
		clear(like)
	case c.absorbed && c.x != 0:
		x = absorbed(c.rows, c.width, 1024)
	case c.absorbed:
		like = absorbed(c.rows, c.width, 1024)
	}
	y := r.Output("y", first+4*n)
	a := altup.ScaleToArgs{X: r.Input("x", first+4*n).SetF32s(first, x).At(first), Y: y.At(first), Rows: c.rows, Width: c.width, Scale: c.scale}
	if c.inPlace {
		a.Like = y.SetF32s(first, like).At(first)
	} else {
		a.Like = r.Input("like", first+4*n).SetF32s(first, like).At(first)
	}
	if c.residual {
		residual = vector(0)
		a.Residual = r.Input("residual", first+4*n).SetF32s(first, residual).At(first)
	}
	spec := altup.ScaleTo()
	r.Launch(spec.Launch(r.Kernel(spec), a))
	length := func(x []float32) (s float64) {
		for _, v := range x {
			s += float64(v) * float64(v)
		}
		return math.Sqrt(s)
	}
	scale := 1.0
	if c.scale != 0 {
		scale = float64(c.scale)
	}
	for row := range c.rows {
		want, bound := make([]float64, c.width), make([]float64, c.width)
		factor := length(like[row*c.width:][:c.width]) / length(x[row*c.width:][:c.width])
		for i := range want {
			e := row*c.width + i
			want[i] = (float64(x[e])*factor + float64(residual[e])) * scale
			bound[i] = 8*harness.UnitRoundoff*(math.Abs(float64(x[e])*factor)+math.Abs(float64(residual[e])))*math.Abs(scale) + 0x1p-149
		}
		r.Within(fmt.Sprintf("row %d", row), y.FloatsAt(quant.F32, first+4*row*c.width, c.width), want, bound)
	}
}

// sparsifyCase makes rows sparse.
type sparsifyCase struct {
	name, reason string
	rows, width  int
	sparsity     float32
	scale, shift float32 // of the numbers; a scale of 0: 1
	offset       int
	constant     bool            // all numbers are shift
	plant        map[int]float32 // index to value
}

func sparsifyCases() []harness.Case {
	rows := []sparsifyCase{
		{name: "plain", reason: "several rows with a tail of three elements", rows: 3, width: 131, sparsity: 1.25},
		{name: "published", reason: "the sparsity of Gemma 3n, which leaves one number of twenty, in a row longer than the registers of a CTA", rows: 2, width: 16387, sparsity: 1.6448535},
		{name: "half", reason: "numbers above the mean stay", rows: 2, width: 900, sparsity: 0},
		{name: "two elements", reason: "the standard deviation of two numbers is that of n-1", rows: 7, width: 2, sparsity: 0.5},
		{name: "unaligned", reason: "whole vec4s at addresses that are no multiples of 16 bytes", rows: 2, width: 128, sparsity: 0.5, offset: 1},
		{name: "mean far from 0", reason: "the mean is larger than the deviations", rows: 2, width: 770, sparsity: 1, shift: 1000},
		{name: "mean very far from 0", reason: "the rounding error of the mean is as large as the deviations, also of numbers that no register holds", rows: 2, width: 17001, sparsity: 1, shift: 1e5},
		{name: "squares overflow", reason: "squares overflow", rows: 2, width: 901, sparsity: 1, scale: 0x1p100},
		{name: "squares vanish", reason: "squares vanish", rows: 2, width: 70, sparsity: 1, scale: 0x1p-100},
		{name: "constant", reason: "no number exceeds the mean", rows: 2, width: 66, sparsity: 1, shift: 0.1, constant: true},
		{name: "zeros", reason: "zeros stay", rows: 2, width: 66, sparsity: 1, constant: true},
		{name: "NaN", reason: "a NaN gives NaN in its own row only", rows: 3, width: 64, sparsity: 1, plant: map[int]float32{70: float32(math.NaN())}},
		{name: "infinity", reason: "an infinity gives NaN in its own row only", rows: 3, width: 64, sparsity: 1, plant: map[int]float32{5: float32(math.Inf(1))}},
	}
	var all []harness.Case
	for _, c := range rows {
		all = append(all, harness.Case{Operation: "sparsify", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkSparsify(r, c) }})
	}
	return all
}

func checkSparsify(r *harness.Fixture, c sparsifyCase) {
	x, first := r.Vector(harness.Gaussian, c.rows*c.width), 4*c.offset
	for i := range x {
		if c.scale != 0 {
			x[i] *= c.scale
		}
		if c.constant {
			x[i] = 0
		}
		x[i] += c.shift
	}
	for i, v := range c.plant {
		x[i] = v
	}
	y := r.Output("x", first+4*len(x)).SetF32s(first, x)
	spec := norm.Sparsify()
	r.Launch(spec.Launch(r.Kernel(spec), norm.SparsifyArgs{X: y.At(first), Rows: c.rows, Width: c.width, Sparsity: c.sparsity}))
	for row := range c.rows {
		in := x[row*c.width:][:c.width]
		var mean, squares float64
		for _, v := range in {
			mean += float64(v) / float64(c.width)
		}
		for _, v := range in {
			squares += (float64(v) - mean) * (float64(v) - mean)
		}
		over := float64(c.sparsity) * math.Sqrt(squares/float64(c.width-1))
		if c.constant {
			over = 0
		}
		want, bound := make([]float64, c.width), make([]float64, c.width)
		for i, v := range in {
			d := float64(v) - mean
			if c.constant {
				d = 0
			}
			want[i] = math.Max(d-over, 0)
			bound[i] = 8*harness.UnitRoundoff*(math.Abs(d)+over) + 0x1p-149
		}
		r.Within(fmt.Sprintf("row %d", row), y.FloatsAt(quant.F32, first+4*row*c.width, c.width), want, bound)
	}
}
