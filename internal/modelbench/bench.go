// Package modelbench measures an engine on one model: tokens a second of decoding at
// several depths, of prompts, and of sequences that decode together. Each figure stands
// beside the limit of the device that a perfect engine would run into, measured in the
// same run.
package modelbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/model"
)

// Options say what is measured. A field that is 0 or nil takes what its comment says.
type Options struct {
	Depths  []int // positions in the cache before decoding; nil: none is measured
	Prompts []int // tokens of prompts; nil: none
	Batches []int // sequences that decode together; nil: none

	Repeats int // most of one figure; 0: 5
	Steps   int // that are timed together; 0: as many as Budget allows, up to 128
	// Budget is about how long the repeats of one figure take; 0: 4 s. One repeat is
	// always made. What needs ten budgets to get ready is skipped.
	Budget time.Duration

	Sequences int  // that the engine steps together; 0: any number
	Room      Room // for keys and values

	Limits *kernelbench.Limits // of the device; nil: unknown, and no figure has a share
	// Meter counts energy; nil: it is unknown. Figures whose repeats take less time than
	// energy takes are repeated without being timed until it is known, within Budget.
	Meter Meter

	// Counts gives the engine's counters, and Condition what the device tells of itself now, or
	// nil. They are asked between repeats; nil: what they would tell is unknown.
	Counts    func() Counts
	Condition func() *Condition

	Show func(Result) // if set, sees each result as it comes

	// Warm, if set, makes the engine ready for steps of so many sequences each, which hold
	// up to so many positions.
	Warm func(ctx context.Context, positions int, sequences ...int) error

	now func() time.Time
}

// Room is what an engine's cache holds: a sequence takes whole pages. No pages: it is
// not known to be bounded.
type Room struct{ Pages, PagePositions int }

// Kind is what a case measures.
type Kind string

const (
	Decode  Kind = "decode"  // one sequence, a token a step, each the greedy choice of the step before
	Prefill Kind = "prefill" // a whole prompt of random tokens, and its greedy continuation
	Batch   Kind = "batch"   // Decode for several sequences at the same time
)

// Case is one thing to measure.
type Case struct {
	Kind      Kind `json:"kind"`
	Depth     int  `json:"depth"`     // Decode: positions of random tokens before the first step. At depth 0 there is one: a first token is a prompt
	Prompt    int  `json:"prompt"`    // Prefill: tokens
	Sequences int  `json:"sequences"` // 1 but for Batch
}

func (c Case) String() string {
	switch c.Kind {
	case Prefill:
		return fmt.Sprintf("prefill %d", c.Prompt)
	case Batch:
		return fmt.Sprintf("batch %d", c.Sequences)
	}
	return fmt.Sprintf("decode at %d", c.Depth)
}

// tokens is how many a pass over the model computes.
func (c Case) tokens() int { return max(c.Prompt, c.Sequences) }

// heads is after how many of them logits are computed.
func (c Case) heads() int { return c.Sequences }

// fill is how many positions are in the cache before anything is timed.
func (c Case) fill() int {
	if c.Kind == Prefill {
		return 0
	}
	return max(1, c.Depth)
}

// Result is a case's measurement. One that was skipped or failed has 0 for what was not
// measured.
type Result struct {
	Case
	Rate    float64 `json:"tokens_per_second"` // of all sequences together, median of the repeats
	Least   float64 `json:"least_tokens_per_second"`
	Most    float64 `json:"most_tokens_per_second"`
	Repeats int     `json:"repeats"`
	Passes  int     `json:"passes"` // of each repeat: steps, or 1 for a prompt
	// Bytes and FLOP are what a pass cannot do without, see Work.
	Bytes float64 `json:"pass_bytes"`
	FLOP  float64 `json:"pass_flop"`
	// Limit is what a perfect pass would wait for, "read" or "matrix"; Share is the time of
	// such a pass over the time of this one.
	Limit string  `json:"limit,omitempty"`
	Share float64 `json:"share_of_limit,omitempty"`
	// Joules is the energy for each token; nil: it is unknown.
	Joules        *float64 `json:"joules_per_token,omitempty"`
	EnergySeconds float64  `json:"energy_seconds,omitempty"` // over which it was counted
	EnergyUnknown string   `json:"energy_unknown,omitempty"` // why, if there is a Meter
	Skipped       string   `json:"skipped,omitempty"`        // why
	Err           string   `json:"error,omitempty"`
	Each          []Repeat `json:"by_repeat,omitempty"` // in the order in which they were run
}

// cases lists what is asked for, what takes less time before what takes more. Prompts
// come first: they tell how long it takes to fill a cache.
func (o *Options) cases() []Case {
	var list []Case
	for _, g := range []struct {
		sizes []int
		of    func(n int) Case
	}{
		{o.Prompts, func(n int) Case { return Case{Kind: Prefill, Prompt: n, Sequences: 1} }},
		{o.Depths, func(n int) Case { return Case{Kind: Decode, Depth: n, Sequences: 1} }},
		{o.Batches, func(n int) Case { return Case{Kind: Batch, Sequences: n} }},
	} {
		sizes := slices.Sorted(slices.Values(g.sizes))
		for _, n := range slices.Compact(sizes) {
			list = append(list, g.of(n))
		}
	}
	return list
}

// Pages is how many pages of so many positions the cases use at once, at most. What does
// not fit into the context is not counted.
func (o Options) Pages(context, positions int) (most int) {
	o = o.withDefaults()
	for _, c := range o.cases() {
		if o.need(c) <= context {
			most = max(most, c.Sequences*((o.capacity(c, context)+positions-1)/positions))
		}
	}
	return most
}

// need is the fewest positions of a sequence that a case can be measured with.
func (o *Options) need(c Case) int {
	if c.Kind == Prefill {
		return c.Prompt
	}
	return c.fill() + c.untimed() + 1
}

// capacity is the most positions of a sequence that a case uses.
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

// check is a programmer's or a caller's mistake in the options.
func (o *Options) check() error {
	for _, f := range []struct {
		name  string
		least int
		list  []int
	}{
		{"Depths", 0, o.Depths}, {"Prompts", 1, o.Prompts}, {"Batches", 1, o.Batches},
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

// Run measures every case. One that fails is a result with its error; Run ends with an
// error when the context does or the device is lost, and returns what it has.
func Run(ctx context.Context, eng model.Engine, o Options) ([]Result, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	b := &bench{eng: eng, o: &o, work: WorkOf(eng.Model()), random: rand.New(rand.NewPCG(1, 2))}
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
