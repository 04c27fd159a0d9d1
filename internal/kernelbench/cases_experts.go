package kernelbench

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// mixture is a mixture of experts; a token uses some of them.
type mixture struct {
	model         string
	experts, used int
	up            matrix // of one expert
}

func (m mixture) String() string { return fmt.Sprintf("%d of %d × %v", m.used, m.experts, m.up) }

// expertCases are the kernels of a mixture of experts, for one token and for a prompt.
func (s sizes) expertCases(p driver.Properties) []Case {
	var all []Case
	tokens := s.prompts[min(1, len(s.prompts)-1)]
	for _, m := range s.mixtures {
		for _, f := range s.experts {
			all = append(all, m.gemvCase(p, f), m.gemmCase(p, f, tokens))
		}
		for _, n := range []int{1, tokens} {
			all = append(all, m.routerCase(n), m.groupCase(n), m.combineCase(n))
		}
	}
	return all
}

// gemvCase multiplies the gate and up matrices of the experts of one token. Each launch uses other
// experts.
func (m mixture) gemvCase(p driver.Properties, f quant.Format) Case {
	s := matmul.Gemv{Format: f, Gated: true}
	each := packedBytes(f, m.up)
	return Case{
		Spec: s, Shape: m.String(), Bytes: float64(2*int64(m.used)*each) + float64(4*(m.up.k+m.used*m.up.rows)),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			all := m.matrices()
			chosen := make([]uint32, m.used)
			for i := range chosen {
				chosen[i] = uint32((r.launchIndex*m.used + i) % m.experts)
			}
			return s.Launch(k, matmul.GemvArgs{
				X: r.Normal(quant.F32, m.up.k), Y: r.Out(quant.F32, m.used*m.up.rows), Rows: m.up.rows, K: m.up.k,
				W:          r.Once("gate", func() uint64 { return r.Packed(f, all) }),
				Up:         r.Once("up", func() uint64 { return r.Packed(f, all) }),
				Activation: elementwise.SiLU, Experts: r.U32s(chosen...), Slots: m.used, SlotsPerX: m.used, ExpertBytes: int(each),
				SMs: p.SMs, Shared: p.SharedPerCTA,
			})
		},
	}
}

// matrices returns the shape of all experts' matrices as one, each padded to whole tiles.
func (m mixture) matrices() matrix { return matrix{m.experts * ((m.up.rows + 15) / 16 * 16), m.up.k} }

// choices returns random experts for each token. order lists the indices in chosen, grouped
// by expert; those of expert e begin at offsets[e].
func (m mixture) choices(r *Runner, tokens int) (chosen, offsets, order []uint32) {
	byExpert := make([][]uint32, m.experts)
	for range tokens {
		for _, e := range r.rng.Perm(m.experts)[:m.used] {
			byExpert[e] = append(byExpert[e], uint32(len(chosen)))
			chosen = append(chosen, uint32(e))
		}
	}
	for _, list := range byExpert {
		offsets = append(offsets, uint32(len(order)))
		order = append(order, list...)
	}
	return chosen, append(offsets, uint32(len(order))), order
}

// gemmCase is one matrix of each expert over its tokens of a prompt. As in an engine, the
// host does not know the number of tokens per expert.
func (m mixture) gemmCase(p driver.Properties, f quant.Format, tokens int) Case {
	entries := tokens * m.used
	s := matmul.GEMMFor(f, matmul.InputFormat(f), (entries+m.experts-1)/m.experts, m.up.rows*m.experts, p.SMs, p.SharedPerCTA)
	padded := elementwise.PaddedWidth(m.up.k)
	all := m.matrices()
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d tokens × %v", tokens, m),
		Bytes: float64(packedBytes(f, all)) + 2*float64(tokens*padded) + 4*float64(entries*m.up.rows),
		FLOP:  2 * float64(entries) * float64(m.up.rows) * float64(m.up.k),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			_, offsets, order := m.choices(r, tokens)
			return s.Launch(k, matmul.GEMMArgs{
				X: r.Normal(s.Input, tokens*padded), W: r.Packed(f, all), Y: r.Out(quant.F32, entries*m.up.rows),
				M: tokens, N: m.up.rows, K: m.up.k, Offsets: r.U32s(offsets...), Order: r.U32s(order...),
				Experts: m.experts, RowsPerX: m.used, ExpertBytes: int(packedBytes(f, m.up)),
			})
		},
	}
}

func (m mixture) routerCase(tokens int) Case {
	s := moe.Route()
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d tokens, %d of %d", tokens, m.used, m.experts), Bytes: float64(4*m.experts+8*m.used) * float64(tokens),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			return s.Launch(k, moe.RouteArgs{
				Logits: r.Normal(quant.F32, tokens*m.experts), Weights: r.Out(quant.F32, tokens*m.used), Chosen: r.OutU32s(tokens * m.used),
				Tokens: tokens, Experts: m.experts, K: m.used, Normalize: true,
			})
		},
	}
}

func (m mixture) groupCase(tokens int) Case {
	s := moe.Group()
	n := tokens * m.used
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d tokens, %d of %d", tokens, m.used, m.experts), Bytes: float64(12*n + 4*m.experts + 4),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			chosen, _, _ := m.choices(r, tokens)
			return s.Launch(k, moe.GroupArgs{
				Chosen: r.U32s(chosen...), Offsets: r.OutU32s(m.experts + 1), Order: r.OutU32s(n), Place: r.OutU32s(n),
				Tokens: tokens, K: m.used, Experts: m.experts,
			})
		},
	}
}

// combineCase sums the experts' outputs.
func (m mixture) combineCase(tokens int) Case {
	s := moe.Combine()
	n, width := tokens*m.used, m.up.k
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d tokens × %d × %d", tokens, m.used, width), Bytes: 8*float64(n) + 4*float64(n*width) + 8*float64(tokens*width),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			_, _, order := m.choices(r, tokens)
			place := slices.Clone(order)
			for at, i := range order {
				place[i] = uint32(at)
			}
			return s.Launch(k, moe.CombineArgs{
				Weights: r.Normal(quant.F32, n), Out: r.Normal(quant.F32, n*width), Place: r.U32s(place...),
				Residual: r.Normal(quant.F32, tokens*width), Y: r.Out(quant.F32, tokens*width), Tokens: tokens, K: m.used, Width: width,
			})
		},
	}
}
