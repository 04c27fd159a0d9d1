package ref

import (
	"context"
	"iter"
	"math"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model"
)

// deltaNetState is the state of one Gated DeltaNet after a number of positions.
type deltaNetState struct {
	window tensor    // [taps−1, channels]: the last inputs of the convolution, oldest first
	s      []float64 // [value heads, value elements, key elements]: Sᵀ of each head
}

func newDeltaNetState(shape *model.DeltaNetShape) *deltaNetState {
	return &deltaNetState{
		window: newTensor(shape.Taps-1, shape.Channels()),
		s:      make([]float64, shape.Values()*shape.Dim),
	}
}

// deltaNetBlock computes the Gated DeltaNet of layer l of h [tokens, hidden], as model.DeltaNet defines it, and
// advances its state by these tokens, one after another.
func (s *sequence) deltaNetBlock(ctx context.Context, l int, h input) (tensor, error) {
	e, shape := s.engine, &s.engine.model.Config.DeltaNet
	w, state := e.model.Weights.Layers[l].DeltaNet, s.states[l]
	var in [6]tensor
	for i, w := range []model.Linear{w.Q, w.K, w.V, w.Z, w.Beta, w.Alpha} {
		var err error
		if in[i], err = e.linear(ctx, h, w); err != nil {
			return tensor{}, err
		}
	}
	mixed := state.convolve(in[0], in[1], in[2], w.Conv)
	for p := range mixed.rows {
		for at := 0; at < 2*shape.Keys(); at += shape.Dim {
			unit(mixed.row(p)[at:][:shape.Dim], float64(e.model.Config.NormEps))
		}
	}
	e.tapped(l, "convolution", s.length, mixed)
	y := newTensor(mixed.rows, shape.Values())
	err := e.parallel(ctx, shape.ValueHeads, func(heads iter.Seq[int]) {
		for head := range heads {
			k := head % shape.KeyHeads * shape.Dim
			if !shape.Tiled {
				k = head / (shape.ValueHeads / shape.KeyHeads) * shape.Dim
			}
			for p := range mixed.rows {
				row := mixed.row(p)
				decay := portable.Exp(float64(w.A[head]) * softplus(in[5].row(p)[head]+float64(w.DecayBias[head])))
				state.step(head, row[k:][:shape.Dim], row[shape.Keys()+k:][:shape.Dim], row[2*shape.Keys()+head*shape.Dim:][:shape.Dim],
					decay, sigmoid(in[4].row(p)[head]), y.row(p)[head*shape.Dim:][:shape.Dim])
			}
		}
	})
	if err != nil {
		return tensor{}, err
	}
	e.tapped(l, "recurrence", s.length, y)
	y = norm(y, w.Norm, &e.model.Config)
	for i, z := range in[3].data {
		y.data[i] *= silu(z)
	}
	return e.linear(ctx, input{x: y}, w.Out)
}

// convolve returns SiLU of the causal convolution of [q, k, v] with taps [channels, taps], and keeps the last inputs.
func (s *deltaNetState) convolve(q, k, v tensor, taps []float32) tensor {
	before, channels := s.window.rows, s.window.cols
	inputs := newTensor(before+q.rows, channels)
	copy(inputs.data, s.window.data)
	for p := range q.rows {
		row := inputs.row(before + p)
		n := copy(row, q.row(p))
		n += copy(row[n:], k.row(p))
		copy(row[n:], v.row(p))
	}
	y := newTensor(q.rows, channels)
	for p := range y.rows {
		for c := range channels {
			sum := 0.0
			for i := range before + 1 {
				sum += float64(float64(taps[c*(before+1)+i]) * inputs.row(p + i)[c])
			}
			y.row(p)[c] = silu(sum)
		}
	}
	copy(s.window.data, inputs.data[q.rows*channels:])
	return y
}

// step advances the state of a value head by one position and computes y = Sᵀq/√Dim. All vectors have Dim elements.
func (s *deltaNetState) step(head int, q, k, v []float64, decay, beta float64, y []float64) {
	dim := len(q)
	for j := range v {
		column := s.s[(head*dim+j)*dim:][:dim] // column j of S
		predicted := 0.0
		for i := range column {
			column[i] *= decay
			predicted += float64(column[i] * k[i])
		}
		change := (v[j] - predicted) * beta
		read := 0.0
		for i := range column {
			column[i] += float64(k[i] * change)
			read += float64(column[i] * q[i])
		}
		y[j] = read / math.Sqrt(float64(dim))
	}
}

// unit divides x by its length, or by eps if that is more.
func unit(x []float64, eps float64) {
	length := max(math.Sqrt(sum(x, func(v float64) float64 { return float64(v * v) })), eps)
	for i := range x {
		x[i] /= length
	}
}

// softplus is ln(1 + e^x).
func softplus(x float64) float64 { return max(x, 0) + portable.Log(1+portable.Exp(-math.Abs(x))) }
