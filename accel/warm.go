package accel

import (
	"context"
	"fmt"
)

// Warm makes what requests would otherwise wait for when they are the first of their
// kind: it loads the kernels and captures the graphs of steps of so many rows each, over
// sequences of up to so many positions, and loads the kernels of a whole chunk. It does
// not run any.
func (e *Engine) Warm(ctx context.Context, positions int, rows ...int) error {
	var passes []pass
	for _, n := range rows {
		if n < 1 || n > e.stepRows {
			return fmt.Errorf("accel: a step of %d rows; there can be 1 to %d", n, e.stepRows)
		}
		last := e.grid(max(positions, 1))
		for pages := 1; ; pages = min(2*pages, last) {
			passes = append(passes, pass{rows: rowsOf(n), head: true, pages: pages})
			if pages == last {
				break
			}
		}
	}
	if e.o.Prefill == PrefillF16 {
		passes = append(passes, pass{rows: e.o.Chunk, fast: true})
	}
	for _, p := range passes {
		if err := e.warm(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) warm(ctx context.Context, p pass) error {
	defer e.mu.Unlock()
	if err := e.begin(ctx); err != nil {
		return err
	}
	made, err := e.program(p)
	if err == nil {
		err = e.graphOf(made)
	}
	return e.failed(err)
}
