package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// pollDevice counts how often its streams ask whether to stop, and calls cancel when they ask
// for the given time.
type pollDevice struct {
	driver.Device
	polls, at atomic.Int64
	cancel    context.CancelFunc
}

func (d *pollDevice) NewStream() (driver.Stream, error) {
	s, err := d.Device.NewStream()
	return pollStream{s, d}, err
}

// cancelAt lets the n-th question from now on cancel a context, which it returns.
func (d *pollDevice) cancelAt(ctx context.Context, n int64) context.Context {
	ctx, d.cancel = context.WithCancel(ctx)
	d.polls.Store(0)
	d.at.Store(n)
	return ctx
}

type pollStream struct {
	driver.Stream
	d *pollDevice
}

func (s pollStream) InterruptIf(stop func() bool) {
	ask := func() bool {
		if s.d.polls.Add(1) == s.d.at.Load() {
			s.d.cancel()
		}
		return stop()
	}
	if stop == nil {
		ask = nil
	}
	s.Stream.(driver.Interruptible).InterruptIf(ask)
}

func (s pollStream) Capture(record func() error) (driver.Graph, error) {
	g, err := s.Stream.Capture(record)
	return pollGraph{g, s.Stream}, err
}

type pollGraph struct {
	driver.Graph
	on driver.Stream
}

func (g pollGraph) Launch(driver.Stream) error { return g.Graph.Launch(g.on) }

// longDownModel returns a model of one layer. The rows of its down matrix have 17 segments.
func longDownModel(t *testing.T) *model.Model {
	t.Helper()
	const ffn = 17 * 256
	spec := tiny.New("gpt2", 1)
	spec.OneLayer()
	spec.Set(".feed_forward_length", uint32(ffn))
	for name, dims := range map[string][]int{"up.weight": {tiny.Hidden, ffn}, "up.bias": {ffn}, "down.weight": {ffn, tiny.Hidden}} {
		spec.Reshape("blk.0.ffn_"+name, dims...)
	}
	spec.Reformat("blk.0.ffn_down.weight", quant.Q8_0)
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for block := range slices.Chunk(m.Weights.Layers[0].Down.W.Data, quant.Q8_0.BlockBytes()) {
		for i := range block {
			block[i] = byte(random.Uint32())
		}
		binary.LittleEndian.PutUint16(block, 0x1400) // the scale, about 0.001
	}
	return m
}

// TestAccelInterrupted cancels prompts and steps while their kernels run. The sequence must keep
// its length and its pages, and the same call must then give the bits of one that was not
// canceled.
func TestAccelInterrupted(t *testing.T) {
	if *onGPU {
		t.Skip("a GPU runs queued kernels to their end")
	}
	slowParallel(t)
	minimal := minimalModel(t)
	for _, c := range []struct {
		name   string
		m      *model.Model
		o      accel.Options
		device emu.Options
		input  []int
		every  int64 // distance of the questions at which the call is canceled; 1 with -long
	}{
		{"prompt", minimal, accel.Options{}, smallDevice, []int{3, 4}, 39},
		{"eager prompt", minimal, accel.Options{Eager: true}, smallDevice, []int{3, 4}, 39},
		{"step, late", minimal, accel.Options{}, lateDevice, []int{3}, 19},
		{"step", longDownModel(t), accel.Options{}, emu.Options{SMs: 4, Workers: 1, IgnoreRaces: true, Cache: &emulatorCache}, []int{3}, 25},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &pollDevice{Device: accelDevice(t, c.device)}
			e, err := accel.New(t.Context(), c.m, d, c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer checkClosed(t, e)
			s := openText(t, e)
			defer s.Close()
			if _, err := s.Forward(t.Context(), []int{1, 2}, model.WantNothing); err != nil {
				t.Fatal(err)
			}
			forward := func(ctx context.Context) (string, error) {
				out, err := s.Forward(ctx, c.input, model.WantLogits)
				return hashLogits(out.Logits), errors.Join(err, s.Truncate(2))
			}
			want, err := forward(d.cancelAt(t.Context(), 0))
			if err != nil {
				t.Fatal(err)
			}
			all := d.polls.Load()
			if all < 10 {
				t.Fatalf("the kernels asked %d times whether to stop", all)
			}
			if *longCases {
				c.every = 1
			}
			for at := int64(1); at <= all; at += c.every {
				if _, err := forward(d.cancelAt(t.Context(), at)); !errors.Is(err, context.Canceled) {
					t.Errorf("canceled at question %d of %d: error %v", at, all, err)
				}
				if pages := e.Stats().PagesInUse; s.Len() != 2 || pages != 1 {
					t.Errorf("canceled at question %d of %d: %d positions in %d pages are left", at, all, s.Len(), pages)
				}
				if got, err := forward(d.cancelAt(t.Context(), 0)); err != nil || got != want {
					t.Errorf("canceled at question %d of %d, then: logits %s, error %v, want %s", at, all, got, err, want)
				}
			}
		})
	}
}

// TestAccelCanceledInFlight cancels two steps that are in flight, after their sequence was forked.
// The sequence and each fork must lose the positions of the canceled steps, and no others, and go
// on like new sequences.
func TestAccelCanceledInFlight(t *testing.T) {
	if *onGPU {
		t.Skip("a GPU runs queued kernels to their end")
	}
	m := minimalModel(t)
	e := accelEngine(t, m, lateDevice, accel.Options{KVPages: 8})
	tokens := testTokens(m.Config.Vocab, 9)
	list := []text{openText(t, e)}
	promptThenSteps(t, list[0], tokens[:5], nil)
	ctx, cancel := context.WithCancel(t.Context())
	var queued []model.Pass
	for _, token := range tokens[5:7] {
		p, err := e.Step(ctx, []model.Row{{Sequence: list[0].Sequence, Tokens: []int{token}, Want: model.WantToken}})
		if err != nil {
			t.Fatal(err)
		}
		queued = append(queued, p)
		list = append(list, fork(t, list[0], list[0].Len()))
	}
	list = append(list, fork(t, list[0], 4), fork(t, list[2], 6))
	cancel()
	for i, p := range queued {
		if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("step %d: error %v", i, err)
		}
	}
	for i, s := range list {
		n := 5
		if i == 3 {
			n = 4
		}
		if s.Len() != n {
			t.Fatalf("sequence %d holds %d positions, want %d", i, s.Len(), n)
		}
		if got, want := stepLogits(t, s, tokens[n:]), freshLogits(t, e, tokens[:n], tokens[n:]); firstDifference(want, got) >= 0 {
			t.Errorf("sequence %d goes on with other logits", i)
		}
		s.Close()
	}
	if used := e.Stats().PagesInUse; used != 0 {
		t.Errorf("%d pages are in use", used)
	}
}
