package modelbench

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// The engine's clock runs half as fast for sampled tokens.
func TestSamplingByEngine(t *testing.T) {
	e := newFake(t, "llama", 200)
	c := comparison{eng: e, sets: samplingSets(e.model.Config.Vocab), o: &SamplingOptions{Depth: 5, Steps: 6, Rounds: 3, now: e.now}}
	list, err := c.engine(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 6 || e.open != 0 || len(e.opened) != 2 {
		t.Fatalf("%d results, %d of %d sequences are open", len(list), e.open, len(e.opened))
	}
	for i, r := range list {
		rate, ratio := 1000.0, 1.0
		if !strings.HasPrefix(r.Sampling, "greedy") {
			rate, ratio = 500, 0.5
		}
		if r.Rate != rate || r.Ratio != ratio || !slices.Equal(r.Ratios, []float64{ratio, ratio, ratio}) {
			t.Errorf("%d: %+v, want %g tokens/s", i, r, rate)
		}
	}
	for _, s := range e.opened {
		if err := greedyChain(s.calls[1:], 5, 2+6, e.model.Config.Vocab); err != nil || len(s.calls) != 1+8*6*(1+3) {
			t.Errorf("%d calls: %v", len(s.calls), err)
		}
	}
}

// Each round has its own greedy speed, every other round is in reverse order, and the first
// does not count.
func TestSamplingRounds(t *testing.T) {
	sets := []samplingSet{{name: "greedy"}, {name: "a"}}
	var order string
	speeds := []float64{9, 9, 40, 10, 20, 12, 90, 80} // in the order of measurement
	c := comparison{o: &SamplingOptions{Rounds: 3}}
	list, err := c.rounds(sets, func(s *samplingSet) (float64, error) {
		order += s.name[:1]
		rate := speeds[0]
		speeds = speeds[1:]
		return rate, nil
	})
	if err != nil || order != "gaaggaag" {
		t.Fatalf("order %s, %v", order, err)
	}
	a := list[1]
	if list[0].Rate != 20 || a.Rate != 40 || a.Ratio != 1.125 || !slices.Equal(a.Ratios, []float64{4, 0.6, 1.125}) {
		t.Errorf("%+v", list)
	}
	broken := errors.New("broken")
	if _, err := c.rounds(sets, func(*samplingSet) (float64, error) { return 0, broken }); !errors.Is(err, broken) || !strings.Contains(err.Error(), "greedy: ") {
		t.Errorf("%v", err)
	}
}
