// Package deltanet holds the kernels of Gated DeltaNets (see model.DeltaNet). For each layer they run in this order:
//
//	Inputs     queries, keys, values, decay and β of each token
//	Recur      S of each sequence, token by token, and its results; the inputs that the convolution of later tokens reads
//	GatedNorm  the results, normalized and multiplied by a gate
//
// Prompts and generated tokens use the same kernels, and each token's sums have one order. So the bits of a result do
// not depend on how a prompt is cut into chunks.
package deltanet

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Shape is the shape of a Gated DeltaNet, as model.DeltaNetShape.
type Shape struct {
	KeyHeads, ValueHeads, Dim, Taps int
	Tiled                           bool
}

func (s Shape) channels() int { return (2*s.KeyHeads + s.ValueHeads) * s.Dim }

// matrixFloats is the number of elements of S of all heads.
func (s Shape) matrixFloats() int { return s.ValueHeads * s.Dim * s.Dim }

// StateFloats is the number of elements of the state of a layer, f32: Sᵀ [value heads, value elements, key elements],
// then the window of the convolution, its last inputs [Taps-1, channels], oldest first.
func (s Shape) StateFloats() int { return s.matrixFloats() + (s.Taps-1)*s.channels() }

// Specs returns the kernels for heads of dim elements. dim is a multiple of 16.
func Specs(dim int) []kernel.Spec {
	return []kernel.Spec{Inputs(dim), Recur(dim), GatedNorm()}
}

const maxTaps = 16

// check checks a shape. A state has at most host.MaxSize elements.
func (s Shape) check(k *ptx.Kernel) error {
	return host.Valid(k, host.Bound("KeyHeads", s.KeyHeads, 1, 1<<14), host.Bound("ValueHeads", s.ValueHeads, 1, 1<<14),
		host.Refuse(s.ValueHeads%max(s.KeyHeads, 1) != 0, "ValueHeads", "%d is no multiple of %d key heads", s.ValueHeads, s.KeyHeads),
		host.Bound("Dim", s.Dim, 1, 256), host.Bound("Taps", s.Taps, 1, maxTaps), host.Bound("StateFloats", s.StateFloats(), 1, host.MaxSize))
}

// NoState marks a sequence without a state. Its tokens are those of an unused batch slot. Recur stores 0 as their results, and
// Inputs stores no channels.
const NoState = math.MaxUint32

// Batch says which tokens belong to a sequence, and where its state is. Inputs reads the arrays before it waits for prior
// kernels, which must not write them.
type Batch struct {
	Starts     ptx.Address // u32 [Sequences+1]: the tokens of sequence s are Starts[s] to Starts[s+1]-1
	Sequence   ptx.Address // u32 [Tokens]: the sequence of each token; only Inputs reads it
	Positions  ptx.Address // u32 [Tokens]; before position 0 the state is 0, and memory is not read
	StateIndex ptx.Address // u32 [Sequences]: the number of the state, or NoState
	States     ptx.Address // f32: the layer's part of state 0
	Stride     int         // elements from one state to the next
	Tokens     int
	Sequences  int
}

func (a Batch) check(k *ptx.Kernel, s Shape) error {
	return host.Valid(k, host.Bound("Stride", a.Stride, s.StateFloats(), host.MaxSize), host.Bound("Tokens", a.Tokens, 1, host.MaxSize/max(s.channels(), 1)),
		host.Bound("Sequences", a.Sequences, 1, host.MaxSize/max(s.channels(), 1)), host.NonNil("Starts", a.Starts),
		host.NonNil("Positions", a.Positions), host.NonNil("StateIndex", a.StateIndex), host.NonNil("States", a.States))
}

// batchParams are the parameters of a Batch.
type batchParams struct {
	Starts, Positions, StateIndex ptx.Global
	States                        ptx.Global `align:"16"`
	Stride                        ptx.U32
}

func (a Batch) params() batchParams {
	return batchParams{
		Starts: ptx.Addr(a.Starts), Positions: ptx.Addr(a.Positions), StateIndex: ptx.Addr(a.StateIndex),
		States: ptx.Addr(a.States), Stride: ptx.Uint(a.Stride),
	}
}

// state returns the address of a state.
func (p *batchParams) state(number ptx.U32) ptx.Global {
	return p.States.AtBytes(number.MulWide(p.Stride).ShlN(2)).Aligned(4)
}
