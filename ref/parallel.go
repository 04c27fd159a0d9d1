package ref

import (
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-go/lockstep/model/gguf"
)

// parallel splits n independent items among the workers and calls fn for each range
// [lo, hi). If the mapped model file becomes shorter while fn reads it, parallel returns
// an error of package gguf.
func (e *Engine) parallel(n int, fn func(lo, hi int)) error {
	workers := min(e.workers, n)
	if workers <= 1 {
		return gguf.Guard(func() { fn(0, n) })
	}
	var g errgroup.Group
	for w := range workers {
		g.Go(func() error {
			return gguf.Guard(func() { fn(w*n/workers, (w+1)*n/workers) })
		})
	}
	return g.Wait()
}
