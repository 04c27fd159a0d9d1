package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/quant"
)

// rowCase is a memory-bound kernel over float32 [rows, width] that reads and writes
// perElement bytes per element.
func rowCase(s kernel.Spec, what string, rows, width, perElement int, launch func(r *Runner, k *ptx.Kernel) (ptx.Launch, error)) Case {
	shape := fmt.Sprintf("%d×%d", rows, width)
	if what != "" {
		shape += " " + what
	}
	return Case{Spec: s, Shape: shape, Bytes: float64(perElement) * float64(rows) * float64(width), Launch: launch}
}

// normCases are the norms of a prompt, of a decode step, and of queries and keys, which
// have one row per head.
func (s sizes) normCases() []Case {
	var all []Case
	for _, kind := range []norm.Kind{norm.RMS, norm.Layer} {
		for _, f := range []quant.Format{quant.F32, quant.F16, quant.BF16} {
			all = append(all, normCase(kind, f, s.rows, s.width, 1))
		}
	}
	heads, dim := s.flash[0].heads.q, s.flash[0].heads.dim
	return append(all, normCase(norm.RMS, quant.F32, s.batch, s.width, 1), normCase(norm.RMS, quant.F32, s.rows, dim, heads))
}

func normCase(kind norm.Kind, to quant.Format, tokens, width, heads int) Case {
	s := norm.Rows(kind, to)
	return rowCase(s, "", tokens*heads, width, 4+to.BlockBytes(), func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
		a := norm.RowsArgs{
			X: r.Normal(quant.F32, tokens*heads*width), Weight: r.Normal(quant.F32, width), Y: r.Out(to, tokens*heads*width),
			Tokens: tokens, Heads: heads, Width: width, Eps: 1e-5,
		}
		if kind == norm.Layer {
			a.Bias = r.Normal(quant.F32, width)
		}
		return s.Launch(k, a)
	})
}

// rowCases are the elementwise kernels of a prompt.
func (s sizes) rowCases() []Case {
	el := elementwise.Fused()
	element := func(what string, rows, width, perElement int, args func(r *Runner, a *elementwise.FusedArgs)) Case {
		return rowCase(el, what, rows, width, perElement, func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			n := rows * width
			a := elementwise.FusedArgs{X: r.Normal(quant.F32, n), Y: r.Out(quant.F32, n), Rows: rows, Width: width}
			args(r, &a)
			return el.Launch(k, a)
		})
	}
	gated := func(act elementwise.Activation) func(r *Runner, a *elementwise.FusedArgs) {
		return func(r *Runner, a *elementwise.FusedArgs) {
			a.Activation, a.Up = act, r.Normal(quant.F32, a.Rows*a.Width)
		}
	}
	all := []Case{
		element("SiLU·up", s.rows, s.ffn, 12, gated(elementwise.SiLU)), element("GELU·up", s.rows, s.ffn, 12, gated(elementwise.GELU)),
		element("SiLU·up", s.batch, s.ffn, 12, gated(elementwise.SiLU)),
		element("bias", s.rows, s.width, 8, func(r *Runner, a *elementwise.FusedArgs) { a.Bias = r.Normal(quant.F32, a.Width) }),
		element("+ residual", s.rows, s.width, 12, func(r *Runner, a *elementwise.FusedArgs) {
			a.Residual = r.Normal(quant.F32, a.Rows*a.Width)
		}),
	}
	return all
}

// ropeCases rotate queries and keys and append keys and values to a KV cache, for a prompt
// and for a decode step.
func (s sizes) ropeCases() []Case {
	var all []Case
	h := s.flash[0].heads
	for _, c := range []struct {
		sequences, before, each int
		cache                   quant.Format
	}{{1, 0, s.rows, quant.F16}, {1, 0, s.rows, quant.BF16}, {s.batch, s.rows, 1, quant.F16}} {
		spec, tokens := rope.Append(c.cache, attention.PageTokens), c.sequences*c.each
		all = append(all, Case{
			Spec: spec, Shape: fmt.Sprintf("%d seq × %d after %d", c.sequences, c.each, c.before),
			Bytes: float64(tokens*h.dim) * float64(8*h.q+2*h.kv*(4+c.cache.BlockBytes())),
			Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
				freq, positions, sequences := make([]float64, h.dim/2), make([]uint32, tokens), make([]uint32, tokens)
				for i := range freq {
					freq[i] = 1 / float64(1+i)
				}
				for i := range positions {
					sequences[i], positions[i] = uint32(i/c.each), uint32(c.before+i%c.each)
				}
				kv := r.cache(h, c.sequences, c.before+c.each, c.cache)
				return spec.Launch(k, rope.AppendArgs{
					Q: r.InPlace(quant.F32, tokens*h.q*h.dim), Key: r.Normal(quant.F32, tokens*h.kv*h.dim), Value: r.Normal(quant.F32, tokens*h.kv*h.dim),
					Freq: r.F64s(freq...), Positions: r.U32s(positions...), Sequences: r.U32s(sequences...), Lengths: kv.Lengths,
					Table: kv.Table, KCache: kv.K, VCache: kv.V, Tokens: tokens, Heads: h.q, KVHeads: h.kv, HeadDim: h.dim, Rot: h.dim,
					NeoX: true, MaxPages: kv.MaxPages,
				})
			},
		})
	}
	return all
}

// embedCases look up random tokens.
func (s sizes) embedCases() []Case {
	var all []Case
	for _, f := range s.embeddings {
		spec, table := product.Embed(f), s.lmHead()
		all = append(all, Case{
			Spec: spec, Shape: fmt.Sprintf("%d of %v", s.rows, table),
			Bytes: float64(packedBytes(f, matrix{s.rows, table.k})) + 4*float64(s.rows*table.k),
			Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
				tokens := make([]uint32, s.rows)
				for i := range tokens {
					tokens[i] = r.rng.Uint32N(uint32(table.rows))
				}
				return spec.Launch(k, product.EmbedArgs{
					W: r.Once("table", func() uint64 { return r.Packed(f, table) }), Tokens: r.U32s(tokens...),
					Out: r.Out(quant.F32, s.rows*table.k), Count: s.rows, Rows: table.rows, K: table.k, Scale: 1,
				})
			},
		})
	}
	return all
}
