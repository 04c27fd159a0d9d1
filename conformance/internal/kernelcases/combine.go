package kernelcases

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/quant"
)

// combineCase runs the combine kernel alone on random results of decode kernels, so that
// long sequences are cheap.
type combineCase struct {
	name, reason string
	pages        []float64 // per sequence; a fraction is a last page that is not full
	window       float64   // in pages
	chunks       bool      // the window is the size of chunks
	page         int       // positions per page; 0: PageTokens
	spread       float64   // deviation of the pages' maxima; 0: 1
	peaks        []int     // per head, a page whose maximum is far above all others
	empty        bool      // the first eight pages, and every third one, have no finite score
	sinks        []float32 // per head; nil: none
	headDim      int
}

const combineHeads = 4

func combineCases() []harness.Case {
	var all []harness.Case
	add := func(c combineCase, run func(*harness.Fixture, combineCase)) {
		c.page = cmp.Or(c.page, attention.PageTokens)
		all = append(all, harness.Case{
			Operation: "attention combine", Format: "F32", Name: fmt.Sprintf("%s/d=%d", c.name, c.headDim), Reason: c.reason,
			Run: func(r *harness.Fixture) { run(r, c) },
		})
	}
	for _, dim := range []int{64, 104} { // the Vec4s per CTA are a power of two, or not
		for _, c := range []combineCase{
			{name: "pages=1", reason: "a single page is copied", pages: []float64{1, 0.02}},
			{name: "pages=16", reason: "two blocks, and one page less", pages: []float64{16, 14.9}},
			{name: "pages=50", reason: "blocks of eight pages and a remainder", pages: []float64{49.9, 49, 48.1}},
			{name: "pages=300", reason: "more blocks than warps, twice or once", pages: []float64{300, 129, 128}},
			{name: "window", reason: "pages before the window are not read", pages: []float64{140, 1.1}, window: 70.1},
			{name: "chunks", reason: "pages before the chunk are not read; chunks that begin and end, one page or many", pages: []float64{140, 64, 64.1, 1.1, 127.9}, window: 64, chunks: true},
			{name: "page=1", reason: "pages of one position, all of them or those in the window", pages: []float64{20, 25, 30}, page: 1, window: 25},
			{name: "sinks", reason: "a sink below the maxima, about as large, and larger", pages: []float64{20, 1}, sinks: []float32{-1, 1, 2, 5}},
			{name: "not active", reason: "a sequence without positions is not written", pages: []float64{0, 20}},
			{name: "empty", reason: "pages whose scores are all -Inf: those of the first block, and others", pages: []float64{20, 12}, empty: true},
			{name: "spread", reason: "most weights are tiny", pages: []float64{40}, spread: 8},
			{name: "peaks", reason: "the maximum is found wherever it is: otherwise the sums overflow", pages: []float64{97}, peaks: []int{32, 63, 96, 1}},
		} {
			c.headDim = dim
			add(c, checkAttentionCombine)
		}
		add(combineCase{name: "order", reason: "the order of additions does not depend on the window", pages: []float64{90}, window: 20.5, headDim: dim}, checkCombineOrder)
	}
	add(combineCase{name: "page=1", reason: "a sequence as long as the window, in the smallest head", pages: []float64{20, 25, 30}, page: 1, window: 25, headDim: 8}, checkAttentionCombine)
	for _, dim := range []int{8, 32, 96, 128, 256} {
		add(combineCase{name: "pages=50", reason: "another head dimension", pages: []float64{49.9, 17}, headDim: dim}, checkAttentionCombine)
	}
	return all
}

// length returns the length of a sequence in positions, and limit the window.
func (c combineCase) length(sequence int) int { return int(c.pages[sequence] * float64(c.page)) }
func (c combineCase) limit() int              { return int(c.window * float64(c.page)) }

// visible returns the visible pages of a sequence.
func (c combineCase) visible(sequence int) (from, to int) {
	length := c.length(sequence)
	switch {
	case c.chunks:
		from = (length - 1) / c.limit() * c.limit() / c.page
	case c.window > 0 && length > c.limit():
		from = (length - c.limit()) / c.page
	}
	return from, (length + c.page - 1) / c.page
}

// parts returns random results of the pages of each row. Those of pages that are not visible have
// the weight 0.
func (c combineCase) parts(r *harness.Fixture) [][]splitResult {
	rows := make([][]splitResult, combineHeads*len(c.pages))
	for row := range rows {
		from, to := c.visible(row / combineHeads)
		rows[row] = make([]splitResult, to)
		for i := range rows[row] {
			p := splitResult{most: float32(cmp.Or(c.spread, 1)) * r.Vector(harness.Gaussian, 1)[0], sum: 1 + float32(r.Rand().IntN(63)), o: r.Vector(harness.Gaussian, c.headDim)}
			switch {
			case i < from:
				p.most = -1e30
			case c.empty && (i < 8 || i%3 == 0):
				p = splitResult{most: float32(math.Inf(-1)), o: make([]float32, c.headDim)}
			case c.peaks != nil && c.peaks[row%combineHeads] == i:
				p.most += 300
			}
			rows[row][i] = p
		}
	}
	return rows
}

// run combines the visible pages and returns the output of each row, or nil if the length is 0.
func (c combineCase) run(r *harness.Fixture, rows [][]splitResult) [][]float32 {
	maxPages, sequences := 0, len(c.pages)
	for s := range c.pages {
		_, to := c.visible(s)
		maxPages = max(maxPages, to+1)
	}
	spec := attention.Combine(c.headDim)
	scratch := r.Input("scratch", int(attention.ScratchBytes(c.headDim, sequences, combineHeads, maxPages)))
	sums := (8*sequences*combineHeads*maxPages + 15) / 16 * 16
	stride := combineHeads*c.headDim + 4
	out := r.Output("out", 4*sequences*stride)
	lengths := make([]uint32, sequences)
	for row, parts := range rows {
		lengths[row/combineHeads] = uint32(c.length(row / combineHeads))
		from, to := c.visible(row / combineHeads)
		for i := from; i < to; i++ {
			at := row*maxPages + i
			scratch.SetF32s(8*at, []float32{parts[i].most, parts[i].sum}).SetF32s(sums+4*c.headDim*at, parts[i].o)
		}
	}
	scoring := attention.Scoring{Scale: 1, Window: c.limit(), Chunks: c.chunks}
	if c.sinks != nil {
		scoring.Sinks = r.F32s("sinks", c.sinks).Addr()
	}
	r.Launch(spec.Launch(r.Kernel(spec), attention.CombineArgs{
		Scratch: scratch.Addr(), Scoring: scoring, Lengths: r.U32s("lengths", lengths).Addr(), Out: out.Addr(),
		Sequences: sequences, Heads: combineHeads, OutStride: stride, MaxPages: maxPages, Page: c.page,
	}))
	results := make([][]float32, len(rows))
	for row := range rows {
		at := 4 * (row/combineHeads*stride + row%combineHeads*c.headDim)
		if lengths[row/combineHeads] == 0 {
			out.Untouched(at, 4*c.headDim)
			continue
		}
		results[row] = out.FloatsAt(quant.F32, at, c.headDim)
	}
	for s := range c.pages {
		out.Untouched(4*(s*stride+combineHeads*c.headDim), 4*4)
	}
	return results
}

func checkAttentionCombine(r *harness.Fixture, c combineCase) {
	rows := c.parts(r)
	for row, got := range c.run(r, rows) {
		if got != nil {
			from, _ := c.visible(row / combineHeads)
			parts := rows[row][from:]
			if c.sinks != nil {
				parts = append(slices.Clone(parts), splitResult{c.sinks[row%combineHeads], 1, make([]float32, c.headDim)})
			}
			want, bound := combineReference(parts, c.headDim)
			r.Within(fmt.Sprintf("row %d", row), got, want, bound)
		}
	}
}

// checkCombineOrder combines the pages in a window. Then it combines all pages, of which those
// before the window have the weight 0, and demands the same bits.
func checkCombineOrder(r *harness.Fixture, c combineCase) {
	rows, all := c.parts(r), c
	all.window = 0
	whole := all.run(r, rows)
	for row, got := range c.run(r, rows) {
		harness.Exact(r, fmt.Sprintf("row %d", row), got, whole[row])
	}
}

// splitResult is the result of a decode kernel for one page and head: maximum, sum of
// weights and unnormalized output.
type splitResult struct {
	most, sum float32
	o         []float32
}

// combineReference returns the combined output and its error bound, in unit roundoffs: 4
// per exponential, 2|d|·log2(e) for the arguments d of a weight's exponentials, and 2 per addition. A weight is the product of two
// exponentials, and of one more whenever the maximum grows.
func combineReference(parts []splitResult, headDim int) (want, bound []float64) {
	want, bound = make([]float64, headDim), make([]float64, headDim)
	most, grows, total, slack := math.Inf(-1), 0, 0.0, 0.0
	for _, p := range parts {
		if float64(p.most) > most {
			most = float64(p.most)
			grows++
		}
	}
	for _, p := range parts {
		if p.sum == 0 { // no weight
			continue
		}
		d := float64(p.most) - most
		w := math.Exp(d)
		roundoffs := float64(4*(2+grows)) + 2*math.Abs(d)*math.Log2E + float64(2*(len(parts)/8+9))
		total += w * float64(p.sum)
		slack += float64(w*float64(p.sum)) * roundoffs
		for i, x := range p.o {
			want[i] += w * float64(x)
			bound[i] += float64(w*math.Abs(float64(x))) * roundoffs
		}
	}
	for i := range want {
		want[i] /= total
		bound[i] = harness.UnitRoundoff * (bound[i]/total + math.Abs(want[i])*(slack/total+2))
	}
	return want, bound
}
