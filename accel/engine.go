package accel

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// Engine computes one model on a device. It implements model.Engine; any goroutine may
// call it, and sessions may run at once.
type Engine struct {
	model *model.Model
	dev   driver.Device
	*layout

	// What was opened, to be closed in reverse.
	streams []driver.Stream
	memory  []driver.Buffer
	pinned  []driver.Pinned
	kernels *kernelcache.Cache
	graphs  []driver.Graph
	events  []driver.Event // of timed passes

	stream   driver.Stream
	host     driver.Pinned // for logits and pages
	rowsHost driver.Pinned // what a step is told of its rows, and the tokens that were chosen
	rows     []row         // of the step that is computed

	schedule  *schedule
	mu        gate // held while the device works on a pass
	programs  map[pass]*program
	longest   int             // the most steps that a program had
	launches  []driver.Launch // of a part of a pass
	tables    tables
	ahead     lookahead
	snapshots []*kept // the oldest first
	stats     Stats
	closed    bool
}

var _ model.Engine = (*Engine)(nil)

// New uploads a model to a device and returns an engine for it. The engine closes neither
// of them, and does not read the model's file after New. If ctx ends during the upload, New
// releases the memory and returns an error that wraps ctx.Err().
//
// New fails before it allocates anything with ErrComputeCapability if the GPU is too old,
// with model.ErrUnsupported if there are no kernels for the model, and with
// driver.ErrOutOfMemory if the engine does not fit; see PlanFor.
func New(ctx context.Context, m *model.Model, dev driver.Device, o Options) (*Engine, error) {
	if dev == nil {
		return nil, errors.New("accel: no device")
	}
	free, _, err := dev.Memory()
	if err != nil {
		return nil, fmt.Errorf("accel: %w", err)
	}
	l, err := newLayout(m, dev.Properties(), free, o)
	if err == nil {
		err = l.fits()
	}
	if err != nil {
		return nil, err
	}
	e := &Engine{model: m, dev: dev, layout: l, kernels: kernelcache.New(dev), programs: map[pass]*program{}, schedule: newSchedule(), mu: newGate()}
	if !l.weights.quantized() {
		e.kernels.PreferShared(halfShared)
	}
	if err := e.open(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// halfShared is what kernels want as shared memory, in percent, where weights are numbers,
// which are read through the cache; quantized ones come through a ring in shared memory. All
// kernels of a step want the same, since an SM that divides its memory anew is idle first.
const halfShared = 45

// open takes the memory and fills it. After an error Close gives back what was taken.
func (e *Engine) open(ctx context.Context) (err error) {
	release, err := e.model.Acquire()
	if err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	defer release()
	if e.stream, err = e.dev.NewStream(); err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	e.streams = append(e.streams, e.stream)
	for _, p := range []struct {
		to    *driver.Pinned
		bytes int
	}{{&e.host, e.hostBytes()}, {&e.rowsHost, e.rowsBytes()}} {
		if *p.to, err = e.dev.AllocPinned(p.bytes); err != nil {
			return fmt.Errorf("accel: %d bytes of pinned memory: %w", p.bytes, err)
		}
		e.pinned = append(e.pinned, *p.to)
	}
	e.placeTokens(ptxgen.Address(e.rowsHost.Address()))
	if e.o.looksAhead() {
		if e.ahead.before, err = e.dev.NewEvent(); err != nil {
			return fmt.Errorf("accel: %w", err)
		}
	}
	if e.memory, err = e.inventory.allocate(e.dev); err != nil {
		return err
	}
	e.tables = newTables(&e.shape)
	return e.upload(ctx)
}

func (e *Engine) upload(ctx context.Context) error {
	u, err := newUploader(ctx, e.dev, e.stream, e.stagingBytes(), e.toUpload(), e.o.Progress)
	if err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	err = e.inventory.upload(u)
	if err == nil { // a file cut short inside its last page reads as zeros, without a fault
		err = e.model.File.Check()
	}
	if err != nil {
		_ = e.stream.Synchronize() // copies may still be at work with the memory that close gives back
	}
	return errors.Join(err, u.close())
}

// Model is the model that the engine computes.
func (e *Engine) Model() *model.Model { return e.model }

// Plan is how much device memory the engine has taken, and for what.
func (e *Engine) Plan() Plan { return e.plan }

// Close gives back all that the engine took, but neither the device nor the model.
// Sessions can only be closed after it.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	lost := e.dev.Err() != nil
	var errs []error
	if e.stream != nil && !lost {
		errs = append(errs, e.stream.Synchronize())
	}
	if e.ahead.before != nil {
		errs = append(errs, e.ahead.before.Close())
	}
	errs = append(errs, closeAll(e.events), closeAll(e.graphs), e.kernels.Close(), closeAll(e.memory), closeAll(e.pinned), closeAll(e.streams))
	if lost {
		return nil // the fault took all that there was to give back, and was reported
	}
	return errors.Join(errs...)
}

// NewSession returns an empty session of at most capacity positions, 0 for the model's
// context. Pages of the cache are taken as the sequence grows.
func (e *Engine) NewSession(capacity int) (model.Session, error) {
	limit := e.model.Config.Context
	switch {
	case capacity < 0:
		return nil, fmt.Errorf("accel: session capacity is %d", capacity)
	case capacity > limit:
		return nil, fmt.Errorf("accel: session capacity: %w", &model.ContextError{Need: capacity, Limit: limit})
	case capacity == 0:
		capacity = limit
	}
	s := &session{engine: e, capacity: capacity, long: e.model.Config.LongRope(capacity), place: noPlace}
	s.request.done = make(chan struct{}, 1)
	return s, nil
}

// usable says why the engine computes no more. The lock is held.
func (e *Engine) usable() error {
	if e.closed {
		return fmt.Errorf("accel: the engine is closed: %w", model.ErrClosed)
	}
	if err := e.dev.Err(); err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	return nil
}
