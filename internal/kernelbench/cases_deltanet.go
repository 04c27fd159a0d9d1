package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// deltaNetCases are the kernels of a Gated DeltaNet: of one prompt, and of a decode step.
func (s sizes) deltaNetCases() []Case {
	return append(s.deltaNet(1, s.rows), s.deltaNet(s.batch, 1)...)
}

func (s sizes) deltaNet(sequences, each int) []Case {
	n := s.net
	tokens, channels, values := sequences*each, (2*n.KeyHeads+n.ValueHeads)*n.Dim, n.ValueHeads*n.Dim
	shape := fmt.Sprintf("%d seq × %d, %d heads", sequences, each, n.ValueHeads)
	inputs, recur, gatedNorm := deltanet.Inputs(n.Dim), deltanet.Recur(n.Dim), deltanet.GatedNorm()
	batch := func(r *Runner) deltanet.Batch {
		starts, slots := []uint32{0}, []uint32{}
		var owners, positions []uint32
		for i := range sequences {
			starts, slots = append(starts, uint32((i+1)*each)), append(slots, uint32(i))
			for t := range each {
				owners, positions = append(owners, uint32(i)), append(positions, uint32(64+t))
			}
		}
		stride := n.StateFloats()
		states := r.Zeros(int64(4 * sequences * stride))
		return deltanet.Batch{
			Starts: r.U32s(starts...), Sequence: r.U32s(owners...), Positions: r.U32s(positions...), StateIndex: r.U32s(slots...),
			States: states, Stride: stride, Tokens: tokens, Sequences: sequences,
		}
	}
	window := 4 * float64((n.Taps-1)*channels*sequences)
	return []Case{
		{
			Spec: inputs, Shape: shape, Bytes: 8*float64(tokens*channels) + 16*float64(tokens*n.ValueHeads) + window + 4*float64(n.Taps*channels),
			Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
				return inputs.Launch(k, deltanet.InputsArgs{
					X: r.Normal(quant.F32, tokens*channels), Alpha: r.Normal(quant.F32, tokens*channels), Beta: r.Normal(quant.F32, tokens*channels), XStride: channels,
					W: r.Normal(quant.F32, n.Taps*channels), A: r.Normal(quant.F32, n.ValueHeads), Bias: r.Normal(quant.F32, n.ValueHeads),
					Y: r.Out(quant.F32, tokens*channels), Gates: r.Out(quant.F32, 2*tokens*n.ValueHeads), Eps: 1e-6, Shape: n, Batch: batch(r),
				})
			},
		},
		{
			Spec: recur, Shape: shape, Bytes: 4*float64(tokens*(channels+values)) + 8*float64(sequences*values*n.Dim) + 2*window,
			Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
				// A decay and β so small that S stays finite although keys are longer than 1.
				factors := make([]byte, 8)
				r.setErr(quant.F32.Encode(factors, []float32{0.5, 0.25 / float32(n.Dim)}))
				b := batch(r)
				r.writes(b.States, int64(4*sequences*b.Stride))
				return recur.Launch(k, deltanet.RecurArgs{
					X: r.Normal(quant.F32, tokens*channels), Gates: r.repeat(factors, int64(8*tokens*n.ValueHeads)),
					Y: r.Out(quant.F32, tokens*values), Inputs: r.Normal(quant.F32, tokens*channels), InputsStride: channels, Shape: n, Batch: b,
				})
			},
		},
		{
			Spec: gatedNorm, Shape: shape, Bytes: 12 * float64(tokens*values),
			Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
				return gatedNorm.Launch(k, deltanet.GatedNormArgs{
					Y: r.InPlace(quant.F32, tokens*values), Z: r.Normal(quant.F32, tokens*values), ZStride: values, Weight: r.Normal(quant.F32, n.Dim),
					Eps: 1e-6, Tokens: tokens, Shape: n,
				})
			},
		},
	}
}
