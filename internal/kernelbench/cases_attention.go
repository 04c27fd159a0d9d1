package kernelbench

import (
	"fmt"
	"math/bits"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/quant"
)

// pagesOf returns the number of pages of a sequence. tablePages is the length of its page
// table: the next power of two, as in an engine's graph.
func pagesOf(length int) (pages, tablePages int) {
	pages = (length + attention.PageTokens - 1) / attention.PageTokens
	return pages, 1 << bits.Len(uint(pages-1))
}

// cache returns a paged KV cache of one layer with random values, for sequences of equal
// length with pages in random order.
func (r *Runner) cache(h heads, sequences, length int, f quant.Format) attention.PagedKV {
	pages, tablePages := pagesOf(length)
	values := sequences * pages * attention.PageTokens * h.kv * h.dim
	table, lengths := make([]uint32, sequences*tablePages), make([]uint32, sequences)
	for i, page := range r.rng.Perm(sequences * pages) {
		table[i/pages*tablePages+i%pages] = uint32(page)
	}
	for i := range lengths {
		lengths[i] = uint32(length)
	}
	return attention.PagedKV{
		K: r.Normal(f, values), V: r.Normal(f, values), Table: r.U32s(table...), Lengths: r.U32s(lengths...),
		KVHeads: h.kv, MaxPages: tablePages,
	}
}

// scoring returns the scoring of a model without softcap and window.
func (h heads) scoring() attention.Scoring { return attention.Scoring{Scale: 1 / float32(h.dim)} }

// decodeShape is one query per sequence, over length positions. The kernel appends the last one.
type decodeShape struct {
	heads             heads
	sequences, length int
	cache             quant.Format
}

func (d decodeShape) String() string { return fmt.Sprintf("%d seq × %d", d.sequences, d.length) }

// decodeCases are attention over a cache, and the merge of its splits.
func (s sizes) decodeCases() []Case {
	var all []Case
	for _, d := range s.decode {
		all = append(all, d.attentionCase())
		if d.splits() {
			all = append(all, d.combineCase())
		}
	}
	return all
}

func (d decodeShape) shape() attention.Shape {
	return attention.Shape{KV: d.cache, HeadDim: d.heads.dim, Append: true}
}

// args returns the arguments of a launch of Decode, without Scratch and Out.
func (d decodeShape) args(r *Runner) attention.DecodeArgs {
	h := d.heads
	width, wide := h.q*h.dim, h.kv*h.dim
	row := width + 2*wide
	kv, q := r.cache(h, d.sequences, d.length, d.cache), r.Normal(quant.F32, d.sequences*row)
	positions := make([]uint32, d.sequences)
	for i := range positions {
		positions[i] = uint32(d.length - 1)
	}
	freq := make([]float64, h.dim/2)
	for i := range freq {
		freq[i] = 1 / float64(1+i)
	}
	return attention.DecodeArgs{
		Q: q, KV: kv, Scoring: h.scoring(), Sequences: d.sequences, Heads: h.q, QStride: row, OutStride: width,
		SMs: r.dev.Properties().SMs, Shared: r.dev.Properties().SharedPerCTA,
		Append: rope.AppendArgs{
			Q: q, Key: q + uint64(4*width), Value: q + uint64(4*(width+wide)), QStride: row, KStride: row, VStride: row,
			Freq: r.F64s(freq...), Positions: r.U32s(positions...), Lengths: kv.Lengths, Table: kv.Table, KCache: kv.K, VCache: kv.V,
			Tokens: d.sequences, Heads: h.q, KVHeads: h.kv, HeadDim: h.dim, Rot: h.dim, NeoX: true, MaxPages: kv.MaxPages,
		},
	}
}

// scratchFloats and outFloats return the sizes of Scratch and Out, in elements.
func (d decodeShape) scratchFloats() int {
	_, tablePages := pagesOf(d.length)
	return int(d.shape().ScratchBytes(d.sequences, d.heads.q, tablePages) / 4)
}
func (d decodeShape) outFloats() int { return d.sequences * d.heads.q * d.heads.dim }

func (d decodeShape) attentionCase() Case {
	s := attention.Decode(d.shape())
	return Case{
		Spec: s, Shape: d.String(),
		Bytes: float64(2*d.cache.BlockBytes())*float64(d.sequences*d.length)*float64(d.heads.kv*d.heads.dim) + 8*float64(d.outFloats()),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			a := d.args(r)
			if _, split := a.Combine(d.shape()); split {
				a.Scratch, a.Out = r.Out(quant.F32, d.scratchFloats()), r.Zeros(int64(4*d.outFloats()))
			} else {
				a.Scratch, a.Out = r.Zeros(int64(4*d.scratchFloats())), r.Out(quant.F32, d.outFloats())
			}
			return s.Launch(k, a)
		},
	}
}

// splits reports whether the cache has more than one split.
func (d decodeShape) splits() bool {
	pages, _ := pagesOf(d.length)
	shape := d.shape()
	return shape.ScratchBytes(1, 1, pages) > shape.ScratchBytes(1, 1, 1)
}

// combineCase merges the results of attention, one per split.
func (d decodeShape) combineCase() Case {
	s, before := attention.Combine(d.heads.dim), attention.Decode(d.shape())
	pages, _ := pagesOf(d.length)
	return Case{
		Spec: s, Shape: d.String() + " " + d.cache.String(),
		Bytes: float64(d.shape().ScratchBytes(d.sequences, d.heads.q, pages)) + 4*float64(d.outFloats()),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			a := d.args(r)
			a.Scratch, a.Out, a.SMs = r.Zeros(int64(4*d.scratchFloats())), r.Out(quant.F32, d.outFloats()), 0
			r.Run(before, func(k *ptx.Kernel) (ptx.Launch, error) { return before.Launch(k, a) })
			merge, _ := a.Combine(d.shape())
			return s.Launch(k, merge)
		},
	}
}

// flashShape is a prefill of the last queries positions of each sequence of length positions.
type flashShape struct {
	heads                      heads
	sequences, queries, length int
	cache                      quant.Format
}

func (f flashShape) String() string {
	if f.queries == f.length {
		return fmt.Sprintf("%d seq × %d causal", f.sequences, f.length)
	}
	return fmt.Sprintf("%d seq × last %d of %d", f.sequences, f.queries, f.length)
}

// pairs returns the number of query-key pairs under the causal mask.
func (f flashShape) pairs() float64 {
	before := float64(f.length - f.queries)
	return float64(f.sequences) * float64(f.queries) * (before + float64(f.queries+1)/2)
}

// flashCases are the kernels that the device has for each shape.
func (s sizes) flashCases(p driver.Properties) []Case {
	var all []Case
	for _, f := range s.flash {
		shape := attention.Shape{KV: f.cache, HeadDim: f.heads.dim}
		all = append(all, f.attentionCase(attention.Prefill(shape)))
		if kernelcache.MaxTarget(p).HasWGMMA() {
			all = append(all, f.attentionCase(attention.PrefillWGMMA(shape)))
			if shape.BlockQ = 192; f.heads.dim <= 64 {
				all = append(all, f.attentionCase(attention.PrefillWGMMA(shape)))
			}
		}
	}
	return all
}

func (f flashShape) attentionCase(spec kernel.Typed[attention.PrefillArgs]) Case {
	tokens, width := f.sequences*f.queries, f.heads.q*f.heads.dim
	return Case{
		Spec: spec, Shape: f.String(), FLOP: 4 * float64(width) * f.pairs(),
		Bytes: float64(2*f.cache.BlockBytes()*f.sequences*f.length*f.heads.kv*f.heads.dim) + 8*float64(tokens*width),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			starts := make([]uint32, f.sequences+1)
			for i := range starts {
				starts[i] = uint32(i * f.queries)
			}
			return spec.Launch(k, attention.PrefillArgs{
				Q: r.Normal(quant.F32, tokens*width), Out: r.Out(quant.F32, tokens*width), Starts: r.U32s(starts...),
				KV: r.cache(f.heads, f.sequences, f.length, f.cache), Scoring: f.heads.scoring(),
				Sequences: f.sequences, Heads: f.heads.q, QStride: width, OutStride: width, MaxQueries: f.queries,
			})
		},
	}
}
