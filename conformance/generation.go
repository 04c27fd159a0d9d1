package conformance

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// generationBehaviors cover the generation loop.
var generationBehaviors = []Behavior{
	{"first token from prefill", "one token costs one pass over the prompt and no decode step", firstFromPrefill},
	{"each token computed once", "the last prompt token is computed once, the last generated token not at all", eachTokenOnce},
	{"greedy paths agree", "the same tokens by the engine's argmax, top-k 1, a bias of 0, a hook and a mask", greedyPathsAgree},
	{"MaxTokens 0", "MaxTokens 0 computes nothing", zeroMaxTokens},
	{"stop token as first token", "an empty result on each path", stopTokenFirst},
	{"stop token later", "the stop token ends the text and is not part of it, on each path", stopTokenLater},
	{"loop left early", "the tokens so far are valid, and nothing is left in the engine", loopLeftEarly},
	{"canceled at each step", "the tokens before and the context's error", canceledAtEachStep},
	{"canceled in a prompt", "the context's error, and nothing of the prompt is cached", canceledInPrompt},
	{"loop panics", "the sequence is closed and the next request works", loopPanics},
	{"context limit", "an error with both numbers before any computation", contextLimit},
	{"generation fills the context", "exactly as many tokens as fit", fillsContext},
	{"seeds", "equal seeds give equal texts, other seeds other texts", seeds},
	{"request after an error", "an error does not affect the next request", afterAnError},
}

// generated is the result of a generation.
type generated struct {
	IDs  []int // without model.NoToken
	Text string
	Err  error
}

func collect(seq func(func(generate.Token, error) bool)) generated {
	var g generated
	for t, err := range seq {
		if err != nil {
			g.Err = err
			continue
		}
		if t.ID != generate.NoToken {
			g.IDs = append(g.IDs, t.ID)
		}
		g.Text += t.Text
	}
	return g
}

// generate continues a prompt without a prefix cache. It ignores stop tokens, so that
// random models write something.
func (r *fixture) generate(prompt []int, p generate.Params) generated {
	r.t.Helper()
	p.IgnoreEOS = true
	g := collect(generate.Tokens(r.t.Context(), r.engine, prompt, p))
	if g.Err != nil {
		r.t.Fatalf("generating: %v", g.Err)
	}
	return g
}

// everyToken is a mask that permits all tokens of the vocabulary.
func (r *fixture) everyToken([]int) ([]uint32, error) {
	return slices.Repeat([]uint32{math.MaxUint32}, sampling.MaskLen(r.vocab)), nil
}

// generator returns a generator that Check closes. Nothing else may use the engine while it has
// requests.
func (r *fixture) generator(o generate.Options) *generate.Generator {
	r.t.Helper()
	g, err := generate.New(r.engine, o)
	if err != nil {
		r.t.Fatalf("generator: %v", err)
	}
	r.closers = append(r.closers, g)
	return g
}

func firstFromPrefill(r *fixture) {
	prompt := r.tokens(7, 30)
	got := r.generate(prompt, generate.Params{MaxTokens: 1})
	calls := r.engine.reset()
	if len(calls) != 1 || calls[0].At != 0 || len(calls[0].Tokens) != 7 || calls[0].Want != model.WantToken {
		r.t.Fatalf("one token took %d passes, want one over the prompt", len(calls))
	}
	r.equal("the token", []int{calls[0].Result.Token}, got.IDs)
}

func eachTokenOnce(r *fixture) {
	prompt := r.tokens(7, 31)
	for _, p := range []generate.Params{
		{MaxTokens: 6}, {MaxTokens: 6, Sampling: sampling.Params{Temperature: 1}}, {MaxTokens: 6, Logits: unchanged},
	} {
		got := r.generate(prompt, p)
		var computed []int
		for i, c := range r.engine.reset() {
			if c.At != len(computed) {
				r.t.Errorf("a row at position %d after %d tokens", c.At, len(computed))
			}
			if computed = append(computed, c.Tokens...); c.Tokens == nil {
				computed = append(computed, got.IDs[i-1])
			}
		}
		r.equal("tokens computed", append(append([]int(nil), prompt...), got.IDs[:5]...), computed)
	}
}

// unchanged leaves the logits as they are, so that the engine's caller sees them.
func unchanged([]int, []float32) {}

// greedyPaths are ways to make the same greedy choice.
func (r *fixture) greedyPaths() map[string]generate.Params {
	return map[string]generate.Params{
		"engine":        {},
		"bias of 0":     {Sampling: sampling.Params{Bias: map[int]float32{0: 0}}},
		"top-k 1":       {Sampling: sampling.Params{TopK: 1, Temperature: 3}},
		"probabilities": {Sampling: sampling.Params{LogProb: true}},
		"hook":          {Logits: unchanged},
		"mask":          {Mask: func() func([]int) ([]uint32, error) { return r.everyToken }},
	}
}

func greedyPathsAgree(r *fixture) {
	prompt := r.tokens(5, 32)
	want := r.generate(prompt, generate.Params{MaxTokens: 20})
	for name, p := range r.greedyPaths() {
		p.MaxTokens = 20
		r.equal(name, want, r.generate(prompt, p))
	}
}

func zeroMaxTokens(r *fixture) {
	got := r.generate(r.tokens(5, 33), generate.Params{})
	r.equal("tokens", 0, len(got.IDs))
	r.equal("passes", 0, len(r.engine.reset()))
}

func stopTokenFirst(r *fixture) {
	prompt := r.tokens(5, 34)
	first := r.generate(prompt, generate.Params{MaxTokens: 1}).IDs
	for name, p := range r.greedyPaths() {
		p.MaxTokens, p.StopTokens = 9, first
		r.equal(name, 0, len(r.generate(prompt, p).IDs))
	}
}

func stopTokenLater(r *fixture) {
	prompt := r.tokens(5, 35)
	free := r.generate(prompt, generate.Params{MaxTokens: 12}).IDs
	stop := free[len(free)-1]
	n := 0
	for free[n] != stop {
		n++
	}
	for name, p := range r.greedyPaths() {
		var stats generate.Stats
		p.MaxTokens, p.StopTokens, p.Stats = 12, []int{stop}, &stats
		r.equal(name, append([]int(nil), free[:n]...), r.generate(prompt, p).IDs)
		r.equal(name+", finish", generate.FinishStopToken, stats.Finish)
	}
}

func loopLeftEarly(r *fixture) {
	prompt := r.tokens(5, 36)
	want := r.generate(prompt, generate.Params{MaxTokens: 6}).IDs
	for n := 1; n < 6; n++ {
		var got []int
		for t, err := range generate.Tokens(r.t.Context(), r.engine, prompt, generate.Params{MaxTokens: 6, IgnoreEOS: true}) {
			if err != nil {
				r.t.Fatalf("token %d: %v", len(got), err)
			}
			if got = append(got, t.ID); len(got) == n {
				break
			}
		}
		r.equal("tokens", want[:n], got)
		r.open(0)
	}
}

// canceledIn generates and cancels the context before a step. It demands its error.
func (r *fixture) canceledIn(step int, g *generate.Generator, prompt []int, p generate.Params) generated {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	var steps atomic.Int64
	r.engine.beforeStep = func() {
		if steps.Add(1) == int64(step+1) {
			cancel()
		}
	}
	got := collect(g.Tokens(ctx, prompt, p))
	r.engine.beforeStep = nil
	if !errors.Is(got.Err, context.Canceled) {
		r.t.Errorf("canceled in step %d: error %v", step, got.Err)
	}
	return got
}

func canceledAtEachStep(r *fixture) {
	prompt := r.tokens(5, 37)
	want := r.generate(prompt, generate.Params{MaxTokens: 6}).IDs
	g := r.generator(generate.Options{PrefixTokens: -1})
	defer g.Close()
	for n := range 6 {
		got := r.canceledIn(n, g, prompt, generate.Params{MaxTokens: 6, IgnoreEOS: true})
		if len(got.IDs) > n {
			r.t.Errorf("canceled in step %d: %d tokens", n, len(got.IDs))
		}
		r.equal("tokens before", append([]int(nil), want[:len(got.IDs)]...), got.IDs)
		r.open(0)
	}
}

func canceledInPrompt(r *fixture) {
	prompt, p := r.tokens(20, 41), generate.Params{MaxTokens: 2, IgnoreEOS: true}
	want := r.generate(prompt, p)
	g := r.generator(generate.Options{PrefixTokens: manyTokens, PromptTokens: 4})
	defer g.Close()
	for n := range 4 { // before the step with the last part
		got := r.canceledIn(n, g, prompt, p)
		if len(got.IDs) > 0 {
			r.t.Errorf("canceled in step %d of a prompt: %d tokens", n, len(got.IDs))
		}
		r.open(0)
	}
	if s := g.Load().Prefix; s.Entries != 0 {
		r.t.Errorf("%d canceled prompts are cached", s.Entries)
	}
	r.equal("afterwards", want, collect(g.Tokens(r.t.Context(), prompt, p)))
}

func loopPanics(r *fixture) {
	prompt, p := r.tokens(5, 42), generate.Params{MaxTokens: 3, IgnoreEOS: true}
	want := r.generate(prompt, p)
	g := r.generator(generate.Options{PrefixTokens: manyTokens})
	defer g.Close()
	for n := 1; n <= 2; n++ {
		func() {
			defer func() {
				if v := recover(); v != "from the loop" {
					r.t.Errorf("the panic is %v", v)
				}
			}()
			tokens := 0
			for range g.Tokens(r.t.Context(), prompt, p) {
				if tokens++; tokens == n {
					panic("from the loop")
				}
			}
		}()
		r.open(g.Load().Prefix.Entries)
		r.equal("the next request", want, collect(g.Tokens(r.t.Context(), prompt, p)))
	}
}

func contextLimit(r *fixture) {
	limit := r.engine.Model().Config.Context
	for _, tt := range []struct{ prompt, max, need int }{
		{limit + 1, 1, limit + 2}, {limit + 1, 0, limit + 1}, {4, limit - 3, limit + 1},
	} {
		r.engine.reset()
		got := collect(generate.Tokens(r.t.Context(), r.engine, make([]int, tt.prompt), generate.Params{MaxTokens: tt.max}))
		if !errors.Is(got.Err, model.ErrContextLimit) || !containsAll(got.Err.Error(), tt.need, limit) {
			r.t.Errorf("%d + %d positions: error %v, want an ErrContextLimit with %d and %d", tt.prompt, tt.max, got.Err, tt.need, limit)
		}
		if r.engine.opened != 0 || len(got.IDs) != 0 {
			r.t.Errorf("%d + %d positions: something was computed", tt.prompt, tt.max)
		}
	}
}

func fillsContext(r *fixture) {
	g := r.generator(generate.Options{Capacity: 20})
	got := collect(g.Tokens(r.t.Context(), r.tokens(15, 38), generate.Params{MaxTokens: -1, IgnoreEOS: true}))
	if got.Err != nil || len(got.IDs) != 5 {
		r.t.Errorf("15 of 20 positions used: generated %d tokens, error %v", len(got.IDs), got.Err)
	}
}

func seeds(r *fixture) {
	prompt := r.tokens(5, 39)
	p := generate.Params{MaxTokens: 20, Sampling: sampling.Params{Temperature: 100, Seed: 1}}
	first := r.generate(prompt, p)
	r.equal("the same seed", first, r.generate(prompt, p))
	p.Sampling.Seed = 2
	if other := r.generate(prompt, p); firstDifferentID(first.IDs, other.IDs) < 0 {
		r.t.Errorf("two seeds gave the same 20 tokens at temperature 100")
	}
}

func firstDifferentID(a, b []int) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func afterAnError(r *fixture) {
	prompt := r.tokens(5, 40)
	want := r.generate(prompt, generate.Params{MaxTokens: 4})
	for _, bad := range [][]int{{}, {r.vocab}, make([]int, r.engine.Model().Config.Context+1)} {
		if got := collect(generate.Tokens(r.t.Context(), r.engine, bad, generate.Params{MaxTokens: 4})); got.Err == nil {
			r.t.Errorf("a prompt of %d tokens was accepted", len(bad))
		}
		r.equal("the next request", want, r.generate(prompt, generate.Params{MaxTokens: 4}))
	}
}
