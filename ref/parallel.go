package ref

import (
	"context"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-go/lockstep/model/gguf"
)

// parallel splits the items 0 to n-1, which are independent, among the workers. It calls fn
// once per worker. Before each item it looks at ctx: once ctx is done, items ends and
// parallel returns ctx.Err(). If the mapped model file becomes shorter while fn reads it,
// parallel returns an error of package gguf.
func (e *Engine) parallel(ctx context.Context, n int, fn func(items iter.Seq[int])) error {
	work := func(lo, hi int) error {
		err := gguf.Guard(func() {
			fn(func(yield func(int) bool) {
				for i := lo; i < hi && ctx.Err() == nil && yield(i); i++ {
				}
			})
		})
		if err == nil {
			err = ctx.Err()
		}
		return err
	}
	workers := min(e.workers, n)
	if workers <= 1 {
		return work(0, n)
	}
	var g errgroup.Group
	for w := range workers {
		g.Go(func() error { return work(w*n/workers, (w+1)*n/workers) })
	}
	return g.Wait()
}
