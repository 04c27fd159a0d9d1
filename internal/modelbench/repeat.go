package modelbench

import "slices"

// Repeat is one timed run of the passes of a case, with the conditions of that run.
type Repeat struct {
	Rate      float64    `json:"tokens_per_second"` // of all sequences together
	Seconds   float64    `json:"seconds"`
	Counts    *Counts    `json:"engine,omitempty"` // during the run; nil: unknown
	Condition *Condition `json:"device,omitempty"` // at its end; nil: unknown
}

// Counts holds counters of an engine. If all sequences of a batch share every step, Steps
// equals the number of passes.
type Counts struct {
	Steps      int `json:"steps"`       // decode steps
	StepTokens int `json:"step_tokens"` // tokens of those steps
	Chunks     int `json:"chunks"`      // prompt chunks
	AsyncSteps int `json:"async_steps"` // steps that were queued before the one before them ended
	Captures   int `json:"captures"`    // captured graphs
}

func (c Counts) since(before Counts) Counts {
	return Counts{
		c.Steps - before.Steps, c.StepTokens - before.StepTokens, c.Chunks - before.Chunks,
		c.AsyncSteps - before.AsyncSteps, c.Captures - before.Captures,
	}
}

// Condition is the state of a device at one time. Unknown values are 0 or nil.
type Condition struct {
	SMClock     float64  `json:"sm_hertz,omitempty"`
	MemoryClock float64  `json:"memory_hertz,omitempty"`
	Watts       float64  `json:"watts,omitempty"` // averaged by the device
	Celsius     float64  `json:"celsius,omitempty"`
	Slowed      []string `json:"slowed_by,omitempty"` // reasons for reduced clocks
}

// setRepeats computes the rate of each repeat, and their median, least and most.
func (r *Result) setRepeats(list []Repeat) {
	tokens := float64(r.tokens() * r.Passes)
	rates := make([]float64, len(list))
	for i := range list {
		list[i].Rate = tokens / list[i].Seconds
		rates[i] = list[i].Rate
	}
	r.Each, r.Repeats = list, len(list)
	r.Rate, r.Least, r.Most = median(rates), slices.Min(rates), slices.Max(rates)
}

// counts returns the current counters, or nil.
func (b *bench) counts() *Counts {
	if b.o.Counts == nil {
		return nil
	}
	c := b.o.Counts()
	return &c
}
