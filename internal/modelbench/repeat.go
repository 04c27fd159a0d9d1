package modelbench

import (
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Repeat is one timed run of a figure's passes, with what tells why it may differ from
// the others.
type Repeat struct {
	Rate    float64 `json:"tokens_per_second"` // of all sequences together
	Seconds float64 `json:"seconds"`
	// Counts is what the engine counted from the beginning of these seconds to their end;
	// nil: it counts nothing.
	Counts *Counts `json:"engine,omitempty"`
	// Condition is that of the device at their end; nil: it tells nothing.
	Condition *Condition `json:"device,omitempty"`
}

// Counts are an engine's counters. Where all sequences of a batch go through every step
// together, there are as many steps as passes, of as many rows as sequences.
type Counts struct {
	Steps  int `json:"steps"`  // with the kernels of decoding
	Rows   int `json:"rows"`   // that they computed
	Chunks int `json:"chunks"` // of prompts
	// LookaheadSteps are those of the steps that were computed before they were asked for,
	// and LookaheadWasted those beyond the steps that nobody asked for in the end. The latter
	// count when that is known: the step behind a run's last is thrown away by the next run.
	LookaheadSteps  int `json:"lookahead_steps"`
	LookaheadWasted int `json:"lookahead_wasted"`
	Captures        int `json:"captures"` // graphs that were made
}

func (c Counts) since(before Counts) Counts {
	return Counts{
		c.Steps - before.Steps, c.Rows - before.Rows, c.Chunks - before.Chunks,
		c.LookaheadSteps - before.LookaheadSteps, c.LookaheadWasted - before.LookaheadWasted, c.Captures - before.Captures,
	}
}

// Condition is what a device tells of itself at a moment. 0 and nil are what it does not
// tell.
type Condition struct {
	SMClock     float64  `json:"sm_hertz,omitempty"`
	MemoryClock float64  `json:"memory_hertz,omitempty"`
	Watts       float64  `json:"watts,omitempty"` // as the device averages
	Celsius     float64  `json:"celsius,omitempty"`
	Slowed      []string `json:"slowed_by,omitempty"` // what holds the clocks down
}

// setRepeats computes the rate of each repeat, and their median, least and most. The median
// of an even number of repeats is the lower one of the two in the middle.
func (r *Result) setRepeats(list []Repeat) {
	tokens := float64(r.tokens() * r.Passes)
	rates := make([]float64, len(list))
	for i := range list {
		list[i].Rate = tokens / list[i].Seconds
		rates[i] = list[i].Rate
	}
	slices.Sort(rates)
	r.Each, r.Repeats = list, len(list)
	r.Rate, r.Least, r.Most = stat.Quantile(0.5, stat.Empirical, rates, nil), rates[0], rates[len(rates)-1]
}

// counts is what the engine has counted so far; nil if it counts nothing.
func (b *bench) counts() *Counts {
	if b.o.Counts == nil {
		return nil
	}
	c := b.o.Counts()
	return &c
}
