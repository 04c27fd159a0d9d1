package accel_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/model"
)

// deepModel has the layers of a model of 8B and its formats, each smaller: what the host does
// for a pass goes by their number, and not by their size.
func deepModel(t testing.TB) *model.Model {
	t.Helper()
	p, err := synth.Find("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	p.Hidden, p.FFN, p.Heads, p.KVHeads, p.Vocab, p.BOS, p.EOS = 256, 512, 4, 2, 1024, 1022, 1023
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

// BenchmarkPrompt is what the host does for a prompt of one chunk: of a whole one, whose
// program is kept, or of one that is planned.
func BenchmarkPrompt(b *testing.B) {
	const most = 512
	m := deepModel(b)
	tokens := make([]int, most)
	for _, c := range []struct {
		name  string
		chunk int
		vary  int // how many lengths there are
	}{{"whole", most, 1}, {"part", 2 * most, 1}, {"parts", 2 * most, most - 2}} {
		b.Run(c.name, func(b *testing.B) {
			var got launched
			s := prompted(b, countingEngine(b, m, c.chunk, &got), tokens)
			launches := promptLaunches(b, m, most)
			var waits time.Duration
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				got = launched{}
				begin := time.Now()
				prompt(b, s, tokens[:most-i%c.vary])
				waits += got.first.Sub(begin)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*launches), "ns/launch")
			b.ReportMetric(float64(waits.Nanoseconds())/float64(b.N), "ns-to-first")
		})
	}
}

// TestPromptLaunches wants a chunk that is planned for once to be the kernels of one whose
// program is kept: each once, in the same order.
func TestPromptLaunches(t *testing.T) {
	m := deepModel(t)
	var of [2][]driver.Launch
	for i, chunk := range []int{8, 16} {
		var got launched
		s := prompted(t, countingEngine(t, m, chunk, &got), make([]int, 8))
		got = launched{keeps: true}
		prompt(t, s, make([]int, 8))
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

// launched is what an idle device was given.
type launched struct {
	first time.Time
	keeps bool
	list  []driver.Launch // if it keeps them
}

// counting is an idle device that notes its launches.
type counting struct {
	idle
	got *launched
}

func (d counting) NewStream() (driver.Stream, error) { return countingStream{got: d.got}, nil }

type countingStream struct {
	idleStream
	got *launched
}

func (s countingStream) Launch(list ...driver.Launch) error {
	if s.got.first.IsZero() {
		s.got.first = time.Now()
	}
	if s.got.keeps {
		s.got.list = append(s.got.list, list...)
	}
	return nil
}

// countingEngine has room for one sequence.
func countingEngine(t testing.TB, m *model.Model, chunk int, got *launched) *accel.Engine {
	t.Helper()
	o := accel.Options{KVPages: 8, MaxSequences: 1, Chunk: chunk}
	return idleEngineOf(t, m, o, func(d driver.Device) driver.Device { return counting{idle{d}, got} })
}

// prompt computes a prompt in a session that is empty, and empties it again.
func prompt(t testing.TB, s model.Session, tokens []int) {
	t.Helper()
	if _, err := s.Forward(t.Context(), tokens, model.WantGreedy); err != nil {
		t.Fatal(err)
	}
	if err := s.Truncate(0); err != nil {
		t.Fatal(err)
	}
}

// prompted is a session that had prompts of all lengths up to that of the tokens which are a
// power of two, so that their kernels are there.
func prompted(t testing.TB, e *accel.Engine, tokens []int) model.Session {
	t.Helper()
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for n := 1; n <= len(tokens); n *= 2 {
		prompt(t, s, tokens[:n])
	}
	return s
}

// promptLaunches is how many kernels a chunk of so many rows takes.
func promptLaunches(t testing.TB, m *model.Model, rows int) int {
	t.Helper()
	steps, err := accel.LaunchesFor(m, driver.Properties{ComputeCapability: 90, SMs: 4, SharedPerCTA: 227 << 10, Memory: 1 << 30}, accel.Options{}, rows, rows, true)
	if err != nil {
		t.Fatal(err)
	}
	return len(steps)
}
