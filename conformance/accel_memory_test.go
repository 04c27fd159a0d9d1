package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
)

// TestAccelPlan compares the memory of an engine with its plan.
func TestAccelPlan(t *testing.T) {
	m := tinyModel(t, "qwen3moe")
	for _, o := range []accel.Options{{}, {KV: model.KVBF16}, {KVPages: 3, MaxSequences: 2, Chunk: 8}} {
		dev := accelDevice(t, smallDevice)
		e, err := accel.New(t.Context(), m, dev, o)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		p := e.Plan()
		again, err := accel.PlanMemory(m, dev.Properties(), p.Free, o)
		if err != nil || again != p {
			t.Errorf("%+v: PlanMemory returns %+v, error %v", p, again, err)
		}
		if o.KVPages > 0 && p.Pages != o.KVPages || o.KVPages == 0 && p.Positions() < 64*m.Config.Context {
			t.Errorf("%+v: the cache has %d positions", o, p.Positions())
		}
		if s := p.String(); !strings.Contains(s, "KV cache") || !strings.Contains(s, p.KV.String()) {
			t.Errorf("the plan does not name the cache:\n%s", s)
		}
	}
}

// TestAccelTooLarge demands an error with the sizes for a model that does not fit, and that
// nothing is allocated.
func TestAccelTooLarge(t *testing.T) {
	m := tinyModel(t, "llama")
	dev, o := accelDevice(t, smallDevice), accel.Options{KVPages: 1 << 30}
	e, err := accel.New(t.Context(), m, dev, o)
	if !errors.Is(err, driver.ErrOutOfMemory) || e != nil {
		t.Fatalf("the error is %v", err)
	}
	free, _, memoryErr := dev.Memory()
	p, again := accel.PlanMemory(m, dev.Properties(), free, o)
	if memoryErr != nil || again == nil || again.Error() != err.Error() {
		t.Errorf("PlanMemory: the error is %v, New: %v", again, err)
	}
	if p.Need() <= p.Free || p.KVCache != p.PageBytes<<30 || p.Weights == 0 {
		t.Errorf("plan: %+v", p)
	}
	for _, part := range []string{"weights", "KV cache", fmt.Sprint(p.Need()), fmt.Sprint(p.Free)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not contain %s: %v", part, err)
		}
	}
}

// TestAccelCacheFull fills a cache of three pages. The sequence that finds no page gets an
// error, keeps its state, and continues after another one is truncated.
func TestAccelCacheFull(t *testing.T) {
	m := tinyModel(t, "llama")
	e := accelEngine(t, m, smallDevice, accel.Options{KVPages: 3})
	tokens := testTokens(m.Config.Vocab, 70)
	want := freshLogits(t, e, tokens[:64], tokens[64:66])
	var s [3]text
	for i := range s {
		s[i] = openText(t, e)
		defer s[i].Close()
	}
	promptThenSteps(t, s[0], tokens[:64], nil)
	promptThenSteps(t, s[1], tokens[:65], nil)
	for _, input := range [][]int{tokens[64:65], tokens[64:67]} {
		_, err := s[0].Forward(t.Context(), input, model.WantLogits)
		var full *model.CacheFullError
		if !errors.As(err, &full) || !errors.Is(err, model.ErrCacheFull) || *full != (model.CacheFullError{Need: 1, Free: 0, Pages: 3, PageTokens: 64}) {
			t.Errorf("%d more tokens: error %v", len(input), err)
		}
	}
	if _, err := s[2].Forward(t.Context(), tokens[:3], model.WantLogits); !errors.Is(err, model.ErrCacheFull) || s[2].Len() != 0 {
		t.Errorf("a new sequence: error %v", err)
	}
	if err := s[1].Truncate(64); err != nil {
		t.Fatal(err)
	}
	if got := promptThenSteps(t, s[0], tokens[64:65], tokens[65:66]); hashLogits(got) != hashLogits(want[m.Config.Vocab:]) {
		t.Error("continuing after the error gives other bits")
	}
	if used := e.Stats().PagesInUse; used != 3 {
		t.Errorf("%d pages are in use, want 3", used)
	}
}

// TestAccelSteps compares the launches that are planned without a device with the timed
// ones.
func TestAccelSteps(t *testing.T) {
	m := tinyModel(t, "gemma3")
	var seen []accel.Timing
	o := accel.Options{Timer: func(p accel.Timing) { seen = append(seen, p) }}
	dev := accelDevice(t, smallDevice)
	e, err := accel.New(t.Context(), m, dev, o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	freshLogits(t, e, testTokens(m.Config.Vocab, 5), []int{1})
	if len(seen) != 2 || !seen[0].Prompt || seen[0].Tokens != 5 || seen[1].Prompt || seen[1].Tokens != 1 {
		t.Fatalf("%d passes were timed, want a prompt of 5 tokens and a step", len(seen))
	}
	for _, c := range []struct {
		timing accel.Timing
		rows   int
	}{{seen[0], 5}, {seen[1], 1}} {
		planned, err := accel.LaunchesFor(m, dev.Properties(), o, c.rows, 6, c.timing.Prompt)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(planned, c.timing.Launches) {
			t.Errorf("planned:\n%v\ntimed:\n%v", planned, c.timing.Launches)
		}
		var sum time.Duration
		for _, d := range c.timing.Durations {
			sum += d
		}
		if sum <= 0 || len(c.timing.Durations) != len(planned) {
			t.Errorf("%d steps took %v", len(c.timing.Durations), sum)
		}
	}
}
