package ref

import (
	"golang.org/x/sync/errgroup"

	"github.com/lockstep-go/lockstep/model/gguf"
)

// parallel splits the items 0…n-1 into runs of about equal size, one a worker, and
// calls fn(lo, hi) for each. Items must be independent of each other, so the split
// never shows in the results. Each run is guarded: a model file that was truncated
// while it is mapped becomes an error.
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
