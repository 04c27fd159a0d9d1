package main

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/internal/modelbench"
)

// checkRepeats wants a figure's repeats to tell what an engine counts, if it counts, and
// nothing of a device that tells nothing.
func checkRepeats(t *testing.T, r modelbench.Result, counts bool) {
	t.Helper()
	if len(r.Each) != r.Repeats {
		t.Errorf("%v: %d repeats, of which %d are told", r.Case, r.Repeats, len(r.Each))
	}
	for _, one := range r.Each {
		if one.Condition != nil || (one.Counts != nil) != counts {
			t.Errorf("%v: %+v", r.Case, one)
			continue
		}
		rows, chunks := r.Sequences*r.Passes, 0
		if r.Kind == modelbench.Prefill {
			rows, chunks = 0, 1
		}
		if c := one.Counts; counts && (c.Rows != rows || c.Chunks != chunks || c.Steps*r.Sequences < rows || c.LookaheadSteps > c.Steps) {
			t.Errorf("%v of %d passes: %+v", r.Case, r.Passes, *c)
		}
	}
}

func TestBenchShowsRepeats(t *testing.T) {
	counted := func(steps int) modelbench.Repeat {
		return modelbench.Repeat{Counts: &modelbench.Counts{Steps: steps}}
	}
	at := func(hertz float64, slowed ...string) modelbench.Repeat {
		return modelbench.Repeat{Condition: &modelbench.Condition{SMClock: hertz, Slowed: slowed}}
	}
	of := func(c modelbench.Case, each ...modelbench.Repeat) modelbench.Result {
		return modelbench.Result{Case: c, Passes: 8, Repeats: len(each), Each: each}
	}
	batch := modelbench.Case{Kind: modelbench.Batch, Sequences: 64}
	prompt := modelbench.Case{Kind: modelbench.Prefill, Prompt: 5, Sequences: 1}
	for _, c := range []struct {
		name, reason string
		results      []modelbench.Result
		want         string
	}{
		{"nothing known", "a CPU", []modelbench.Result{of(batch, modelbench.Repeat{})}, ""},
		{"together", "a step a pass is as it should be", []modelbench.Result{of(batch, counted(8), counted(8))}, ""},
		{"skipped", "it has no repeats", []modelbench.Result{of(batch)}, ""},
		{"apart", "the most steps of a repeat", []modelbench.Result{of(batch, counted(8), counted(10), counted(9))},
			"\nbatch 64: not all sequences stepped together in 2 of 3 repeats: up to 10 steps for 8\n"},
		{"stepwise prompt", "a pass of a prompt is as many steps as it takes", []modelbench.Result{of(prompt, counted(9))}, ""},
		{"clocks", "the range of all figures", []modelbench.Result{of(prompt, at(1.98e9)), of(batch, at(1.755e9), at(1.9e9))},
			"\nclock of the SMs: 1.75 to 1.98 GHz\n"},
		{"no clock", "reasons say nothing alone", []modelbench.Result{of(batch, at(0, "power limit"))}, ""},
		{"held down", "each reason once, and of how many", []modelbench.Result{of(batch, at(1.5e9, "temperature", "power limit"), at(1.6e9, "power limit"), at(1.98e9), modelbench.Repeat{})},
			"\nclock of the SMs: 1.50 to 1.98 GHz; held down after 2 of 3 repeats: power limit, temperature\n"},
	} {
		var out bytes.Buffer
		if err := (&env{out: &out}).showRepeats(modelbench.Report{Results: c.results}); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s (%s): %q, want %q", c.name, c.reason, out.String(), c.want)
		}
	}
}

func TestConditionOf(t *testing.T) {
	tells := cuda.Condition{SMClock: 1.98e9, MemoryClock: 3.2e9, Watts: 640, Celsius: 61, Slowed: []string{"power limit"}}
	want := &modelbench.Condition{SMClock: 1.98e9, MemoryClock: 3.2e9, Watts: 640, Celsius: 61, Slowed: []string{"power limit"}}
	if got := conditionOf(&stillMeter{tells: tells}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := conditionOf(&stillMeter{}); got != nil {
		t.Errorf("of a device that tells nothing: %+v", got)
	}
}
