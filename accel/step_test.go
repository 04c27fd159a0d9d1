package accel

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// TestReadLogits reads more rows of logits than the staging buffer holds at a time.
func TestReadLogits(t *testing.T) {
	const vocab, logitRows = 5, 9
	dev, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	logits, err := dev.Alloc(4 * vocab * logitRows)
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for i := range vocab * logitRows {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	if err := stream.Write(logits.Address(), data); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, reason string
		staged       int // rows that the staging buffer holds
		rows         []int
	}{
		{"none", "it only waits", 2, nil},
		{"one batch", "as many rows as fit", 3, []int{4, 0, 8}},
		{"three batches", "the last is shorter", 2, []int{8, 1, 2, 7, 3}},
		{"one row per batch", "a row as large as the buffer", 1, []int{6, 5, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			staging, err := dev.AllocPinned(4*vocab*c.staged + 3)
			if err != nil {
				t.Fatal(err)
			}
			e := &Engine{
				model: &model.Model{Config: model.Config{Vocab: vocab}}, stream: stream, staging: staging,
				layout: &plan.Layout{Buffers: plan.Buffers{Logits: ptx.Address(logits.Address())}},
			}
			var into [][]float32
			for range c.rows {
				into = append(into, make([]float32, vocab))
			}
			if err := e.readLogits(into, c.rows); err != nil {
				t.Fatal(err)
			}
			for i, row := range c.rows {
				want := make([]float32, vocab)
				for j := range want {
					want[j] = float32(row*vocab + j)
				}
				if !slices.Equal(into[i], want) {
					t.Errorf("%s: row %d is %v, want %v", c.reason, row, into[i], want)
				}
			}
		})
	}
}

// askedStream keeps the function that its kernels would ask.
type askedStream struct{ stop func() bool }

func (s *askedStream) InterruptIf(stop func() bool) { s.stop = stop }

// TestInterruptIf demands that the kernels of a step go on until no request waits for it.
func TestInterruptIf(t *testing.T) {
	s := new(askedStream)
	e := &Engine{mu: newMutex(), interruptible: s}
	var batch []*request
	var cancels []context.CancelFunc
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		batch, cancels = append(batch, &request{ctx: ctx}), append(cancels, cancel)
	}
	e.mu.Lock()
	e.interruptStep(batch)
	for i, want := range []bool{false, false, true} {
		if s.stop() != want {
			t.Errorf("with %d of 2 contexts canceled, the step stops: %v", i, !want)
		}
		if i < len(cancels) {
			cancels[i]()
		}
	}
	if e.end(); s.stop != nil {
		t.Error("kernels still ask after the step")
	}
}
