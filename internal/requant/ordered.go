package requant

import (
	"context"
	"io"
	"runtime"
	"sync"
)

// piece is what a fill made.
type piece struct {
	data []byte
	err  error
}

// Ordered makes n pieces on all cores and writes them to w in order. fill makes
// piece i, in buf's memory when that suffices, and is called from several
// goroutines at once. progress, when not nil, is told the length of each piece
// written. The first error ends it; when Ordered returns, no fill runs.
func Ordered(ctx context.Context, w io.Writer, n int, fill func(i int, buf []byte) ([]byte, error), progress func(bytes int)) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait() // after stop
	defer stop()

	// One buffer more than there are cores, so that none waits for the writing.
	ahead := runtime.GOMAXPROCS(0) + 1
	free := make(chan []byte, ahead)
	for range ahead {
		free <- nil
	}
	line := make(chan chan piece, ahead) // pieces under way, in order
	running.Go(func() { start(ctx, &running, n, fill, free, line) })

	for slot := range line {
		p := <-slot
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

// start puts a slot into line for each piece and has it filled, as fast as there
// are free buffers.
func start(ctx context.Context, running *sync.WaitGroup, n int, fill func(int, []byte) ([]byte, error), free <-chan []byte, line chan<- chan piece) {
	defer close(line)
	for i := range n {
		var buf []byte
		select {
		case buf = <-free:
		case <-ctx.Done():
			return
		}
		slot := make(chan piece, 1)
		running.Go(func() {
			data, err := fill(i, buf[:0])
			slot <- piece{data, err}
		})
		line <- slot // has room: there are no more pieces than buffers
	}
}
