package requant

import (
	"context"
	"io"
	"runtime"
	"sync"
)

// chunk is the result of one call of fill.
type chunk struct {
	data []byte
	err  error
}

// Ordered computes n chunks on all cores and writes them to w in order. fill returns chunk i.
// It may append the chunk to buf, and must be safe for concurrent use. progress, if not
// nil, is called with the length of each chunk written. Ordered stops at the first error,
// and returns after all calls of fill have returned.
func Ordered(ctx context.Context, w io.Writer, n int, fill func(i int, buf []byte) ([]byte, error), progress func(bytes int)) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait() // after stop
	defer stop()

	// One more buffer than cores, so that no core waits for the writer.
	ahead := runtime.GOMAXPROCS(0) + 1
	free := make(chan []byte, ahead)
	for range ahead {
		free <- nil
	}
	queue := make(chan chan chunk, ahead) // chunks in flight, in order
	running.Go(func() { start(ctx, &running, n, fill, free, queue) })

	for result := range queue {
		p := <-result
		if p.err != nil {
			return p.err
		}
		if _, err := w.Write(p.data); err != nil {
			return err
		}
		if progress != nil {
			progress(len(p.data))
		}
		free <- p.data
	}
	return ctx.Err()
}

// start computes each chunk in a goroutine as soon as a buffer is free. It sends a channel for
// the result of each chunk to queue, in order.
func start(ctx context.Context, running *sync.WaitGroup, n int, fill func(int, []byte) ([]byte, error), free <-chan []byte, queue chan<- chan chunk) {
	defer close(queue)
	for i := range n {
		var buf []byte
		select {
		case buf = <-free:
		case <-ctx.Done():
			return
		}
		result := make(chan chunk, 1)
		running.Go(func() {
			data, err := fill(i, buf[:0])
			result <- chunk{data, err}
		})
		queue <- result // does not block: queue holds as many results as there are buffers
	}
}
