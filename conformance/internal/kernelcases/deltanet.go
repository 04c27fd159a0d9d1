package kernelcases

import (
	"cmp"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
	"github.com/lockstep-go/lockstep/quant"
)

// deltaNetPart is the tokens of one sequence in a batch.
type deltaNetPart struct {
	position int // of the first token
	tokens   int
	slot     int // of the state; negative: none
}

// deltaNetCase is a batch of a Gated DeltaNet.
type deltaNetCase struct {
	name, reason string
	shape        deltanet.Shape
	parts        []deltaNetPart
	pad          int     // elements between the tokens' inputs, and between states
	scale        float32 // of the inputs of the convolution; 0: 1
	long         bool

	gateScale float32 // of alpha and beta; 0: 1
	mostDecay float32 // of the factors of decays; 0: -1
}

func deltaNetCases() []harness.Case {
	small := deltanet.Shape{KeyHeads: 2, ValueHeads: 6, Dim: 48, Taps: 4}
	tiled := small
	tiled.Tiled = true
	odd := deltanet.Shape{KeyHeads: 3, ValueHeads: 9, Dim: 48, Taps: 2, Tiled: true}
	wide := deltanet.Shape{KeyHeads: 1, ValueHeads: 2, Dim: 128, Taps: 4}
	batch := []deltaNetPart{{5, 1, 2}, {0, 1, 0}, {0, 1, -1}, {1, 1, 3}, {70, 1, 1}}
	rows := []deltaNetCase{
		{name: "steps", reason: "one token of each sequence; one is at position 0, and one slot is unused", shape: small, parts: batch},
		{name: "prompts", reason: "sequences that begin, continue after fewer positions than taps, and end within them", shape: small,
			parts: []deltaNetPart{{0, 7, 1}, {2, 1, 0}, {3, 2, 2}, {64, 9, 3}, {0, 2, 4}}, pad: 5},
		{name: "tiled", reason: "value heads that read another key head", shape: tiled, parts: []deltaNetPart{{0, 3, 1}, {9, 4, 0}}, pad: 4},
		{name: "two taps", reason: "a window of one position; a head of no power of two", shape: odd, parts: []deltaNetPart{{0, 2, 0}, {1, 1, 1}, {4, 3, 2}}},
		{name: "one tap", reason: "no window", shape: deltanet.Shape{KeyHeads: 1, ValueHeads: 1, Dim: 48, Taps: 1}, parts: []deltaNetPart{{0, 2, 0}, {5, 1, 1}}},
		{name: "far", reason: "large numbers, where SiLU is 0 or linear", shape: small, parts: []deltaNetPart{{0, 9, 0}, {7, 5, 1}}, scale: 60},
		{name: "sixteen taps", reason: "the most taps, more than the positions", shape: deltanet.Shape{KeyHeads: 1, ValueHeads: 1, Dim: 48, Taps: 16}, parts: []deltaNetPart{{0, 3, 0}, {3, 20, 1}, {15, 1, 2}}},
		{name: "heads of 128", reason: "the heads of models", shape: wide, parts: []deltaNetPart{{0, 3, 1}, {8, 2, 0}}},
		{name: "no tokens", reason: "sequences without tokens in a batch", shape: small, parts: []deltaNetPart{{4, 0, 0}, {6, 2, 1}, {0, 0, 2}}},
		{name: "many tokens", reason: "rounding errors of many positions", shape: small, parts: []deltaNetPart{{0, 200, 0}}, long: true},
	}
	for taps := 3; taps <= 9; taps++ {
		for _, dim := range []int{16, 48} {
			rows = append(rows, deltaNetCase{
				name: fmt.Sprintf("taps=%d, dim=%d", taps, dim), reason: "loads in flight beyond the last tap",
				shape: deltanet.Shape{KeyHeads: 1, ValueHeads: 1, Dim: dim, Taps: taps}, parts: []deltaNetPart{{0, 2, 0}, {9, 2, 1}},
			})
		}
	}
	var all []harness.Case
	for _, c := range rows {
		for _, k := range []struct {
			operation string
			run       func(*harness.Fixture, deltaNetCase)
		}{{"deltanet inputs", checkInputs}, {"deltanet recur", checkRecur}} {
			all = append(all, harness.Case{Operation: k.operation, Format: "F32", Name: c.name, Reason: c.reason, Long: c.long, Run: func(r *harness.Fixture) { k.run(r, c) }})
		}
	}
	all = append(all,
		harness.Case{Operation: "deltanet recur", Format: "F32", Name: "token by token", Reason: "the bits of a prompt do not depend on its chunks", Run: checkRecurChunks},
		harness.Case{Operation: "deltanet inputs", Format: "F32", Name: "zeros", Reason: "a length below eps: heads of zeros stay zeros", Run: checkInputsOfZeros},
	)
	for _, c := range []struct {
		name, reason  string
		tokens, heads int
		scale, most   float32 // of alpha and beta, and of the factors of decays
	}{
		{"models", "the heads of a model", 3, 32, 1, -1},
		{"tail", "a last CTA with a few threads", 86, 3, 3, -1},
		{"far", "a decay that vanishes, and one that is 1", 40, 8, 120, -4},
		{"steep", "large factors of logarithms around ln 2", 80, 8, 0.01, -40},
		{"growth", "factors above 0, which no model has", 40, 8, 120, 1},
	} {
		all = append(all, harness.Case{Operation: "deltanet inputs", Format: "F32", Name: "gates/" + c.name, Reason: c.reason, Run: func(r *harness.Fixture) {
			net := deltaNetCase{
				shape: deltanet.Shape{KeyHeads: 1, ValueHeads: c.heads, Dim: 48, Taps: 8}, parts: []deltaNetPart{{0, c.tokens, 0}}, gateScale: c.scale, mostDecay: c.most,
			}
			checkInputs(r, net)
		}})
	}
	return append(all, gatedNormCases()...)
}

func channelsOf(s deltanet.Shape) int { return (2*s.KeyHeads + s.ValueHeads) * s.Dim }

// deltaNetBatch is the inputs of a case that all kernels share.
type deltaNetBatch struct {
	deltanet.Batch
	sequences, positions, starts []uint32
}

// batch allocates the inputs of a batch with states at an address.
func (c *deltaNetCase) batch(r *harness.Fixture) deltaNetBatch {
	b := deltaNetBatch{starts: []uint32{0}}
	var slots []uint32
	for s, p := range c.parts {
		for i := range p.tokens {
			b.sequences, b.positions = append(b.sequences, uint32(s)), append(b.positions, uint32(p.position+i))
		}
		b.starts = append(b.starts, uint32(len(b.positions)))
		slot := uint32(deltanet.NoState)
		if p.slot >= 0 {
			slot = uint32(p.slot)
		}
		slots = append(slots, slot)
	}
	b.Batch = deltanet.Batch{
		Starts: r.U32s("starts", b.starts).Addr(), Sequence: r.U32s("sequences", b.sequences).Addr(), Positions: r.U32s("positions", b.positions).Addr(), StateIndex: r.U32s("state index", slots).Addr(),
		Stride: c.stride(), Tokens: len(b.positions), Sequences: len(c.parts),
	}
	return b
}

// stride returns the elements between states, a multiple of 4.
func (c *deltaNetCase) stride() int { return (c.shape.StateFloats()+c.pad+3)/4*4 + 4 }

// states allocates uninitialized states.
func (c *deltaNetCase) states(r *harness.Fixture, alloc func(name string, bytes int) *harness.Buffer) *harness.Buffer {
	n := 0
	for _, p := range c.parts {
		n = max(n, p.slot+1)
	}
	return alloc("states", 4*n*c.stride())
}

// windowAt returns the byte offset of a row of the window of a state.
func (c *deltaNetCase) windowAt(slot, row int) int {
	s := c.shape
	return 4 * (slot*c.stride() + s.ValueHeads*s.Dim*s.Dim + row*channelsOf(s))
}

// setWindows sets the rows of all windows that are inputs of positions, and returns a function of an input: part,
// position relative to the part's first token, channel.
func (c *deltaNetCase) setWindows(r *harness.Fixture, states *harness.Buffer, x []float32, b *deltaNetBatch) func(part, at, channel int) float32 {
	s, channels := c.shape, channelsOf(c.shape)
	windows := make([][]float32, len(c.parts))
	for i, p := range c.parts {
		if p.slot < 0 {
			continue
		}
		windows[i] = r.Vector(harness.Gaussian, (s.Taps-1)*channels)
		for row := max(0, s.Taps-1-p.position); row < s.Taps-1; row++ {
			states.SetF32s(c.windowAt(p.slot, row), windows[i][row*channels:][:channels])
		}
	}
	return func(part, at, channel int) float32 {
		switch {
		case c.parts[part].position+at < 0:
			return 0
		case at < 0:
			return windows[part][(s.Taps-1+at)*channels+channel]
		}
		return x[(int(b.starts[part])+at)*channels+channel]
	}
}

func checkInputs(r *harness.Fixture, c deltaNetCase) {
	const eps = 1e-6
	s, channels := c.shape, channelsOf(c.shape)
	b := c.batch(r)
	x, w := r.Vector(harness.Gaussian, b.Tokens*channels), r.Vector(harness.Gaussian, s.Taps*channels)
	for i := range x {
		x[i] *= cmp.Or(c.scale, 1)
	}
	states := c.states(r, r.Input)
	input := c.setWindows(r, states, x, &b)
	b.States = states.Addr()
	y := r.Output("y", 4*len(x))
	gates := c.gates(r, b.Tokens)
	spec := deltanet.Inputs(s.Dim)
	args := gates.args(r, channels+c.pad)
	args.X, args.W, args.Y, args.Eps, args.Shape, args.Batch = r.Rows("x", x, channels, channels+c.pad).Addr(), r.F32s("w", w).Addr(), y.Addr(), eps, s, b.Batch
	r.Launch(spec.Launch(r.Kernel(spec), args))
	gates.check(r)
	for t, part := range b.sequences {
		if c.parts[part].slot < 0 {
			y.Untouched(4*t*channels, 4*channels)
			continue
		}
		want, bound := make([]float64, channels), make([]float64, channels)
		for channel := range channels {
			sum, size := 0.0, 0.0
			for tap := range s.Taps {
				product := float64(w[tap*channels+channel]) * float64(input(int(part), t-int(b.starts[part])-(s.Taps-1-tap), channel))
				sum, size = sum+product, size+math.Abs(product)
			}
			want[channel] = overOnePlusExp(sum, -sum)
			sigmoid := overOnePlusExp(1, -sum)
			// At least the slope of SiLU. Subnormal numbers have fewer bits.
			slope := sigmoid * (1 + math.Abs(sum)*overOnePlusExp(1, sum))
			bound[channel] = 1.01*slope*gamma(s.Taps)*size + 16*harness.UnitRoundoff*math.Abs(want[channel]) + 0x1p-148
		}
		for at := 0; at < 2*s.KeyHeads*s.Dim; at += s.Dim {
			normalizeWithin(want[at:][:s.Dim], bound[at:][:s.Dim], eps)
		}
		r.Within(fmt.Sprintf("token %d", t), y.FloatsAt(quant.F32, 4*t*channels, channels), want, bound)
	}
}

// gamma bounds the relative error of a chain of n roundings.
func gamma(n int) float64 {
	u := float64(n) * harness.UnitRoundoff
	return u / (1 - u)
}

// normalizeWithin divides a head by its length, and propagates the bounds of its errors. Each lane adds the squares of
// its channels, and a butterfly the lanes; square root and quotient are rounded.
func normalizeWithin(x, bound []float64, eps float64) {
	square, cross := 0.0, 0.0
	for i, v := range x {
		square += v * v
		cross += math.Abs(v)*bound[i] + bound[i]*bound[i]
	}
	length := max(math.Sqrt(square), eps)
	relative := cross/(length*length) + gamma((len(x)+31)/32+5+2)
	for i, v := range x {
		x[i] = v / length
		bound[i] = 1.01*(bound[i]/length+math.Abs(x[i])*relative) + 0x1p-149
	}
}

func checkInputsOfZeros(r *harness.Fixture) {
	c := deltaNetCase{shape: deltanet.Shape{KeyHeads: 1, ValueHeads: 1, Dim: 48, Taps: 2}, parts: []deltaNetPart{{0, 2, 0}}}
	s, channels := c.shape, channelsOf(c.shape)
	b := c.batch(r)
	x, w := make([]float32, 2*channels), make([]float32, 2*channels)
	for i := range w {
		w[i] = 1
	}
	x[channels] = 1e-7 // of the second token; SiLU halves it, and eps is more
	b.States = c.states(r, r.Input).Addr()
	y := r.Output("y", 4*len(x))
	spec := deltanet.Inputs(s.Dim)
	gates := c.gates(r, b.Tokens)
	args := gates.args(r, channels)
	args.X, args.W, args.Y, args.Eps, args.Shape, args.Batch = r.F32s("x", x).Addr(), r.F32s("w", w).Addr(), y.Addr(), 1e-6, s, b.Batch
	r.Launch(spec.Launch(r.Kernel(spec), args))
	gates.check(r)
	want, bound := make([]float64, len(x)), make([]float64, len(x))
	want[channels], bound[channels] = 0.05, 0.05*16*harness.UnitRoundoff+1e-8
	r.Within("y", y.F32s(), want, bound)
}

// recurInputs are the inputs of Recur: queries and keys of length 1 at most, values, decays and β.
func (c *deltaNetCase) recurInputs(r *harness.Fixture, tokens int) (x, gates []float32) {
	s, channels := c.shape, channelsOf(c.shape)
	x = r.Vector(harness.Gaussian, tokens*channels)
	for t := range tokens {
		for i := range 2 * s.KeyHeads * s.Dim {
			x[t*channels+i] /= float32(math.Sqrt(float64(s.Dim)))
		}
	}
	for range tokens * s.ValueHeads {
		gates = append(gates, float32(1-math.Pow(r.Rand().Float64(), 3)), float32(r.Rand().Float64()))
	}
	return x, gates
}

func checkRecur(r *harness.Fixture, c deltaNetCase) {
	s, channels := c.shape, channelsOf(c.shape)
	b := c.batch(r)
	x, gates := c.recurInputs(r, b.Tokens)
	states := c.states(r, r.Output)
	before := make([][]float32, len(c.parts))
	matrix := s.ValueHeads * s.Dim * s.Dim
	for i, p := range c.parts {
		before[i] = make([]float32, matrix)
		if p.position > 0 && p.slot >= 0 { // else memory holds anything
			before[i] = r.Vector(harness.Gaussian, matrix)
			states.SetF32s(4*p.slot*c.stride(), before[i])
		}
	}
	raw := r.Vector(harness.Gaussian, b.Tokens*channels) // inputs of the convolution
	input := c.setWindows(r, states, raw, &b)
	b.States = states.Addr()
	values := s.ValueHeads * s.Dim
	y := r.Output("y", 4*b.Tokens*values)
	spec := deltanet.Recur(s.Dim)
	r.Launch(spec.Launch(r.Kernel(spec), deltanet.RecurArgs{
		X: r.F32s("x", x).Addr(), Gates: r.F32s("gates", gates).Addr(), Y: y.Addr(),
		Inputs: r.Rows("inputs", raw, channels, channels+c.pad).Addr(), InputsStride: channels + c.pad, Shape: s, Batch: b.Batch,
	}))
	for i, p := range c.parts {
		first := int(b.starts[i])
		if p.tokens == 0 {
			continue
		}
		if p.slot < 0 {
			harness.Exact(r, "results without a state", y.FloatsAt(quant.F32, 4*first*values, p.tokens*values), make([]float32, p.tokens*values))
			continue
		}
		want, bound := make([]float64, p.tokens*values), make([]float64, p.tokens*values)
		after, afterBound := make([]float64, matrix), make([]float64, matrix)
		for h := range s.ValueHeads {
			k := h / (s.ValueHeads / s.KeyHeads)
			if s.Tiled {
				k = h % s.KeyHeads
			}
			for j := range s.Dim {
				column := (h*s.Dim + j) * s.Dim
				ref := newColumn(before[i][column:][:s.Dim])
				for t := range p.tokens {
					row := x[(first+t)*channels:]
					at := ((first+t)*s.ValueHeads + h) * 2
					out := t*values + h*s.Dim + j
					want[out], bound[out] = ref.step(row[k*s.Dim:][:s.Dim], row[(s.KeyHeads+k)*s.Dim:][:s.Dim], row[2*s.KeyHeads*s.Dim+h*s.Dim+j], gates[at], gates[at+1])
				}
				copy(after[column:], ref.s)
				copy(afterBound[column:], ref.err)
			}
		}
		r.Within(fmt.Sprintf("results of sequence %d", i), y.FloatsAt(quant.F32, 4*first*values, p.tokens*values), want, bound)
		r.Within(fmt.Sprintf("state of sequence %d", i), states.FloatsAt(quant.F32, 4*p.slot*c.stride(), matrix), after, afterBound)
		for row := range s.Taps - 1 {
			want := make([]float32, channels)
			for channel := range want {
				want[channel] = input(i, p.tokens-(s.Taps-1)+row, channel)
			}
			harness.Exact(r, fmt.Sprintf("window of sequence %d, row %d", i, row), states.FloatsAt(quant.F32, c.windowAt(p.slot, row), channels), want)
		}
		end := c.windowAt(p.slot, s.Taps-1)
		states.Untouched(end, 4*(p.slot+1)*c.stride()-end)
	}
}

// column is a column of S in float64, with a bound of the error of each element in float32.
type column struct{ s, err []float64 }

func newColumn(s []float32) *column {
	c := &column{make([]float64, len(s)), make([]float64, len(s))}
	for i, v := range s {
		c.s[i] = float64(v)
	}
	return c
}

// step advances the column by a position. It returns the result with a bound of its error: one unit roundoff per
// operation, propagated through the following ones.
func (c *column) step(q, k []float32, v, decay, beta float32) (y, bound float64) {
	const u = 1.01 * harness.UnitRoundoff // 1.01: products of errors
	for i := range c.s {
		c.s[i] *= float64(decay)
		c.err[i] = c.err[i]*float64(decay) + u*(math.Abs(c.s[i])+c.err[i])
	}
	predicted, predictedErr := c.dot(k)
	change := (float64(v) - predicted) * float64(beta)
	changeErr := (predictedErr+u*(math.Abs(float64(v)-predicted)+predictedErr))*float64(beta) + u*math.Abs(change)
	for i := range c.s {
		c.s[i] += float64(k[i]) * change
		c.err[i] += math.Abs(float64(k[i]))*changeErr*1.01 + u*(math.Abs(c.s[i])+c.err[i])
	}
	y, bound = c.dot(q)
	scale := 1 / math.Sqrt(float64(len(q)))
	return y * scale, bound*scale*1.01 + 2*u*math.Abs(y*scale)
}

// dot returns the sum of products. A chain has a quarter of a lane's elements; two additions join the chains, and two
// the lanes.
func (c *column) dot(x []float32) (sum, bound float64) {
	roundings := gamma(len(x)/16 + 4)
	for i, v := range x {
		product := c.s[i] * float64(v)
		sum += product
		bound += c.err[i]*math.Abs(float64(v)) + roundings*(math.Abs(product)+c.err[i]*math.Abs(float64(v)))
	}
	return sum, bound
}

// checkRecurChunks compares a prompt in one launch with the same prompt in launches of one and of three tokens.
func checkRecurChunks(r *harness.Fixture) {
	const tokens = 7
	c := deltaNetCase{shape: deltanet.Shape{KeyHeads: 1, ValueHeads: 2, Dim: 48, Taps: 2}, parts: []deltaNetPart{{0, tokens, 0}}}
	s, channels := c.shape, channelsOf(c.shape)
	x, gates := c.recurInputs(r, tokens)
	values := s.ValueHeads * s.Dim
	in, factors, raw := r.F32s("x", x), r.F32s("gates", gates), r.F32s("inputs", r.Vector(harness.Gaussian, tokens*channels))
	spec := deltanet.Recur(s.Dim)
	run := func(chunks ...int) []float32 {
		states := c.states(r, r.Scratch)
		y := r.Output("y", 4*tokens*values)
		at := 0
		for _, n := range chunks {
			part := deltaNetCase{shape: s, parts: []deltaNetPart{{at, n, 0}}}
			b := part.batch(r)
			b.States = states.Addr()
			r.Launch(spec.Launch(r.Kernel(spec), deltanet.RecurArgs{
				X: in.At(4 * at * channels), Gates: factors.At(4 * at * 2 * s.ValueHeads), Y: y.At(4 * at * values),
				Inputs: raw.At(4 * at * channels), InputsStride: channels, Shape: s, Batch: b.Batch,
			}))
			at += n
		}
		return y.F32s()
	}
	want := run(tokens)
	harness.Exact(r, "one by one", run(1, 1, 1, 1, 1, 1, 1), want)
	harness.Exact(r, "in threes", run(3, 3, 1), want)
}

// netGates are the inputs of the factors of Inputs.
type netGates struct {
	heads             int
	alpha, beta, a, b []float32
	out               *harness.Buffer
}

func (c *deltaNetCase) gates(r *harness.Fixture, tokens int) *netGates {
	heads, scale := c.shape.ValueHeads, cmp.Or(c.gateScale, 1)
	g := &netGates{
		heads: heads, alpha: r.Vector(harness.Gaussian, tokens*heads), beta: r.Vector(harness.Gaussian, tokens*heads),
		a: r.Vector(harness.Gaussian, heads), b: r.Vector(harness.Gaussian, heads), out: r.Output("gates", 4*2*tokens*heads),
	}
	for i := range g.alpha {
		g.alpha[i], g.beta[i] = g.alpha[i]*scale, g.beta[i]*scale
	}
	for i, v := range g.a {
		g.a[i] = cmp.Or(c.mostDecay, -1) * float32(math.Abs(float64(v)))
		g.b[i] *= min(scale, 1)
	}
	g.b[0] = -g.alpha[0] // the softplus of 0 for the first head of the first token
	return g
}

// args returns the arguments of these gates.
func (g *netGates) args(r *harness.Fixture, stride int) deltanet.InputsArgs {
	return deltanet.InputsArgs{
		Alpha: r.Rows("alpha", g.alpha, g.heads, stride).Addr(), Beta: r.Rows("beta", g.beta, g.heads, stride).Addr(), XStride: stride,
		A: r.F32s("a", g.a).Addr(), Bias: r.F32s("bias", g.b).Addr(), Gates: g.out.Addr(),
	}
}

func (g *netGates) check(r *harness.Fixture) {
	heads, alpha, beta, a, bias := g.heads, g.alpha, g.beta, g.a, g.b
	var want, bound []float64
	for i := range alpha {
		const u = harness.UnitRoundoff
		x := float64(alpha[i]) + float64(bias[i%heads])
		soft := max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))
		decay := math.Exp(float64(a[i%heads]) * soft)
		// The sum x is rounded. The exponential has an error of 10·u. The two roundings of z count 1.2 times; the series,
		// the sum with x and the product with a are rounded.
		power := math.Exp(-math.Abs(x))
		exponent := math.Abs(float64(a[i%heads])) * u * (10*power/(1+power) + 5.5*soft + math.Abs(x)*overOnePlusExp(1, -x))
		want, bound = append(want, decay), append(bound, decay*math.Expm1(exponent+10*u)+0x1p-140)
		sigmoid := 1 / (1 + math.Exp(-float64(beta[i])))
		want, bound = append(want, sigmoid), append(bound, 12*u*sigmoid+0x1p-140)
	}
	r.Within("gates", g.out.F32s(), want, bound)
}

// gatedNormCase is a launch of GatedNorm.
type gatedNormCase struct {
	name, reason       string
	tokens, heads, dim int
	pad                int     // elements between the gates of tokens
	offset             int     // elements before the first number, gate and weight
	scale              float32 // of the numbers; 0: 1
	eps                float32 // 0: 1e-6
	far                bool    // gates rise evenly
	balanced           bool    // see balance; gates are 128, so that SiLU(z) is z
}

func gatedNormCases() []harness.Case {
	rows := []gatedNormCase{
		{name: "heads of 16", reason: "a head with less than one vec4 per lane", tokens: 3, heads: 5, dim: 16, pad: 7},
		{name: "heads of 128", reason: "the heads of models, and a last CTA with one warp", tokens: 3, heads: 3, dim: 128, pad: 4},
		{name: "heads of 256", reason: "two vec4 per lane", tokens: 2, heads: 2, dim: 256},
		{name: "heads of 240", reason: "two vec4 in some lanes; gates are not aligned", tokens: 3, heads: 2, dim: 240, pad: 1},
		{name: "tail of 1", reason: "one element after whole vec4 accesses", tokens: 3, heads: 3, dim: 161},
		{name: "tail of 2", reason: "two elements after whole vec4 accesses", tokens: 3, heads: 3, dim: 38},
		{name: "tail of 3", reason: "three elements after whole vec4 accesses, in a loop too", tokens: 3, heads: 3, dim: 163},
		{name: "unaligned", reason: "no buffer is aligned to 16 bytes", tokens: 3, heads: 3, dim: 160, pad: 3, offset: 1},
		{name: "far", reason: "gates from -288 to 288, whose SiLU is 0 or linear at the ends", tokens: 1, heads: 3, dim: 240, far: true},
		{name: "small", reason: "squares are far below the numbers", tokens: 1, heads: 3, dim: 38, scale: 0x1p-20, eps: 1e-30},
		{name: "balanced", reason: "a sum of squares that is one ulp less gives another norm", tokens: 2, heads: 60, dim: 128, balanced: true},
	}
	for _, scale := range []float32{0x1p-45, 0x1p-44, 0x1p-43, 0x1p60, 0x1.ap60, 0x1p100} {
		rows = append(rows, gatedNormCase{name: fmt.Sprintf("scale=%g", scale), reason: "a sum of squares that overflows, vanishes or nearly does", tokens: 2, heads: 5, dim: 64, scale: scale})
	}
	var all []harness.Case
	for _, c := range rows {
		all = append(all, harness.Case{Operation: "deltanet gated norm", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkGatedNorm(r, c) }})
	}
	return all
}

func checkGatedNorm(r *harness.Fixture, c gatedNormCase) {
	values, eps := c.heads*c.dim, cmp.Or(c.eps, 1e-6)
	x, z, w := r.Vector(harness.Gaussian, c.tokens*values), r.Vector(harness.Gaussian, c.tokens*values), r.Vector(harness.Gaussian, c.dim)
	if c.balanced {
		balance(x)
	}
	for i := range x {
		x[i] *= cmp.Or(c.scale, 1)
		switch {
		case c.balanced:
			z[i] = 128
		case c.far:
			z[i] = float32(i-len(x)/2) * 0.8
		}
	}
	at := 4 * c.offset
	y := r.Output("y", at+4*len(x)).SetF32s(at, x)
	gates, weight := r.Input("z", at+4*c.tokens*(values+c.pad)), r.Input("w", at+4*c.dim).SetF32s(at, w)
	for t := range c.tokens {
		gates.SetF32s(at+4*t*(values+c.pad), z[t*values:][:values])
	}
	spec := deltanet.GatedNorm()
	r.Launch(spec.Launch(r.Kernel(spec), deltanet.GatedNormArgs{
		Y: y.At(at), Z: gates.At(at), ZStride: values + c.pad, Weight: weight.At(at), Eps: eps, Tokens: c.tokens,
		Shape: deltanet.Shape{KeyHeads: 1, ValueHeads: c.heads, Dim: c.dim, Taps: 1},
	}))
	var want, bound []float64
	for first := 0; first < len(x); first += c.dim {
		for i, v := range normRef(x[first:][:c.dim], w, false, float64(eps)) {
			v *= overOnePlusExp(float64(z[first+i]), -float64(z[first+i]))
			roundings := 8 + 16 + 1.0 // of the norm, of SiLU and of the product
			if c.balanced {
				roundings = 1 + 0x1p-20 // only the product with w is rounded; and the reference's own
			}
			want, bound = append(want, v), append(bound, roundings*harness.UnitRoundoff*math.Abs(v)+0x1p-149)
		}
	}
	r.Within("y", y.FloatsAt(quant.F32, at, len(x)), want, bound)
}
