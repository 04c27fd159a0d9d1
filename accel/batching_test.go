package accel_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
)

// How long a slow device runs a graph, and captures one.
const (
	stepTime    = 12 * time.Millisecond
	captureTime = time.Second
)

// slowDevice is an idle device. Each of its graphs takes some time, and they run in order.
type slowDevice struct {
	idleDevice
	end *time.Time // of all queued work
}

func (d slowDevice) NewStream() (driver.Stream, error) { return slowStream{end: d.end}, nil }
func (d slowDevice) NewEvent() (driver.Event, error)   { return slowEvent{at: new(time.Time)}, nil }

type slowStream struct {
	idleStream
	end *time.Time
}

func (s slowStream) Capture(record func() error) (driver.Graph, error) {
	time.Sleep(captureTime)
	return slowGraph{end: s.end}, record()
}
func (s slowStream) Record(e driver.Event) error { *e.(slowEvent).at = *s.end; return nil }
func (s slowStream) Synchronize() error          { time.Sleep(time.Until(*s.end)); return nil }

type slowGraph struct {
	idleGraph
	end *time.Time
}

func (g slowGraph) Launch(driver.Stream) error {
	if now := time.Now(); g.end.Before(now) {
		*g.end = now
	}
	*g.end = g.end.Add(stepTime)
	return nil
}

type slowEvent struct {
	idleEvent
	at *time.Time
}

func (e slowEvent) Synchronize() error { time.Sleep(time.Until(*e.at)); return nil }

// lockstepGroup decodes several sequences. It waits for the tokens of all before the next step.
type lockstepGroup struct {
	eng      *accel.Engine
	sessions []model.Session
}

// newLockstepGroup opens n sequences with the given capacity in positions on a slow device.
func newLockstepGroup(t *testing.T, n, positions int) *lockstepGroup {
	c := &lockstepGroup{eng: newEngine(t, tinyModel(t), accel.Options{MaxSequences: 16}, func(d driver.Device) driver.Device {
		return slowDevice{idleDevice{d}, new(time.Time)}
	})}
	for range n {
		s, err := c.eng.NewSession(0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if _, err := s.Forward(t.Context(), make([]int, positions), model.WantNothing); err != nil {
			t.Fatal(err)
		}
		c.sessions = append(c.sessions, s)
	}
	return c
}

// step computes one token of each sequence. The last `late` sequences ask later than the
// others by a delay. It returns the counted steps and its duration.
func (c *lockstepGroup) step(t *testing.T, late int, by time.Duration) (steps, ahead int, took time.Duration) {
	before, begin := c.eng.Stats(), time.Now()
	var all sync.WaitGroup
	for i, s := range c.sessions {
		if i == len(c.sessions)-late {
			synctest.Wait() // the others wait for a step, or are in one
			time.Sleep(by)
		}
		all.Go(func() {
			if _, err := s.Forward(context.Background(), greedyToken, model.WantGreedy); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	after := c.eng.Stats()
	return after.Steps - before.Steps, after.AsyncSteps - before.AsyncSteps, time.Since(begin)
}

// TestStepsJoin: sequences that once asked in two groups share their later steps, even if none
// continues before all have their token. A request that arrives while the device computes its
// step ahead gets that step.
func TestStepsJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLockstepGroup(t, 16, 1)
		for i, p := range []struct {
			reason       string
			late         int
			by           time.Duration
			steps, ahead int
		}{
			{"one asks, the others when its step has begun", 15, stepTime / 2, 2, 0},
			{"one asks a moment after the others", 1, 0, 1, 0},
			{"all ask at once", 0, 0, 1, 0},
			{"half of them ask in the middle of the step that runs ahead", 8, stepTime / 2, 1, 1},
			{"one asks just before its end", 1, stepTime - time.Microsecond, 1, 1},
			{"one asks after its end", 1, stepTime + 5*time.Millisecond, 2, 1},
		} {
			steps, ahead, took := c.step(t, p.late, p.by)
			if steps != p.steps || ahead != p.ahead {
				t.Errorf("step %d, %s: %d steps, %d of them ahead, in %v; want %d and %d", i, p.reason, steps, ahead, took, p.steps, p.ahead)
			}
		}
	})
}

// TestQueueDelay: a sequence waits for one that has ended no longer than the step that runs
// ahead and the queue delay, whatever happened before.
func TestQueueDelay(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		positions    int // of each sequence at first
		steps        int // until a step runs ahead
		pause        time.Duration
	}{
		{"a pause", "both ask for a step that ended long ago", 1, 4, time.Minute},
		{"a graph", "the step at the first position of a page captures one", 61, 4, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				both := newLockstepGroup(t, 2, c.positions)
				for range c.steps {
					both.step(t, 0, 0)
				}
				if c.pause > 0 {
					time.Sleep(c.pause)
					both.step(t, 0, 0)
				}
				one := &lockstepGroup{both.eng, both.sessions[:1]}
				steps, ahead, took := one.step(t, 0, 0)
				if steps != 1 || ahead != 1 || took > stepTime+time.Millisecond {
					t.Errorf("%s: the remaining sequence got %d steps, %d of them ahead, in %v", c.reason, steps, ahead, took)
				}
			})
		})
	}
}
