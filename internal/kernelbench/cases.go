package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Cases lists what is measured, in the order of the table.
func Cases() []Case {
	var all []Case
	for _, f := range []func() []Case{gemvCases, attentionDecodeCases, gemmCases, flashCases, rowCases, logitsCases} {
		all = append(all, f()...)
	}
	return all
}

// matrix is a shape of a model's weights.
type matrix struct{ rows, k int }

func (m matrix) String() string { return fmt.Sprintf("%d×%d", m.rows, m.k) }

func (m matrix) weights() int { return m.rows * m.k }

// packed makes copies of a random matrix as kernels read it; each distinct.
func (r *Rig) packed(f quant.Format, m matrix) (copies []uint64, bytes int64) {
	file, err := synth.Blocks(f, m.weights(), 0.02, 1, f.String())
	if err != nil {
		r.keep(err)
		return nil, 0
	}
	p := ptxgen.Packing{Format: f, K: m.k}
	data := make([]byte, p.RowBytes()*m.rows)
	p.Pack(data, file, m.rows)
	return r.Copies(data, r.Distinct(int64(len(data)))), int64(len(data))
}

// gemvCases are the formats at the shapes of an 8B model's feed-forward network, one
// vector, then more vectors and the gated form for a few.
func gemvCases() []Case {
	var all []Case
	shapes := []matrix{{14336, 4096}, {4096, 14336}}
	for _, f := range quant.Formats() {
		for _, m := range shapes {
			all = append(all, gemvCase(ptxgen.Gemv{Format: f}, m, 1))
		}
	}
	for _, f := range []quant.Format{quant.Q4_K, quant.Q8_0, quant.BF16} {
		for _, c := range []int{2, 4, 8, 16} {
			all = append(all, gemvCase(ptxgen.Gemv{Format: f, Columns: c}, shapes[0], c))
		}
		all = append(all, gemvCase(ptxgen.Gemv{Format: f, Gated: true}, shapes[0], 1))
		all = append(all, gemvCase(ptxgen.Gemv{Format: f}, matrix{4096, 4096}, 1))
		all = append(all, gemvCase(ptxgen.Gemv{Format: f}, matrix{128256, 4096}, 1))
	}
	return all
}

func gemvCase(s ptxgen.Gemv, m matrix, columns int) Case {
	bytes := float64(ptxgen.Packing{Format: s.Format, K: m.k}.RowBytes() * m.rows)
	if s.Gated {
		bytes *= 2
	}
	return Case{
		Kernel: s.Name(), Shape: m.String(), Bytes: bytes + float64(4*columns*(m.rows+m.k)),
		Prepare: func(r *Rig) ([]ptx.Launch, error) {
			k, err := s.Build()
			if err != nil {
				return nil, err
			}
			w, _ := r.packed(s.Format, m)
			x, norm, y := r.Upload(r.F32s(columns*m.k, 1)), r.Upload(r.F32s(m.k, 1)), r.Alloc(int64(4*columns*m.rows))
			p := r.dev.Properties()
			var list []ptx.Launch
			for i := range w {
				a := ptxgen.GemvArgs{
					X: x, W: w[i], Y: y, Rows: m.rows, K: m.k, Columns: columns,
					Norm: ptxgen.RMSNorm, NormWeight: norm, Eps: 1e-5, SMs: p.SMs, Shared: p.SharedPerCTA,
				}
				if s.Gated {
					a.Up, a.Activation = w[(i+1)%len(w)], ptxgen.SiLU
				}
				l, err := s.Launch(k, a)
				if err != nil {
					return nil, err
				}
				list = append(list, l)
			}
			return list, nil
		},
	}
}
