package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// rowKernel is a kernel over rows of float32 that reads and writes memory and hardly
// computes.
type rowKernel struct {
	spec    ptxgen.Spec
	perItem float64 // bytes read and written for each element
	launch  func(k *ptx.Kernel, x, y, w uint64, rows, width int) (ptx.Launch, error)
}

func rowKernels() []rowKernel {
	rms := ptxgen.Norm{To: quant.F32}
	narrow := ptxgen.Narrow{To: quant.F16}
	el := ptxgen.Elementwise{}
	return []rowKernel{
		{rms, 8, func(k *ptx.Kernel, x, y, w uint64, rows, width int) (ptx.Launch, error) {
			return rms.Launch(k, ptxgen.NormArgs{X: x, Weight: w, Y: y, Tokens: rows, Width: width, Eps: 1e-5})
		}},
		{narrow, 6, func(k *ptx.Kernel, x, y, w uint64, rows, width int) (ptx.Launch, error) {
			return narrow.Launch(k, ptxgen.NarrowArgs{X: x, Y: y, Scale: w, Rows: rows, Width: width})
		}},
		{el, 8, func(k *ptx.Kernel, x, y, w uint64, rows, width int) (ptx.Launch, error) {
			return el.Launch(k, ptxgen.ElementwiseArgs{X: x, Y: y, Rows: rows, Width: width, Activation: ptxgen.SiLU})
		}},
	}
}

func rowCases() []Case {
	const rows, width = 8192, 4096
	var all []Case
	for _, rk := range rowKernels() {
		all = append(all, Case{
			Kernel: rk.spec.Name(), Shape: fmt.Sprintf("%d×%d", rows, width), Bytes: rk.perItem * rows * width,
			Prepare: func(r *Rig) ([]ptx.Launch, error) {
				k, err := rk.spec.Build()
				if err != nil {
					return nil, err
				}
				w := r.Upload(r.F32s(max(rows, width), 1))
				data := r.F32s(rows*width, 1)
				var list []ptx.Launch
				for _, x := range r.Copies(data, 2) {
					l, err := rk.launch(k, x, r.Alloc(4*rows*width), w, rows, width)
					if err != nil {
						return nil, err
					}
					list = append(list, l)
				}
				return list, nil
			},
		})
	}
	return all
}

// logitsCases are what comes after the last matrix.
func logitsCases() []Case {
	const rows, vocab = 16, 128256
	s := ptxgen.Argmax{}
	return []Case{{
		Kernel: s.Name(), Shape: fmt.Sprintf("%d×%d", rows, vocab), Bytes: 4 * rows * vocab,
		Prepare: func(r *Rig) ([]ptx.Launch, error) {
			k, err := s.Build()
			if err != nil {
				return nil, err
			}
			best, token := r.Alloc(int64(8*rows*s.Slices(vocab))), r.Alloc(4*rows)
			data := r.F32s(rows*vocab, 1)
			var list []ptx.Launch
			for _, x := range r.Copies(data, r.Distinct(int64(len(data)))) {
				l, err := s.Launch(k, ptxgen.ArgmaxArgs{Logits: x, Best: best, Token: token, Rows: rows, Vocab: vocab})
				if err != nil {
					return nil, err
				}
				list = append(list, l)
			}
			return list, nil
		},
	}}
}
