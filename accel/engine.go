package accel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lockstep-go/lockstep/accel/internal/kv"
	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/accel/internal/upload"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/model"
)

// Engine computes one model on a device. It implements model.Engine. It is safe for
// concurrent use, and its sessions may run concurrently.
type Engine struct {
	model   *model.Model
	dev     driver.Device
	options Options
	layout  *plan.Layout
	plan    Plan

	opened        *resources
	stream        driver.Stream
	interruptible driver.Interruptible // the stream, if it can stop a kernel that runs; else nil
	kernels       *kernelcache.Cache
	staging       driver.Pinned // logits and tapped values on their way to the host
	inputs        *stepInputs

	schedule *schedule

	// mu is held while the device computes. It guards the fields below.
	mu          mutex
	cache       *kv.Cache // mu does not guard cache.Pool, which has its own mutex
	passes      map[plan.Shape]*pass
	async       asyncStep
	timing      []driver.Event // of timed passes, reused
	stats       Stats
	closed      bool
	interrupted bool // a kernel was, so the workspace may hold its sums

	// Reused between calls, so that a step allocates nothing.
	batch    []slot
	launches []driver.Launch
}

var _ model.Engine = (*Engine)(nil)

// sharedMemoryPercent is the preferred carve-out of shared memory if the model has no
// quantized weights. Unquantized weights are read through L1; quantized weights are staged
// in shared memory. All kernels of a step prefer the same, because an SM is idle while it
// changes the carve-out.
const sharedMemoryPercent = 45

// New uploads a model to a device and returns an engine for it. The engine closes neither
// the model nor the device, and does not read the model's file after New. If ctx ends
// during the upload, New releases the memory and returns an error that wraps ctx.Err().
//
// Before it allocates anything, New returns ErrComputeCapability if the GPU is too old,
// model.ErrUnsupported if there are no kernels for the model, or driver.ErrOutOfMemory if
// the engine does not fit; see PlanFor.
func New(ctx context.Context, m *model.Model, dev driver.Device, o Options) (e *Engine, err error) {
	if dev == nil {
		return nil, errors.New("accel: no device")
	}
	free, _, err := dev.Memory()
	if err != nil {
		return nil, fmt.Errorf("accel: %w", err)
	}
	s, err := newSetup(m, dev.Properties(), free, o)
	if err == nil {
		err = s.plan.fits()
	}
	if err != nil {
		return nil, err
	}
	release, err := m.Acquire()
	if err != nil {
		return nil, fmt.Errorf("accel: %w", err)
	}
	defer release()
	opened := &resources{dev: dev}
	defer func() {
		if e == nil { // after an error, or if Options.Progress panics
			err = errors.Join(err, opened.close())
		}
	}()
	if e, err = open(ctx, opened, m, s); err != nil {
		return nil, fmt.Errorf("accel: %w", err)
	}
	return e, nil
}

// open allocates device memory, uploads the model and returns the engine. It adds all that
// it opens to opened. After an error the caller closes opened.
func open(ctx context.Context, opened *resources, m *model.Model, s setup) (*Engine, error) {
	dev, layout := opened.dev, s.layout
	stream, err := dev.NewStream()
	if err != nil {
		return nil, err
	}
	opened.stream = stream
	opened.add(stream)
	staging, err := opened.pinned(layout.StagingBytes())
	if err != nil {
		return nil, err
	}
	inputs, err := opened.pinned(stepInputBytes(layout))
	if err != nil {
		return nil, err
	}
	var stepEnd driver.Event // nil if steps never run ahead
	if s.options.async() {
		if stepEnd, err = dev.NewEvent(); err != nil {
			return nil, err
		}
		opened.add(stepEnd)
	}
	buffers, err := layout.Memory.Allocate(dev)
	for _, b := range buffers {
		opened.add(b)
	}
	if err != nil {
		return nil, err
	}
	kernels := kernelcache.New(dev)
	opened.add(kernels)
	if !layout.QuantizedWeights() {
		kernels.PreferShared(sharedMemoryPercent)
	}
	if err := uploadModel(ctx, m, dev, stream, layout, s.options.Progress); err != nil {
		return nil, err
	}
	interruptible, _ := stream.(driver.Interruptible)
	return &Engine{
		model: m, dev: dev, options: s.options, layout: layout, plan: s.plan,
		opened: opened, stream: stream, interruptible: interruptible, kernels: kernels, staging: staging, inputs: newStepInputs(layout, inputs),
		schedule: newSchedule(), mu: newMutex(),
		cache:  kv.New(layout.Geometry, layout.KV, layout.Pages, stream, staging),
		passes: map[plan.Shape]*pass{},
		async:  asyncStep{stepEnd: stepEnd},
	}, nil
}

// uploadModel fills the device memory.
func uploadModel(ctx context.Context, m *model.Model, dev driver.Device, stream driver.Stream, l *plan.Layout, progress func(done, total int64)) (err error) {
	u, err := upload.New(ctx, dev, stream, upload.Options{StagingBytes: l.UploadBytes(), Total: l.Memory.UploadBytes(), Progress: progress})
	if err != nil {
		return err
	}
	copied := false
	defer func() { // also if progress panics
		if !copied {
			_ = stream.Synchronize() // copies may be in flight from the memory that Close releases
		}
		err = errors.Join(err, u.Close())
	}()
	if err := l.Memory.Upload(u); err != nil {
		return err
	}
	copied = true
	return m.File.Check() // a file that was truncated inside its last page reads as zeros, without a fault
}

// Model returns the engine's model.
func (e *Engine) Model() *model.Model { return e.model }

// Plan returns how much device memory the engine uses, and for what.
func (e *Engine) Plan() Plan { return e.plan }

// Close releases what the engine allocated, but neither the device nor the model. After
// Close, the only valid use of its sessions and snapshots is to close them.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return e.opened.close()
}

// NewSession returns an empty session of at most capacity positions; 0 means the model's
// context. The session allocates pages of the KV cache as it grows.
func (e *Engine) NewSession(capacity int) (model.Session, error) {
	limit := e.model.Config.Context
	switch {
	case capacity < 0:
		return nil, fmt.Errorf("accel: session capacity is %d", capacity)
	case capacity > limit:
		return nil, fmt.Errorf("accel: session capacity: %w", model.CheckCapacity(capacity, limit))
	case capacity == 0:
		capacity = limit
	}
	return &session{
		engine: e, capacity: capacity, longRope: e.model.Config.LongRope(capacity),
		request: request{done: make(chan struct{}, 1)}, slot: noSlot,
	}, nil
}

// usable returns an error if the engine is closed or its device lost. It clears what an
// interrupted kernel left in the workspace. The mutex is held.
func (e *Engine) usable() error {
	if e.closed {
		return fmt.Errorf("accel: engine: %w", model.ErrClosed)
	}
	if err := e.dev.Err(); err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	if e.interrupted {
		if err := e.layout.ResetWorkspace(e.stream); err != nil {
			return fmt.Errorf("accel: %w", err)
		}
		e.interrupted = false
	}
	return nil
}

// begin locks the mutex and checks that the engine is usable. Until the caller calls end, kernels
// stop if ctx ends. After an error the mutex is not locked.
func (e *Engine) begin(ctx context.Context) error {
	select {
	case e.mu <- struct{}{}:
	case <-ctx.Done(): // another sequence's chunk may take long
		return ctx.Err()
	}
	err := cmp.Or(e.usable(), ctx.Err())
	if err != nil {
		e.mu.Unlock()
		return err
	}
	e.interruptIf(ctx)
	return nil
}

// end unlocks the mutex.
func (e *Engine) end() {
	e.interruptIf()
	e.mu.Unlock()
}

// interruptIf makes the stream stop its kernels once all of the contexts have ended, if it can.
// Without a context, it never stops them. The mutex is held.
func (e *Engine) interruptIf(contexts ...context.Context) {
	if e.interruptible == nil {
		return
	}
	if len(contexts) == 0 {
		e.interruptible.InterruptIf(nil)
		return
	}
	var all []<-chan struct{}
	for _, ctx := range contexts {
		all = append(all, ctx.Done())
	}
	e.interruptible.InterruptIf(func() bool {
		for _, done := range all {
			select {
			case <-done:
			default:
				return false
			}
		}
		return true
	})
}

// failed cleans up after a device error and wraps it; for nil it does nothing. It waits for
// the stream, because queued work may still use memory that the next forward pass writes.
// It discards the step that runs ahead. If the device is lost, it returns that error
// instead. The mutex is held.
func (e *Engine) failed(err error) error {
	if err == nil {
		return nil
	}
	waited := e.stream.Synchronize()
	e.discardAhead()
	if errors.Is(errors.Join(err, waited), driver.ErrInterrupted) {
		e.interrupted = true
	}
	if lost := e.dev.Err(); lost != nil {
		err = lost
	}
	return fmt.Errorf("accel: %w", err)
}

// resources lists what an engine opened on its device, in the order of opening.
type resources struct {
	dev    driver.Device
	stream driver.Stream // nil until it is opened
	list   []io.Closer
}

func (r *resources) add(c io.Closer) { r.list = append(r.list, c) }

func (r *resources) pinned(bytes int) (driver.Pinned, error) {
	p, err := r.dev.AllocPinned(bytes)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of pinned memory: %w", bytes, err)
	}
	r.add(p)
	return p, nil
}

// close waits for the stream and closes everything, the last opened first. It returns no
// error if the device is lost, because that error was returned before.
func (r *resources) close() error {
	lost := r.dev.Err() != nil
	var errs []error
	if r.stream != nil && !lost {
		errs = append(errs, r.stream.Synchronize())
	}
	for _, c := range slices.Backward(r.list) {
		errs = append(errs, c.Close())
	}
	if lost {
		return nil
	}
	return errors.Join(errs...)
}
