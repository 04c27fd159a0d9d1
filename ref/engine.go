package ref

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/lockstep-go/lockstep/model"
)

// Engine computes one model on the CPU. It implements model.Engine; any goroutine
// may call it, and sessions may run at once.
type Engine struct {
	model    *model.Model
	numerics Numerics
	workers  int
	tap      Tap
}

var _ model.Engine = (*Engine)(nil)

// Options are the engine's settings; the zero value is the model as published, on
// all cores.
type Options struct {
	Numerics Numerics
	Workers  int // goroutines of one operation; 0: GOMAXPROCS
	// Tap, if set, is shown the result of each operation.
	Tap Tap
}

// Tap is shown values [positions, width] after operation op of a layer (-1 outside
// the layers), the first row at the given position. It must not keep them, and may
// change them: the operations behind are computed of what it leaves, with keys and values
// rounded for the cache. Sessions that run at once call it at once.
type Tap func(layer int, op string, position, width int, values []float64)

// New returns an engine for m with default Options.
func New(m *model.Model) (*Engine, error) { return NewWith(m, Options{}) }

// NewWith returns an engine for m. Each session reads the model's weights until it is
// closed; until then m.Close returns model.ErrInUse.
func NewWith(m *model.Model, o Options) (*Engine, error) {
	if m == nil {
		return nil, errors.New("ref: no model")
	}
	if err := o.Numerics.check(); err != nil {
		return nil, err
	}
	if o.Workers < 0 {
		return nil, fmt.Errorf("ref: Options.Workers is %d", o.Workers)
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return &Engine{m, o.Numerics, o.Workers, o.Tap}, nil
}

// Model is the model that the engine computes.
func (e *Engine) Model() *model.Model { return e.model }

// Close gives nothing back: the engine holds only the model, which is the caller's.
func (e *Engine) Close() error { return nil }

// NewSession returns an empty session of at most capacity positions, 0 for the
// model's context. Memory is taken as the sequence grows.
func (e *Engine) NewSession(capacity int) (model.Session, error) {
	limit := e.model.Config.Context
	switch {
	case capacity < 0:
		return nil, fmt.Errorf("ref: session capacity is %d", capacity)
	case capacity > limit:
		return nil, fmt.Errorf("ref: session capacity: %w", &model.ContextError{Need: capacity, Limit: limit})
	case capacity == 0:
		capacity = limit
	}
	release, err := e.model.Acquire()
	if err != nil {
		return nil, fmt.Errorf("ref: session: %w", err)
	}
	return &Session{engine: e, capacity: capacity, release: release, cache: cache{make([]cacheLayer, e.model.Config.Layers)}}, nil
}
