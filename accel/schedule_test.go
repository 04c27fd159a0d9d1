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

// TestExpect: a step is expected to be of those who had an answer, those who wait, and those who
// may wait for the latter; of nobody who has not come for two steps.
func TestExpect(t *testing.T) {
	type step struct{ batch, waiting, expected int }
	for _, c := range []struct {
		name, reason string
		steps        []step
	}{
		{"alone", "it waits for nobody", []step{{1, 0, 1}, {1, 0, 1}}},
		{"one was late", "both step together", []step{{1, 1, 2}, {2, 0, 2}}},
		{"a barrier", "the 3 do not go on before the one has an answer", []step{{3, 1, 4}, {1, 0, 4}, {4, 0, 4}}},
		{"others ended", "they are waited for once more", []step{{64, 0, 64}, {1, 0, 1}, {1, 0, 1}}},
		{"ended at a barrier", "and twice", []step{{3, 1, 4}, {1, 0, 4}, {1, 0, 1}}},
		{"two kinds", "those that rotate otherwise always step in turn, also when others have ended",
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

// A request that a leader takes and puts back, and whose context ends in between, is done when
// the device is free, whoever else may be there.
func TestPutBackInVain(t *testing.T) {
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
		t.Fatal("waits for somebody to lead")
	}
}
