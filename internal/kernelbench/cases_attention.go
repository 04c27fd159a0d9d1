package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// heads is the attention of a model.
type heads struct{ q, kv, dim int }

var (
	heads8B = heads{32, 8, 128} // Llama-3.1-8B
	heads1B = heads{32, 8, 64}  // Llama-3.2-1B
)

const kvPage = 64

// cache makes a paged cache of one layer, full of random numbers, with tables and
// lengths for sequences of one length.
func (r *Rig) cache(h heads, sequences, length int, f quant.Format) (ptxgen.PagedKV, float64) {
	pages := (length + kvPage - 1) / kvPage
	values := sequences * pages * kvPage * h.kv * h.dim
	half := make([]byte, f.BlockBytes()*1<<16)
	some := make([]float32, 1<<16)
	for i := range some {
		some[i] = float32(r.rng.NormFloat64())
	}
	r.keep(f.Encode(half, some))
	data := make([]byte, f.BlockBytes()*values)
	for n := 0; n < len(data); {
		n += copy(data[n:], half)
	}
	table := make([]uint32, sequences*pages)
	lengths := make([]uint32, sequences)
	for i := range table {
		table[i] = uint32(i)
	}
	for i := range lengths {
		lengths[i] = uint32(length)
	}
	return ptxgen.PagedKV{
		K: r.Upload(data), V: r.Upload(data), Table: r.Upload(U32s(table...)), Lengths: r.Upload(U32s(lengths...)),
		KVHeads: h.kv, MaxPages: pages,
	}, float64(2 * f.BlockBytes() * sequences * length * h.kv * h.dim)
}

func attentionDecodeCases() []Case {
	var all []Case
	for _, c := range []struct {
		h                 heads
		sequences, length int
		f                 quant.Format
	}{
		{heads8B, 1, 2048, quant.F16}, {heads8B, 1, 8192, quant.F16}, {heads8B, 1, 32768, quant.F16}, {heads8B, 16, 8192, quant.F16},
		{heads8B, 64, 2048, quant.F16}, {heads8B, 16, 8192, quant.BF16}, {heads8B, 16, 8192, quant.F32}, {heads1B, 16, 8192, quant.F16},
	} {
		s := ptxgen.AttentionDecode{KV: c.f, HeadDim: c.h.dim}
		all = append(all, Case{
			Kernel: s.Name(), Shape: fmt.Sprintf("%d seq × %d", c.sequences, c.length),
			Bytes: float64(2*c.f.BlockBytes()) * float64(c.sequences*c.length*c.h.kv*c.h.dim),
			Prepare: func(r *Rig) ([]ptx.Launch, error) {
				return r.decodeAttention(s, c.h, c.sequences, c.length, c.f)
			},
		})
	}
	return all
}

// decodeAttention gives launches of the attention and the combination after it, each
// pair on a cache of its own.
func (r *Rig) decodeAttention(s ptxgen.AttentionDecode, h heads, sequences, length int, f quant.Format) ([]ptx.Launch, error) {
	k, err := s.Build()
	if err != nil {
		return nil, err
	}
	var list []ptx.Launch
	q := r.Upload(r.F32s(sequences*h.q*h.dim, 1))
	bytes := int64(2 * f.BlockBytes() * sequences * length * h.kv * h.dim)
	for range min(r.Distinct(bytes), 16) {
		kv, _ := r.cache(h, sequences, length, f)
		scratch := r.Alloc(s.ScratchBytes(sequences, h.q, kv.MaxPages))
		l, err := s.Launch(k, ptxgen.AttentionDecodeArgs{
			Q: q, Scratch: scratch, PagedKV: kv, Scoring: ptxgen.Scoring{Scale: 0.1},
			Sequences: sequences, Heads: h.q, QStride: h.q * h.dim,
		})
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

func flashCases() []Case {
	var all []Case
	for _, c := range []struct {
		h                 heads
		sequences, length int
		f                 quant.Format
	}{
		{heads8B, 8, 2048, quant.F16}, {heads8B, 2, 8192, quant.F16}, {heads8B, 1, 16384, quant.F16}, {heads8B, 2, 8192, quant.BF16},
		{heads8B, 2, 8192, quant.F32}, {heads1B, 2, 8192, quant.F16},
	} {
		s := ptxgen.FlashAttention{KV: c.f, HeadDim: c.h.dim}
		pairs := float64(c.length) * float64(c.length+1) / 2
		all = append(all, Case{
			Kernel: s.Name(), Shape: fmt.Sprintf("%d seq × %d causal", c.sequences, c.length),
			FLOP: 4 * float64(c.sequences*c.h.q*c.h.dim) * pairs,
			Prepare: func(r *Rig) ([]ptx.Launch, error) {
				k, err := s.Build()
				if err != nil {
					return nil, err
				}
				kv, _ := r.cache(c.h, c.sequences, c.length, c.f)
				starts := make([]uint32, c.sequences+1)
				for i := range starts {
					starts[i] = uint32(i * c.length)
				}
				n := c.sequences * c.length * c.h.q * c.h.dim
				l, err := s.Launch(k, ptxgen.FlashAttentionArgs{
					Q: r.Upload(r.F32s(n, 1)), Out: r.Alloc(int64(4 * n)), Starts: r.Upload(U32s(starts...)), PagedKV: kv,
					Scoring: ptxgen.Scoring{Scale: 0.1}, Sequences: c.sequences, Heads: c.h.q,
					QStride: c.h.q * c.h.dim, OutStride: c.h.q * c.h.dim, MaxQueries: c.length,
				})
				return []ptx.Launch{l}, err
			},
		})
	}
	return all
}
