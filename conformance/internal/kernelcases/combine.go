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
	splits       []float64 // per sequence; a fraction is a last split that is not full
	window       float64   // in splits
	chunks       bool      // the window is the size of chunks
	keys         int       // per split; 0: 64
	spread       float64   // deviation of the splits' maxima; 0: 1
	peaks        []int     // per head, a split whose maximum is far above all others
	empty        bool      // the first eight splits, and every third one, have no finite score
	sinks        []float32 // per head; nil: none
	headDim      int
}

const combineHeads = 4

func combineCases() []harness.Case {
	var all []harness.Case
	add := func(c combineCase, run func(*harness.Fixture, combineCase)) {
		c.keys = cmp.Or(c.keys, 64)
		all = append(all, harness.Case{
			Operation: "attention combine", Format: "F32", Name: fmt.Sprintf("%s/d=%d", c.name, c.headDim), Reason: c.reason,
			Run: func(r *harness.Fixture) { run(r, c) },
		})
	}
	for _, dim := range []int{64, 104} { // the elements of a CTA are all there, or not
		for _, c := range []combineCase{
			{name: "splits=1", reason: "a single split is copied", splits: []float64{1, 0.02}},
			{name: "splits=33", reason: "more splits than a warp has lanes, and fewer", splits: []float64{33, 32, 14.9}},
			{name: "splits=50", reason: "some splits, the last of which are full or not", splits: []float64{49.9, 49, 48.1}},
			{name: "splits=300", reason: "three rounds, two, and one", splits: []float64{300, 129, 128}},
			{name: "window", reason: "splits before the window are not read", splits: []float64{140, 1.1}, window: 70.1},
			{name: "chunks", reason: "splits before the chunk are not read; chunks that begin and end, one split or many", splits: []float64{140, 64, 64.1, 1.1, 127.9}, window: 64, chunks: true},
			{name: "keys=1", reason: "splits of one position, all of them or those in the window", splits: []float64{20, 25, 30}, keys: 1, window: 25},
			{name: "sinks", reason: "a sink below the maxima, about as large, and larger", splits: []float64{20, 1}, sinks: []float32{-1, 1, 2, 5}},
			{name: "not active", reason: "a sequence without positions is not written", splits: []float64{0, 20}},
			{name: "empty", reason: "splits whose scores are all -Inf: the first ones, and others", splits: []float64{20, 12}, empty: true},
			{name: "spread", reason: "most weights are tiny", splits: []float64{40}, spread: 8},
			{name: "peaks", reason: "the maximum is found wherever it is: otherwise the sums overflow", splits: []float64{97}, peaks: []int{32, 63, 96, 1}},
		} {
			c.headDim = dim
			add(c, checkAttentionCombine)
		}
		add(combineCase{name: "order", reason: "the order of additions does not depend on the window", splits: []float64{90}, window: 20.5, headDim: dim}, checkCombineOrder)
	}
	add(combineCase{name: "keys=1", reason: "a sequence as long as the window, in the smallest head", splits: []float64{20, 25, 30}, keys: 1, window: 25, headDim: 8}, checkAttentionCombine)
	for _, dim := range []int{8, 32, 96, 128, 256} {
		add(combineCase{name: "splits=50", reason: "another head dimension", splits: []float64{49.9, 17}, headDim: dim}, checkAttentionCombine)
	}
	return all
}

// length returns the length of a sequence in positions, and limit the window.
func (c combineCase) length(sequence int) int { return int(c.splits[sequence] * float64(c.keys)) }
func (c combineCase) limit() int              { return int(c.window * float64(c.keys)) }

// visible returns the visible splits of a sequence.
func (c combineCase) visible(sequence int) (from, to int) {
	length := c.length(sequence)
	switch {
	case c.chunks:
		from = (length - 1) / c.limit() * c.limit() / c.keys
	case c.window > 0 && length > c.limit():
		from = (length - c.limit()) / c.keys
	}
	return from, (length + c.keys - 1) / c.keys
}

// parts returns random results of the splits of each row. Those of splits that are not visible have
// the weight 0.
func (c combineCase) parts(r *harness.Fixture) [][]partialResult {
	rows := make([][]partialResult, combineHeads*len(c.splits))
	for row := range rows {
		from, to := c.visible(row / combineHeads)
		rows[row] = make([]partialResult, to)
		for i := range rows[row] {
			p := partialResult{most: float32(cmp.Or(c.spread, 1)) * r.Vector(harness.Gaussian, 1)[0], sum: 1 + float32(r.Rand().IntN(63)), o: r.Vector(harness.Gaussian, c.headDim)}
			switch {
			case i < from:
				p.most = -1e30
			case c.empty && (i < 8 || i%3 == 0):
				p = partialResult{most: float32(math.Inf(-1)), o: make([]float32, c.headDim)}
			case c.peaks != nil && c.peaks[row%combineHeads] == i:
				p.most += 300
			}
			rows[row][i] = p
		}
	}
	return rows
}

// run combines the visible splits and returns the output of each row, or nil if the length is 0.
func (c combineCase) run(r *harness.Fixture, rows [][]partialResult) [][]float32 {
	maxSplits, sequences := 0, len(c.splits)
	for s := range c.splits {
		_, to := c.visible(s)
		maxSplits = max(maxSplits, to+1)
	}
	spec := attention.Combine(c.headDim)
	scratch := r.Input("scratch", int(attention.Shape{KV: quant.F16, HeadDim: c.headDim, Page: 64, BlockK: 16}.ScratchBytes(sequences, combineHeads, maxSplits)))
	sums := (8*sequences*combineHeads*maxSplits + 15) / 16 * 16
	stride := combineHeads*c.headDim + 4
	out := r.Output("out", 4*sequences*stride)
	lengths := make([]uint32, sequences)
	for row, parts := range rows {
		lengths[row/combineHeads] = uint32(c.length(row / combineHeads))
		from, to := c.visible(row / combineHeads)
		for i := from; i < to; i++ {
			at := row*maxSplits + i
			scratch.SetF32s(8*at, []float32{parts[i].most, parts[i].sum}).SetF32s(sums+4*c.headDim*at, parts[i].o)
		}
	}
	scoring := attention.Scoring{Scale: 1, Window: c.limit(), Chunks: c.chunks}
	if c.sinks != nil {
		scoring.Sinks = r.F32s("sinks", c.sinks).Addr()
	}
	r.Launch(spec.Launch(r.Kernel(spec), attention.CombineArgs{
		Scratch: scratch.Addr(), Scoring: scoring, Lengths: r.U32s("lengths", lengths).Addr(), Out: out.Addr(),
		Sequences: sequences, Heads: combineHeads, OutStride: stride, MaxSplits: maxSplits, SplitKeys: c.keys,
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
	for s := range c.splits {
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
				parts = append(slices.Clone(parts), partialResult{c.sinks[row%combineHeads] * math.Log2E, 1, make([]float32, c.headDim)})
			}
			want, bound := combineReference(parts, c.headDim)
			r.Within(fmt.Sprintf("row %d", row), got, want, bound)
		}
	}
}

// checkCombineOrder combines the splits in a window. Then it combines all splits, of which those
// before the window have the weight 0, and demands the same bits.
func checkCombineOrder(r *harness.Fixture, c combineCase) {
	rows, all := c.parts(r), c
	all.window = 0
	whole := all.run(r, rows)
	for row, got := range c.run(r, rows) {
		harness.Exact(r, fmt.Sprintf("row %d", row), got, whole[row])
	}
}

// partialResult is the result of a decode kernel for one split and head: maximum, sum of
// weights and unnormalized output.
type partialResult struct {
	most, sum float32
	o         []float32
}

// combineReference returns the combined output and its error bound, in unit roundoffs: 4
// per exponential, 2|d| for the arguments d of a weight's exponentials, and 2 per addition. A weight is the product of two
// exponentials, and of one more whenever the maximum grows.
func combineReference(parts []partialResult, headDim int) (want, bound []float64) {
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
		w := math.Exp2(d)
		roundoffs := float64(4*(2+grows)) + 2*math.Abs(d) + float64(2*len(parts))
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
