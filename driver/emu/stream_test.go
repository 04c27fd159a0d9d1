package emu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

func TestGraphs(t *testing.T) {
	for _, late := range []bool{false, true} {
		r := newFixture(t, Options{LateStreams: late})
		pin, err := r.AllocPinned(128)
		if err != nil {
			t.Fatal(err)
		}
		g, err := r.s.Capture(func() error {
			return errors.Join(r.s.Launch(r.add(1), r.add(10)), r.s.ReadAsync(pin, 0, r.buf.Address(), 128))
		})
		if err != nil {
			t.Fatal(err)
		}
		r.wantWords(t, 0)
		for range 3 {
			if err := g.Launch(r.s); err != nil {
				t.Fatal(err)
			}
		}
		r.wantWords(t, 33)
		if got := binary.LittleEndian.Uint32(pin.Bytes()); got != 33 {
			t.Errorf("the pinned memory has %d", got)
		}
		if err := errors.Join(g.Close(), g.Close()); err != nil {
			t.Error(err)
		}
		if err := g.Launch(r.s); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("launch of a closed graph: %v", err)
		}
	}
}

func TestCaptureRefuses(t *testing.T) {
	r := newFixture(t, Options{})
	ev, err := r.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	fault := errors.New("from record")
	for name, record := range map[string]func() error{
		"Write":       func() error { r.s.Write(r.buf.Address(), []byte{1}); return nil },
		"Read":        func() error { r.s.Read(make([]byte, 4), r.buf.Address()); return nil },
		"Record":      func() error { r.s.Record(ev); return nil },
		"Synchronize": func() error { r.s.Synchronize(); return nil },
		"Capture":     func() error { r.s.Capture(func() error { return nil }); return nil },
		"from record": func() error { r.s.Launch(r.add(1)); return fault },
	} {
		if _, err := r.s.Capture(record); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.s.Launch(r.add(4)); err != nil {
		t.Fatal(err)
	}
	r.wantWords(t, 4)
}

// With late streams a missing wait shows.
func TestLateStreams(t *testing.T) {
	for _, wait := range []bool{false, true} {
		r := newFixture(t, Options{LateStreams: true})
		ev, err := r.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		other, err := r.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.s.Launch(r.add(5)), r.s.Record(ev)); err != nil {
			t.Fatal(err)
		}
		if wait {
			if err := ev.Synchronize(); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, 4)
		if err := other.Read(got, r.buf.Address()); err != nil {
			t.Fatal(err)
		}
		if seen := bytes.Equal(got, []byte{5, 0, 0, 0}); seen != wait {
			t.Errorf("wait %v: the kernel's result was seen: %v", wait, seen)
		}
		later, err := r.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := later.Since(ev); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("time since an event that was never recorded: %v", err)
		}
		if err := errors.Join(r.s.Launch(r.add(1)), r.s.Record(later), later.Synchronize()); err != nil {
			t.Fatal(err)
		}
		if span, err := later.Since(ev); err != nil || span <= 0 {
			t.Errorf("time between events: %v, %v", span, err)
		}
	}
}
