package kernelbench

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// productCases multiply the matrices of a model by tokens: in all formats by those of decode steps, and in
// common formats by prompts.
func (s sizes) productCases(p driver.Properties) []Case {
	normed, gated := product.Epilogue{Norm: true}, product.Epilogue{Norm: true, Gated: true, Activation: elementwise.SiLU}
	gateUp := matrix{2 * s.ffn, s.width}
	var all []Case
	for _, f := range s.formats {
		for _, tokens := range append([]int{1}, s.columns...) {
			all = append(all, productCase(p, f, gateUp, tokens, gated), productCase(p, f, s.down(), tokens, product.Epilogue{}))
		}
		all = append(all, productCase(p, f, s.lmHead(), 1, normed))
	}
	for _, f := range s.products {
		for _, tokens := range s.prompts {
			all = append(all, productCase(p, f, gateUp, tokens, gated), productCase(p, f, s.down(), tokens, product.Epilogue{}))
		}
	}
	for _, tokens := range slices.Concat([]int{1}, s.columns, s.prompts) {
		all = append(all, s.qkvCase(p, tokens))
	}
	for _, tokens := range append(s.columns[len(s.columns)-1:], s.prompts...) {
		all = append(all, roundCase(p, matrix{s.width, s.ffn}, tokens, product.Epilogue{}), roundCase(p, gateUp, tokens, normed))
	}
	return all
}

// tileFor returns the Tile that an engine chooses.
func tileFor(p driver.Properties, f quant.Format, m matrix, tokens int, e product.Epilogue) product.Tile {
	tiles := product.TilesFor([]quant.Format{f}, product.Tile{Epilogue: e}, tokens, m.rows, kernelcache.MaxTarget(p), p.SMs, p.SharedPerCTA)
	return tiles[0]
}

// productCase is a product by the kernel that an engine chooses. Rounding activations for a Tile is not part of it.
func productCase(p driver.Properties, f quant.Format, m matrix, tokens int, e product.Epilogue) Case {
	columns := m.rows
	if e.Gated {
		columns /= 2
	}
	c := Case{
		Shape: fmt.Sprintf("%d × %v", tokens, m), FLOP: 2 * float64(tokens) * float64(m.rows) * float64(m.k),
		Bytes: float64(packedBytes(f, m)) + float64(4*tokens*(columns+m.k)),
	}
	args := func(r *Runner) product.Args {
		return product.Args{W: r.Packed(f, m), Y: r.Out(quant.F32, tokens*columns), Tokens: tokens, Rows: m.rows, K: m.k, CTAs: p.SMs}
	}
	if s, ok := product.StreamFor(f, e, tokens, m.k, kernelcache.MaxTarget(p), p.SharedPerCTA); ok {
		spec := s.Kernel()
		c.Spec = spec
		c.Launch = func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			a := args(r)
			a.X = r.Normal(quant.F32, tokens*m.k)
			if a.CTAs *= s.CTAs; e.Norm {
				a.NormWeight, a.Eps = r.Normal(quant.F32, m.k), 1e-5
			}
			return spec.Launch(k, a)
		}
		return c
	}
	t := tileFor(p, f, m, tokens, e)
	spec := t.Kernel()
	c.Spec = spec
	c.Launch = func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
		a := args(r)
		a.X = r.Zeros(int64(t.RoundedBytes(tokens, m.k)))
		r.Run(t.Round(), func(k *ptx.Kernel) (ptx.Launch, error) { return t.Round().Launch(k, roundArgs(r, a.X, m, tokens, e)) })
		return spec.Launch(k, a)
	}
	return c
}

// qkvCase multiplies Q and K in Q4_K and V in Q6_K in one launch, as files of Q4_K_M have them. Rounding activations for
// Tiles is not part of it.
func (s sizes) qkvCase(p driver.Properties, tokens int) Case {
	formats, matrices := []quant.Format{quant.Q4_K, quant.Q6_K}, []matrix{{s.width + s.width/4, s.width}, {s.width / 4, s.width}}
	e, rows := product.Epilogue{Norm: true}, s.width+s.width/2
	c := Case{Shape: fmt.Sprintf("%d × %v and %v", tokens, matrices[0], matrices[1]), FLOP: 2 * float64(tokens) * float64(rows) * float64(s.width)}
	c.Bytes = float64(4 * tokens * (rows + s.width))
	for i, m := range matrices {
		c.Bytes += float64(packedBytes(formats[i], m))
	}
	args := func(r *Runner, x uint64) (list []product.Args) {
		for i, m := range matrices {
			list = append(list, product.Args{
				X: x, W: r.Packed(formats[i], m), Y: r.Out(quant.F32, tokens*m.rows), Tokens: tokens, Rows: m.rows, K: m.k, CTAs: p.SMs,
			})
		}
		return list
	}
	var streams []product.Stream
	for _, f := range formats {
		if s, ok := product.StreamFor(f, e, tokens, s.width, kernelcache.MaxTarget(p), p.SharedPerCTA); ok {
			streams = append(streams, s)
		}
	}
	if len(streams) == len(formats) {
		spec := product.Beside(streams...)
		c.Spec = spec
		c.Launch = func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			list := args(r, r.Normal(quant.F32, tokens*s.width))
			weight := r.Normal(quant.F32, s.width)
			for i := range list {
				list[i].NormWeight, list[i].Eps = weight, 1e-5
			}
			return spec.Launch(k, list)
		}
		return c
	}
	tiles := product.TilesFor(formats, product.Tile{Epilogue: e}, tokens, rows, kernelcache.MaxTarget(p), p.SMs, p.SharedPerCTA)
	spec, round := product.Beside(tiles...), tiles[0].Round()
	c.Spec = spec
	c.Launch = func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
		x := r.Zeros(int64(tiles[0].RoundedBytes(tokens, s.width)))
		r.Run(round, func(k *ptx.Kernel) (ptx.Launch, error) {
			return round.Launch(k, roundArgs(r, x, matrices[0], tokens, e))
		})
		return spec.Launch(k, args(r, x))
	}
	return c
}

func roundArgs(r *Runner, y uint64, m matrix, tokens int, e product.Epilogue) product.RoundArgs {
	a := product.RoundArgs{X: r.Normal(quant.F32, tokens*m.k), Y: y, Tokens: tokens, K: m.k}
	if e.Norm {
		a.NormWeight, a.Eps = r.Normal(quant.F32, m.k), 1e-5
	}
	return a
}

// roundCase rounds activations for a Tile of Q4_K.
func roundCase(p driver.Properties, m matrix, tokens int, e product.Epilogue) Case {
	t := tileFor(p, quant.Q4_K, m, tokens, e)
	spec, bytes := t.Round(), t.RoundedBytes(tokens, m.k)
	return Case{
		Spec: spec, Shape: fmt.Sprintf("%d × %d", tokens, m.k), Bytes: float64(bytes) + float64(4*tokens*m.k),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			y := r.Zeros(int64(bytes))
			r.writes(y, int64(bytes))
			return spec.Launch(k, roundArgs(r, y, m, tokens, e))
		},
	}
}
