package conformance

import (
	"context"
	"io"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// smallDevice has few SMs, so that grids are small and emulation is fast. The kernel cases
// detect races.
var smallDevice = emu.Options{SMs: 4, IgnoreRaces: true, Cache: &emulatorCache}

// emulatorCache caches decoded kernels for all emulated devices.
var emulatorCache emu.Cache

// accelDevice opens an emulated device or, with -gpu, the first CUDA device. At the end of
// the test, all of its resources must be closed.
func accelDevice(t testing.TB, o emu.Options) driver.Device {
	t.Helper()
	if *onGPU {
		dev, err := cuda.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { checkClosed(t, dev) })
		return dev
	}
	dev, err := emu.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if live := dev.Live(); live != (emu.Live{}) {
			t.Errorf("left open on the device: %+v", live)
		}
		checkClosed(t, dev)
	})
	return dev
}

func checkClosed(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}

// accelEngine opens the accelerator on its own device.
func accelEngine(t testing.TB, m *model.Model, device emu.Options, o accel.Options) *accel.Engine {
	t.Helper()
	e, err := accel.New(t.Context(), m, accelDevice(t, device), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkClosed(t, e) })
	return e
}

// goldenModel opens a model of the golden directory.
func goldenModel(t testing.TB, file string) *model.Model {
	t.Helper()
	m, err := model.Open("../golden/" + file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkClosed(t, m) })
	return m
}

// teacherForced computes tokens in parts of the given sizes, and the rest in one part. It
// returns the logits of all positions.
func teacherForced(t testing.TB, e model.Engine, tokens []int, parts ...int) []float32 {
	t.Helper()
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all []float32
	for len(tokens) > 0 {
		n := len(tokens)
		if len(parts) > 0 {
			n, parts = parts[0], parts[1:]
		}
		out, err := s.Forward(context.Background(), tokens[:n], model.WantAll)
		if err != nil {
			t.Fatalf("%d tokens at position %d: %v", n, s.Len(), err)
		}
		all, tokens = append(all, out.Logits...), tokens[n:]
	}
	return all
}

// testTokens returns n tokens of a vocabulary. Neighbors differ.
func testTokens(vocab, n int) []int {
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = (5 + 37*i + i*i%11) % vocab
	}
	return tokens
}

// refTrace returns the reference's trace of some tokens. With follow, the reference
// computes each operation on the inputs in that trace. Keys and values are rounded as in
// the cache.
func refTrace(t testing.TB, m *model.Model, n ref.Numerics, tokens []int, follow *layerdiff.Trace) *layerdiff.Trace {
	t.Helper()
	trace := layerdiff.NewTrace()
	o := ref.Options{Numerics: n, Tap: trace.Add}
	if follow != nil {
		o.Tap = trace.Follow(follow)
	}
	e, err := ref.NewWith(m, o)
	if err != nil {
		t.Fatal(err)
	}
	teacherForced(t, e, tokens)
	trace.Store(n.KV.Format(quant.F32), "key", "value")
	return trace
}

// accelTrace returns the accelerator's trace of some tokens, computed in parts.
func accelTrace(t testing.TB, m *model.Model, device emu.Options, o accel.Options, tokens []int, parts ...int) *layerdiff.Trace {
	t.Helper()
	trace := layerdiff.NewTrace()
	o.Tap = trace.AddFloats
	teacherForced(t, accelEngine(t, m, device, o), tokens, parts...)
	return trace
}
