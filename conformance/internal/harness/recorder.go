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

func (r *Recorder) Helper()                  {}
func (r *Recorder) Context() context.Context { return context.Background() }

func (r *Recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Messages = append(r.Messages, fmt.Sprintf(format, args...))
}

func (r *Recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
