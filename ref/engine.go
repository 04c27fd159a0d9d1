// Package ref is the reference engine: it computes transformers on the CPU the way
// their formulas read, and judges every faster engine.
//
// Activations and sums are float64; weights are dequantized exactly. Each operation has
// one file, and its doc comment is the formula with shapes. Every sum has one order,
// which depends on the model alone: not on how many positions are computed together, the
// number of cores or the processor. So prefill and single steps give the same bits, and
// so do two machines. Products are rounded before they are added, float64(a*b)+c,
// because on some processors Go would fuse the two.
package ref

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// Engine computes one model on the CPU. It implements model.Engine.
type Engine struct {
	model    *model.Model
	numerics Numerics
	workers  int
	tap      Tap
	need     memory
	chunk    int // positions that are computed together
}

var _ model.Engine = (*Engine)(nil)

// Options configures an engine. The zero value computes the model as published, on all
// cores.
type Options struct {
	Numerics Numerics
	Workers  int // goroutines per operation; 0: GOMAXPROCS
	Tap      Tap // called with the result of each operation; nil: none
}

// Tap receives the result of an operation: values [positions, width], beginning at the
// given position. op is query, key, value, attention, convolution, recurrence (of a Gated DeltaNet), layer, or
// stream 1 and so on (of AltUp; layer is stream 0), with the number of the layer, or embed or logits, with layer -1. A tap
// must not retain values. If it changes them, later operations use the changed values; keys and values are then rounded for the
// cache. After Truncate or Fork of a model with Gated DeltaNets, it may see positions again. If it panics, the sequences are as
// before the step.
type Tap func(layer int, op string, position, width int, values []float64)

// New returns an engine for m. Each sequence reads the model's weights until it is
// closed; until then m.Close returns model.ErrInUse. If a single position takes more memory
// than the engine allows, New returns an error with both numbers, a model.ErrUnsupported.
func New(m *model.Model, o Options) (*Engine, error) {
	if m == nil {
		return nil, errors.New("ref: no model")
	}
	if err := o.Numerics.check(); err != nil {
		return nil, err
	}
	if o.Workers < 0 {
		return nil, fmt.Errorf("ref: Options.Workers: %d, want at least 0", o.Workers)
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	need := memoryOf(&m.Config)
	chunk, err := need.chunk()
	if err != nil {
		return nil, fmt.Errorf("ref: %w", err)
	}
	return &Engine{model: m, numerics: o.Numerics, workers: o.Workers, tap: o.Tap, need: need, chunk: chunk}, nil
}

// Model returns the model that the engine computes.
func (e *Engine) Model() *model.Model { return e.model }

// Close does nothing: the engine holds only the model, which belongs to the caller.
func (e *Engine) Close() error { return nil }

// Limits implements model.Engine: host memory is the only limit.
func (e *Engine) Limits() model.Limits {
	return model.Limits{Sequences: math.MaxInt32, PromptTokens: e.model.Config.Context, PageTokens: 1}
}

// NewSequence returns an empty sequence of at most capacity positions; 0 means the model's
// context. Its memory grows with the sequence, up to 64 GiB of keys and values: a step that
// needs more returns an error with both numbers, a model.ErrContextLimit.
func (e *Engine) NewSequence(capacity int) (model.Sequence, error) {
	limit := e.model.Config.Context
	if capacity < 0 {
		return nil, fmt.Errorf("ref: sequence: capacity: %d, want at least 0", capacity)
	}
	if err := model.CheckCapacity(capacity, limit); err != nil {
		return nil, fmt.Errorf("ref: sequence: capacity: %w", err)
	}
	return e.newSequence(cmp.Or(capacity, limit))
}

func (e *Engine) newSequence(capacity int) (*sequence, error) {
	release, err := e.model.Acquire()
	if err != nil {
		return nil, fmt.Errorf("ref: sequence: %w", err)
	}
	return &sequence{
		engine: e, capacity: capacity, release: release, last: sampling.NoToken,
		cache: make(cache, e.model.Config.Layers), states: newStates(&e.model.Config),
	}, nil
}
