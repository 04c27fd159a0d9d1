package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// gemvCases multiply the matrices of a model, in all formats, by one vector and by several. Quantized
// weights take several vectors as digits. A norm before a product is fused into its kernel, or into
// that of the digits.
func (s sizes) gemvCases(p driver.Properties) []Case {
	var all []Case
	for _, f := range s.formats {
		all = append(all,
			gemvCase(p, matmul.Gemv{Format: f}, s.up(), norm.RMS), gemvCase(p, matmul.Gemv{Format: f}, s.down(), norm.None),
			gemvCase(p, matmul.Gemv{Format: f}, s.lmHead(), norm.RMS), gemvCase(p, matmul.Gemv{Format: f, Gated: true}, s.up(), norm.RMS))
		for _, c := range s.columns {
			switch {
			case f.BlockLen() > 1:
				all = append(all, batchCase(p, f, false, s.up(), c), batchCase(p, f, false, s.down(), c), batchCase(p, f, true, s.up(), c))
			case c <= 16:
				all = append(all, columnsCase(p, f, s.up(), c))
			}
		}
	}
	for _, k := range []int{s.width, s.ffn} {
		for _, vectors := range s.columns {
			all = append(all, digitsCase(k, vectors))
		}
	}
	for _, f := range s.experts {
		all = append(all, gemvCase(p, matmul.Gemv{Format: f}, matrix{s.width, s.width}, norm.None))
	}
	return all
}

// columnsCase is a product of several vectors and unquantized weights, by the kernel that an engine
// selects.
func columnsCase(p driver.Properties, f quant.Format, m matrix, vectors int) Case {
	s, err := matmul.GemvFor(f, vectors, false, m.k, p.SharedPerCTA)
	c := vectorsCase(p, s, m, vectors, norm.RMS)
	c.Shape = fmt.Sprintf("%d × %v", vectors, m)
	if err != nil {
		c.Launch = func(*Runner, *ptx.Kernel) (ptx.Launch, error) { return ptx.Launch{}, err }
	}
	return c
}

func gemvCase(p driver.Properties, s matmul.Gemv, m matrix, kind norm.Kind) Case {
	return vectorsCase(p, s, m, 1, kind)
}

func vectorsCase(p driver.Properties, s matmul.Gemv, m matrix, columns int, kind norm.Kind) Case {
	matrices := 1
	if s.Gated {
		matrices = 2
	}
	return Case{
		Spec: s, Shape: m.String(), Bytes: float64(int64(matrices)*packedBytes(s.Format, m)) + float64(4*columns*(m.rows+m.k)),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			a := matmul.GemvArgs{
				X: r.Normal(quant.F32, columns*m.k), W: r.Packed(s.Format, m), Y: r.Out(quant.F32, columns*m.rows),
				Rows: m.rows, K: m.k, Columns: columns, Norm: kind, Eps: 1e-5, SMs: p.SMs, Shared: p.SharedPerCTA,
			}
			if kind != norm.None {
				a.NormWeight = r.Normal(quant.F32, m.k)
			}
			if s.Gated {
				a.Up, a.Activation = r.Packed(s.Format, m), elementwise.SiLU
			}
			a.Workspace = r.Workspace(s.Workspace(k, a))
			return s.Launch(k, a)
		},
	}
}

// gemmCases are prompts of several lengths by the matrices of a feed-forward network.
func (s sizes) gemmCases(p driver.Properties) []Case {
	var all []Case
	for _, f := range s.products {
		for _, m := range []matrix{s.up(), s.down()} {
			for _, tokens := range s.prompts {
				all = append(all, gemmCase(p, f, m, tokens))
			}
		}
	}
	return all
}

func gemmCase(p driver.Properties, f quant.Format, m matrix, tokens int) Case {
	s := matmul.GEMMFor(f, matmul.InputFormat(f), tokens, m.rows, p.SMs, p.SharedPerCTA)
	padded := elementwise.PaddedWidth(m.k)
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d tokens × %v", tokens, m),
		Bytes: float64(packedBytes(f, m)) + 2*float64(tokens*padded) + 4*float64(tokens*m.rows),
		FLOP:  2 * float64(tokens) * float64(m.rows) * float64(m.k),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			return s.Launch(k, matmul.GEMMArgs{
				X: r.Normal(s.Input, tokens*padded), W: r.Packed(f, m), Y: r.Out(quant.F32, tokens*m.rows),
				M: tokens, N: m.rows, K: m.k,
			})
		},
	}
}

// batchCase is a product of several vectors and quantized weights. Computing the digits of the vectors
// is not part of it.
func batchCase(p driver.Properties, f quant.Format, gated bool, m matrix, vectors int) Case {
	s, err := matmul.GemvBatchFor(f, vectors, gated, m.k, kernelcache.MaxTarget(p), p.SharedPerCTA)
	matrices := 1
	if gated {
		matrices = 2
	}
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d × %v", vectors, m), FLOP: 2 * float64(matrices*vectors) * float64(m.rows) * float64(m.k),
		Bytes: float64(int64(matrices)*packedBytes(f, m)) + float64(4*vectors*(m.rows+m.k)),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			if err != nil {
				return ptx.Launch{}, err
			}
			before := s.Digits()
			digits := r.Zeros(before.Bytes(m.k, vectors))
			r.Run(before, func(k *ptx.Kernel) (ptx.Launch, error) {
				return before.Launch(k, matmul.DigitsArgs{X: r.Normal(quant.F32, vectors*m.k), Out: digits, K: m.k, Vectors: vectors})
			})
			a := matmul.GemvBatchArgs{
				Digits: digits, W: r.Packed(f, m), Y: r.Out(quant.F32, vectors*m.rows),
				Rows: m.rows, K: m.k, Columns: vectors, SMs: p.SMs, Shared: p.SharedPerCTA,
			}
			if gated {
				a.Up, a.Activation = r.Packed(f, m), elementwise.SiLU
			}
			a.Workspace = r.Workspace(s.Workspace(k, a))
			return s.Launch(k, a)
		},
	}
}

// digitsCase normalizes vectors and computes their digits.
func digitsCase(width, vectors int) Case {
	var s matmul.Digits
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d × %d", vectors, width), Bytes: float64(s.Bytes(width, vectors)) + float64(4*vectors*width),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			return s.Launch(k, matmul.DigitsArgs{
				X: r.Normal(quant.F32, vectors*width), Out: r.OutU32s(int(s.Bytes(width, vectors) / 4)), K: width, Vectors: vectors,
				Norm: norm.RMS, NormWeight: r.Normal(quant.F32, width), Eps: 1e-5,
			})
		},
	}
}
