package emu

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

const endless = sm80 + `
.visible .entry endless()
{
L:
	bra L;
}`

// TestInterrupt stops a kernel without end. The kernels that are queued behind it must not run,
// but copies must, and the device must be usable afterwards.
func TestInterrupt(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, workers := range []int{1, 4} {
			r := newFixture(t, Options{LateStreams: late, Workers: workers})
			m, err := r.Load([]byte(endless))
			if err != nil {
				t.Fatal(err)
			}
			f, err := m.Function("endless")
			if err != nil {
				t.Fatal(err)
			}
			r.wantWords(t, 0)
			var asked atomic.Int64
			r.s.(driver.Interruptible).InterruptIf(func() bool { return asked.Add(1) > 10 })
			spin := driver.Launch{Function: f, Grid: driver.Dim3{X: 8, Y: 1, Z: 1}, Block: driver.Dim3{X: 32, Y: 1, Z: 1}}
			err = r.s.Launch(spin, r.add(1))
			left := uint32(0)
			if late {
				left = 0x01010101
				if err != nil {
					t.Fatal(err)
				}
				ev, err := r.NewEvent()
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(r.s.Fill(r.buf.Address(), 1, 128), r.s.Launch(r.add(1)), r.s.Record(ev)); err != nil {
					t.Fatal(err)
				}
				if err := ev.Synchronize(); !errors.Is(err, driver.ErrInterrupted) {
					t.Errorf("waiting for the event: %v, want %v", err, driver.ErrInterrupted)
				}
				if err := r.s.Synchronize(); err != nil {
					t.Errorf("waiting again, after the error was returned: %v", err)
				}
			} else if !errors.Is(err, driver.ErrInterrupted) {
				t.Errorf("error %v, want %v", err, driver.ErrInterrupted)
			}
			if err := r.Err(); err != nil {
				t.Errorf("the device is lost: %v", err)
			}
			r.s.(driver.Interruptible).InterruptIf(nil)
			r.wantWords(t, left)
			if err := r.s.Launch(r.add(2)); err != nil {
				t.Error(err)
			}
			r.wantWords(t, left+2)
		}
	}
}

// TestInterruptSeenByAnother lets the closing of a buffer run an interrupted kernel of a late
// stream. The buffer must close without an error, and the stream must report the interruption.
func TestInterruptSeenByAnother(t *testing.T) {
	r := newFixture(t, Options{LateStreams: true})
	r.s.(driver.Interruptible).InterruptIf(func() bool { return true })
	if err := r.s.Launch(r.add(1)); err != nil {
		t.Fatal(err)
	}
	b, err := r.Alloc(16)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("closing a buffer: %v", err)
	}
	if err := r.s.Synchronize(); !errors.Is(err, driver.ErrInterrupted) {
		t.Errorf("waiting for the stream: %v, want %v", err, driver.ErrInterrupted)
	}
	if err := r.s.Synchronize(); err != nil {
		t.Errorf("waiting again: %v", err)
	}
}
