package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
	"github.com/lockstep-go/lockstep/quant"
)

// logitsCases are the kernels after the output matrix, for one sequence and a batch.
func (s sizes) logitsCases() []Case {
	var all []Case
	for _, rows := range []int{1, s.batch} {
		all = append(all, argmaxCase(rows, s.vocab), argmaxMergeCase(rows, s.vocab))
	}
	return all
}

func argmaxCase(rows, vocab int) Case {
	s, slices := sample.Argmax(), sample.Slices(vocab)
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d×%d", rows, vocab), Bytes: float64(rows) * float64(4*vocab+8*slices),
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			return s.Launch(k, sample.ArgmaxArgs{
				Logits: r.Normal(quant.F32, rows*vocab), Best: r.OutU32s(2 * rows * slices), Rows: rows, Vocab: vocab,
			})
		},
	}
}

// argmaxMergeCase merges the results of Argmax, one per slice.
func argmaxMergeCase(rows, vocab int) Case {
	s, slices := sample.ArgmaxMerge(), sample.Slices(vocab)
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d×%d", rows, vocab), Bytes: float64(rows) * float64(8*slices+8), // index-value pairs, and two copies of the token
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			best, first := r.Zeros(int64(8*rows*slices)), sample.Argmax()
			r.Run(first, func(k *ptx.Kernel) (ptx.Launch, error) {
				return first.Launch(k, sample.ArgmaxArgs{Logits: r.Normal(quant.F32, rows*vocab), Best: best, Rows: rows, Vocab: vocab})
			})
			return s.Launch(k, sample.ArgmaxMergeArgs{Best: best, Token: r.Zeros(int64(8 * rows)), Next: r.OutU32s(rows), Rows: rows, Vocab: vocab})
		},
	}
}
