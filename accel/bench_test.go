package accel_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/sizeclass"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/model"
)

// greedyToken is what the idle device chooses.
var greedyToken = []int{0}

// maxPositions is the length at which greedySteps truncates a sequence.
const maxPositions = 60

// greedySteps runs n greedy steps of a sequence. ahead is the number of steps that are queued
// before a step is waited for.
func greedySteps(t testing.TB, e *accel.Engine, s model.Sequence, n, ahead int) {
	t.Helper()
	rows := []model.Row{{Sequence: s, Tokens: greedyToken, Want: model.WantToken}}
	var queued []model.Pass
	wait := func(most int) {
		for len(queued) > most {
			results, err := queued[0].Wait()
			if err != nil || results[0].Token != greedyToken[0] {
				t.Fatalf("results %v, error %v", results, err)
			}
			queued = append(queued[:0], queued[1:]...)
		}
	}
	for range n {
		if s.Len() == maxPositions {
			wait(0)
			if err := s.Truncate(1); err != nil {
				t.Fatal(err)
			}
			rows[0].Tokens = greedyToken
		}
		p, err := e.Step(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		rows[0].Tokens = nil
		queued = append(queued, p)
		wait(ahead)
	}
	wait(0)
}

// BenchmarkStep measures the host's work for a greedy step.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name  string
		o     accel.Options
		ahead int
	}{{"ahead", accel.Options{}, 1}, {"one by one", accel.Options{}, 0}, {"eager", accel.Options{Eager: true}, 0}} {
		b.Run(c.name, func(b *testing.B) {
			e := idleEngine(b, c.o)
			s := startedSequence(b, e)
			b.ReportAllocs()
			b.ResetTimer()
			greedySteps(b, e, s, b.N, c.ahead)
		})
	}
}

// newSequence opens a sequence of the whole context.
func newSequence(t testing.TB, e *accel.Engine) model.Sequence {
	t.Helper()
	s, err := e.NewSequence(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// startedSequence returns a sequence after its first steps.
func startedSequence(t testing.TB, e *accel.Engine) model.Sequence {
	t.Helper()
	s := newSequence(t, e)
	greedySteps(t, e, s, 4, 1)
	return s
}

// TestStepAllocations demands that a greedy step allocates only its Pass, however it is queued.
func TestStepAllocations(t *testing.T) {
	for _, o := range []accel.Options{{}, {Eager: true}} {
		e := idleEngine(t, o)
		s := startedSequence(t, e)
		rows := []model.Row{{Sequence: s, Want: model.WantToken}}
		var last model.Pass
		n := testing.AllocsPerRun(40, func() {
			p, err := e.Step(t.Context(), rows)
			if err != nil {
				t.Fatal(err)
			}
			if last != nil {
				if _, err := last.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			last = p
		})
		if n > 1 {
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
// is stored; a part of a chunk is planned anew.
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
			e := loggingEngine(b, m, c.chunk, &got)
			s := promptSequence(b, e, tokens)
			launches := promptLaunches(b, m, most)
			var waits time.Duration
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				got = launchLog{}
				begin := time.Now()
				runPrompt(b, e, s, tokens[:most-i%c.vary])
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
		e := loggingEngine(t, m, chunk, &got)
		s := promptSequence(t, e, make([]int, 8))
		got = launchLog{keep: true}
		runPrompt(t, e, s, make([]int, 8))
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

// runPrompt computes a prompt in an empty sequence and empties it again.
func runPrompt(t testing.TB, e *accel.Engine, s model.Sequence, tokens []int) {
	t.Helper()
	if _, err := model.Forward(t.Context(), e, model.Row{Sequence: s, Tokens: tokens, Prompt: true, Want: model.WantToken}); err != nil {
		t.Fatal(err)
	}
	if err := s.Truncate(0); err != nil {
		t.Fatal(err)
	}
}

// promptSequence returns a sequence of an engine that has loaded the kernels of prompts of up to
// len(tokens).
func promptSequence(t testing.TB, e *accel.Engine, tokens []int) model.Sequence {
	t.Helper()
	s := newSequence(t, e)
	for n := 1; n <= len(tokens); n = sizeclass.Of(n + 1) {
		runPrompt(t, e, s, tokens[:n])
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
