package modelbench

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// fakeMeter counts 3 J per millisecond of an engine's clock, in ticks.
type fakeMeter struct {
	eng   *fakeEngine
	tick  time.Duration
	after int // correct readings before then
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

// The energy is within 10%, or unknown.
func TestEnergy(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		o            Options
		tick         time.Duration
		seconds      float64 // duration of the measurement; 0: energy is unknown
	}{
		{"short ticks", "the sensors need minTime", Options{Batches: []int{2}, BatchDepths: []int{0}, Steps: 5, Repeats: 2}, time.Millisecond, 0.5},
		{"short prompt", "untimed repeats follow", Options{Prompts: []int{50}, Repeats: 2}, 100 * time.Millisecond, 1},
		{"short steps", "untimed repeats follow", Options{Depths: []int{3}, Steps: 7, Repeats: 1}, 33 * time.Millisecond, 0.5},
		{"long steps", "the timed repeats are enough", Options{Depths: []int{3}, Steps: 100, Repeats: 20}, 50 * time.Millisecond, 2},
		{"long ticks", "ten ticks", Options{Prompts: []int{50}, Repeats: 5}, 350 * time.Millisecond, 3.5},
		{"small budget", "ten ticks exceed it", Options{Prompts: []int{50}, Repeats: 2, Budget: 900 * time.Millisecond}, 100 * time.Millisecond, 0},
		{"budget is over", "the timed repeats took ten ticks", Options{Prompts: []int{190}, Repeats: 6, Budget: 800 * time.Millisecond}, 80 * time.Millisecond, 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newFake(t, "llama", 200)
			c.o.Meter = &fakeMeter{eng: e, tick: c.tick}
			got := measured(t, e, c.o)[0]
			if got.Err != "" || got.Rate != 1000 || got.Repeats > c.o.Repeats {
				t.Errorf("the rate: %+v", got)
			}
			if c.seconds == 0 {
				if got.Joules != nil || got.EnergySeconds != 0 || !strings.Contains(got.EnergyUnknown, "takes 1s of repeats; the budget is 900ms") {
					t.Errorf("%s: %+v", c.reason, got)
				}
				return
			}
			if got.Joules == nil || math.Abs(*got.Joules-3) > 0.3 || got.EnergyUnknown != "" {
				t.Fatalf("%s: %+v, want 3 J/token within 10%%", c.reason, got)
			}
			if got.EnergySeconds < c.seconds-1e-9 || got.EnergySeconds > 1.3*c.seconds {
				t.Errorf("%s: measured for %g s, want %g or slightly more", c.reason, got.EnergySeconds, c.seconds)
			}
		})
	}
}

// A counter that fails leaves the energy unknown; the rate is still measured.
func TestEnergyErrors(t *testing.T) {
	broken := errors.New("cable cut")
	for _, c := range []struct {
		name  string
		after int
		then  func(float64) (float64, error)
		want  string
	}{
		{"at once", 0, func(float64) (float64, error) { return 0, broken }, "cable cut"},
		{"later", 1, func(float64) (float64, error) { return 0, broken }, "cable cut"},
		{"stuck", 0, func(float64) (float64, error) { return 7, nil }, "from 7 J to 7 J"},
		{"decreases", 1, func(float64) (float64, error) { return 7, nil }, "J to 7 J"},
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
