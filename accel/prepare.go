package accel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/internal/sizeclass"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
)

// Prepare loads all kernels, in parallel, and captures the graphs of all decode steps that compute logits, so that
// hardly any Step waits for that. It launches nothing. progress, if it is not nil, is called with the number of
// kernels and graphs that are done and in total; it must not call the engine. Prepare stops once
// ctx has ended. After an error, what is loaded and captured stays.
func (e *Engine) Prepare(ctx context.Context, progress func(done, total int)) error {
	if err := e.usable(); err != nil {
		return err
	}
	e.drain()
	specs, shapes := e.layout.Kernels(), e.layout.Steps()
	done := 0
	advance := func() {
		if done++; progress != nil {
			progress(done, len(specs)+len(shapes))
		}
	}
	if err := loadKernels(ctx, specs, e.kernels, advance); err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	e.prepared = true
	for _, s := range shapes {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("accel: %w", err)
		}
		l, err := e.launches(ctx, s)
		if err == nil {
			err = e.capture(l)
		}
		if err != nil {
			return e.deviceFailed(err)
		}
		advance()
	}
	return nil
}

// prepareShape loads the kernels of a shape's forward passes in parallel, before the first such pass would load one after
// another.
func (e *Engine) prepareShape(ctx context.Context, s plan.Shape) error {
	// Passes of one size class have the same kernels, but for a few, which are loaded when they are first launched.
	class := plan.Shape{
		Tokens: sizeclass.Of(s.Tokens), Pages: min(s.Pages, 1), Logits: s.Logits, Sample: s.Sample,
		Sequences: min(s.Sequences, 1),
	}
	if e.prepared || e.loaded[class] {
		return nil
	}
	if err := loadKernels(ctx, e.layout.KernelsFor(s), e.kernels, func() {}); err != nil {
		return err
	}
	e.loaded[class] = true
	return nil
}

// loadKernels builds and loads kernels in parallel, and calls advance on the caller's goroutine after each one that succeeds.
// It returns when all have ended.
func loadKernels(ctx context.Context, specs []kernel.Spec, kernels *kernelcache.Cache, advance func()) error {
	results := make(chan error, len(specs))
	var next atomic.Int64
	var workers sync.WaitGroup
	defer workers.Wait() // also if advance panics
	for range min(runtime.GOMAXPROCS(0), len(specs)) {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(len(specs)); i = next.Add(1) {
				err := ctx.Err()
				if err == nil {
					err = loadKernel(specs[i-1], kernels)
				}
				results <- err
			}
		})
	}
	var failed error
	for range specs {
		if err := <-results; err != nil {
			failed = cmp.Or(failed, err)
		} else {
			advance()
		}
	}
	if failed == nil {
		return nil
	}
	if err := ctx.Err(); err != nil && !errors.Is(failed, err) {
		return errors.Join(err, failed)
	}
	return failed
}

func loadKernel(s kernel.Spec, kernels *kernelcache.Cache) error {
	k, err := plan.Build(s)
	if err != nil {
		return err
	}
	_, err = kernels.Function(k)
	return err
}
