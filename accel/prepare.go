package accel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/internal/kernelcache"
)

// Prepare loads all kernels, in parallel, and captures the graphs of all decode steps, so that no
// Step waits for that. It launches nothing. progress, if it is not nil, is called with the number of
// kernels and graphs that are done and in total; it must not call the engine. Prepare stops once
// ctx has ended. After an error, what is loaded and captured stays.
func (e *Engine) Prepare(ctx context.Context, progress func(done, total int)) error {
	if err := e.usable(); err != nil {
		return err
	}
	e.drain()
	loads, shapes := e.layout.Loads(), e.layout.Steps()
	done := 0
	advance := func() {
		if done++; progress != nil {
			progress(done, len(loads)+len(shapes))
		}
	}
	if err := loadAll(ctx, loads, e.kernels, advance); err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	for _, s := range shapes {
		if err := ctx.Err(); err != nil {
			return err
		}
		l, err := e.launches(s)
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

// loadAll calls loads in parallel, and advance on its own goroutine after each one that succeeds.
// It returns when all have ended.
func loadAll(ctx context.Context, loads []func(*kernelcache.Cache) error, kernels *kernelcache.Cache, advance func()) error {
	results := make(chan error, len(loads))
	var next atomic.Int64
	var workers sync.WaitGroup
	defer workers.Wait() // also if advance panics
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(len(loads)); i = next.Add(1) {
				err := ctx.Err()
				if err == nil {
					err = loads[i-1](kernels)
				}
				results <- err
			}
		})
	}
	var failed error
	for range loads {
		if err := <-results; err != nil {
			failed = cmp.Or(failed, err)
		} else {
			advance()
		}
	}
	if failed == nil {
		return nil
	}
	return errors.Join(ctx.Err(), failed)
}
