// Package modelbench measures the speed of an engine on one model, in tokens/s: decoding
// after contexts of several lengths, prefill of prompts, and decoding of batches. It
// compares each result with the roofline limit of the device, measured in the same run.
package modelbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// Options configures Run. Zero values are replaced as the comments say.
type Options struct {
	Depths  []int // cached positions before decoding, one case each
	Prompts []int // tokens of prompts, one case each
	Batches []int // sequences that decode together, one case each for every element of BatchDepths
	// BatchDepths are the cached positions of each sequence of a batch before decoding.
	BatchDepths []int

	Repeats int // maximum per case; 0: 5
	Steps   int // decode steps per repeat; 0: as many as Budget allows, up to 128
	// Budget is the approximate time of all repeats of a case; 0: 4 s. Each case has at
	// least one repeat. A case whose preparation needs ten budgets is skipped.
	Budget time.Duration

	Sequences int          // largest batch of the engine; 0: unlimited
	Cache     Cache        // size of the engine's KV cache
	KV        quant.Format // of the KV cache

	Limits *kernelbench.Limits // of the device; nil: results have no share of a limit
	// Meter measures energy; nil: unknown. If the timed repeats are too short for its
	// resolution, Run adds untimed ones within Budget.
	Meter Meter

	Counts    func() Counts     // the engine's counters, read around each repeat; may be nil
	Condition func() *Condition // the device's clocks, read after each repeat; may be nil

	Show func(Result) // receives each result at once; may be nil

	now func() time.Time
}

// Cache is the size of a paged KV cache. If Pages is 0, the size is unlimited.
type Cache struct{ Pages, PageTokens int }

// Kind is the kind of work that a case measures.
type Kind string

const (
	Decode  Kind = "decode"  // greedy decoding of one sequence
	Prefill Kind = "prefill" // a prompt of random tokens, up to its first greedy token
	Batch   Kind = "batch"   // greedy decoding of several sequences together
)

// Case is one measurement.
type Case struct {
	Kind      Kind `json:"kind"`
	Depth     int  `json:"depth"`     // Decode and Batch: cached positions of each sequence before the first step; at least 1 is used
	Prompt    int  `json:"prompt"`    // Prefill: tokens
	Sequences int  `json:"sequences"` // Batch: sequences; else 1
}

// String returns the case as tables name it.
func (c Case) String() string {
	switch c.Kind {
	case Prefill:
		return fmt.Sprintf("prefill %d", c.Prompt)
	case Batch:
		return fmt.Sprintf("batch %d at %d", c.Sequences, c.Depth)
	}
	return fmt.Sprintf("decode at %d", c.Depth)
}

// tokens returns the tokens per forward pass.
func (c Case) tokens() int { return max(c.Prompt, c.Sequences) }

// logits returns the tokens per forward pass whose logits are computed.
func (c Case) logits() int { return c.Sequences }

// fill returns the cached positions before the first timed step.
func (c Case) fill() int {
	if c.Kind == Prefill {
		return 0
	}
	return max(1, c.Depth)
}

// Result is the measurement of a case. If the case was skipped or failed, what was not
// measured is 0.
type Result struct {
	Case
	Rate    float64 `json:"tokens_per_second"` // of all sequences together, median of the repeats
	Least   float64 `json:"least_tokens_per_second"`
	Most    float64 `json:"most_tokens_per_second"`
	Repeats int     `json:"repeats"`
	Passes  int     `json:"passes"`     // forward passes per repeat: steps, or 1 for a prompt
	Bytes   float64 `json:"pass_bytes"` // of weights, keys and values: see Work; mean of the passes
	FLOP    float64 `json:"pass_flop"`  // per pass, see Work
	// Limit is the roofline limit of a pass, "read" or "matrix"; Share is the time that the
	// limit allows divided by the measured time.
	Limit         string   `json:"limit,omitempty"`
	Share         float64  `json:"share_of_limit,omitempty"`
	Joules        *float64 `json:"joules_per_token,omitempty"` // nil: unknown
	EnergySeconds float64  `json:"energy_seconds,omitempty"`   // duration of the energy measurement
	EnergyUnknown string   `json:"energy_unknown,omitempty"`   // why Joules is nil, if there is a Meter
	Skipped       string   `json:"skipped,omitempty"`          // why
	Err           string   `json:"error,omitempty"`
	Each          []Repeat `json:"by_repeat,omitempty"` // in the order of measurement
}

// cases returns the cases in the order of measurement. Prefill comes first: skipReason uses
// its rates to estimate how long it takes to fill a cache. Batches of one depth follow each
// other and grow: each continues with the sequences of the one before it.
func (o *Options) cases() []Case {
	var list []Case
	for _, n := range ascending(o.Prompts) {
		list = append(list, Case{Kind: Prefill, Prompt: n, Sequences: 1})
	}
	for _, n := range ascending(o.Depths) {
		list = append(list, Case{Kind: Decode, Depth: n, Sequences: 1})
	}
	for _, depth := range ascending(o.BatchDepths) {
		for _, n := range ascending(o.Batches) {
			list = append(list, Case{Kind: Batch, Depth: depth, Sequences: n})
		}
	}
	return list
}

// ascending returns the different values of list in ascending order.
func ascending(list []int) []int {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// Pages returns the largest number of cache pages that a case needs, with pageTokens
// positions per page. It ignores cases that exceed the context.
func (o Options) Pages(context, pageTokens int) (most int) {
	o = o.withDefaults()
	for _, c := range o.cases() {
		if o.need(c) <= context {
			most = max(most, c.Sequences*((o.capacity(c, context)+pageTokens-1)/pageTokens))
		}
	}
	return most
}

// need returns the minimum number of positions per sequence for a case.
func (o *Options) need(c Case) int {
	if c.Kind == Prefill {
		return c.Prompt
	}
	return c.fill() + c.untimed() + 1
}

// capacity returns the maximum number of positions per sequence that a case uses.
func (o *Options) capacity(c Case, context int) int {
	if c.Kind == Prefill {
		return c.Prompt
	}
	steps := o.Steps
	if steps == 0 {
		steps = mostSteps
	}
	return min(c.fill()+c.untimed()+steps, context)
}

const mostSteps = 128

func (o Options) withDefaults() Options {
	if o.Repeats == 0 {
		o.Repeats = 5
	}
	if o.Budget == 0 {
		o.Budget = 4 * time.Second
	}
	if o.now == nil {
		o.now = time.Now
	}
	return o
}

// check returns an error for the first option that is out of range.
func (o *Options) check() error {
	for _, f := range []struct {
		name  string
		least int
		list  []int
	}{
		{"Depths", 0, o.Depths}, {"Prompts", 1, o.Prompts}, {"Batches", 1, o.Batches}, {"BatchDepths", 0, o.BatchDepths},
		{"Repeats", 1, []int{o.Repeats}}, {"Steps", 0, []int{o.Steps}}, {"Budget", 1, []int{int(o.Budget)}},
	} {
		for _, n := range f.list {
			if n < f.least {
				return fmt.Errorf("modelbench: Options.%s: %d, want %d or more", f.name, n, f.least)
			}
		}
	}
	return nil
}

// Run measures every case. A case that fails has its error in its result. If ctx is
// canceled or the device is lost, Run returns an error with the results so far.
func Run(ctx context.Context, eng model.Engine, o Options) ([]Result, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	b := newBench(eng, &o)
	defer b.closeGroup()
	var results []Result
	for _, c := range o.cases() {
		res, err := b.measure(ctx, c)
		if stop := ctx.Err(); stop != nil {
			return results, stop
		}
		if err != nil {
			res.Err = err.Error()
		}
		results = append(results, res)
		if o.Show != nil {
			o.Show(res)
		}
		if errors.Is(err, driver.ErrDeviceLost) {
			return results, fmt.Errorf("%v: %w", c, err)
		}
	}
	return results, nil
}
