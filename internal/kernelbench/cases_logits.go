package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// kept is how many logits a sampler keeps.
const kept = 40

// logitsCases are what comes after the last matrix, for one sequence and a batch.
func (s sizes) logitsCases() []Case {
	var all []Case
	for _, rows := range []int{1, s.batch} {
		all = append(all,
			argmaxCase(rows, s.vocab, false), argmaxCase(rows, s.vocab, true),
			topKCase(rows, s.vocab, false), topKCase(rows, kept*ptxgen.TopK{}.Slices(s.vocab), true),
			softmaxCase(rows, s.vocab))
	}
	return all
}

// argmaxCase is the first launch over the logits, or the second, which merges what the
// slices of the first gave.
func argmaxCase(rows, vocab int, merge bool) Case {
	s := ptxgen.Argmax{Merge: merge}
	slices := s.Slices(vocab)
	bytes := float64(rows) * float64(4*vocab+8*slices)
	if merge {
		bytes = float64(rows) * float64(8*slices+8) // pairs, and the token twice
	}
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d×%d", rows, vocab), Bytes: bytes,
		Launch: func(r *Rig, k *ptx.Kernel) (ptx.Launch, error) {
			a := ptxgen.ArgmaxArgs{Logits: r.Normal(quant.F32, rows*vocab), Rows: rows, Vocab: vocab}
			if !merge {
				a.Best = r.OutU32s(2 * rows * slices)
				return s.Launch(k, a)
			}
			a.Best, a.Token, a.Next = r.Zeros(int64(8*rows*slices)), r.Zeros(int64(8*rows)), r.OutU32s(rows)
			first := ptxgen.Argmax{}
			r.Run(first, func(k *ptx.Kernel) (ptx.Launch, error) { return first.Launch(k, a) })
			return s.Launch(k, a)
		},
	}
}

// topKCase is one launch: over n logits a row, or over what earlier launches kept.
func topKCase(rows, n int, merge bool) Case {
	s := ptxgen.TopK{Merge: merge}
	out := rows * s.Slices(n) * kept
	perElement := 4.0
	if merge {
		perElement = 8
	}
	return Case{
		Spec: s, Shape: fmt.Sprintf("%d of %d×%d", kept, rows, n), Bytes: perElement*float64(rows*n) + 8*float64(out),
		Launch: func(r *Rig, k *ptx.Kernel) (ptx.Launch, error) {
			a := ptxgen.TopKArgs{
				Values: r.Normal(quant.F32, rows*n), OutValues: r.Out(quant.F32, out), OutIndices: r.OutU32s(out), Rows: rows, N: n, K: kept,
			}
			if merge {
				indices := make([]uint32, rows*n)
				for i := range indices {
					indices[i] = uint32(i % n)
				}
				a.Indices = r.U32s(indices...)
			}
			return s.Launch(k, a)
		},
	}
}

func softmaxCase(rows, vocab int) Case {
	s := ptxgen.Softmax{}
	return rowCase(s, "", rows, vocab, 8, func(r *Rig, k *ptx.Kernel) (ptx.Launch, error) {
		return s.Launch(k, ptxgen.SoftmaxArgs{X: r.Normal(quant.F32, rows*vocab), Y: r.Out(quant.F32, rows*vocab), Rows: rows, Width: vocab})
	})
}
