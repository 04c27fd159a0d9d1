package kernelcases

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/quant"
)

// ropeCase launches the append kernel on the tokens of a fused QKV buffer.
type ropeCase struct {
	name, reason   string
	cache          quant.Format // 0: F16
	heads, kvHeads int
	dim, value     int // value 0: dim
	rot            int
	neox           bool
	theta          float64 // 0: 10000
	factor         float32
	queryBlock     int  // positions per factor of queries; 0: no factors
	queryOffset    int  // is added to positions for it
	norm           bool // of queries and keys
	valueNorm      bool
	positions      []int
	sequences      []int // per token; nil: all of sequence 0
	alone          bool  // launch without a list of sequences
	apart          bool  // queries, keys and values have buffers and strides of their own
	active         bool  // launch without a list of lengths
	inactive       int   // a sequence of length 0; 0: none
	dist           harness.Distribution
	page           int  // positions per page; 0: attention.PageTokens
	special        bool // every third number is one of specialFloats
	axes           bool // each pair is (1, 0), so that its results are the cosine and the sine
	absorbed       bool // of the norm, see normCase
	balanced       bool // of the norm, see balance
	scale          float32
}

// specialFloats are edge cases of the conversion to float16 and bfloat16.
var specialFloats = []float32{
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), float32(math.Copysign(0, -1)), 0,
	65504, 65519.996, 65520, -65520, 85807, 1 + 0x1p-11, 1 + 0x3p-11, 0x1p-24, 0x1p-25, 0x3p-25, -0x1p-26,
	1 + 0x1p-8, 1 + 0x3p-8, math.MaxFloat32, 0x1p-133, 0x1p-134, 0x3p-134, math.SmallestNonzeroFloat32,
}

func ropeCases() []harness.Case {
	rows := append(ropeTable(), ropeCase{
		name: "apart", reason: "queries, keys and values in buffers of their own", apart: true,
		heads: 4, kvHeads: 2, dim: 32, value: 24, rot: 32, positions: []int{5, 64, 70},
	})
	for _, dim := range []int{32, 64, 80, 96, 128, 256} {
		for _, neox := range []bool{false, true} {
			rows = append(rows, ropeCase{
				name: fmt.Sprintf("dim=%d/neox=%v", dim, neox), reason: "all heads at positions other than 0",
				heads: 6, kvHeads: 2, dim: dim, rot: dim, neox: neox, positions: []int{5, 6},
			})
		}
	}
	var all []harness.Case
	for _, c := range rows {
		c.cache = cmp.Or(c.cache, quant.F16)
		operation := "rope and append"
		switch {
		case c.kvHeads == 0:
			operation = "rope"
		case c.heads == 0:
			operation = "append"
		}
		all = append(all, harness.Case{Operation: operation, Format: c.cache.String(), Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkRope(r, c) }})
	}
	return all
}

func ropeTable() []ropeCase {
	far := []int{0, 1, 2, 1000, 4095, 4096, 131071, 1<<20 - 1, 1 << 20}
	rows := []ropeCase{
		{name: "far/norm", reason: "exact angle reduction up to position 2^20", heads: 2, dim: 64, rot: 64, positions: far},
		{name: "far/neox", reason: "exact angle reduction up to position 2^20", heads: 2, dim: 64, rot: 64, neox: true, positions: far, theta: 1e6},
		{name: "many tokens", reason: "more tokens than are split over several CTAs each", heads: 9, dim: 32, rot: 32, positions: upTo(70)},
		{name: "partial/norm", reason: "elements beyond the rotated part are unchanged", heads: 3, dim: 80, rot: 32, positions: []int{3, 77}},
		{name: "partial/neox", reason: "Phi-2 rotates 32 of 80 elements: pairs are halves of the rotated part", heads: 3, dim: 80, rot: 32, neox: true, positions: []int{3, 77}},
		{name: "alone", reason: "without a list, all tokens belong to sequence 0", heads: 2, kvHeads: 1, dim: 32, rot: 32, alone: true, positions: []int{3, 70}},
		{name: "alone, no lengths", reason: "without lists, the one sequence is active", heads: 2, kvHeads: 1, dim: 32, rot: 32, alone: true, active: true, positions: []int{3, 70}},
		{name: "widest", reason: "as many pairs as a CTA has threads", heads: 1, kvHeads: 1, dim: 512, rot: 512, neox: true, positions: []int{3, 77}},
		{name: "axes", reason: "cosines and sines themselves, rounded once", heads: 2, dim: 64, rot: 64, positions: far, axes: true},
		{name: "axes/dense", reason: "angles around odd multiples of pi/4, where the last terms of the series are largest", heads: 1, dim: 512, rot: 512, theta: 2, positions: upTo(17), axes: true},
		{name: "page of 16", reason: "another page size", kvHeads: 2, dim: 32, page: 16, positions: append(upTo(18), 31, 32)},
		{name: "page of 16/qk norm", reason: "barriers of a kernel for another page size", heads: 3, kvHeads: 2, dim: 64, rot: 64, norm: true, valueNorm: true, page: 16, positions: []int{15, 16}},
		{name: "factor", reason: "LongRoPE scales sine and cosine", heads: 3, dim: 96, rot: 96, neox: true, factor: 1.1902381, positions: []int{3, 77}},
		{name: "query factors", reason: "blocks of positions have factors of their own; keys have none", heads: 3, kvHeads: 2, dim: 80, rot: 32, norm: true, queryBlock: 24, positions: []int{23, 24, 100, 0}},
		{name: "query factors, offset", reason: "blocks that begin before position 0, and no rotation", heads: 3, kvHeads: 2, dim: 32, queryBlock: 8, queryOffset: 3, positions: []int{4, 5, 0, 12, 13}},
		{name: "outliers", reason: "the error is bounded by the length of the pair", heads: 3, dim: 64, rot: 64, positions: []int{3, 77}, dist: harness.Outliers},
	}
	for _, dim := range []int{70, 80, 256} {
		rows = append(rows, ropeCase{name: fmt.Sprintf("qkv norm/dim=%d", dim), reason: "a norm over some lanes of a warp, over half a vec4, and over two vec4 per lane",
			heads: 3, kvHeads: 2, dim: dim, rot: dim, norm: true, valueNorm: true, positions: []int{9, 10}})
	}
	for _, scale := range []float32{0x1p-45, 0x1p-44, 0x1p-43, 0x1p60, 0x1.ap60, 0x1p100} {
		rows = append(rows, ropeCase{name: fmt.Sprintf("qkv norm/scale=%g", scale), reason: "a sum of squares that overflows, vanishes or nearly does",
			cache: quant.BF16, heads: 5, kvHeads: 2, dim: 64, rot: 64, norm: true, valueNorm: true, positions: []int{9, 10}, scale: scale})
	}
	rows = append(rows, ropeCase{name: "qkv norm/absorbed", reason: "each square after a lane's first is below half an ulp of its sum",
		heads: 3, kvHeads: 3, dim: 1 << 13, norm: true, valueNorm: true, positions: []int{9}, absorbed: true})
	rows = append(rows, ropeCase{name: "qkv norm/balanced", reason: "a sum of squares that is one ulp less gives another norm",
		heads: 60, kvHeads: 60, dim: 128, norm: true, valueNorm: true, positions: []int{9}, balanced: true})
	for _, f := range []quant.Format{quant.F16, quant.BF16} {
		rows = append(rows,
			ropeCase{name: f.String() + "/qk norm", reason: "the norm precedes the rotation", heads: 10, kvHeads: 3, dim: 128, rot: 128, neox: true, norm: true, theta: 1e6, cache: f, positions: []int{9, 10}},
			ropeCase{name: f.String() + "/value dim", reason: "values and keys of different size", heads: 2, kvHeads: 2, dim: 64, value: 48, rot: 64, cache: f, positions: []int{3}},
			ropeCase{name: f.String() + "/long value dim", reason: "the last of four elements per lane is beyond the values for some lanes", heads: 2, kvHeads: 2, dim: 64, value: 112, rot: 64, cache: f, positions: []int{3}},
			ropeCase{name: f.String() + "/v norm", reason: "values alone are normalized, and are not of the size of keys", heads: 2, kvHeads: 2, dim: 64, value: 112, rot: 64, valueNorm: true, cache: f, positions: []int{3, 70}},
			ropeCase{name: f.String() + "/batch", reason: "one token per sequence; an inactive sequence is unchanged",
				heads: 4, kvHeads: 2, dim: 64, rot: 64, neox: true, cache: f, positions: []int{200, 3, 64, 63}, sequences: []int{0, 1, 2, 3}, inactive: 1},
			ropeCase{name: f.String() + "/append", reason: "all heads and positions, at page borders and over whole pages",
				cache: f, kvHeads: 3, dim: 128, positions: append(upTo(66), 127, 128, 191)},
			ropeCase{name: f.String() + "/rounding", reason: "rounding to nearest even, overflow to infinity, subnormals",
				cache: f, kvHeads: 2, dim: 64, positions: []int{1, 2}, dist: harness.NearOverflow},
			ropeCase{name: f.String() + "/special", reason: "ties to even, NaN, infinities and signed zeros",
				cache: f, kvHeads: 2, dim: 64, positions: []int{1, 2}, special: true},
			ropeCase{name: f.String() + "/subnormal", reason: "the smallest numbers of the format", cache: f, kvHeads: 2, dim: 64, positions: []int{1, 2}, dist: harness.Subnormal},
			ropeCase{name: f.String() + "/rotated", reason: "keys are rotated, values are not", cache: f, heads: 4, kvHeads: 2, dim: 64, rot: 64, positions: []int{63, 64}},
		)
	}
	return rows
}

// upTo returns the integers below n.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// ropeRun is a case with its data.
type ropeRun struct {
	c          ropeCase
	r          *harness.Fixture
	qkv        []float32
	row        int // elements per token of qkv
	freq       []float64
	scales     []float32 // of queries; nil: none
	qw, kw, vw []float32
	pages      int
	maxPages   int
	table      []uint32
	buffer     *harness.Buffer
	kOut, vOut *harness.Buffer
}

// rowGap is how many elements lie between the tokens of a fused QKV buffer.
const rowGap = 3

func checkRope(r *harness.Fixture, c ropeCase) {
	if c.value == 0 {
		c.value = c.dim
	}
	if c.page == 0 {
		c.page = attention.PageTokens
	}
	if c.sequences == nil {
		c.sequences = make([]int, len(c.positions))
	}
	t := &ropeRun{c: c, r: r, row: c.heads*c.dim + c.kvHeads*(c.dim+c.value) + rowGap}
	t.qkv = r.Vector(c.dist, len(c.positions)*t.row)
	for i := 0; c.special && i < len(t.qkv); i += 3 {
		t.qkv[i] = specialFloats[i/3%len(specialFloats)]
	}
	for i := 0; c.axes && i < len(t.qkv); i++ {
		t.qkv[i] = float32(1 - i%t.row%2)
	}
	if c.scale != 0 {
		for i := range t.qkv {
			t.qkv[i] *= c.scale
		}
	}
	if c.absorbed {
		copy(t.qkv, absorbed(c.heads+c.kvHeads, c.dim, 32))
		copy(t.qkv[(c.heads+c.kvHeads)*c.dim:], absorbed(c.kvHeads, c.value, 32))
	}
	if c.balanced {
		balance(t.qkv[:(c.heads+2*c.kvHeads)*c.dim])
	}
	t.qkv = t.qkv[:len(t.qkv)-rowGap] // nothing follows the last token
	t.buffer = r.Output("qkv", 4*len(t.qkv)).SetF32s(0, t.qkv)
	t.freq = ropeFrequencies(c)
	if c.queryBlock > 0 {
		t.scales = r.Vector(harness.Gaussian, (slices.Max(c.positions)+c.queryOffset)/c.queryBlock+1)
	}
	t.qw, t.kw, t.vw = r.Vector(harness.Gaussian, c.dim), r.Vector(harness.Gaussian, c.dim), r.Vector(harness.Gaussian, c.value)
	t.launch()
	for i, p := range c.positions {
		active := c.inactive == 0 || c.sequences[i] != c.inactive
		t.checkQueries(i, p, active)
		if active && c.kvHeads > 0 {
			t.checkCache(i, p)
		}
	}
	t.checkRest()
}

// balance changes rows of 128 numbers, a vec4 per lane, so that the mean of their squares is
// 2^20. A sum that is one ulp less gives another norm. In row h, each lane has one of two vec4s:
// bit h mod 5 of the lane's index selects it. So the rounding errors of the lanes' sums, and
// those in one step of a butterfly, are equal and add up. The other steps add equal numbers.
func balance(x []float32) {
	const width, mean = 128, 1 << 20
	for h, row := range slices.Collect(slices.Chunk(x, width)) {
		var vec4s [8]float32
		copy(vec4s[:], row)
		squares := 0.0
		for _, v := range vec4s[:6] {
			squares += float64(v) * float64(v)
		}
		rest := 8.0 * mean // of the sum of the squares
		for i, v := range vec4s[:6] {
			v *= float32(math.Sqrt(6 * mean / squares))
			vec4s[i] = v
			rest -= float64(v) * float64(v)
		}
		for i := 6; i < 8; i++ { // the last number is small, so that the sum is exact to about 2^-48
			v := float32(math.Sqrt(rest))
			if float64(v)*float64(v) > rest {
				v = math.Nextafter32(v, 0)
			}
			vec4s[i] = v
			rest -= float64(v) * float64(v)
		}
		for i := range row {
			row[i] = vec4s[i/4>>(h%5)%2*4+i%4]
		}
	}
}

func (t *ropeRun) launch() {
	r, c := t.r, t.c
	lengths := []uint32{1, 1, 1, 1}
	sequences := make([]uint32, len(c.positions))
	positions := make([]uint32, len(c.positions))
	for i, p := range c.positions {
		positions[i], sequences[i] = uint32(p), uint32(c.sequences[i])
		t.maxPages = max(t.maxPages, p/t.c.page+1)
	}
	a := rope.AppendArgs{
		QStride: t.row, KStride: t.row, VStride: t.row, Positions: r.U32s("positions", positions).Addr(),
		Tokens: len(c.positions), Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.dim, ValueDim: c.value,
		Rot: c.rot, NeoX: c.neox, MaxPages: t.maxPages, Factor: c.factor, Eps: 1e-6,
	}
	if c.rot > 0 {
		a.Freq = r.F64s("freq", t.freq).Addr()
	}
	if c.norm {
		a.QNorm, a.KNorm = r.F32s("q norm", t.qw).Addr(), r.F32s("k norm", t.kw).Addr()
	}
	if c.valueNorm {
		a.VNorm = r.F32s("v norm", t.vw).Addr()
	}
	if c.heads > 0 {
		a.Q = t.buffer.Addr()
	}
	if t.scales != nil {
		a.QScales, a.QScaleBlock, a.QScaleOffset = r.F32s("query factors", t.scales).Addr(), c.queryBlock, c.queryOffset
	}
	if c.inactive != 0 {
		lengths[c.inactive] = 0
	}
	a.Sequences, a.Lengths = r.U32s("sequences", sequences).Addr(), r.U32s("lengths", lengths).Addr()
	if c.alone {
		a.Sequences = 0
	}
	if c.active {
		a.Lengths = 0
	}
	if c.kvHeads > 0 {
		t.pages = 4*t.maxPages + 1
		t.table = make([]uint32, 4*t.maxPages)
		for i, p := range r.Rand().Perm(len(t.table)) {
			t.table[i] = uint32(p + 1) // page 0 stays unused
		}
		size := c.cache.BlockBytes()
		t.kOut, t.vOut = r.Output("k cache", size*t.pages*c.kvHeads*t.c.page*c.dim), r.Output("v cache", size*t.pages*c.kvHeads*t.c.page*c.value)
		a.Key, a.Value = t.buffer.At(4*c.heads*c.dim), t.buffer.At(4*(c.heads+c.kvHeads)*c.dim)
		if c.apart {
			k, v := t.copied("k", c.heads*c.dim, c.kvHeads*c.dim, 5), t.copied("v", (c.heads+c.kvHeads)*c.dim, c.kvHeads*c.value, 9)
			a.Key, a.KStride, a.Value, a.VStride = k.Addr(), c.kvHeads*c.dim+5, v.Addr(), c.kvHeads*c.value+9
		}
		a.Table, a.KCache, a.VCache = r.U32s("table", t.table).Addr(), t.kOut.Addr(), t.vOut.Addr()
	}
	spec := rope.Append(c.cache, c.page)
	r.Launch(spec.Launch(r.Kernel(spec), a))
}

// copied returns an input of n elements per token, from element first of its row on, and a gap.
func (t *ropeRun) copied(name string, first, n, gap int) *harness.Buffer {
	var data []float32
	for i := range t.c.positions {
		data = append(data, t.qkv[i*t.row+first:][:n]...)
	}
	return t.r.Rows(name, data, n, n+gap)
}

// checkQueries compares the queries of a token with the reference, and the rest of its row
// with the input.
func (t *ropeRun) checkQueries(i, position int, active bool) {
	from := i * t.row
	for h := range t.c.heads {
		at := from + h*t.c.dim
		x, got := t.qkv[at:at+t.c.dim], t.buffer.FloatsAt(quant.F32, 4*at, t.c.dim)
		what := fmt.Sprintf("token %d query head %d", i, h)
		if !active {
			harness.Exact(t.r, what, got, x)
			continue
		}
		want, bound := t.rotated(x, t.qw, position)
		if t.scales != nil {
			factor := float64(t.scales[(position+t.c.queryOffset)/t.c.queryBlock])
			for j := range want {
				want[j] *= factor
				bound[j] = bound[j]*math.Abs(factor) + harness.UnitRoundoff*math.Abs(want[j])
			}
		}
		t.r.Within(what, got, want, bound)
	}
	rest, end := from+t.c.heads*t.c.dim, min(from+t.row, len(t.qkv))
	if rest == end { // the last token of a buffer of queries
		return
	}
	harness.Exact(t.r, fmt.Sprintf("token %d beyond its queries", i), t.buffer.FloatsAt(quant.F32, 4*rest, end-rest), t.qkv[rest:end])
}

// checkCache compares the appended key and value with the reference: exactly if the kernel
// only converts, else within the bound plus one rounding to the cache's format.
func (t *ropeRun) checkCache(i, position int) {
	size := t.c.cache.BlockBytes()
	k := i*t.row + t.c.heads*t.c.dim
	v := k + t.c.kvHeads*t.c.dim
	for h := range t.c.kvHeads {
		line := t.line(i, position, h)
		key, value := t.qkv[k+h*t.c.dim:][:t.c.dim], t.qkv[v+h*t.c.value:][:t.c.value]
		got := t.kOut.FloatsAt(t.c.cache, size*line*t.c.dim, t.c.dim)
		what := fmt.Sprintf("token %d head %d", i, h)
		if t.c.rot == 0 && !t.c.norm {
			harness.Exact(t.r, what+" key", got, roundAll(t.c.cache, key))
		} else {
			want, bound := t.rotated(key, t.kw, position)
			t.within(what+" key", got, want, bound)
		}
		got = t.vOut.FloatsAt(t.c.cache, size*line*t.c.value, t.c.value)
		if !t.c.valueNorm {
			harness.Exact(t.r, what+" value", got, roundAll(t.c.cache, value))
			continue
		}
		want, bound := t.normed(value, t.vw)
		t.within(what+" value", got, want, bound)
	}
}

// within compares numbers of the cache with the reference, within the bounds plus one rounding to the cache's format.
func (t *ropeRun) within(what string, got []float32, want, bound []float64) {
	for j := range bound {
		bound[j] += harness.Spacing(t.c.cache, math.Abs(want[j])+bound[j]) / 2
	}
	t.r.Within(what, got, want, bound)
}

// checkRest demands that the cache is unchanged except at the appended positions.
func (t *ropeRun) checkRest() {
	if t.c.kvHeads == 0 {
		return
	}
	lines := t.pages * t.c.kvHeads * t.c.page
	used := make([]bool, lines)
	for i, p := range t.c.positions {
		if t.c.inactive == 0 || t.c.sequences[i] != t.c.inactive {
			for h := range t.c.kvHeads {
				used[t.line(i, p, h)] = true
			}
		}
	}
	size := t.c.cache.BlockBytes()
	for from := 0; from < lines; from++ {
		n := 0
		for from+n < lines && !used[from+n] {
			n++
		}
		t.kOut.Untouched(size*from*t.c.dim, size*n*t.c.dim)
		t.vOut.Untouched(size*from*t.c.value, size*n*t.c.value)
		from += n
	}
}

// line returns the index in the cache, in vectors of a head, of a token's position.
func (t *ropeRun) line(i, position, head int) int {
	page := int(t.table[t.c.sequences[i]*t.maxPages+position/t.c.page])
	return (page*t.c.kvHeads+head)*t.c.page + position%t.c.page
}

// ropeFrequencies returns theta^(−2j/rot), in radians per position.
func ropeFrequencies(c ropeCase) []float64 {
	theta := c.theta
	if theta == 0 {
		theta = 10000
	}
	freq := make([]float64, c.rot/2)
	for j := range freq {
		freq[j] = math.Pow(theta, -float64(2*j)/float64(c.rot))
	}
	return freq
}

// rotated returns a head after norm and rotation, and the bounds of its elements. An element
// a·cos − b·sin is one rounding of cosine and sine, one of b·sin and one of the sum: at most
// u·(2·|a·cos| + 3·|b·sin|). The error of sine and cosine before they are rounded is below
// 2^-33. Where the products are exact, one rounding remains.
func (t *ropeRun) rotated(x, w []float32, position int) (y, bound []float64) {
	y, bound = make([]float64, len(x)), make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	if t.c.norm {
		y, bound = t.normed(x, w)
	}
	factor := 1.0
	if t.c.factor != 0 {
		factor = float64(t.c.factor)
	}
	for j, f := range t.freq {
		a, b := 2*j, 2*j+1
		if t.c.neox {
			a, b = j, j+len(t.freq)
		}
		sin, cos := math.Sincos(float64(position) * f)
		u, v := y[a], y[b]
		y[a] = float64(factor*u*cos) - float64(factor*v*sin)
		y[b] = float64(factor*u*sin) + float64(factor*v*cos)
		before := float64(math.Hypot(bound[a], bound[b])+0x1p-32*math.Hypot(u, v)) * factor // of the norm and the angle
		round := func(x, y float64) float64 {                                               // of the sum of x and y, which is a product before the sum
			return float64(harness.UnitRoundoff*(2*math.Abs(x)+3*math.Abs(y))) + 0x1p-149
		}
		bound[a] = before + round(factor*u*cos, factor*v*sin)
		bound[b] = before + round(factor*u*sin, factor*v*cos)
		if t.c.axes {
			bound[a], bound[b] = before+harness.Spacing(quant.F32, math.Abs(y[a]))/2, before+harness.Spacing(quant.F32, math.Abs(y[b]))/2
		}
	}
	return y, bound
}

// normed returns a head after a norm, and the bounds of its elements, 8u. If the mean of the squares is a power of four,
// it is u: only the product with w is rounded.
func (t *ropeRun) normed(x, w []float32) (y, bound []float64) {
	y, bound = normRef(x, w, false, float64(float32(1e-6))), make([]float64, len(x))
	roundings := 8.0
	if t.c.balanced {
		roundings = 1 + 0x1p-20 // and the reference's own
	}
	for i, v := range y {
		bound[i] = roundings * harness.UnitRoundoff * math.Abs(v)
	}
	return y, bound
}

// roundAll rounds numbers to format f.
func roundAll(f quant.Format, x []float32) []float32 {
	cells, out := make([]byte, len(x)*f.BlockBytes()), make([]float32, len(x))
	if err := f.Encode(cells, x); err != nil {
		panic(err)
	}
	quant.Decode(f, out, cells)
	return out
}
