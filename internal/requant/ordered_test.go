package requant

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"
)

func TestOrderedWritesInOrder(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000} {
		var want, got bytes.Buffer
		for i := range n {
			want.Write([]byte{byte(i), byte(i >> 8)})
		}
		counted := 0
		err := Ordered(t.Context(), &got, n, func(i int, buf []byte) ([]byte, error) {
			if i%7 == 0 {
				time.Sleep(50 * time.Microsecond) // later chunks finish first
			}
			return append(buf, byte(i), byte(i>>8)), nil
		}, func(k int) { counted += k })
		if err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) || counted != 2*n {
			t.Errorf("%d chunks: error %v, %d bytes of %d, %d counted", n, err, got.Len(), want.Len(), counted)
		}
	}
}

func TestOrderedStops(t *testing.T) {
	broken := errors.New("broken")
	canceled, cancel := context.WithCancel(t.Context())
	tests := []struct {
		name, reason string
		ctx          context.Context
		w            io.Writer
		fill         func(i int) error
		want         error
	}{
		{"a chunk fails", "later chunks are not computed", t.Context(), io.Discard, func(i int) error {
			if i == 5 {
				return broken
			}
			return nil
		}, broken},
		{"the writer fails", "a full disk", t.Context(), brokenWriter{broken}, func(int) error { return nil }, broken},
		{"canceled on the way", "the caller gave up", canceled, io.Discard, func(i int) error {
			if i == 5 {
				cancel()
			}
			return nil
		}, context.Canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var calls, running atomic.Int64
			err := Ordered(tt.ctx, tt.w, 1<<20, func(i int, buf []byte) ([]byte, error) {
				running.Add(1)
				defer running.Add(-1)
				calls.Add(1)
				return append(buf, 0), tt.fill(i)
			}, nil)
			if !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if n := running.Load(); n != 0 {
				t.Errorf("%d chunks still running", n)
			}
			if n := calls.Load(); n > 1<<10 {
				t.Errorf("%d chunks were computed after the end", n)
			}
		})
	}
}

// A panic of the callback passes through, and leaves no chunk running.
func TestOrderedProgressPanics(t *testing.T) {
	var running atomic.Int64
	defer func() {
		if r := recover(); r != "progress" || running.Load() != 0 {
			t.Errorf("recovered %v, with %d chunks running", r, running.Load())
		}
	}()
	Ordered(t.Context(), io.Discard, 1<<20, func(i int, buf []byte) ([]byte, error) {
		running.Add(1)
		defer running.Add(-1)
		time.Sleep(50 * time.Microsecond)
		return append(buf, 0), nil
	}, func(int) { panic("progress") })
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }
