package accel_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/model"
)

// greedyToken is what the idle device chooses.
var greedyToken = []int{0}

// maxPositions is the length at which greedySteps truncates a session.
const maxPositions = 60

// greedySteps runs n greedy steps.
func greedySteps(t testing.TB, s model.Session, n int) {
	for range n {
		if s.Len() == maxPositions {
			if err := s.Truncate(1); err != nil {
				t.Error(err)
				return
			}
		}
		if out, err := s.Forward(context.Background(), greedyToken, model.WantGreedy); err != nil || out.Greedy != greedyToken[0] {
			t.Errorf("token %d, error %v", out.Greedy, err)
			return
		}
	}
}

// BenchmarkStep measures the host's work for a greedy step.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name string
		o    accel.Options
	}{{"async", accel.Options{}}, {"sync", accel.Options{SyncScheduling: true}}, {"eager", accel.Options{Eager: true}}} {
		b.Run(c.name, func(b *testing.B) {
			s := startedSession(b, idleEngine(b, c.o))
			b.ReportAllocs()
			b.ResetTimer()
			greedySteps(b, s, b.N)
		})
	}
}

// startedSession returns a session after its prompt and some steps.
func startedSession(t testing.TB, e *accel.Engine) model.Session {
	t.Helper()
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	greedySteps(t, s, 4)
	return s
}

// TestStepAllocations demands that a greedy step allocates nothing, however it is queued.
func TestStepAllocations(t *testing.T) {
	for _, o := range []accel.Options{{}, {SyncScheduling: true}, {Eager: true}} {
		s := startedSession(t, idleEngine(t, o))
		if n := testing.AllocsPerRun(40, func() { greedySteps(t, s, 1) }); n > 0 {
			t.Errorf("%+v: %v allocations per step", o, n)
		}
	}
}

// narrowModel returns a model in the formats of an 8B model, but small. The host's work for a
// forward pass depends only on the number of layers. An 8B model has 32.
func narrowModel(t testing.TB, layers int) *model.Model {
	t.Helper()
	p, err := synth.Find("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	p.Layers, p.Hidden, p.FFN, p.Heads, p.KVHeads, p.Vocab, p.BOS, p.EOS = layers, 256, 512, 4, 2, 1024, 1022, 1023
	f, err := p.File(t.Context(), requant.Q4KM, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// BenchmarkPrompt measures the host's work for a prompt of one chunk. The plan of a whole chunk
// is kept; a part of a chunk is planned anew.
func BenchmarkPrompt(b *testing.B) {
	const most = 512
	m := narrowModel(b, 32)
	tokens := make([]int, most)
	for _, c := range []struct {
		name  string
		chunk int
		vary  int // number of different lengths
	}{{"whole", most, 1}, {"part", 2 * most, 1}, {"parts", 2 * most, most - 2}} {
		b.Run(c.name, func(b *testing.B) {
			var got launchLog
			s := promptSession(b, loggingEngine(b, m, c.chunk, &got), tokens)
			launches := promptLaunches(b, m, most)
			var waits time.Duration
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				got = launchLog{}
				begin := time.Now()
				runPrompt(b, s, tokens[:most-i%c.vary])
				waits += got.first.Sub(begin)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*launches), "ns/launch")
			b.ReportMetric(float64(waits.Nanoseconds())/float64(b.N), "ns-to-first")
		})
	}
}

// TestPromptLaunches demands that a partial chunk, which is launched segment by segment while
// it is planned, has the launches of a whole chunk in the same order.
func TestPromptLaunches(t *testing.T) {
	m := narrowModel(t, 32)
	var of [2][]driver.Launch
	for i, chunk := range []int{8, 16} {
		var got launchLog
		s := promptSession(t, loggingEngine(t, m, chunk, &got), make([]int, 8))
		got = launchLog{keep: true}
		runPrompt(t, s, make([]int, 8))
		of[i] = got.list
	}
	if len(of[0]) < promptLaunches(t, m, 8) || len(of[0]) != len(of[1]) {
		t.Fatalf("a whole chunk is %d launches, a part %d", len(of[0]), len(of[1]))
	}
	for i, l := range of[0] {
		if p := of[1][i]; l.Grid != p.Grid || l.Block != p.Block || len(l.Params) != len(p.Params) {
			t.Errorf("launch %d: %v of %v, and %v of %v", i, l.Grid, l.Block, p.Grid, p.Block)
		}
	}
}

// launchLog records the launches of an idle device.
type launchLog struct {
	first time.Time // of the first launch
	keep  bool      // whether list is recorded
	list  []driver.Launch
}

// loggingDevice is an idle device that records its launches.
type loggingDevice struct {
	idleDevice
	log *launchLog
}

func (d loggingDevice) NewStream() (driver.Stream, error) { return loggingStream{log: d.log}, nil }

type loggingStream struct {
	idleStream
	log *launchLog
}

func (s loggingStream) Launch(list ...driver.Launch) error {
	if s.log.first.IsZero() {
		s.log.first = time.Now()
	}
	if s.log.keep {
		s.log.list = append(s.log.list, list...)
	}
	return nil
}

// loggingEngine returns an engine for one sequence.
func loggingEngine(t testing.TB, m *model.Model, chunk int, log *launchLog) *accel.Engine {
	t.Helper()
	o := accel.Options{KVPages: 8, MaxSequences: 1, Chunk: chunk}
	return newEngine(t, m, o, func(d driver.Device) driver.Device { return loggingDevice{idleDevice{d}, log} })
}

// runPrompt computes a prompt in an empty session and empties it again.
func runPrompt(t testing.TB, s model.Session, tokens []int) {
	t.Helper()
	if _, err := s.Forward(t.Context(), tokens, model.WantGreedy); err != nil {
		t.Fatal(err)
	}
	if err := s.Truncate(0); err != nil {
		t.Fatal(err)
	}
}

// promptSession returns a session that has loaded the kernels of prompts of up to len(tokens).
func promptSession(t testing.TB, e *accel.Engine, tokens []int) model.Session {
	t.Helper()
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for n := 1; n <= len(tokens); n *= 2 {
		runPrompt(t, s, tokens[:n])
	}
	return s
}

// promptLaunches returns the number of launches of a chunk.
func promptLaunches(t testing.TB, m *model.Model, tokens int) int {
	t.Helper()
	steps, err := accel.LaunchesFor(m, driver.Properties{ComputeCapability: 90, SMs: 4, SharedPerCTA: 227 << 10, Memory: 1 << 30}, accel.Options{}, tokens, tokens, true)
	if err != nil {
		t.Fatal(err)
	}
	return len(steps)
}
