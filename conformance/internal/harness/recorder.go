package harness

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// Recorder is a T that collects failure messages. Goroutines may share it.
type Recorder struct {
	mu       sync.Mutex
	Messages []string
}

// Helper does nothing.
func (r *Recorder) Helper() {}

// Context returns the background context.
func (r *Recorder) Context() context.Context { return context.Background() }

// Errorf records a message.
func (r *Recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Messages = append(r.Messages, fmt.Sprintf(format, args...))
}

// Fatalf records a message and ends the goroutine.
func (r *Recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
