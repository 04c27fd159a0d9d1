package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
)

// interrupt is the cause of a context that a signal canceled.
type interrupt struct{ signal os.Signal }

func (i interrupt) Error() string { return i.signal.String() }

// status returns the exit status of a process that the signal ended, as shells report it.
func (i interrupt) status() int {
	n, _ := i.signal.(syscall.Signal)
	return exitSignal + int(n)
}

// interruptStatus returns the exit status of a command whose context is done.
func interruptStatus(ctx context.Context) int {
	if i, ok := errors.AsType[interrupt](context.Cause(ctx)); ok {
		return i.status()
	}
	return exitError
}

// grace is the time from a signal until the process ends, whatever the command is doing.
const grace = 700 * time.Millisecond

// extraGrace is added to grace, in nanoseconds. A server sets it to finish its requests.
var extraGrace atomic.Int64

// interruptible returns a context that a signal cancels. A command that does not return
// within grace, such as one that waits for a disk, is ended with the status of the signal and
// without temporary files. A second signal cancels extraGrace.
func interruptible() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	received := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if s == syscall.SIGHUP && signal.Ignored(s) {
			continue // nohup; but shells start each background program of a script with SIGINT ignored
		}
		signal.Notify(received, s)
	}
	go func() {
		i := interrupt{<-received}
		cancel(i)
		first := time.Now()
		select {
		case <-time.After(grace + time.Duration(extraGrace.Load())):
		case <-received:
		}
		time.Sleep(max(grace-time.Since(first), 0))
		atomicfile.Abort()
		fmt.Fprintln(os.Stderr, interruptedText)
		os.Exit(i.status())
	}()
	return ctx
}
