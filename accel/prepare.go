package accel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// Prepare loads all kernels and captures the graphs of decode steps of each number of sequences
// and pages, with and without sampling, so that no step waits for it. Kernels are loaded in parallel. progress, if it is
// not nil, is called with the number of kernels and graphs that are done and in total; it must
// not call the engine. Prepare launches no kernels. It stops once ctx has ended; then what is
// loaded stays.
func (e *Engine) Prepare(ctx context.Context, progress func(done, total int)) error {
	if err := e.usable(); err != nil {
		return err
	}
	e.drain()
	loads, steps := e.layout.Loads(), e.layout.Steps()
	done := 0
	advance := func() {
		if done++; progress != nil {
			progress(done, len(loads)+len(steps))
		}
	}
	results := make(chan error)
	defer func() { // also if progress panics
		for range results {
		}
	}()
	go func() {
		defer close(results)
		var workers sync.WaitGroup
		defer workers.Wait()
		next := make(chan int)
		defer close(next)
		for range runtime.GOMAXPROCS(0) {
			workers.Go(func() {
				for i := range next {
					err := ctx.Err()
					if err == nil {
						err = loads[i](e.kernels)
					}
					results <- err
				}
			})
		}
		for i := range loads {
			next <- i
		}
	}()
	var errs []error
	for err := range results {
		if err != nil {
			errs = append(errs, err)
		} else {
			advance()
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("accel: %w", errors.Join(ctx.Err(), errs[0]))
	}
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		l, err := e.launches(s)
		if err == nil {
			err = e.capture(l)
		}
		if err != nil {
			return e.failed(err)
		}
		advance()
	}
	return nil
}
