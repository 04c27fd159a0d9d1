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

// smallDevice is one whose few SMs make grids small and so emulation quick. Races are
// looked for by the kernels' own cases, and by one case here.
var smallDevice = emu.Options{SMs: 4, IgnoreRaces: true, Cache: &emulatorCache}

// programs are of all devices here: most load the same kernels.
var emulatorCache emu.Cache

// accelDevice is an emulated device or, with -gpu, the first CUDA device. When the test
// ends, nothing that was made of it may be left.
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

// accelEngine is the accelerator on a device of its own.
func accelEngine(t testing.TB, m *model.Model, device emu.Options, o accel.Options) *accel.Engine {
	t.Helper()
	e, err := accel.New(t.Context(), m, accelDevice(t, device), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkClosed(t, e) })
	return e
}

// goldenModel is a model of the golden directory.
func goldenModel(t testing.TB, file string) *model.Model {
	t.Helper()
	m, err := model.Open("../golden/" + file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkClosed(t, m) })
	return m
}

// teacherForced gives a session some tokens, in parts of the given sizes and the rest in
// one, and returns the logits of all.
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

// spread is n tokens of a vocabulary, no two neighbors alike.
func testTokens(vocab, n int) []int {
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = (5 + 37*i + i*i%11) % vocab
	}
	return tokens
}

// refTrace is what the reference shows of some tokens; with another trace, what it
// computes of that one's operations. Keys and values are as the cache holds them.
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

// accelTrace is what the accelerator shows of some tokens, given in parts.
func accelTrace(t testing.TB, m *model.Model, device emu.Options, o accel.Options, tokens []int, parts ...int) *layerdiff.Trace {
	t.Helper()
	trace := layerdiff.NewTrace()
	o.Tap = trace.AddFloats
	teacherForced(t, accelEngine(t, m, device, o), tokens, parts...)
	return trace
}
