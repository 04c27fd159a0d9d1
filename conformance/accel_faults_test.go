package conformance

import (
	"context"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	failing "github.com/lockstep-go/lockstep/internal/faulty"
	"github.com/lockstep-go/lockstep/model"
)

// The calls of a capture, after whose failure an engine goes on without a graph: of those
// that also run eagerly, where they are an error, the case without graphs tells.
var captureCalls = []failing.Call{
	failing.StreamCapture, failing.StreamEndCapture, failing.GraphInstantiate, failing.StreamWriteAsync, failing.StreamLaunch, failing.StreamReadAsync,
}

// faultyEngine is what fails call by call: an engine of a tiny model, as small as it gets.
func faultyEngine(t *testing.T, o accel.Options) (open func() driver.Device, start func(driver.Device) (*accel.Engine, error)) {
	m := tinyModel(t, "llama")
	open = func() driver.Device {
		dev, err := emu.Open(emu.Options{SMs: 1, IgnoreRaces: true})
		if err != nil {
			t.Fatal(err)
		}
		return dev
	}
	o.MaxSequences, o.KVPages, o.Chunk = 1, 3, 16
	return open, func(dev driver.Device) (*accel.Engine, error) { return accel.New(m, dev, o) }
}

// TestAccelLoadFaults fails each call of an engine's beginning and end: a typed error, and
// nothing is left.
func TestAccelLoadFaults(t *testing.T) {
	notShort(t)
	open, start := faultyEngine(t, accel.Options{})
	failing.Sweep{Open: open, Ends: true, Start: func(dev driver.Device) (failing.Subject, error) {
		return failing.Subject{Run: func() error {
			e, err := start(dev)
			if err != nil {
				return err
			}
			return e.Close()
		}}, nil
	}}.Check(t)
}

// TestAccelRequestFaults fails each call of a request: it fails, and the next one works or
// says that the device is lost. A capture that fails costs the graph alone.
func TestAccelRequestFaults(t *testing.T) {
	notShort(t)
	for _, c := range []struct {
		name     string
		o        accel.Options
		survives []failing.Call
		request  func(model.Session) error
	}{
		{"prompt and steps", accel.Options{Eager: true}, nil, promptAndSteps},
		{"prompt by steps", accel.Options{Eager: true, Prefill: accel.Stepwise}, nil, promptAndSteps},
		{"snapshot and restore", accel.Options{Eager: true}, nil, snapshotAndRestore},
		{"graphs", accel.Options{Prefill: accel.Stepwise}, captureCalls, promptAndSteps},
		{"lookahead", accel.Options{Prefill: accel.Stepwise}, captureCalls, greedySteps},
	} {
		t.Run(c.name, func(t *testing.T) {
			open, start := faultyEngine(t, c.o)
			failing.Sweep{Open: open, Ends: true, Start: func(dev driver.Device) (failing.Subject, error) {
				e, err := start(dev)
				if err != nil {
					return failing.Subject{}, err
				}
				return failing.Subject{Run: func() error { return inSession(e, c.request) }, Close: e.Close}, nil
			}, Survives: func(f failing.Call) bool { return slices.Contains(c.survives, f) }}.Check(t)
		})
	}
}

// inSession makes a request in a session of its own.
func inSession(e *accel.Engine, request func(model.Session) error) error {
	s, err := e.NewSession(64)
	if err != nil {
		return err
	}
	defer s.Close()
	return request(s)
}

func promptAndSteps(s model.Session) error {
	for _, f := range []struct {
		tokens []int
		want   model.Want
	}{{[]int{3, 4, 5}, model.WantGreedy}, {[]int{6}, model.WantGreedy}, {[]int{7}, model.WantLast}} {
		before := s.Len()
		if _, err := s.Forward(context.Background(), f.tokens, f.want); err != nil {
			if s.Len() != before {
				panic("an error changed the length of the session")
			}
			return err
		}
	}
	return nil
}

// greedySteps finds two steps computed ahead, and then does not want the third.
func greedySteps(s model.Session) error {
	next := 6
	for range 4 {
		before := s.Len()
		out, err := s.Forward(context.Background(), []int{next}, model.WantGreedy)
		if err != nil {
			if s.Len() != before {
				panic("an error changed the length of the session")
			}
			return err
		}
		next = out.Greedy
	}
	_, err := s.Forward(context.Background(), []int{next}, model.WantLast)
	return err
}

func snapshotAndRestore(s model.Session) error {
	if _, err := s.Forward(context.Background(), []int{3, 4, 5}, model.WantNothing); err != nil {
		return err
	}
	snap, err := s.Snapshot(2)
	if err == nil {
		err = s.Restore(snap, 2)
	}
	if err == nil {
		_, err = s.Forward(context.Background(), []int{8}, model.WantGreedy)
	}
	return err
}
