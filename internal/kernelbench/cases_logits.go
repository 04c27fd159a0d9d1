package kernelbench

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
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
	for _, rows := range s.sampled {
		for _, c := range sampleSettings {
			for _, spec := range c.kernels() {
				all = append(all, sampleCase(spec, c.name, c.p, rows, s.vocab))
			}
		}
	}
	return all
}

// sampleSetting is a set of sampling parameters to measure.
type sampleSetting struct {
	name string
	p    sampling.Params
}

// Indices of sample.Kernels.
const (
	adjust = iota
	weigh
	bound
	gather
	draw
)

// kernels returns the kernels that do something with the parameters.
func (s sampleSetting) kernels() []kernel.Typed[sample.Args] {
	all := sample.Kernels()
	switch {
	case s.p.Greedy():
		return []kernel.Typed[sample.Args]{all[adjust], all[draw]}
	case s.p.TopK == 0 && s.p.TopP == 0:
		return []kernel.Typed[sample.Args]{all[adjust], all[weigh], all[draw]}
	}
	return all
}

// sampleSettings are the sampling parameters to measure.
var sampleSettings = []sampleSetting{
	{"greedy", sampling.Params{}},
	{"temperature", sampling.Params{Temperature: 1}},
	{"top-k and top-p", sampling.Params{Temperature: 0.7, TopK: 40, TopP: 0.95}},
	{"top-p", sampling.Params{Temperature: 1, TopP: 0.95}},
	{"all", sampling.Params{
		Temperature: 0.7, TopK: 100, TopP: 0.95, MinP: 0.01, RepeatPenalty: 1.1, PresencePenalty: 0.5, FrequencyPenalty: 0.5,
		Bias: map[int]float32{5: 1, 7: float32(math.Inf(-1))}, LogProb: true, TopLogProbs: 5,
	}},
}

// sampleCase measures one kernel of a choice, after those before it. Its bytes are the logits, or the
// keys that replace them; bound and draw read only some KiB per row.
func sampleCase(spec kernel.Typed[sample.Args], name string, p sampling.Params, rows, vocab int) Case {
	all, bytes := sample.Kernels(), float64(rows)*float64(4*vocab)
	last := spec.Name() == all[draw].Name()
	if last || spec.Name() == all[bound].Name() {
		bytes = float64(rows * 4096)
	}
	return Case{
		Spec: spec, Shape: fmt.Sprintf("%d×%d %s", rows, vocab, name), Bytes: bytes,
		Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			words := p.Words()
			var params, biases, lengths []uint32
			for range rows {
				params, lengths = append(params, words[:]...), append(lengths, 100)
				for id, b := range p.Bias {
					biases = append(biases, uint32(id), math.Float32bits(b))
				}
			}
			a := sample.Args{
				Logits: r.Normal(quant.F32, rows*vocab), Params: r.U32s(params...), Counts: r.Zeros(int64(4 * rows * vocab)),
				Scratch: r.Zeros(sample.ScratchBytes(rows, vocab)), Token: r.Zeros(int64(8 * rows)), Next: r.Zeros(int64(4 * rows)), Results: r.Zeros(int64(8 * rows * sample.ResultWords)),
				Positions: r.Zeros(int64(4 * rows)), Lengths: r.U32s(lengths...), Rows: rows, Vocab: vocab, MaxBiases: len(p.Bias),
			}
			if a.MaxBiases > 0 {
				a.Biases = r.U32s(biases...)
			}
			for _, before := range all {
				if before.Name() == spec.Name() {
					break
				}
				r.Run(before, func(k *ptx.Kernel) (ptx.Launch, error) { return before.Launch(k, a) })
			}
			if last {
				a.Next = r.OutU32s(rows)
			} else {
				r.writes(a.Scratch, sample.ScratchBytes(rows, vocab))
			}
			return spec.Launch(k, a)
		},
	}
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
