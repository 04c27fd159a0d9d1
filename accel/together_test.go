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

// What a slow device takes for a graph, and for capturing one.
const (
	stepTime    = 12 * time.Millisecond
	captureTime = time.Second
)

// slow is an idle device whose graphs take time, one after the other.
type slow struct {
	idle
	end *time.Time // of all that is queued
}

func (d slow) NewStream() (driver.Stream, error) { return slowStream{end: d.end}, nil }
func (d slow) NewEvent() (driver.Event, error)   { return slowEvent{at: new(time.Time)}, nil }

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

// crowd is sequences whose caller waits for the tokens of all before any goes on.
type crowd struct {
	eng      *accel.Engine
	sessions []model.Session
}

// newCrowd opens n sequences, each with so many positions, on a slow device.
func newCrowd(t *testing.T, n, positions int) *crowd {
	c := &crowd{eng: idleEngineOf(t, tinyModel(t), accel.Options{MaxSequences: 16}, func(d driver.Device) driver.Device {
		return slow{idle{d}, new(time.Time)}
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

// pass lets all go on by a token, some of them later, and gives what was counted and how long
// it took.
func (c *crowd) pass(t *testing.T, late int, by time.Duration) (steps, ahead int, took time.Duration) {
	before, begin := c.eng.Stats(), time.Now()
	var all sync.WaitGroup
	for i, s := range c.sessions {
		if i == len(c.sessions)-late {
			synctest.Wait() // the others wait for a step, or are in one
			time.Sleep(by)
		}
		all.Go(func() {
			if _, err := s.Forward(context.Background(), feed, model.WantGreedy); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	after := c.eng.Stats()
	return after.Steps - before.Steps, after.AsyncSteps - before.AsyncSteps, time.Since(begin)
}

// TestTogether: sequences that came in two parts once step together from then on, also
// if none goes on before all have an answer; and who comes while the device is at the step
// that was computed ahead gets it.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 16, 1)
		for i, p := range []struct {
			reason       string
			late         int
			by           time.Duration
			steps, ahead int
		}{
			{"one is there, and the others come when its step has begun", 15, stepTime / 2, 2, 0},
			{"one comes a moment after the others", 1, 0, 1, 0},
			{"all are known", 0, 0, 1, 0},
			{"half of them come in the middle of the step that is theirs", 8, stepTime / 2, 1, 1},
			{"and one almost at its end", 1, stepTime - time.Microsecond, 1, 1},
			{"one comes when it is over", 1, stepTime + 5*time.Millisecond, 2, 1},
		} {
			steps, ahead, took := c.pass(t, p.late, p.by)
			if steps != p.steps || ahead != p.ahead {
				t.Errorf("pass %d, %s: %d steps, %d of them computed ahead, in %v; want %d and %d", i, p.reason, steps, ahead, took, p.steps, p.ahead)
			}
		}
	})
}

// TestWaitEnds: whatever came between, a sequence waits for one that has ended no longer than
// the device is at their step, and a moment.
func TestWaitEnds(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		positions    int // that each has at first
		passes       int // until the step behind the last one is computed ahead
		pause        time.Duration
	}{
		{"a pause", "both ask for a step that ended long before", 1, 4, time.Minute},
		{"a graph", "the step at the first position of a page makes one", 61, 4, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				both := newCrowd(t, 2, c.positions)
				for range c.passes {
					both.pass(t, 0, 0)
				}
				if c.pause > 0 {
					time.Sleep(c.pause)
					both.pass(t, 0, 0)
				}
				one := &crowd{both.eng, both.sessions[:1]}
				steps, ahead, took := one.pass(t, 0, 0)
				if steps != 1 || ahead != 1 || took > stepTime+time.Millisecond {
					t.Errorf("%s: the one that is left got %d steps, %d of them computed ahead, in %v", c.reason, steps, ahead, took)
				}
			})
		})
	}
}
