package conformance

import (
	"fmt"
	"math/rand/v2"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// decodeUnits are those of the incremental kernels: float32 throughout.
func (c attentionCase) decodeUnits() attentionUnits {
	spec := ptxgen.AttentionDecode{KV: c.kv, HeadDim: c.headDim, Page: c.page}
	return attentionUnits{sum: unit, depth: spec.Depth, queries: exact, keys: exact}
}

// tensorUnit is the error of one step of a tensor core relative to its result, which
// is cut off, not rounded.
const tensorUnit = 0x1p-23

// flashUnits are those of FlashAttention.
func (c attentionCase) flashUnits() attentionUnits {
	spec := c.flashSpec()
	u := attentionUnits{
		sum: tensorUnit, weight: 0x1p-11, tiny: 0x1p-25, depth: spec.Depth,
		queries: tensorQuery(14, roundF16), keys: roundedF16, block: c.blockK,
	}
	if u.block == 0 {
		u.block = flashBlock(c.headDim)
	}
	if c.kv == quant.BF16 {
		u.weight, u.tiny, u.queries, u.keys = 0x1p-8, 0, tensorQuery(0, roundBF16), exact
	}
	return u
}

// honestLeast is how many positions a row must see for its error to be compared with
// that of another computation: both are chance.
const honestLeast = 64

// compare holds outputs to the reference.
func (c attentionCase) compare(r *KernelRig, what string, d attentionData, got [][]float32, u attentionUnits) {
	r.Helper()
	for s, n := range c.lengths {
		if !c.active(s) {
			continue
		}
		ref := c.reference(d, s, u)
		name := fmt.Sprintf("%s, sequence %d of length %d", what, s, n)
		r.Within(name, got[s], ref.want, ref.bound)
		width := c.heads() * c.headDim
		first := max(0, honestLeast-(n-c.queries[s])) * width
		comparable := c.window == 0 && c.dist != Constant // what is exact in one order is chance, too
		if comparable && first < len(got[s]) && len(got[s]) == len(ref.want) {
			r.NoWorse(name, got[s][first:], ref.want[first:], ref.honest[first:], width)
		}
	}
}

func checkDecode(r *KernelRig, c attentionCase) {
	d := c.data(r)
	c.compare(r, "out", d, c.decode(r, d), c.decodeUnits())
}

func checkFlash(r *KernelRig, c attentionCase) {
	d := c.data(r)
	c.compare(r, "out", d, c.flash(r, d), c.flashUnits())
}

// sameOutputs demands that the sequences of two runs are equal bit for bit.
func sameOutputs(r *KernelRig, what string, got, want [][]float32) {
	r.Helper()
	for s := range got {
		if got[s] != nil && want[s] != nil {
			Exact(r, fmt.Sprintf("%s, sequence %d", what, s), got[s], want[s])
		}
	}
}

// checkNeighbors runs a batch, then its sequences in part, with their pages
// elsewhere, a wider table and other neighbors: the same bits.
func checkNeighbors(run func(attentionCase, *KernelRig, attentionData) [][]float32) func(*KernelRig, attentionCase) {
	return func(r *KernelRig, c attentionCase) {
		d := c.data(r)
		all := run(c, r, d)
		moved := c
		moved.seed, moved.spare = c.seed+1, c.spare+2
		sameOutputs(r, "pages elsewhere, a wider table", run(moved, r, d), all)
		for s := range c.lengths {
			alone := moved
			alone.only = []int{s}
			sameOutputs(r, "alone", run(alone, r, d), all)
		}
		other := moved.data(r)
		last := len(c.lengths) - 1
		other.q[last], other.k[last], other.v[last] = d.q[last], d.k[last], d.v[last]
		sameOutputs(r, "other neighbors", run(moved, r, other)[last:], all[last:])
	}
}

// checkShares runs a batch with a CTA for each page, then with CTAs for so many SMs, and
// with pages read early and not: the same bits.
func checkShares(sms ...int) func(*KernelRig, attentionCase) {
	return func(r *KernelRig, c attentionCase) {
		d := c.data(r)
		all := c.decode(r, d)
		for _, c.sms = range sms {
			c.fresh = c.sms % 3
			sameOutputs(r, fmt.Sprintf("%d SMs", c.sms), c.decode(r, d), all)
		}
	}
}

// checkChunks computes a prompt at once and in chunks: the same bits.
func checkChunks(size int) func(*KernelRig, attentionCase) {
	return func(r *KernelRig, c attentionCase) {
		d := c.data(r)
		whole := c.flash(r, d)
		for s := range c.lengths {
			var pieces []float32
			for from := 0; from < c.queries[s]; from += size {
				pieces = append(pieces, c.chunk(r, d, s, from, min(size, c.queries[s]-from))...)
			}
			Exact(r, fmt.Sprintf("sequence %d in chunks", s), pieces, whole[s])
		}
	}
}

// chunk computes queries from, from+1, ... of one sequence, with nothing behind them
// in the cache.
func (c attentionCase) chunk(r *KernelRig, d attentionData, s, from, n int) []float32 {
	length, width := c.lengths[s]-c.queries[s]+from+n, c.heads()*c.headDim
	part := c
	part.lengths, part.queries, part.only, part.seed = []int{length}, []int{n}, nil, c.seed+uint64(from)
	cut := func(x []float32) []float32 {
		var rows []float32
		for h := range c.kvHeads {
			rows = append(rows, x[h*c.lengths[s]*c.headDim:][:length*c.headDim]...)
		}
		return rows
	}
	q := d.q[s][from*width : (from+n)*width]
	return part.flash(r, attentionData{q: [][]float32{q}, k: [][]float32{cut(d.k[s])}, v: [][]float32{cut(d.v[s])}})[0]
}

// checkBoth computes the last position of each sequence with both kinds of kernels.
// The queries are such that rounding leaves them as they are, so that both compute
// the same.
func checkBoth(r *KernelRig, c attentionCase) {
	d := c.data(r)
	u := c.flashUnits()
	for s := range d.q {
		for i := 0; i < len(d.q[s]); i += c.headDim {
			copy(d.q[s][i:], u.queries(d.q[s][i:i+c.headDim]))
		}
	}
	one, many := c.decode(r, d), c.flash(r, d)
	for s := range c.lengths {
		ref, other := c.reference(d, s, u), c.reference(d, s, c.decodeUnits())
		want := make([]float64, len(one[s]))
		for i, x := range one[s] {
			want[i] = float64(x)
			ref.bound[i] += other.bound[i]
		}
		r.Within(fmt.Sprintf("sequence %d", s), many[s], want, ref.bound)
	}
}
