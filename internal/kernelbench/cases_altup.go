package kernelbench

import (
	"github.com/lockstep-go/lockstep/ptxgen/altup"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// altUpStreams is the number of residual streams of Gemma 3n.
const altUpStreams = 4

// altUpCases are the kernels that Gemma 3n has beside others, in a prompt and in a decode step.
func (s sizes) altUpCases() []Case {
	predict, correct, scaleTo, sparsify := altup.Predict(altUpStreams), altup.Correct(altUpStreams), altup.ScaleTo(), norm.Sparsify()
	var all []Case
	for _, rows := range []int{s.rows, s.batch} {
		n := rows * s.width
		streams := func(r *Runner) altup.Args {
			return altup.Args{
				X: r.InPlace(quant.F32, altUpStreams*n), Stride: n, M: r.Normal(quant.F32, altUpStreams*rows),
				W: r.Normal(quant.F32, altUpStreams*altUpStreams*altUpStreams), Tokens: rows, Width: s.width,
			}
		}
		all = append(all,
			rowCase(predict, "", rows, s.width, 8*altUpStreams, func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
				return predict.Launch(k, streams(r))
			}),
			rowCase(correct, "", rows, s.width, 8*altUpStreams+8, func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
				a := streams(r)
				a.Y, a.Scale, a.Scaled = r.Normal(quant.F32, n), r.Normal(quant.F32, s.width), r.Out(quant.F32, n)
				return correct.Launch(k, a)
			}),
			rowCase(scaleTo, "", rows, s.width, 16, func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
				return scaleTo.Launch(k, altup.ScaleToArgs{
					X: r.Normal(quant.F32, n), Like: r.Normal(quant.F32, n), Residual: r.Normal(quant.F32, n), Y: r.Out(quant.F32, n), Rows: rows, Width: s.width,
				})
			}),
			rowCase(sparsify, "", rows, s.ffn, 8, func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
				return sparsify.Launch(k, norm.SparsifyArgs{X: r.InPlace(quant.F32, rows*s.ffn), Rows: rows, Width: s.ffn, Sparsity: 1.6448535})
			}))
	}
	return all
}
