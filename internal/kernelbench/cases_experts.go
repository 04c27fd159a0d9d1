package kernelbench

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/product"
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
			all = append(all, m.productCase(p, f))
		}
		for _, n := range []int{1, tokens} {
			all = append(all, m.routerCase(n), m.groupCase(n), m.combineCase(n), m.combineNormedCase(n))
		}
	}
	return all
}

// productCase multiplies the gate and up matrices of the experts of one token. Each launch uses other
// experts.
func (m mixture) productCase(p driver.Properties, f quant.Format) Case {
	both := matrix{2 * m.up.rows, m.up.k}
	e := product.Epilogue{Gated: true, Activation: elementwise.SiLU}
	s, ok := product.StreamFor(f, e, 1, both.k, kernelcache.MaxTarget(p), p.SharedPerCTA)
	s.Experts = true
	spec, each := s.Kernel(), packedBytes(f, both)
	return Case{
		Spec: spec, Shape: m.String(), Bytes: float64(int64(m.used)*each) + float64(4*(m.up.k+m.used*m.up.rows)),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			if !ok {
				return ptx.Launch{}, fmt.Errorf("no kernel for rows of %d weights", both.k)
			}
			chosen := make([]uint32, m.used)
			for i := range chosen {
				chosen[i] = uint32((r.launchIndex*m.used + i) % m.experts)
			}
			return spec.Launch(k, product.Args{
				X: r.Normal(quant.F32, both.k), Y: r.Out(quant.F32, m.used*m.up.rows), Tokens: 1, Rows: both.rows, K: both.k, CTAs: p.SMs * s.CTAs,
				W:       r.Once("experts", func() uint64 { return r.Experts(f, both, m.experts) }),
				Experts: r.U32s(chosen...), Slots: m.used, SlotsPerX: m.used, ExpertBytes: int(each),
			})
		},
	}
}

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

func (m mixture) routerCase(tokens int) Case {
	s := moe.Route(false)
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

// combineNormedCase sums the experts' outputs and normalizes them.
func (m mixture) combineNormedCase(tokens int) Case {
	s := moe.CombineNormed()
	n, width := tokens*m.used, m.up.k
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d tokens × %d × %d", tokens, m.used, width), Bytes: 4*float64(n) + 4*float64(n*width) + 12*float64(tokens*width),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			return s.Launch(k, moe.CombineNormedArgs{
				Weights: r.Normal(quant.F32, n), Out: r.Normal(quant.F32, n*width), Shared: r.Normal(quant.F32, tokens*width),
				ExpertNorm: r.Normal(quant.F32, width), SharedNorm: r.Normal(quant.F32, width), Weight: r.Normal(quant.F32, width),
				Residual: r.Normal(quant.F32, tokens*width), Mixed: r.Zeros(int64(4 * tokens * width)), Y: r.Out(quant.F32, tokens*width),
				Tokens: tokens, K: m.used, Width: width, Eps: 1e-6,
			})
		},
	}
}
