package plan

import (
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// deltaNet is a Gated DeltaNet. Its projections are layer.qkv, which has queries, keys, values, z, beta and alpha side
// by side, and layer.o.
type deltaNet struct {
	conv    ptx.Address // f32 [taps, channels]
	a, bias ptx.Address // f32 [value heads]
	norm    ptx.Address // f32 [dim], of an RMS norm
	state   int         // elements before its part of a state
}

func deltaNetShape(c *model.Config) deltanet.Shape {
	s := c.DeltaNet
	return deltanet.Shape{KeyHeads: s.KeyHeads, ValueHeads: s.ValueHeads, Dim: s.Dim, Taps: s.Taps, Tiled: s.Tiled}
}

// deltaNet adds a Gated DeltaNet.
func (b weightBuilder) deltaNet(to *layer, in *model.DeltaNet, name string) {
	net := &deltaNet{}
	to.net = net
	to.qkv = b.segments(name+"inputs", in.Q, in.K, in.V, in.Z, in.Beta, in.Alpha)
	b.linear(&to.o, name+"out", in.Out)
	taps := b.cfg.DeltaNet.Taps
	byTap := make([]float32, len(in.Conv))
	for i, w := range in.Conv {
		byTap[i%taps*(len(in.Conv)/taps)+i/taps] = w
	}
	b.floats(&net.conv, name+"convolution", byTap)
	b.floats(&net.a, name+"decay", in.A)
	b.floats(&net.bias, name+"decay bias", in.DecayBias)
	b.floats(&net.norm, name+"state norm", in.Norm.Weight)
}

// States returns how many states of sequences device memory holds: one per batch slot, and more for checkpoints. It is
// 0 if the model has no Gated DeltaNets.
func (l *Layout) States() int {
	if l.weights.stateFloats == 0 {
		return 0
	}
	return l.Slots + max(8, l.Slots/4)
}

// StateBytes returns the size of a state.
func (l *Layout) StateBytes() int { return 4 * l.weights.stateFloats }

// StateAt returns the address of a state.
func (l *Layout) StateAt(number int) ptx.Address {
	return l.Buffers.states + ptx.Address(number)*ptx.Address(l.StateBytes())
}

// recur computes the results of a Gated DeltaNet into Buffers.attention, and advances the states.
func (p *planner) recur(l *layer) {
	s, tokens, stride := deltaNetShape(p.model), p.shape.Tokens, p.layout.widths.qkv
	shape := &p.model.DeltaNet
	column := func(i int) ptx.Address { return p.buf.qkv + ptx.Address(4*i) }
	batch := deltanet.Batch{
		Starts: p.in.starts, Sequence: p.in.sequences, Positions: p.in.positions, StateIndex: p.in.recurrent,
		States: p.buf.states + ptx.Address(4*l.net.state), Stride: p.layout.weights.stateFloats, Tokens: tokens, Sequences: tokens,
	}
	if p.shape.Prefill() {
		batch.Sequences = p.shape.Sequences
	}
	z, beta := shape.Channels(), shape.Channels()+shape.Values()
	add(p, "convolution", deltanet.Inputs(s.Dim), deltanet.InputsArgs{
		X: p.buf.qkv, Alpha: column(beta + s.ValueHeads), Beta: column(beta), XStride: stride, W: l.net.conv, A: l.net.a, Bias: l.net.bias,
		Y: p.buf.convolved, Gates: p.buf.decays, Eps: p.model.NormEps, Shape: s, Batch: batch,
	})
	p.addView(View{Op: "convolution", At: p.buf.convolved, Width: shape.Channels()})
	add(p, "recurrence", deltanet.Recur(s.Dim), deltanet.RecurArgs{
		X: p.buf.convolved, Gates: p.buf.decays, Y: p.buf.attention, Inputs: p.buf.qkv, InputsStride: stride, Shape: s, Batch: batch,
	})
	p.addView(View{Op: "recurrence", At: p.buf.attention, Width: shape.Values()})
	add(p, "gated norm", deltanet.GatedNorm(), deltanet.GatedNormArgs{
		Y: p.buf.attention, Z: column(z), ZStride: stride, Weight: l.net.norm, Eps: p.model.NormEps, Tokens: tokens, Shape: s,
	})
}
