package conformance

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
)

// generationBehaviors cover the generation loop.
var generationBehaviors = []Behavior{
	{"first token from prefill", "one token costs one pass over the prompt and no decode step", firstFromPrefill},
	{"each token computed once", "the last prompt token is computed once, the last generated token not at all", eachTokenOnce},
	{"greedy paths agree", "the same tokens by the engine's argmax, the host's, top-k 1 and a bias of 0", greedyPathsAgree},
	{"MaxTokens 0", "MaxTokens 0 computes nothing", zeroMaxTokens},
	{"stop token as first token", "an empty result on each path", stopTokenFirst},
	{"stop token later", "the stop token ends the text and is not part of it, on each path", stopTokenLater},
	{"loop left early", "computation stops and the tokens so far are valid", loopLeftEarly},
	{"canceled at each token", "computation stops with the context's error", canceledAtEachToken},
	{"canceled in a prompt", "the context's error, and nothing of the prompt is cached", canceledInPrompt},
	{"loop panics", "the session is closed and the next request works", loopPanics},
	{"context limit", "an error with both numbers before any computation", contextLimit},
	{"generation fills the context", "exactly as many tokens as fit", fillsContext},
	{"seeds", "equal seeds give equal texts, other seeds other texts", seeds},
	{"request after an error", "an error does not affect the next request", afterAnError},
}

func firstFromPrefill(r *fixture) {
	prompt := r.tokens(7, 30)
	got := r.generate(prompt, generate.Params{MaxTokens: 1})
	calls := r.engine.reset()
	if len(calls) != 1 || calls[0].At != 0 || len(calls[0].Tokens) != 7 || calls[0].Want != model.WantGreedy {
		r.t.Fatalf("one token took %d passes, want one over the prompt", len(calls))
	}
	r.equal("the token", []int{calls[0].Output.Greedy}, got.IDs)
}

func eachTokenOnce(r *fixture) {
	prompt := r.tokens(7, 31)
	for _, p := range []generate.Params{{MaxTokens: 6}, {MaxTokens: 6, Temperature: 1}, {MaxTokens: 6, LogitBias: hostSampling}} {
		got := r.generate(prompt, p)
		var computed []int
		for _, c := range r.engine.reset() {
			if c.At != len(computed) {
				r.t.Errorf("a pass at position %d after %d tokens", c.At, len(computed))
			}
			computed = append(computed, c.Tokens...)
		}
		r.equal("tokens computed", append(append([]int(nil), prompt...), got.IDs[:5]...), computed)
	}
}

// hostSampling asks the engine for logits without changing any, so that a greedy choice
// is made on the host.
var hostSampling = map[int]float32{0: 0}

// greedyPaths are ways to make the same greedy choice.
var greedyPaths = map[string]generate.Params{
	"engine":  {},
	"host":    {LogitBias: hostSampling},
	"top-k 1": {TopK: 1, Temperature: 3},
}

func greedyPathsAgree(r *fixture) {
	prompt := r.tokens(5, 32)
	want := r.generate(prompt, generate.Params{MaxTokens: 20})
	for name, p := range greedyPaths {
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
	for name, p := range greedyPaths {
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
	for name, p := range greedyPaths {
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
		r.engine.reset()
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
		r.equal("passes", n, len(r.engine.reset()))
	}
}

func canceledAtEachToken(r *fixture) {
	prompt := r.tokens(5, 37)
	want := r.generate(prompt, generate.Params{MaxTokens: 6}).IDs
	for n := range 6 {
		ctx, cancel := context.WithCancel(r.t.Context())
		r.engine.reset()
		passes := 0
		r.engine.beforeForward = func() { // cancels at the start of pass n
			if passes == n {
				cancel()
			}
			passes++
		}
		got := collect(generate.Tokens(ctx, r.engine, prompt, generate.Params{MaxTokens: 6, IgnoreEOS: true}))
		r.engine.beforeForward = nil
		cancel()
		if !errors.Is(got.Err, context.Canceled) {
			r.t.Errorf("canceled in pass %d: error %v", n, got.Err)
		}
		r.equal("tokens before", append([]int(nil), want[:n]...), got.IDs)
		r.equal("passes before", n, len(r.engine.reset()))
	}
}

func canceledInPrompt(r *fixture) {
	prompt, p := r.tokens(20, 41), generate.Params{MaxTokens: 2, IgnoreEOS: true}
	want := r.generate(prompt, p)
	g := r.generator(generate.Options{PrefixBytes: manyBytes})
	defer g.Close()
	for n := range 6 { // at least as many queries precede the first token
		ctx, cancel := newCountdown(r.t.Context(), n)
		got := collect(g.Tokens(ctx, prompt, p))
		cancel()
		if !errors.Is(got.Err, context.Canceled) || len(got.IDs) > 0 || r.engine.openSessions() > 0 {
			r.t.Errorf("canceled at query %d: %d tokens, error %v, %d sessions are open", n, len(got.IDs), got.Err, r.engine.openSessions())
		}
	}
	if s := g.PrefixStats(); s.Entries != 0 {
		r.t.Errorf("%d canceled prompts are cached", s.Entries)
	}
	r.equal("afterwards", want, collect(g.Tokens(r.t.Context(), prompt, p)))
}

func loopPanics(r *fixture) {
	prompt, p := r.tokens(5, 42), generate.Params{MaxTokens: 3, IgnoreEOS: true}
	want := r.generate(prompt, p)
	g := r.generator(generate.Options{PrefixBytes: manyBytes})
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
		if open := r.engine.openSessions(); open != 0 {
			r.t.Errorf("after a panic at token %d: %d sessions are open", n, open)
		}
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
	p := generate.Params{MaxTokens: 20, Temperature: 100, Seed: 1}
	first := r.generate(prompt, p)
	r.equal("the same seed", first, r.generate(prompt, p))
	p.Seed = 2
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
