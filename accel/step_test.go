package accel

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// TestRead reads more than the staging buffer holds at a time.
func TestRead(t *testing.T) {
	const width, rows = 5, 9
	dev, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	values, err := dev.Alloc(4 * width * rows)
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for i := range width * rows {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	if err := stream.Write(values.Address(), data); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, reason string
		staged       int // elements that the staging buffer holds
		rows         []int
	}{
		{"none", "nothing is queued", 2, nil},
		{"one batch", "as many rows as fit", 15, []int{4, 0, 8}},
		{"three batches", "the last is shorter", 10, []int{8, 1, 2, 7, 3}},
		{"one row per batch", "a row as large as the buffer", 5, []int{6, 5, 4}},
		{"parts of rows", "rows are cut anywhere", 3, []int{6, 5, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			staging, err := dev.AllocPinned(4*c.staged + 3)
			if err != nil {
				t.Fatal(err)
			}
			e := &Engine{stream: stream, staging: staging, inputs: new(stepInputs)}
			p := &pass{engine: e}
			var into [][]float32
			for _, row := range c.rows {
				to := make([]float32, width)
				if err := e.read(p, to, ptx.Address(values.Address())+ptx.Address(4*row*width)); err != nil {
					t.Fatal(err)
				}
				into = append(into, to)
			}
			if err := e.readAll(p); err != nil {
				t.Fatal(err)
			}
			for i, row := range c.rows {
				want := make([]float32, width)
				for j := range want {
					want[j] = float32(row*width + j)
				}
				if !slices.Equal(into[i], want) {
					t.Errorf("%s: row %d is %v, want %v", c.reason, row, into[i], want)
				}
			}
		})
	}
}

// askedStream keeps the function that says when its kernels stop.
type askedStream struct{ stop func() bool }

func (s *askedStream) InterruptIf(stop func() bool) { s.stop = stop }

// TestInterruptIf demands that kernels go on until the contexts of all steps in flight ended.
func TestInterruptIf(t *testing.T) {
	s := new(askedStream)
	e := &Engine{interruptible: s}
	var passes []*pass
	var cancels []context.CancelFunc
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		passes, cancels = append(passes, &pass{ctx: ctx}), append(cancels, cancel)
	}
	e.interruptIf(passes...)
	for i, want := range []bool{false, false, true} {
		if s.stop() != want {
			t.Errorf("with %d of 2 contexts canceled, kernels stop: %v", i, !want)
		}
		if i < len(cancels) {
			cancels[i]()
		}
	}
	if e.interruptIf(); s.stop != nil {
		t.Error("kernels still ask after the steps")
	}
}
