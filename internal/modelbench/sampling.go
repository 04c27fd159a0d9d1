package modelbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// SamplingOptions configures CompareSampling. All numbers are at least 1.
type SamplingOptions struct {
	Sequences []int // that decode together, one comparison each
	Depth     int   // cached positions of each sequence before its first step
	Steps     int   // timed steps of each measurement
	Rounds    int   // measurements of each set of parameters, besides a first one that does not count

	Show func(SamplingResult) // receives each result; may be nil

	now func() time.Time
}

// Path is what runs the steps.
type Path string

const (
	EnginePath    Path = "engine"    // Engine.Step, each step queued before the one before it is waited for
	SchedulerPath Path = "scheduler" // a generate.Generator
)

// SamplingResult is the speed of decoding with one set of sampling parameters.
type SamplingResult struct {
	Path      Path      `json:"path"`
	Sequences int       `json:"sequences"`
	Sampling  string    `json:"sampling"`          // name of the set
	Rate      float64   `json:"tokens_per_second"` // of all sequences together, median of the rounds
	Ratio     float64   `json:"of_greedy"`         // median of Ratios
	Ratios    []float64 `json:"of_greedy_by_round"`
}

// SamplingReport is a whole comparison. Its JSON is stable, like that of Report.
type SamplingReport struct {
	Benchmark string           `json:"benchmark"` // the constant SamplingBenchmark
	Version   int              `json:"version"`
	Date      string           `json:"date"` // ISO 8601
	Model     Model            `json:"model"`
	Device    string           `json:"device"`
	Depth     int              `json:"depth"`
	Steps     int              `json:"steps"`
	Results   []SamplingResult `json:"results"`
}

// SamplingBenchmark and SamplingVersion are for SamplingReport what Benchmark and Version are for
// Report.
const (
	SamplingBenchmark = "sampling"
	SamplingVersion   = 1
)

// samplingSet is a set of parameters with a name.
type samplingSet struct {
	name   string
	params generate.Params
}

// samplingSets returns the sets to compare. All are compared with the first, which is greedy. The
// second is equal to it, so its ratio shows the noise of the measurement. The mask and the hook do
// nothing, so they show what the engine and the scheduler need for them.
func samplingSets(vocab int) []samplingSet {
	drawn := func(p sampling.Params) generate.Params {
		p.Temperature, p.Seed = 0.7, 1
		return generate.Params{Sampling: p}
	}
	bias := map[int]float32{}
	for id := range min(8, vocab) {
		bias[id] = -1
	}
	mask := make([]uint32, sampling.MaskLen(vocab))
	for id := range vocab {
		mask[id/32] |= 1 << (id % 32)
	}
	return []samplingSet{
		{"greedy", generate.Params{}},
		{"greedy again", generate.Params{}},
		{"temperature", drawn(sampling.Params{})},
		{"temperature, top-k, top-p", drawn(sampling.Params{TopK: 40, TopP: 0.95})},
		{"temperature, min-p", drawn(sampling.Params{MinP: 0.05})},
		{"all parameters", drawn(sampling.Params{
			TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1, PresencePenalty: 0.1, FrequencyPenalty: 0.1,
			Bias: bias, LogProb: true, TopLogProbs: 5,
		})},
		{"mask", generate.Params{Mask: func() func([]int) ([]uint32, error) {
			return func([]int) ([]uint32, error) { return mask, nil }
		}}},
		{"hook", generate.Params{Logits: func([]int, []float32) {}}},
	}
}

// callsBack reports whether the set has callbacks, which only the scheduler calls.
func (s *samplingSet) callsBack() bool { return s.params.Mask != nil || s.params.Logits != nil }

// CompareSampling decodes with each set of sampling parameters in turn, round after round, and
// compares each speed with that of greedy decoding in the same round. Every other round runs in
// reverse order, so that a drift of the device's clocks cancels. Nothing else may use the engine.
func CompareSampling(ctx context.Context, eng model.Engine, o SamplingOptions) ([]SamplingResult, error) {
	if o.now == nil {
		o.now = time.Now
	}
	c := comparison{eng: eng, o: &o, sets: samplingSets(eng.Model().Config.Vocab)}
	var results []SamplingResult
	for _, n := range o.Sequences {
		for _, path := range []struct {
			name    Path
			measure func(context.Context, int) ([]SamplingResult, error)
		}{{EnginePath, c.engine}, {SchedulerPath, c.scheduler}} {
			list, err := path.measure(ctx, n)
			if err != nil {
				return results, fmt.Errorf("%d sequences, %s: %w", n, path.name, err)
			}
			for _, r := range list {
				r.Path, r.Sequences = path.name, n
				results = append(results, r)
				if o.Show != nil {
					o.Show(r)
				}
			}
		}
	}
	return results, nil
}

// comparison is a run of CompareSampling.
type comparison struct {
	eng  model.Engine
	o    *SamplingOptions
	sets []samplingSet
}

// rounds calls measure for each set in each round, and summarizes the speeds that it returns.
func (c *comparison) rounds(sets []samplingSet, measure func(*samplingSet) (float64, error)) ([]SamplingResult, error) {
	rates := make([][]float64, len(sets))
	for round := range c.o.Rounds + 1 {
		for i := range sets {
			if round%2 == 1 {
				i = len(sets) - 1 - i
			}
			rate, err := measure(&sets[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sets[i].name, err)
			}
			if round > 0 { // the first loads kernels and captures graphs
				rates[i] = append(rates[i], rate)
			}
		}
	}
	var results []SamplingResult
	for i, s := range sets {
		r := SamplingResult{Sampling: s.name, Rate: median(rates[i])}
		for round, rate := range rates[i] {
			r.Ratios = append(r.Ratios, rate/rates[0][round])
		}
		r.Ratio = median(r.Ratios)
		results = append(results, r)
	}
	return results, nil
}

// median returns the median of values, the lower one of an even number.
func median(list []float64) float64 {
	return stat.Quantile(0.5, stat.Empirical, slices.Sorted(slices.Values(list)), nil)
}

// engine compares the sets that have no callbacks, by calls of Engine.Step.
func (c *comparison) engine(ctx context.Context, n int) ([]SamplingResult, error) {
	b := &bench{eng: c.eng, o: &Options{Steps: c.o.Steps}, random: c.random()}
	defer b.closeGroup()
	g, err := b.open(ctx, Case{Kind: Batch, Depth: c.o.Depth, Sequences: n})
	if err != nil {
		return nil, err
	}
	prompt := b.tokens(c.o.Depth)
	sets := slices.DeleteFunc(slices.Clone(c.sets), func(s samplingSet) bool { return s.callsBack() })
	return c.rounds(sets, func(s *samplingSet) (float64, error) {
		if err := g.rewind(); err != nil {
			return 0, err
		}
		for _, sequence := range g.sequences {
			if err := sequence.SetSampling(&s.params.Sampling, prompt, nil); err != nil {
				return 0, err
			}
		}
		if err := b.run(ctx, g, g.measured.untimed()); err != nil {
			return 0, err
		}
		begin := c.o.now()
		if err := b.run(ctx, g, c.o.Steps); err != nil {
			return 0, err
		}
		return float64(n*c.o.Steps) / max(c.o.now().Sub(begin), 1).Seconds(), nil
	})
}

// scheduler compares all sets by requests to a generator. The speed of a request is that after
// its first token, so prompts do not count.
func (c *comparison) scheduler(ctx context.Context, n int) ([]SamplingResult, error) {
	gen, err := generate.New(c.eng, generate.Options{})
	if err != nil {
		return nil, err
	}
	defer gen.Close()
	b := &bench{eng: c.eng, random: c.random()}
	prompts := make([][]int, n)
	for i := range prompts {
		prompts[i] = b.tokens(c.o.Depth)
	}
	return c.rounds(c.sets, func(s *samplingSet) (float64, error) {
		p := s.params
		p.MaxTokens, p.IgnoreEOS = c.o.Steps+1, true
		rate := 0.0
		for _, r := range gen.BatchTokens(ctx, prompts, p) {
			if r.Err != nil {
				return 0, r.Err
			}
			rate += r.Stats.DecodeRate()
		}
		return rate, nil
	})
}

// random returns the source of prompts.
func (c *comparison) random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
