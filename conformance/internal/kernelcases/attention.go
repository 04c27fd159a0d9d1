package kernelcases

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/quant"
)

// attentionCase is attention over the caches of a few sequences. It computes the last
// queries positions of each sequence: one with the decode kernels, any number with
// FlashAttention.
type attentionCase struct {
	name, reason   string
	kv             quant.Format
	headDim        int
	kvHeads, group int  // 0: 2 and 1
	page           int  // positions per page; 0: 64
	blockQ, blockK int  // 0: the kernel's default
	wgmma          bool // prefill by the kernel of sm_90a
	lengths        []int
	queries        []int   // per sequence; nil: one each
	scale          float64 // times 1/√headDim; 0: 1
	softcap        float32
	window         int
	chunks         bool // the window is the size of chunks
	sinks          bool // heads have sinks, about as large as the largest scores
	dist           harness.Distribution
	queryScale     float64 // multiplies the queries and divides the scale; 0: 1
	extraPages     int     // table entries beyond the longest sequence
	seed           uint64  // orders the pages in memory
	activeOnly     []int   // the active sequences; nil: all
	queued         bool    // inactive sequences have queries too
	sms            int     // SMs to distribute decode CTAs over; 0: one CTA per page
	fresh          int     // last positions that decode must not read before it waits for its predecessor; 0: all positions
	appended       bool    // the kernel before decode appends the fresh positions, or all positions if fresh is 0
	compared       bool    // what is appended is compared
	packed         bool    // no elements between the rows of the decode kernels' queries and outputs
	long           bool
	plant          func(*attentionLaunch) // plants a fault
}

// attentionLaunch holds what a planted fault may change.
type attentionLaunch struct {
	cache           attention.PagedKV
	keys, values    *harness.Buffer
	pages           []int // by entry of the table
	scoring         attention.Scoring
	heads, rowBytes int
	lengths         *harness.Buffer
	starts          []uint32 // first query per sequence, and the end
}

func (c attentionCase) filled() attentionCase {
	c.kvHeads, c.group, c.page = cmp.Or(c.kvHeads, 2), cmp.Or(c.group, 1), cmp.Or(c.page, attention.PageTokens)
	c.scale, c.queryScale = cmp.Or(c.scale, 1), cmp.Or(c.queryScale, 1)
	if c.queries == nil {
		c.queries = slices.Repeat([]int{1}, len(c.lengths))
	}
	return c
}

func (c attentionCase) heads() int { return c.kvHeads * c.group }

func (c attentionCase) scoring() attention.Scoring {
	scale := float32(c.scale / c.queryScale / math.Sqrt(float64(c.headDim)))
	return attention.Scoring{Scale: scale, Softcap: c.softcap, Window: c.window, Chunks: c.chunks}
}

// appends returns how many of the n positions of a sequence the kernel before decode appends.
func (c attentionCase) appends(n int) int {
	switch {
	case !c.appended:
		return 0
	case c.fresh == 0:
		return n
	}
	return c.fresh
}

func (c attentionCase) active(sequence int) bool {
	return c.activeOnly == nil || slices.Contains(c.activeOnly, sequence)
}

// firstVisible returns the first position that the queries of a sequence see. Earlier pages
// may belong to other sequences.
func (c attentionCase) firstVisible(sequence int) int {
	return c.seenFrom(c.lengths[sequence] - c.queries[sequence])
}

// seenFrom returns the first position that a query at a position sees.
func (c attentionCase) seenFrom(position int) int {
	switch {
	case c.window == 0:
		return 0
	case c.chunks:
		return position / c.window * c.window
	}
	return max(0, position+1-c.window)
}

// attentionData is the inputs of a case. Keys and values are rounded to the cache's format.
type attentionData struct {
	q    [][]float32 // per sequence: [queries][heads][headDim]
	k, v [][]float32 // per sequence: [kvHeads][length][headDim]

	sinks []float32 // [heads]; nil: none
}

func (c attentionCase) data(r *harness.Fixture) attentionData {
	var d attentionData
	if c.sinks {
		d.sinks = r.Vector(harness.Gaussian, c.heads())
		for h := range d.sinks {
			d.sinks[h] = float32(c.scale) * (2 + d.sinks[h])
		}
	}
	for s, n := range c.lengths {
		q := r.Vector(c.dist, c.queries[s]*c.heads()*c.headDim)
		for i := range q {
			q[i] *= float32(c.queryScale)
		}
		d.q = append(d.q, q)
		d.k = append(d.k, roundAll(c.kv, r.Vector(c.dist, c.kvHeads*n*c.headDim)))
		d.v = append(d.v, roundAll(c.kv, r.Vector(c.dist, c.kvHeads*n*c.headDim)))
	}
	return d
}

// fillCache stores keys and values in pages in random order. Positions that no query sees
// stay uninitialized. For a planted fault it doubles the pages and the rows of the table, and sets
// all entries: after an access outside of memory, a process cannot use a GPU any more.
func (c attentionCase) fillCache(r *harness.Fixture, d attentionData, l *attentionLaunch) {
	maxPages := c.extraPages
	for _, n := range c.lengths {
		maxPages = max(maxPages, (n+c.page-1)/c.page+c.extraPages)
	}
	pages := len(c.lengths) * maxPages
	order := newRand(c.seed).Perm(pages) // by entry of the table
	if c.plant != nil {
		for i := range pages {
			order = append(order, pages+i)
		}
	}
	row := c.headDim * c.kv.BlockBytes()
	alloc := r.Input
	switch {
	case c.compared:
		alloc = r.Output
	case c.appended:
		alloc = r.Scratch
	}
	k, v := alloc("k", len(order)*c.kvHeads*c.page*row), alloc("v", len(order)*c.kvHeads*c.page*row)
	table := r.Input("table", 4*len(order))
	if c.plant != nil {
		for entry, page := range order {
			table.SetU32s(4*entry, []uint32{uint32(page)})
		}
	}
	lengths := make([]uint32, len(c.lengths))
	for s, n := range c.lengths {
		if !c.active(s) {
			continue
		}
		lengths[s] = uint32(n)
		for first := c.firstVisible(s) / c.page * c.page; first < n; first += c.page {
			entry := s*maxPages + first/c.page
			table.SetU32s(4*entry, []uint32{uint32(order[entry])})
			begin, end := max(first, c.firstVisible(s)), min(first+c.page, n-c.appends(n))
			if begin >= end {
				continue
			}
			for h := range c.kvHeads {
				to := ((order[entry]*c.kvHeads+h)*c.page + begin%c.page) * row
				k.SetFloats(to, c.kv, d.k[s][(h*n+begin)*c.headDim:(h*n+end)*c.headDim])
				v.SetFloats(to, c.kv, d.v[s][(h*n+begin)*c.headDim:(h*n+end)*c.headDim])
			}
		}
	}
	l.keys, l.values, l.pages, l.lengths = k, v, order, r.U32s("lengths", lengths)
	l.cache = attention.PagedKV{
		K: k.Addr(), V: v.Addr(), Table: table.Addr(), Lengths: l.lengths.Addr(), KVHeads: c.kvHeads, MaxPages: maxPages,
	}
}

// cached returns keys or values of a position in a cache, [kvHeads × headDim].
func (c attentionCase) cached(l attentionLaunch, cache *harness.Buffer, sequence, position int) (x []float32) {
	page := l.pages[sequence*l.cache.MaxPages+position/c.page]
	for h := range c.kvHeads {
		row := (page*c.kvHeads+h)*c.page + position%c.page
		x = append(x, cache.FloatsAt(c.kv, row*l.rowBytes, c.headDim)...)
	}
	return x
}

// launch prepares the arguments of the kernels and plants the fault.
func (c attentionCase) launch(r *harness.Fixture, d attentionData) attentionLaunch {
	l := attentionLaunch{scoring: c.scoring(), heads: c.heads(), rowBytes: c.headDim * c.kv.BlockBytes()}
	if d.sinks != nil {
		sinks := d.sinks
		if c.plant != nil {
			sinks = append(slices.Clone(sinks), 0)
		}
		l.scoring.Sinks = r.F32s("sinks", sinks).Addr()
	}
	c.fillCache(r, d, &l)
	l.starts = []uint32{0}
	for s := range c.lengths {
		n := uint32(c.queries[s])
		if !c.active(s) && !c.queued {
			n = 0
		}
		l.starts = append(l.starts, l.starts[s]+n)
	}
	if c.plant != nil {
		c.plant(&l)
	}
	return l
}

// decode runs the decode kernels and returns the outputs per sequence, [heads × headDim],
// or nil for an inactive one.
func (c attentionCase) decode(r *harness.Fixture, d attentionData) [][]float32 {
	l := c.launch(r, d)
	width, sequences := c.heads()*c.headDim, len(c.lengths)
	stride := width + 4
	if c.packed {
		stride = width
	}
	q := r.Input("q", 4*stride*sequences)
	for s := range c.lengths {
		if c.active(s) {
			q.SetF32s(4*stride*s, d.q[s][:width])
		}
	}
	spec := attention.Decode(c.shape())
	scratch := r.Scratch("scratch", int(c.shape().ScratchBytes(sequences, l.heads, l.cache.MaxPages)))
	out := r.Output("out", 4*stride*sequences)
	args := attention.DecodeArgs{
		Q: q.Addr(), Scratch: scratch.Addr(), Out: out.Addr(), KV: l.cache, Scoring: l.scoring, Sequences: sequences, Heads: l.heads,
		QStride: stride, OutStride: stride, Pages: l.cache.MaxPages - c.extraPages/2, SMs: c.sms, Fresh: c.fresh,
	}
	launches := []ptx.Launch{launchOf(r, spec, args)}
	if c.appended {
		launches = slices.Insert(launches, 0, c.append(r, d, l.cache))
	}
	r.LaunchInTurn(launches...)
	c.invisibleUntouched(scratch, l)
	if combine, needed := args.Combine(c.shape()); needed {
		spec := attention.Combine(c.headDim)
		r.Launch(spec.Launch(r.Kernel(spec), combine))
	}
	result := make([][]float32, sequences)
	for s := range result {
		at := 4 * stride * s
		if !c.active(s) {
			out.Untouched(at, 4*stride)
			continue
		}
		out.Untouched(at+4*width, 4*(stride-width))
		result[s] = out.FloatsAt(quant.F32, at, width)
	}
	return result
}

// append prepares the kernel that appends the last positions of each sequence to the caches.
func (c attentionCase) append(r *harness.Fixture, d attentionData, kv attention.PagedKV) ptx.Launch {
	var keys, values []float32
	var positions, sequences []uint32
	for s, n := range c.lengths {
		for position := n - c.appends(n); position < n; position++ {
			positions, sequences = append(positions, uint32(position)), append(sequences, uint32(s))
			for h := range c.kvHeads {
				at := (h*n + position) * c.headDim
				keys, values = append(keys, d.k[s][at:at+c.headDim]...), append(values, d.v[s][at:at+c.headDim]...)
			}
		}
	}
	return launchOf(r, rope.Append(c.kv, c.page), rope.AppendArgs{
		Key: r.F32s("fresh keys", keys).Addr(), Value: r.F32s("fresh values", values).Addr(),
		Positions: r.U32s("positions", positions).Addr(), Sequences: r.U32s("sequences", sequences).Addr(),
		Table: kv.Table, KCache: kv.K, VCache: kv.V, Tokens: len(positions), KVHeads: c.kvHeads, HeadDim: c.headDim, MaxPages: kv.MaxPages,
	})
}

// launchOf returns a launch, which must be possible.
func launchOf[A any](r *harness.Fixture, spec kernel.Typed[A], args A) ptx.Launch {
	l, err := spec.Launch(r.Kernel(spec), args)
	if err != nil {
		r.Fatalf("launch: %v", err)
	}
	return l
}

// invisibleUntouched demands that decode wrote no results of splits that a query does not see.
func (c attentionCase) invisibleUntouched(scratch *harness.Buffer, l attentionLaunch) {
	keys := splitBlocks * c.block()
	splits := (l.cache.MaxPages*c.page + keys - 1) / keys // per row
	sums := (8*len(c.lengths)*l.heads*splits + 15) / 16 * 16
	for s, n := range c.lengths {
		from, to := 0, 0
		if c.active(s) {
			from, to = c.firstVisible(s)/keys, (n+keys-1)/keys
		}
		for h := range l.heads {
			row := (s*l.heads + h) * splits
			for _, gap := range [][2]int{{row, row + from}, {row + to, row + splits}} {
				n := gap[1] - gap[0]
				scratch.Untouched(8*gap[0], 8*n)
				scratch.Untouched(sums+4*c.headDim*gap[0], 4*c.headDim*n)
			}
		}
	}
}

// splitBlocks is the number of blocks per split.
const splitBlocks = 2

// block returns the number of keys per block.
func (c attentionCase) block() int {
	return cmp.Or(c.blockK, min(c.page, accelnumerics.BlockK(c.headDim)))
}

func (c attentionCase) shape() attention.Shape {
	return attention.Shape{KV: c.kv, HeadDim: c.headDim, Page: c.page, BlockQ: c.blockQ, BlockK: c.blockK}
}

// prefill returns the kernel of prompts.
func (c attentionCase) prefill() kernel.Typed[attention.PrefillArgs] {
	if c.wgmma {
		return attention.PrefillWGMMA(c.shape())
	}
	return attention.Prefill(c.shape())
}

// flash runs FlashAttention and returns the outputs per sequence, [queries][heads ×
// headDim].
func (c attentionCase) flash(r *harness.Fixture, d attentionData) [][]float32 {
	l := c.launch(r, d)
	width := c.heads() * c.headDim
	qStride, outStride := width+8, width+4
	total, most := int(l.starts[len(l.starts)-1]), 1
	q, out := r.Input("q", 4*qStride*total), r.Output("out", 4*outStride*total)
	for s, n := range c.queries {
		for i := range int(l.starts[s+1] - l.starts[s]) {
			q.SetF32s(4*qStride*(int(l.starts[s])+i), d.q[s][i*width:(i+1)*width])
		}
		most = max(most, n)
	}
	spec := c.prefill()
	r.Launch(spec.Launch(r.Kernel(spec), attention.PrefillArgs{
		Q: q.Addr(), Out: out.Addr(), Starts: r.U32s("starts", l.starts).Addr(), KV: l.cache, Scoring: l.scoring,
		Sequences: len(c.lengths), Heads: l.heads, QStride: qStride, OutStride: outStride, MaxQueries: most,
	}))
	result := make([][]float32, len(c.lengths))
	for s := range result {
		if !c.active(s) {
			out.Untouched(4*outStride*int(l.starts[s]), 4*outStride*int(l.starts[s+1]-l.starts[s]))
			continue
		}
		for i := l.starts[s]; i < l.starts[s+1]; i++ {
			at := 4 * outStride * int(i)
			result[s] = append(result[s], out.FloatsAt(quant.F32, at, width)...)
			out.Untouched(at+4*width, 4*(outStride-width))
		}
	}
	return result
}

func (c attentionCase) kernelCase(operation string, run func(r *harness.Fixture, c attentionCase)) harness.Case {
	c = c.filled()
	return harness.Case{
		Operation: operation, Format: c.kv.String(), Name: c.name, Reason: c.reason, Long: c.long,
		Run: func(r *harness.Fixture) {
			if c.wgmma && !takesWarpgroups(r) {
				r.Skip("the device has no wgmma")
			}
			run(r, c)
		},
	}
}

func attentionCases() []harness.Case {
	var all []harness.Case
	for _, c := range decodeCases() {
		all = append(all, c.kernelCase("attention decode", checkDecode))
	}
	all = append(all, appendCases()...)
	for _, c := range flashCases() {
		all = append(all, c.kernelCase("attention prefill", checkFlash))
	}
	for _, c := range warpgroupCases() {
		all = append(all, c.kernelCase(warpgroupPrefill, checkSameBits))
	}
	return append(all, attentionInvariants()...)
}

const warpgroupPrefill = "attention prefill wgmma" // an operation

var attentionFormats = []quant.Format{quant.F16, quant.BF16}

// attentionDims are head dimensions of models, and one that is no multiple of 16.
var attentionDims = []int{32, 64, 72, 80, 96, 128, 256, 512}

// lengthsAround returns lengths around the head dimension, around the page, and of several
// pages.
func lengthsAround(dim int) []int { return []int{1, dim - 1, dim, dim + 1, 127, 128, 129, 300} }

func decodeCases() []attentionCase {
	var all []attentionCase
	add := func(c attentionCase) { all = append(all, c) }
	for _, dim := range attentionDims {
		for _, f := range attentionFormats {
			add(attentionCase{name: fmt.Sprintf("%v/d=%d", f, dim), reason: "lengths around the head dimension, the page and 128, with two KV heads",
				kv: f, headDim: dim, group: 1 + 64/max(dim, 64), lengths: lengthsAround(dim)})
		}
	}
	for _, group := range []int{1, 3, 4, 5, 6, 7, 8, 12, 16} {
		reason := "query heads that share a KV head"
		if group > 8 {
			reason += ", in two parts"
		}
		add(attentionCase{name: fmt.Sprintf("group=%d", group), reason: reason, kv: quant.F16, headDim: 64, group: group, lengths: []int{5, 129}})
	}
	for _, page := range []int{16, 32, 128, 256} {
		add(attentionCase{name: fmt.Sprintf("page=%d", page), reason: "another page size",
			kv: quant.BF16, headDim: 64, group: 3, page: page, lengths: []int{1, 15, 16, 17, 255, 300}})
	}
	for _, dim := range []int{8, 16, 24, 40, 56, 88, 104, 120, 160, 192} {
		add(attentionCase{name: fmt.Sprintf("d=%d", dim), reason: "head dimensions that are multiples of 8, or of 32 above 128; lanes may have chunks beyond the row",
			kv: quant.F16, headDim: dim, group: 2, lengths: []int{1, 70}})
	}
	common := attentionCase{kv: quant.F16, headDim: 64, group: 2, lengths: []int{1, 63, 64, 65, 200}}
	for _, window := range []int{1, 2, 63, 64, 65, 100, 1000} {
		c := common
		c.name, c.reason, c.window = fmt.Sprintf("window=%d", window), "pages before the window are not read and may belong to other sequences", window
		add(c)
	}
	for _, v := range []struct {
		name, reason string
		change       func(*attentionCase)
	}{
		{"chunks=64", "pages before the chunk are not read; chunks that begin and end", func(c *attentionCase) { c.chunks, c.window = true, 64 }},
		{"chunks=128, sinks and softcap", "a chunk of two pages, and all options", func(c *attentionCase) { c.chunks, c.window, c.sinks, c.softcap = true, 128, true, 50 }},
		{"chunks=16", "chunks that begin inside a page", func(c *attentionCase) { c.chunks, c.window = true, 16 }},
		{"sinks", "heads have sinks of their own, one page or several", func(c *attentionCase) { c.sinks = true }},
		{"sinks and window", "the options of gpt-oss", func(c *attentionCase) { c.sinks, c.window = true, 70 }},
		{"sinks, large", "outputs are nearly 0, and one sink overflows", func(c *attentionCase) { c.sinks, c.scale = true, 20 }},
		{"softcap", "large scores are near the cap", func(c *attentionCase) { c.softcap, c.scale = 5, 10 }},
		{"softcap, small scores", "tanh of small numbers is precise", func(c *attentionCase) { c.softcap, c.scale = 50, 0.1 }},
		{"softcap and window", "the options of Gemma 2", func(c *attentionCase) { c.softcap, c.window = 50, 70 }},
		{"softcap, large scores", "scores far beyond the cap", func(c *attentionCase) { c.softcap, c.scale, c.lengths = 5, 2000, []int{20} }},
		{"packed", "no elements follow the last query", func(c *attentionCase) { c.packed, c.group, c.lengths = true, 4, []int{5} }},
		{"peaked", "one softmax weight is nearly 1, most are nearly 0", func(c *attentionCase) { c.scale = 30 }},
		{"large queries", "queries beyond the float16 range", func(c *attentionCase) { c.queryScale = 0x1p90 }},
		{"tiny scale", "a factor so small that only -Inf times it hides a position", func(c *attentionCase) {
			c.scale, c.kvHeads, c.group, c.lengths = 0x1p-114, 1, 1, []int{5}
		}},
		{"outliers", "keys and values with outliers", func(c *attentionCase) { c.dist = harness.Outliers }},
		{"canceling", "sums that are much smaller than their terms", func(c *attentionCase) { c.dist = harness.Canceling }},
		{"same sign", "values of one sign, so sums grow", func(c *attentionCase) { c.dist = harness.SameSign }},
		{"constant", "equal scores", func(c *attentionCase) { c.dist = harness.Constant }},
		{"idle slots", "a sequence of length 0 is not read or written", func(c *attentionCase) { c.activeOnly = []int{1, 4} }},
		{"wide table", "more CTAs than splits", func(c *attentionCase) { c.extraPages = 9 }},
	} {
		c := common
		c.name, c.reason = v.name, v.reason
		v.change(&c)
		add(c)
	}
	return append(append(all, fewCTACases()...), attentionCase{name: "8192 positions", reason: "twice as many splits as combine adds per round",
		kv: quant.F16, headDim: 128, kvHeads: 8, group: 4, lengths: []int{8192, 5000}, long: true})
}

// fewCTACases are cases in which one CTA has all blocks of its heads, or several.
func fewCTACases() []attentionCase {
	var all []attentionCase
	common := attentionCase{kv: quant.F16, headDim: 64, group: 2, lengths: []int{64, 128, 192, 1, 65, 190}, sms: 1}
	for _, v := range []struct {
		name, reason string
		change       func(*attentionCase)
	}{
		{"", "one to three blocks; the last is full or partial", func(c *attentionCase) {}},
		{"two of each head", "one CTA has the even splits, another the odd ones", func(c *attentionCase) { c.sms, c.lengths = 3, []int{300, 512, 100} }},
		{"group=12", "heads in two parts", func(c *attentionCase) { c.group = 12 }},
		{"window=100", "the first block is partly visible", func(c *attentionCase) { c.window = 100 }},
		{"window=64", "two partial blocks, or one whole block", func(c *attentionCase) { c.window = 64 }},
		{"chunks=32", "half a block is visible, or less", func(c *attentionCase) { c.chunks, c.window = true, 32 }},
		{"chunks=256, two of each head", "splits are counted from the chunk's first one", func(c *attentionCase) { c.chunks, c.window, c.sms, c.lengths = true, 256, 3, []int{300, 512, 400} }},
		{"read early, chunks=64", "early reads start at the chunk's first block", func(c *attentionCase) { c.fresh, c.chunks, c.window = 1, true, 64 }},
		{"window=330, two of each head", "splits are counted from the first visible one, of which the first block may not be visible", func(c *attentionCase) { c.window, c.sms, c.lengths = 330, 3, []int{340, 400, 470, 530} }},
		{"one block", "no result goes through scratch memory", func(c *attentionCase) { c.group, c.lengths = 3, []int{1, 64, 40} }},
		{"one block, group=8", "each thread copies one part of the queries", func(c *attentionCase) { c.kvHeads, c.group, c.lengths = 1, 8, []int{5} }},
		{"one block, group=12", "the same for heads in two parts", func(c *attentionCase) { c.group, c.lengths = 12, []int{64, 40} }},
		{"one block, window=20", "the only visible block is not the first", func(c *attentionCase) { c.window, c.lengths = 20, []int{64, 65, 100, 190} }},
		{"idle slots", "a sequence of length 0 between other sequences", func(c *attentionCase) { c.activeOnly = []int{1, 2, 5} }},
		{"wide table", "table entries beyond the length are not read", func(c *attentionCase) { c.extraPages = 9 }},
		{"read early", "a block without the last two positions is read before the dependency wait", func(c *attentionCase) { c.fresh = 2 }},
		{"read early, window=130", "early reads start at the first visible block", func(c *attentionCase) { c.fresh, c.window = 1, 130 }},
		{"read early, appended", "positions that the kernel before writes are not read early", func(c *attentionCase) {
			c.appended, c.fresh, c.lengths = true, 1, []int{64, 65, 127, 128, 129}
		}},
		{"read early, two appended", "two fresh positions, on both sides of the end of a page", func(c *attentionCase) {
			c.appended, c.fresh, c.lengths = true, 2, []int{64, 65, 66, 129, 130}
		}},
		{"read early, appended, two of each head", "the first block of the second CTA has the fresh position", func(c *attentionCase) {
			c.appended, c.fresh, c.sms, c.lengths = true, 1, 3, []int{256, 129, 257}
		}},
		{"window=1100", "several splits, from either block of a split on", func(c *attentionCase) {
			c.kvHeads, c.group, c.window, c.lengths = 1, 1, 1100, []int{1110, 1180, 1240, 1300, 2190}
		}},
		{"all appended", "no position is read before the dependency wait", func(c *attentionCase) {
			c.appended, c.lengths = true, []int{64, 65}
		}},
		{"read early, d=256", "blocks of 32 keys", func(c *attentionCase) { c.fresh, c.headDim = 64, 256 }},
		{"read early, d=512", "rows of 1 KB, one block at a time", func(c *attentionCase) { c.fresh, c.headDim = 64, 512 }},
		{"d=256", "blocks of 32 keys", func(c *attentionCase) { c.headDim, c.group = 256, 5 }},
		{"d=512", "rows of 1 KB", func(c *attentionCase) { c.headDim, c.group = 512, 5 }},
		{"remainders", "every number of visible positions modulo 8, at the start and at the end", everyRemainder},
		{"read early, remainders", "the same in a page that is read early", func(c *attentionCase) { everyRemainder(c); c.fresh = 1 }},
		{"every eighth", "each thread has a position at the start and one at the end of the visible positions", everyEighth},
		{"read early, every eighth", "the same in a page that is read early", func(c *attentionCase) { everyEighth(c); c.fresh = 1 }},
		{"BF16/d=80", "threads are assigned rows beyond the page", func(c *attentionCase) { c.kv, c.headDim = quant.BF16, 80 }},
		{"F16/d=128", "the head of an 8B model", func(c *attentionCase) { c.headDim, c.group = 128, 4 }},
		{"page=16", "blocks of 16 keys", func(c *attentionCase) { c.page, c.lengths = 16, []int{300, 129, 16, 17} }},
		{"d=8", "the head of a tiny model", func(c *attentionCase) { c.headDim = 8 }},
		{"d=16", "the head of a tiny model", func(c *attentionCase) { c.headDim = 16 }},
		{"d=32", "the head of a tiny model", func(c *attentionCase) { c.headDim = 32 }},
	} {
		c := common
		v.change(&c)
		c.name, c.reason = "few CTAs, "+v.name, v.reason
		if v.name == "" {
			c.name = "few CTAs"
		}
		all = append(all, c)
	}
	return all
}

// everyRemainder has windows that begin and end at each position modulo 8.
func everyRemainder(c *attentionCase) {
	c.kvHeads, c.group, c.window, c.lengths = 1, 1, 100, []int{129, 130, 131, 132, 133, 134, 135, 136}
}

// everyEighth are windows that start in each group of 8 positions of a page, pages that end in
// each group after such a window, and first pages that end in each group.
func everyEighth(c *attentionCase) {
	c.kvHeads, c.group, c.window, c.lengths = 1, 1, 64, []int{68, 77, 86, 95, 100, 105, 114, 123, 4, 13, 22, 31, 36, 41, 50, 59}
}

func flashCases() []attentionCase {
	var all []attentionCase
	add := func(c attentionCase) { all = append(all, c) }
	for _, dim := range attentionHeadDims() {
		for _, f := range attentionFormats {
			add(attentionCase{name: fmt.Sprintf("%v/d=%d", f, dim), reason: "the engine's tile, after cached positions",
				kv: f, headDim: dim, group: 1, lengths: []int{75}, queries: []int{9}})
		}
	}
	for _, f := range attentionFormats {
		for _, tile := range [][2]int{{128, 64}, {512, 16}} {
			dim, blockQ := tile[0], tile[1]
			add(attentionCase{name: fmt.Sprintf("fewer queries/%v/d=%d", f, dim), reason: "the tile of GPUs with little shared memory, twice",
				kv: f, headDim: dim, kvHeads: 1, group: 1, blockQ: blockQ, lengths: []int{blockQ + 71}, queries: []int{blockQ + 6}})
		}
	}
	small := attentionCase{kv: quant.F16, headDim: 32, group: 2, page: 32, blockQ: 16, blockK: 16, lengths: []int{45, 20}, queries: []int{37, 20}}
	for _, dim := range append(attentionDims, 8, 24, 40) {
		for _, f := range attentionFormats {
			c := small
			c.name, c.reason = fmt.Sprintf("small tiles/%v/d=%d", f, dim), "many tiles; the head dimension is no multiple of the tile's"
			c.kv, c.headDim, c.kvHeads, c.lengths, c.queries = f, dim, 1, []int{39}, []int{22}
			add(c)
		}
	}
	for _, group := range []int{1, 3, 6, 7, 8} {
		c := small
		c.name, c.reason, c.group, c.lengths, c.queries = fmt.Sprintf("group=%d", group), "query heads that share a KV head, in tiles", group, []int{20}, []int{17}
		add(c)
	}
	for _, n := range []int{1, 15, 16, 17, 31, 32, 33, 63, 64, 65} {
		c := small
		c.name, c.reason = fmt.Sprintf("prompt of %d", n), "around tiles, blocks and pages, with and without cached positions"
		c.lengths, c.queries = []int{n, n + 23}, []int{n, n}
		add(c)
	}
	for _, window := range []int{1, 2, 15, 16, 17, 40} {
		c := small
		c.name, c.reason, c.window = fmt.Sprintf("window=%d", window), "blocks before the window are not read and may belong to other sequences", window
		add(c)
	}
	for _, chunk := range []int{4, 16, 32} {
		c := small
		c.name, c.reason = fmt.Sprintf("chunks=%d", chunk), "blocks before the chunk of the first query are not read; queries of one tile in several chunks"
		c.window, c.chunks = chunk, true
		add(c)
	}
	for _, tile := range [][2]int{{16, 32}, {32, 16}, {64, 32}, {128, 32}} {
		c := small
		c.name, c.reason = fmt.Sprintf("tile %d×%d", tile[0], tile[1]), "other tile sizes"
		c.blockQ, c.blockK = tile[0], tile[1]
		add(c)
	}
	// The engine's tile copies a block of keys in four steps. In each of them some sequence begins,
	// with a window, and some sequence ends. A tile begins at the last position of a block, and the
	// table ends with the last page.
	tile := attentionCase{kv: quant.F16, headDim: 64, kvHeads: 1}
	window := tile
	window.name, window.reason, window.window = "engine's tile, window", "all rows and columns of the engine's tile at the edges of a window", 59
	window.lengths, window.queries = []int{208, 143, 97, 114, 8, 24, 40, 59, 256}, []int{145, 64, 2, 3, 8, 9, 30, 5, 2}
	chunked := window
	chunked.name, chunked.reason, chunked.window, chunked.chunks = "engine's tile, chunks", "all rows and columns of the engine's tile in chunks", 64, true
	softcap := tile
	softcap.name, softcap.reason, softcap.softcap = "engine's tile, softcap", "all rows of the engine's tile, and a softcap", 20
	softcap.lengths, softcap.queries = []int{191, 60}, []int{128, 28}
	add(window)
	add(chunked)
	add(softcap)
	for _, c := range otherTiles() {
		window := c
		window.name, window.reason, window.window = c.name+", window", "the same for another tile", 21
		window.lengths = []int{62, 32, 36, 41, 26, 26, 3, 7, 11, 15, 21, 64}
		window.queries = []int{37, 3, 3, 4, 14, 10, 3, 2, 5, 4, 4, 1}
		softcap := c
		softcap.name, softcap.reason, softcap.softcap, softcap.scale = c.name+", softcap", "all rows of another tile, an idle slot with queries, and scores on both sides of a small cap", 1, 20
		softcap.lengths, softcap.queries = []int{31 + c.blockQ, 20, 9, 60}, []int{c.blockQ, 9, 5, 48}
		softcap.activeOnly, softcap.queued = []int{0, 1, 3}, true
		add(window)
		add(softcap)
	}
	for _, v := range []struct {
		name, reason string
		change       func(*attentionCase)
	}{
		{"ragged", "sequences of different lengths, some with cached positions", func(c *attentionCase) { c.lengths, c.queries = []int{1, 40, 33, 7}, []int{1, 17, 33, 2} }},
		{"idle slots", "a sequence without queries", func(c *attentionCase) { c.activeOnly = []int{1} }},
		{"idle slots with queries", "more queries than positions: the sequence is left out", func(c *attentionCase) { c.activeOnly, c.queued = []int{1}, true }},
		{"sinks", "heads have sinks of their own", func(c *attentionCase) { c.sinks = true }},
		{"sinks and window", "the options of gpt-oss", func(c *attentionCase) { c.sinks, c.window = true, 18 }},
		{"chunks, sinks and softcap", "all options with chunks", func(c *attentionCase) { c.chunks, c.window, c.sinks, c.softcap = true, 8, true, 50 }},
		{"sinks, F16/d=512", "two CTAs share a head, its sink and its KV head", func(c *attentionCase) { c.sinks, c.group, c.kvHeads, c.headDim = true, 3, 2, 512 }},
		{"sinks, d=320", "three CTAs would not each have a multiple of 16 columns", func(c *attentionCase) { c.sinks, c.window, c.headDim = true, 18, 320 }},
		{"softcap", "large scores are near the cap", func(c *attentionCase) { c.softcap, c.scale = 5, 10 }},
		{"softcap, saturated", "scores far beyond the cap", func(c *attentionCase) { c.softcap, c.scale = 0.5, 100 }},
		{"softcap and window", "the options of Gemma 2", func(c *attentionCase) { c.softcap, c.window = 50, 18 }},
		{"peaked", "one softmax weight is nearly 1, most are nearly 0", func(c *attentionCase) { c.scale = 30 }},
		{"large queries", "queries beyond the float16 range, each scaled by its own power of two", func(c *attentionCase) { c.queryScale = 0x1p90 }},
		{"small queries", "queries below the float16 range", func(c *attentionCase) { c.queryScale = 0x1p-60 }},
		{"tiny queries", "the scale of a query is at its limit", func(c *attentionCase) { c.queryScale = 0x1p-120 }},
		{"full table", "the table ends with the last page", func(c *attentionCase) { c.lengths, c.queries = []int{20, 64}, []int{5, 33} }},
		{"full table, window=1", "the first block is the last one", func(c *attentionCase) { c.lengths, c.queries, c.window = []int{20, 32}, []int{5, 16}, 1 }},
		{"outliers", "elements with outliers", func(c *attentionCase) { c.dist = harness.Outliers }},
		{"same sign", "values of one sign, so sums grow", func(c *attentionCase) { c.dist = harness.SameSign }},
		{"constant", "equal scores", func(c *attentionCase) { c.dist = harness.Constant }},
	} {
		c := small
		c.name, c.reason = v.name, v.reason
		v.change(&c)
		add(c)
	}
	return append(all, attentionCase{name: "256 of 4096", reason: "a long prompt after a long cached prefix", kv: quant.F16, headDim: 128, kvHeads: 1, group: 2,
		lengths: []int{4096}, queries: []int{256}, long: true})
}

// warpgroupCases are those of flashCases that the kernel of sm_90a takes, with two warpgroups, and cases of its
// tiles.
func warpgroupCases() []attentionCase {
	var all []attentionCase
	var small attentionCase
	for _, c := range flashCases() {
		if c.headDim%16 != 0 || c.headDim > 256 || strings.HasPrefix(c.name, "tile ") || strings.HasPrefix(c.name, "fewer queries") || c.dist != harness.Gaussian {
			continue
		}
		c.wgmma = true
		if !strings.HasPrefix(c.name, "group=") {
			c.kvHeads = 1
		}
		c.name = strings.Replace(c.name, "32 queries", "128 queries", 1)
		if c.blockQ != 0 {
			c.blockQ = 128
		}
		if c.name == "prompt of 1" {
			small = c
		}
		all = append(all, c)
		if c.blockQ == 0 && c.headDim <= 64 { // the kernels that engines ask for
			c.name, c.blockQ = c.name+", 192 queries", 192
			all = append(all, c)
		}
	}
	for _, n := range []int{66, 100, 127, 128, 129, 193} {
		c := small
		c.name, c.reason = fmt.Sprintf("prompt of %d", n), "around the tiles of warpgroups"
		c.lengths, c.queries = []int{n, n + 23}, []int{n, n}
		all = append(all, c)
	}
	ring := small
	ring.name, ring.reason, ring.kvHeads, ring.group = "each stage twice", "more than twice as many blocks as shared memory holds, for two warpgroups", 1, 1
	ring.lengths, ring.queries = []int{145}, []int{70}
	all = append(all, ring)
	for _, tile := range [][2]int{{128, 32}, {192, 16}, {192, 32}} {
		c := small
		c.name, c.reason = fmt.Sprintf("tile %d×%d", tile[0], tile[1]), "other tile sizes"
		c.blockQ, c.blockK = tile[0], tile[1]
		c.lengths, c.queries = []int{230, 20}, []int{200, 20}
		all = append(all, c)
	}
	return all
}

// attentionHeadDims are the head dimensions of reachable kernels.
func attentionHeadDims() []int { return []int{64, 80, 96, 128, 256, 512} }

// otherTiles returns the formats and small tiles of which few cases test more than the format.
func otherTiles() (list []attentionCase) {
	for _, c := range []attentionCase{
		{kv: quant.F16, headDim: 8, blockQ: 16}, {kv: quant.BF16, headDim: 8, blockQ: 16}, {kv: quant.F16, headDim: 32, blockQ: 32},
		{kv: quant.F16, headDim: 288, blockQ: 16, sinks: true},
	} {
		c.name = fmt.Sprintf("%v/d=%d/%d queries", c.kv, c.headDim, c.blockQ)
		c.kvHeads, c.group, c.page, c.blockK = 1, 2, 32, 16
		list = append(list, c)
	}
	return list
}

// attentionInvariants are cases that compare runs with each other.
func attentionInvariants() []harness.Case {
	decode := attentionCase{kv: quant.F16, headDim: 64, group: 2, lengths: []int{1, 66, 130}}
	flash := attentionCase{kv: quant.F16, headDim: 32, page: 32, blockQ: 16, blockK: 16, lengths: []int{40, 9, 50}, queries: []int{20, 9, 35}}
	with := func(c attentionCase, name, reason string, change func(*attentionCase)) attentionCase {
		c.name, c.reason = name, reason
		if change != nil {
			change(&c)
		}
		return c
	}
	engine := func(c *attentionCase) { c.headDim, c.kvHeads, c.page, c.blockQ, c.blockK = 64, 1, 0, 0, 0 }
	const (
		neighbors = "a result does not depend on other sequences or on the order of pages"
		ctas      = "a split's result does not depend on the CTA that computes it"
		chunks    = "any chunks of a prompt give the same bits"
	)
	decodeCase := func(run func(*harness.Fixture, attentionCase), name, reason string, change func(*attentionCase)) harness.Case {
		return with(decode, name, reason, change).kernelCase("attention decode", run)
	}
	flashCase := func(run func(*harness.Fixture, attentionCase), name, reason string, change func(*attentionCase)) harness.Case {
		return with(flash, name, reason, change).kernelCase("attention prefill", run)
	}
	warpgroups := with(flash, "", "", func(c *attentionCase) {
		c.wgmma, c.blockQ, c.lengths, c.queries = true, 128, []int{170, 9, 150}, []int{140, 9, 135}
	})
	warpgroupCase := func(run func(*harness.Fixture, attentionCase), name, reason string, change func(*attentionCase)) harness.Case {
		return with(warpgroups, name, reason, change).kernelCase(warpgroupPrefill, run)
	}
	var all []harness.Case
	for _, c := range otherTiles() {
		c.name, c.reason = c.name+", zero queries", "queries of another tile without a largest element, and others with a softmax weight of nearly 1"
		c.lengths, c.queries, c.queryScale = []int{60}, []int{40}, 0x1p40
		c.scale = 100 * min(1, 32/float64(c.headDim)) // with 100, some results of large heads are below float32
		all = append(all, c.kernelCase("attention prefill", checkZero))
	}
	return append(all, []harness.Case{
		decodeCase(checkNeighbors(attentionCase.decode), "neighbors", neighbors, nil),
		decodeCase(checkNeighbors(attentionCase.decode), "neighbors, window", neighbors, func(c *attentionCase) { c.window = 70 }),
		decodeCase(checkSplits(1, 3, 5), "any number of CTAs", ctas, func(c *attentionCase) { c.lengths = []int{1, 66, 130, 320, 64, 300} }),
		decodeCase(checkSplits(1, 3, 5), "any number of CTAs, window and sinks", ctas, func(c *attentionCase) {
			c.lengths, c.window, c.sinks = []int{1, 66, 130, 320, 64, 300}, 200, true
		}),
		decodeCase(checkSplits(1, 3), "any number of CTAs, many pages", ctas, func(c *attentionCase) {
			c.page, c.lengths, c.activeOnly = 16, []int{16, 17, 257, 0, 530, 640}, []int{0, 1, 2, 4, 5}
		}),
		decodeCase(checkSplits(1, 3), "any number of CTAs, many pages in a window", ctas, func(c *attentionCase) {
			c.page, c.window, c.lengths = 16, 300, []int{16, 310, 420, 570, 640}
		}),
		decodeCase(checkSplits(1, 3), "any number of CTAs, many pages in a chunk", ctas, func(c *attentionCase) {
			c.page, c.window, c.chunks, c.lengths = 16, 256, true, []int{16, 256, 257, 512, 640}
		}),
		decodeCase(checkSplits(16, 33, 96), "any number of CTAs, heads in parts", "the query heads of a KV head may be divided among CTAs", func(c *attentionCase) {
			c.group, c.lengths = 12, []int{70, 65}
		}),
		decodeCase(checkSplits(1, 3), "any number of CTAs, 12 heads", ctas, func(c *attentionCase) {
			c.group, c.lengths = 12, []int{64, 65, 130}
		}),
		decodeCase(checkSmallHead, "33 splits", "more splits than combine adds per round, before those of a head with far larger scores", func(c *attentionCase) {
			c.lengths, c.page, c.group, c.scale = []int{1030}, 16, 1, 100
		}),
		decodeCase(checkSmallHead, "17 splits of one CTA", "the maximum of a head, beside a head with far larger scores", func(c *attentionCase) {
			c.lengths, c.page, c.group, c.scale, c.sms = []int{528}, 16, 2, 100, 1
		}),
		flashCase(checkNeighbors(attentionCase.flash), "neighbors", neighbors, nil),
		flashCase(checkInvisible, "invisible", "positions that no query of a tile sees may hold Inf", func(c *attentionCase) {
			c.lengths, c.queries, c.window = []int{48}, []int{48}, 8
		}),
		flashCase(checkInvisible, "invisible, engine's tile", "positions before and after a whole tile may hold Inf", func(c *attentionCase) {
			engine(c)
			c.lengths, c.queries, c.window = []int{208}, []int{145}, 59
		}),
		decodeCase(checkInfiniteValue, "infinite value", "an infinite element of a value, in a head whose keys are padded", func(c *attentionCase) {
			c.headDim, c.group, c.lengths, c.sms = 72, 1, []int{130}, 1
		}),
		decodeCase(checkOverflow, "overflow", "a block whose scores are all -Inf weighs nothing", func(c *attentionCase) {
			c.kvHeads, c.group, c.lengths, c.queryScale, c.scale = 1, 1, []int{130}, 0x1p112, 0x1p112
		}),
		decodeCase(checkLowest, "lowest scores", "scores that are nearly the smallest float32, in two blocks", func(c *attentionCase) {
			c.lengths, c.window = []int{1, 65}, 2
		}),
		decodeCase(checkLowest, "lowest scores, one CTA", "the same for a CTA that has all splits", func(c *attentionCase) {
			c.lengths, c.window, c.sms = []int{1, 65}, 2, 1
		}),
		flashCase(checkHalves, "halves of a tile", "a block raises the maximum of only the first or the last 8 queries of a tile", func(c *attentionCase) {
			c.lengths, c.queries = []int{48}, []int{16}
		}),
		flashCase(checkZero, "zero queries", "the factor of a zero query times the scale underflows; its scores are equal", func(c *attentionCase) { c.scale = 0x1p-40 }),
		flashCase(checkZero, "zero queries, engine's tile", "each row of a warp without a largest element", func(c *attentionCase) {
			engine(c)
			c.lengths, c.queries, c.scale = []int{32}, []int{32}, 0x1p-40
		}),
		flashCase(checkChunks(7), "chunks", chunks, nil),
		flashCase(checkChunks(5), "chunks, all options", chunks, func(c *attentionCase) { c.window, c.softcap, c.sinks, c.kv = 21, 20, true, quant.BF16 }),
		flashCase(checkChunks(5), "chunks, attention in chunks", chunks, func(c *attentionCase) { c.window, c.chunks = 16, true }),
		warpgroupCase(checkNeighbors(attentionCase.flash), "neighbors", neighbors, nil),
		warpgroupCase(checkInvisible, "invisible", "positions that no query of a tile sees may hold Inf", func(c *attentionCase) {
			c.kvHeads, c.group, c.lengths, c.queries, c.window = 1, 1, []int{130}, []int{130}, 8
		}),
		warpgroupCase(checkHalves, "halves of a tile", "a block raises the maximum of only the first or the last 8 queries of a tile", func(c *attentionCase) {
			c.lengths, c.queries = []int{48}, []int{16}
		}),
		warpgroupCase(checkZero, "zero queries", "the factor of a zero query times the scale underflows; its scores are equal", func(c *attentionCase) {
			c.lengths, c.queries, c.scale = flash.lengths, flash.queries, 0x1p-40
		}),
		warpgroupCase(checkChunks(50), "chunks", chunks, nil),
		warpgroupCase(checkChunks(70), "chunks, all options", chunks, func(c *attentionCase) { c.window, c.softcap, c.sinks, c.kv = 21, 20, true, quant.BF16 }),
		warpgroupCase(checkChunks(70), "chunks, attention in chunks", chunks, func(c *attentionCase) { c.window, c.chunks = 32, true }),
	}...)
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// tensorCoreError is the relative error of one accumulation on a tensor core, which
// truncates.
const tensorCoreError = 0x1p-23

// errors returns the error model of the kernels.
func (c attentionCase) errors() attentionErrors {
	u := attentionErrors{
		weight: 0x1p-11, tiny: 0x1p-25, depth: func(length int) (score, output int) { return attention.Depth(c.shape(), length) },
		queries: tensorQuery(14, float16.RoundF16), keys: func(x []float32) []float32 { return roundAll(quant.F16, x) }, block: c.block(),
	}
	if c.kv == quant.BF16 {
		u.weight, u.tiny, u.queries, u.keys = 0x1p-8, 0, tensorQuery(0, float16.RoundBF16), func(x []float32) []float32 { return x }
	}
	return u
}

// baselineMinLength is the minimum number of visible positions for comparing errors with the
// baseline's. With fewer positions, both errors depend on chance.
const baselineMinLength = 64

// compare compares outputs with the reference.
func (c attentionCase) compare(r *harness.Fixture, what string, d attentionData, got [][]float32) {
	r.T.Helper()
	for s, n := range c.lengths {
		if !c.active(s) {
			continue
		}
		ref := c.reference(d, s)
		name := fmt.Sprintf("%s, sequence %d of length %d", what, s, n)
		r.Within(name, got[s], ref.want, ref.bound)
		width := c.heads() * c.headDim
		first := max(0, baselineMinLength-(n-c.queries[s])) * width
		comparable := c.window == 0 && c.dist != harness.Constant // otherwise the baseline may be exact by chance
		if comparable && first < len(got[s]) && len(got[s]) == len(ref.want) {
			r.NoWorse(name, got[s][first:], ref.want[first:], ref.baseline[first:], width)
		}
	}
}

func checkDecode(r *harness.Fixture, c attentionCase) {
	d := c.data(r)
	c.compare(r, "out", d, c.decode(r, d))
}

// checkFlash also computes the last position of each sequence by decode, with a CTA per block and with one CTA, and demands the same bits.
func checkFlash(r *harness.Fixture, c attentionCase) {
	d := c.data(r)
	out := c.flash(r, d)
	c.compare(r, "out", d, out)
	for _, c.sms = range []int{0, 1} {
		sameOutputs(r, fmt.Sprintf("decode, %d SMs", c.sms), c.decodeLast(r, d), c.lastOf(out))
	}
}

// decodeLast computes the last position of each sequence by decode.
func (c attentionCase) decodeLast(r *harness.Fixture, d attentionData) [][]float32 {
	d.q = c.lastOf(d.q)
	c.queries, c.queued = nil, false
	return c.filled().decode(r, d)
}

// lastOf returns the rows of the last queries.
func (c attentionCase) lastOf(rows [][]float32) (last [][]float32) {
	for _, x := range rows {
		last = append(last, x[max(0, len(x)-c.heads()*c.headDim):])
	}
	return last
}

// checkSameBits is checkFlash for the kernel of sm_90a, and demands the bits of the kernel of mma.sync.
func checkSameBits(r *harness.Fixture, c attentionCase) {
	d := c.data(r)
	out := c.flash(r, d)
	c.compare(r, "out", d, out)
	c.wgmma, c.blockQ = false, min(c.blockQ, 16)
	sameOutputs(r, "mma.sync", out, c.flash(r, d))
}

// sameOutputs demands that the outputs of two runs are equal bit for bit.
func sameOutputs(r *harness.Fixture, what string, got, want [][]float32) {
	r.T.Helper()
	compared := false
	for s := range got {
		if got[s] != nil {
			harness.Exact(r, fmt.Sprintf("%s, sequence %d", what, s), got[s], want[s])
			compared = true
		}
	}
	if !compared {
		r.Errorf("%s: nothing was compared", what)
	}
}

// checkNeighbors runs a batch. Then it runs parts of the batch with other pages, a wider
// table and other neighbors, and demands the same bits.
func checkNeighbors(run func(attentionCase, *harness.Fixture, attentionData) [][]float32) func(*harness.Fixture, attentionCase) {
	return func(r *harness.Fixture, c attentionCase) {
		d := c.data(r)
		all := run(c, r, d)
		moved := c
		moved.seed, moved.extraPages = c.seed+1, c.extraPages+2
		sameOutputs(r, "pages elsewhere, a wider table", run(moved, r, d), all)
		for s := range c.lengths {
			alone := moved
			alone.activeOnly = []int{s}
			sameOutputs(r, "alone", run(alone, r, d), all)
		}
		other := moved.data(r)
		last := len(c.lengths) - 1
		other.q[last], other.k[last], other.v[last] = d.q[last], d.k[last], d.v[last]
		sameOutputs(r, "other neighbors", run(moved, r, other)[last:], all[last:])
	}
}

// checkSplits runs a batch with one CTA per page, then with CTAs for other numbers of SMs
// and with early reads, and demands the same bits.
func checkSplits(sms ...int) func(*harness.Fixture, attentionCase) {
	return func(r *harness.Fixture, c attentionCase) {
		d := c.data(r)
		all := c.decode(r, d)
		for _, c.sms = range sms {
			c.fresh = c.sms % 3
			sameOutputs(r, fmt.Sprintf("%d SMs", c.sms), c.decode(r, d), all)
		}
	}
}

// checkChunks computes a prompt at once and in chunks, and demands the same bits.
func checkChunks(size int) func(*harness.Fixture, attentionCase) {
	return func(r *harness.Fixture, c attentionCase) {
		d := c.data(r)
		whole := c.flash(r, d)
		for s := range c.lengths {
			var chunks []float32
			for from := 0; from < c.queries[s]; from += size {
				chunks = append(chunks, c.chunk(r, d, s, from, min(size, c.queries[s]-from))...)
			}
			harness.Exact(r, fmt.Sprintf("sequence %d in chunks", s), chunks, whole[s])
		}
	}
}

// checkInvisible is checkFlash with a few tiles of queries. Then it computes them again with infinite keys and values
// before the window of the last tile but one and after it, and demands the same bits of that tile.
func checkInvisible(r *harness.Fixture, c attentionCase) {
	d := c.data(r)
	clean := c.flash(r, d)
	c.compare(r, "out", d, clean)
	size := cmp.Or(c.blockQ, 128)
	begin := ((c.queries[0]-1)/size - 1) * size // of the last tile but one
	first := c.lengths[0] - c.queries[0] + begin
	for h := range c.kvHeads {
		for position := range c.lengths[0] {
			if position > first-c.window && position < first+size {
				continue
			}
			at := (h*c.lengths[0] + position) * c.headDim
			for i := range c.headDim {
				d.k[0][at+i], d.v[0][at+i] = float32(math.Inf(1)), float32(math.Inf(1))
			}
		}
	}
	width := c.heads() * c.headDim
	from, to := begin*width, (begin+size)*width
	harness.Exact(r, "last tile but one", c.flash(r, d)[0][from:to], clean[0][from:to])
}

// checkHalves is checkFlash with one tile of positive and then negative queries, and with a
// block of keys that are 0, one of positive keys and one of negative keys.
func checkHalves(r *harness.Fixture, c attentionCase) {
	d := c.data(r)
	signed := func(x []float32, sign float64) {
		for i := range x {
			x[i] = float32(sign * math.Abs(float64(x[i])))
		}
	}
	half := 8 * c.heads() * c.headDim
	signed(d.q[0][:half], 1)
	signed(d.q[0][half:], -1)
	for h := range c.kvHeads {
		for block, sign := range []float64{0, 1, -1} {
			at := (h*c.lengths[0] + block*c.blockK) * c.headDim
			signed(d.k[0][at:at+c.blockK*c.headDim], sign)
		}
	}
	c.compare(r, "out", d, c.flash(r, d))
}

// checkSmallHead is checkDecode with tiny scores of the first head.
func checkSmallHead(r *harness.Fixture, c attentionCase) {
	d := c.data(r)
	for i := range c.headDim {
		d.q[0][i] *= 0x1p-20
	}
	c.compare(r, "out", d, c.decode(r, d))
}

// checkZero is checkFlash with every third query 0, and only a first element in the next one.
func checkZero(r *harness.Fixture, c attentionCase) {
	d := c.data(r)
	for _, q := range d.q {
		for at := 0; at < len(q); at += c.headDim {
			switch at / c.headDim / c.heads() % 3 {
			case 0:
				clear(q[at : at+c.headDim])
			case 1:
				clear(q[at+1 : at+c.headDim])
				q[at] = float32(math.Ldexp(0x1.fff8p0, math.Ilogb(float64(q[at])))) // near the next power of two
			}
		}
	}
	c.compare(r, "out", d, c.flash(r, d))
}

// checkOverflow is checkDecode with scores of the second page that overflow float32. The others are 0.
func checkOverflow(r *harness.Fixture, c attentionCase) {
	d := c.data(r)
	for i, x := range d.q[0] {
		d.q[0][i] = float32(math.Abs(float64(x)))
	}
	clear(d.k[0])
	for h := range c.kvHeads {
		for i := range c.page * c.headDim {
			d.k[0][(h*c.lengths[0]+c.page)*c.headDim+i] = -65504
		}
	}
	c.compare(r, "out", d, c.decode(r, d))
}

// checkInfiniteValue computes a batch, and again with an infinite element of the values of the first page. It demands that the other
// elements of the output keep their bits.
func checkInfiniteValue(r *harness.Fixture, c attentionCase) {
	const position, element = 3, 2
	d := c.data(r)
	finite := c.decode(r, d)
	d.v[0][position*c.headDim+element] = float32(math.Inf(1))
	for i, x := range c.decode(r, d)[0] {
		if i != element && i < c.group*c.headDim {
			harness.Exact(r, fmt.Sprintf("element %d", i), []float32{x}, []float32{finite[0][i]})
		}
	}
}

// checkLowest computes sequences of one or two visible positions with scores of -2^127,
// and demands the mean of their values.
func checkLowest(r *harness.Fixture, c attentionCase) {
	d := c.data(r)
	for s := range c.lengths {
		for i := range d.q[s] {
			d.q[s][i] = float32(0x1p127 / float64(c.headDim))
		}
		for i := range d.k[s] {
			d.k[s][i] = -1
		}
	}
	c.scale = math.Sqrt(float64(c.headDim))
	for s, out := range c.decode(r, d) {
		for h := range c.heads() {
			row := func(x []float32, i int) []float32 { return x[i*c.headDim : (i+1)*c.headDim] }
			end := (h/c.group + 1) * c.lengths[s]
			want := slices.Clone(row(d.v[s], end-1))
			if c.lengths[s] > 1 {
				for i, x := range row(d.v[s], end-2) {
					want[i] = (want[i] + x) / 2
				}
			}
			harness.Exact(r, fmt.Sprintf("sequence %d, head %d", s, h), row(out, h), want)
		}
	}
}

// chunk computes n queries of a sequence from index from, with a cache that ends after
// them.
func (c attentionCase) chunk(r *harness.Fixture, d attentionData, s, from, n int) []float32 {
	length, width := c.lengths[s]-c.queries[s]+from+n, c.heads()*c.headDim
	part := c
	part.lengths, part.queries, part.activeOnly, part.seed = []int{length}, []int{n}, nil, c.seed+uint64(from)
	cut := func(x []float32) []float32 {
		var rows []float32
		for h := range c.kvHeads {
			rows = append(rows, x[h*c.lengths[s]*c.headDim:][:length*c.headDim]...)
		}
		return rows
	}
	q := d.q[s][from*width : (from+n)*width]
	return part.flash(r, attentionData{sinks: d.sinks, q: [][]float32{q}, k: [][]float32{cut(d.k[s])}, v: [][]float32{cut(d.v[s])}})[0]
}
