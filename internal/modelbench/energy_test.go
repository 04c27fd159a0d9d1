package modelbench

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// fakeMeter counts 3 J a millisecond of an engine's clock, in ticks.
type fakeMeter struct {
	eng   *fakeEngine
	tick  time.Duration
	after int // readings that are right
	then  func(joules float64) (float64, error)
}

func (m *fakeMeter) Joules() (float64, error) {
	gone := m.eng.now().Sub(time.Unix(0, 0)) / m.tick * m.tick
	joules := 1e6 + 3*gone.Seconds()*1e3
	if m.after--; m.after < 0 && m.then != nil {
		return m.then(joules)
	}
	return joules, nil
}

func (m *fakeMeter) Tick() time.Duration { return m.tick }
func (m *fakeMeter) Source() string      { return "a fake" }

// Of a count that moves rarely no figure is stated that could be off by more than a tenth.
func TestEnergy(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		o            Options
		tick         time.Duration
		seconds      float64 // over which it is counted; 0: energy is unknown
	}{
		{"fine count", "still the sensors want their time", Options{Batches: []int{2}, Steps: 5, Repeats: 2}, time.Millisecond, 0.5},
		{"short prompt", "repeats go on behind the timed ones", Options{Prompts: []int{50}, Repeats: 2}, 100 * time.Millisecond, 1},
		{"short steps", "steps do, too", Options{Depths: []int{3}, Steps: 7, Repeats: 1}, 33 * time.Millisecond, 0.5},
		{"long steps", "the timed repeats are enough", Options{Depths: []int{3}, Steps: 100, Repeats: 20}, 50 * time.Millisecond, 2},
		{"rare count", "ten ticks", Options{Prompts: []int{50}, Repeats: 5}, 350 * time.Millisecond, 3.5},
		{"small budget", "ten ticks are more than was asked for", Options{Prompts: []int{50}, Repeats: 2, Budget: 900 * time.Millisecond}, 100 * time.Millisecond, 0},
		{"budget is over", "the timed repeats took ten ticks", Options{Prompts: []int{190}, Repeats: 6, Budget: 800 * time.Millisecond}, 80 * time.Millisecond, 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newFake(t, "llama", 200)
			c.o.Meter = &fakeMeter{eng: e, tick: c.tick}
			got := measured(t, e, c.o)[0]
			if got.Err != "" || got.Rate != 1000 || got.Repeats > c.o.Repeats {
				t.Errorf("the figure itself: %+v", got)
			}
			if c.seconds == 0 {
				if got.Joules != nil || got.EnergySeconds != 0 || !strings.Contains(got.EnergyUnknown, "takes 1s of repeats; the budget is 900ms") {
					t.Errorf("%s: %+v", c.reason, got)
				}
				return
			}
			if got.Joules == nil || math.Abs(*got.Joules-3) > 0.3 || got.EnergyUnknown != "" {
				t.Fatalf("%s: %+v, want 3 J a token and no more than a tenth off", c.reason, got)
			}
			if got.EnergySeconds < c.seconds-1e-9 || got.EnergySeconds > 1.3*c.seconds {
				t.Errorf("%s: counted over %g s, want %g or little more", c.reason, got.EnergySeconds, c.seconds)
			}
		})
	}
}

// A count that fails or makes no sense leaves energy unknown, and the figure stands.
func TestEnergyFails(t *testing.T) {
	broken := errors.New("cable cut")
	for _, c := range []struct {
		name  string
		after int
		then  func(float64) (float64, error)
		want  string
	}{
		{"at once", 0, func(float64) (float64, error) { return 0, broken }, "cable cut"},
		{"later", 1, func(float64) (float64, error) { return 0, broken }, "cable cut"},
		{"stands still", 0, func(float64) (float64, error) { return 7, nil }, "from 7 J to 7 J"},
		{"goes back", 1, func(float64) (float64, error) { return 7, nil }, "J to 7 J"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newFake(t, "llama", 200)
			m := &fakeMeter{eng: e, tick: time.Millisecond, after: c.after, then: c.then}
			got := measured(t, e, Options{Depths: []int{3}, Meter: m})[0]
			if got.Rate != 1000 || got.Err != "" || got.Joules != nil || !strings.Contains(got.EnergyUnknown, c.want) {
				t.Errorf("%+v, want energy unknown: %s", got, c.want)
			}
		})
	}
	e := newFake(t, "llama", 200)
	if got := measured(t, e, Options{Depths: []int{3}})[0]; got.Joules != nil || got.EnergyUnknown != "" {
		t.Errorf("energy without a meter: %+v", got)
	}
}

func TestEnergyJSON(t *testing.T) {
	e := newFake(t, "llama", 200)
	m := &fakeMeter{eng: e, tick: 20 * time.Millisecond}
	rep := Report{Energy: EnergyBy(m), Results: measured(t, e, Options{Depths: []int{3}, Meter: m})}
	text, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"energy":{"source":"a fake","tick_seconds":0.02,"least_seconds":0.5}`, `"joules_per_token":`, `"energy_seconds":`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
