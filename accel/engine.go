package accel

import (
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
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// Engine computes one model on a device. It implements model.Engine. One goroutine at a time
// may use it and its sequences.
type Engine struct {
	model   *model.Model
	dev     driver.Device
	options Options
	layout  *plan.Layout
	plan    MemoryPlan

	opened          *resources // of the device, for Close
	stream          driver.Stream
	interruptible   driver.Interruptible // the stream, if it can stop a kernel that runs; else nil
	kernels         *kernelcache.Cache
	staging         driver.Pinned // logits, hidden states, tapped values and KV pages between device and host
	reads           hostReads     // queued copies to staging
	inputs          *stepInputs
	cache           *kv.Cache
	recurrentStates statePool // of Gated DeltaNets
	planned         map[plan.Shape]*launchList
	loaded          map[plan.Shape]bool // see prepareShape
	prepared        bool                // all kernels are loaded

	calls    int                // of Step and Choose
	inFlight []*pass            // queued and not ended, the oldest first; at most maxInFlight
	recent   [maxInFlight]*pass // the last passes, by bank
	bank     int                // of the next pass; see stepInputs

	stats  Stats
	closed bool

	// Memory that is reused between calls, so that a step allocates little.
	batch   []batchToken
	parts   []plan.ChunkPart
	segment []driver.Launch
	timing  []driver.Event // for Options.Timer
}

var _ model.Engine = (*Engine)(nil)

// New uploads a model to a device and returns an engine for it. The engine closes neither
// the model nor the device, and does not read the model's file after New. If ctx ends
// during the upload, New releases the memory and returns an error that wraps ctx.Err().
//
// Before it allocates anything, New returns ErrComputeCapability if the GPU is too old,
// model.ErrUnsupported if there are no kernels for the model, or driver.ErrOutOfMemory if
// the engine does not fit; see PlanMemory.
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

// open allocates memory, uploads the model and returns the engine. It adds all that it opens to
// opened. After an error the caller closes opened.
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
	var recent [maxInFlight]*pass
	for i := range recent {
		end, err := dev.NewEvent()
		if err != nil {
			return nil, err
		}
		opened.add(end)
		recent[i] = &pass{event: end}
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
	if err := uploadModel(ctx, m, dev, stream, layout, s.options.Progress); err != nil {
		return nil, err
	}
	interruptible, _ := stream.(driver.Interruptible)
	return &Engine{
		model: m, dev: dev, options: s.options, layout: layout, plan: s.plan,
		opened: opened, stream: stream, interruptible: interruptible, kernels: kernels, staging: staging,
		inputs:          newStepInputs(layout, stream, inputs),
		cache:           kv.New(layout.KV, layout.Pages, stream, staging),
		recurrentStates: statePool{places: make([]*recurrentState, layout.States())},
		recent:          recent, planned: map[plan.Shape]*launchList{}, loaded: map[plan.Shape]bool{},
	}, nil
}

// uploadModel writes the initial contents of the device memory and waits for the copies.
func uploadModel(ctx context.Context, m *model.Model, dev driver.Device, stream driver.Stream, l *plan.Layout, progress func(done, total int64)) (err error) {
	u, err := upload.New(ctx, dev, stream, upload.Options{StagingBytes: l.UploadBytes(), Total: l.Memory.UploadBytes(), Progress: progress})
	if err != nil {
		return err
	}
	uploaded := false
	defer func() { // also if progress panics
		if !uploaded {
			_ = stream.Synchronize() // queued copies may still read the memory that Close releases
		}
		err = errors.Join(err, u.Close())
	}()
	if err := l.Memory.Upload(u); err != nil {
		return err
	}
	uploaded = true
	return m.File.Check() // a file that was truncated inside its last page reads as zeros, without a fault
}

// Model returns the engine's model.
func (e *Engine) Model() *model.Model { return e.model }

// Plan returns how much device memory the engine uses, and for what.
func (e *Engine) Plan() MemoryPlan { return e.plan }

// Limits implements model.Engine.
func (e *Engine) Limits() model.Limits {
	return model.Limits{
		Sequences: e.options.MaxSequences, PromptTokens: e.options.Chunk,
		PageTokens: attention.PageTokens, Pages: e.layout.Pages, FreePages: e.layout.Pages - e.cache.Pool.InUse(), Async: true,
	}
}

// Close waits for queued steps and releases what the engine allocated, but neither the device
// nor the model. After Close, the only valid use of its sequences is to close them.
func (e *Engine) Close() error {
	if e.closed {
		return nil
	}
	e.drain()
	e.closed = true
	return e.opened.close()
}

// usable returns an error if the engine is closed or its device lost.
func (e *Engine) usable() error {
	if e.closed {
		return fmt.Errorf("accel: engine: %w", model.ErrClosed)
	}
	if err := e.dev.Err(); err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	return nil
}

// interruptIf makes the stream stop its kernels once the contexts of all given passes have ended.
// Without a pass, kernels are not stopped. A stream that cannot stop kernels ignores it.
func (e *Engine) interruptIf(passes ...*pass) {
	if e.interruptible == nil {
		return
	}
	if len(passes) == 0 {
		e.interruptible.InterruptIf(nil)
		return
	}
	var all []<-chan struct{}
	for _, p := range passes {
		all = append(all, p.ctx.Done())
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
