package accel

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// waitingFor returns a request of a session with or without long RoPE factors.
func waitingFor(ctx context.Context, long bool) *request {
	return &request{ctx: ctx, slot: slot{session: &session{longRope: long}}, done: make(chan struct{}, 1)}
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
			t.Errorf("step %d has the requests %v, want %v", i, places, want)
		}
	}
	if !all[2].finished() || !errors.Is(all[2].err, context.Canceled) || all[0].finished() {
		t.Error("only a request whose context has ended may finish without a step")
	}
}

func TestWithdraw(t *testing.T) {
	q := newSchedule()
	a, b := waitingFor(t.Context(), false), waitingFor(t.Context(), false)
	q.add(a)
	q.add(b)
	if !q.withdraw(b) || q.withdraw(b) || q.length() != 1 {
		t.Error("a request can be withdrawn once")
	}
	if q.take(4); q.withdraw(a) {
		t.Error("a request was withdrawn from a step")
	}
}

func TestBatchingWindow(t *testing.T) {
	q := newSchedule()
	q.expected = 2
	q.add(waitingFor(t.Context(), false))
	begin := time.Now()
	q.waitForBatch(4, time.Millisecond)
	if waited := time.Since(begin); waited < time.Millisecond {
		t.Errorf("waited only %v for the second request", waited)
	}
	q.add(waitingFor(t.Context(), false))
	q.waitForBatch(4, time.Hour) // all have arrived
	q.expected = 3
	q.waitForBatch(2, time.Hour) // the batch is full
	if q.length() != 2 {
		t.Error("requests were lost")
	}
}

// TestExpect: expected are the answered and the queued requests, and those that may wait for the
// latter, but no sequence that skipped two steps.
func TestExpect(t *testing.T) {
	type step struct{ batch, waiting, expected int }
	for _, c := range []struct {
		name, reason string
		steps        []step
	}{
		{"alone", "it waits for no other", []step{{1, 0, 1}, {1, 0, 1}}},
		{"one straggler", "both share the next step", []step{{1, 1, 2}, {2, 0, 2}}},
		{"a barrier", "the 3 continue only with the one", []step{{3, 1, 4}, {1, 0, 4}, {4, 0, 4}}},
		{"others ended", "the step waits for them once more", []step{{64, 0, 64}, {1, 0, 1}, {1, 0, 1}}},
		{"ended at a barrier", "and twice", []step{{3, 1, 4}, {1, 0, 4}, {1, 0, 1}}},
		{"two kinds", "sessions with and without long RoPE factors alternate, also after others have ended",
			[]step{{3, 1, 4}, {1, 3, 4}, {3, 1, 4}, {1, 1, 4}, {1, 1, 2}, {1, 1, 2}}},
	} {
		q := newSchedule()
		for i, s := range c.steps {
			q.waiting = make([]*request, s.waiting)
			if q.expect(s.batch); q.expected != s.expected {
				t.Errorf("%s (%s): %d are expected after step %d, want %d", c.name, c.reason, q.expected, i, s.expected)
			}
		}
	}
}

// TestCanceledWhileTaken: a request that a leader takes and puts back, and whose context ends in
// between, finishes once the engine is free, even if no other request comes.
func TestCanceledWhileTaken(t *testing.T) {
	e := &Engine{mu: newMutex(), schedule: newSchedule()}
	s := &session{engine: e}
	s.request.done = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	e.mu.Lock()
	done := make(chan error)
	go func() {
		_, err := e.stepOne(ctx, slot{session: s}, model.WantGreedy)
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
		t.Fatal("the request waits for a leader")
	}
}

// TestCanceledWhileBusy: a prompt that waits for another sequence's chunk returns once its context
// ends.
func TestCanceledWhileBusy(t *testing.T) {
	e := &Engine{mu: newMutex()}
	ctx, cancel := context.WithCancel(t.Context())
	e.mu.Lock()
	done := make(chan error)
	go func() { done <- e.begin(ctx) }()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the prompt waits for the engine")
	}
}
