package accel

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// waitingFor is a request of a session that rotates by long factors, or not.
func waitingFor(ctx context.Context, long bool) *request {
	return &request{ctx: ctx, row: row{session: &Session{long: long}}, done: make(chan struct{}, 1)}
}

func TestTake(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	q := newSchedule()
	var all []*request
	for _, r := range []*request{
		waitingFor(t.Context(), false), waitingFor(t.Context(), true), waitingFor(gone, false),
		waitingFor(t.Context(), false), waitingFor(t.Context(), false), waitingFor(t.Context(), true),
	} {
		all = append(all, r)
		q.add(r)
	}
	for i, want := range [][]int{{0, 3}, {1, 5}, {4}, nil} {
		var places []int
		for _, r := range q.take(2) {
			places = append(places, slices.Index(all, r))
		}
		if !slices.Equal(places, want) {
			t.Errorf("step %d is of the requests %v, want %v", i, places, want)
		}
	}
	if !all[2].finished() || !errors.Is(all[2].err, context.Canceled) || all[0].finished() {
		t.Error("only a request whose context has ended is done without a step")
	}
}

func TestWithdraw(t *testing.T) {
	q := newSchedule()
	a, b := waitingFor(t.Context(), false), waitingFor(t.Context(), false)
	q.add(a)
	q.add(b)
	if !q.withdraw(b) || q.withdraw(b) || q.length() != 1 {
		t.Error("a request is taken back once")
	}
	if q.take(4); q.withdraw(a) {
		t.Error("a request that a step has was taken back")
	}
}

func TestGather(t *testing.T) {
	q := newSchedule()
	q.expected = 2
	q.add(waitingFor(t.Context(), false))
	begin := time.Now()
	q.gather(4, time.Millisecond)
	if waited := time.Since(begin); waited < time.Millisecond {
		t.Errorf("waited only %v for the other", waited)
	}
	q.add(waitingFor(t.Context(), false))
	q.gather(4, time.Hour) // all are there
	q.expected = 3
	q.gather(2, time.Hour) // no more can step together
	if q.length() != 2 {
		t.Error("requests were lost")
	}
}

// A request that a leader takes and puts back, and whose context ends in between, is done when
// the device is free, whoever else may be there.
func TestPutBackInVain(t *testing.T) {
	e := &Engine{layout: &layout{}, mu: newGate(), schedule: newSchedule()}
	s := &Session{engine: e}
	s.request.done = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	e.mu.Lock()
	done := make(chan error)
	go func() {
		_, err := e.stepOne(ctx, row{session: s}, model.WantGreedy)
		done <- err
	}()
	for e.schedule.length() == 0 {
		time.Sleep(time.Millisecond)
	}
	taken := slices.Clone(e.schedule.take(1))
	cancel()
	time.Sleep(10 * time.Millisecond) // it finds that it cannot be withdrawn
	e.schedule.putBack(taken)
	e.mu.Unlock()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("waits for somebody to lead")
	}
}
