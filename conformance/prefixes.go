package conformance

import (
	"slices"

	"github.com/lockstep-go/lockstep/generate"
)

// prefixBehaviors cover the prefix cache.
var prefixBehaviors = []Behavior{
	{"prefix hit equals miss", "the same bits for any reused part of a prompt", prefixHitEqualsMiss},
	{"repeated prompt", "a cached prompt needs no prefill", repeatedPrompt},
	{"only prompts are cached", "generated positions are not cached", onlyPromptsCached},
	{"prefix cache is bounded", "the least recently used prompt is evicted", boundedCache},
}

const manyBytes = 1 << 30

// logitsOf generates with g and returns the logits of all passes after the prompt.
func (r *fixture) logitsOf(g *generate.Generator, prompt []int) (generated, [][]float32) {
	r.t.Helper()
	r.engine.reset()
	got := collect(g.Tokens(r.t.Context(), prompt, generate.Params{MaxTokens: 4, LogitBias: hostSampling, IgnoreEOS: true}))
	if got.Err != nil {
		r.t.Fatalf("generating: %v", got.Err)
	}
	var logits [][]float32
	for _, c := range r.engine.reset() {
		if c.At >= len(prompt) {
			logits = append(logits, c.Output.Logits)
		}
	}
	return got, logits
}

func prefixHitEqualsMiss(r *fixture) {
	a := r.tokens(24, 60)
	tail := r.tokens(9, 61)
	g, alone := r.generator(generate.Options{PrefixBytes: manyBytes}), r.generator(generate.Options{})
	defer g.Close()
	for _, prompt := range [][]int{
		a, a, a[:10], slices.Concat(a, tail), slices.Concat(a[:17], tail), a[:1], a[:10], slices.Concat(a[:23], tail[:1]),
	} {
		want, wantLogits := r.logitsOf(alone, prompt)
		got, gotLogits := r.logitsOf(g, prompt)
		r.equal("tokens", want, got)
		r.equal("decode steps", len(wantLogits), len(gotLogits))
		for i := range min(len(wantLogits), len(gotLogits)) {
			r.sameBits("a step after a reused prefix", wantLogits[i], gotLogits[i])
		}
	}
	// The first prompt has nothing to reuse, and the prompt of one token only itself.
	if s := g.PrefixStats(); s.Hits != 6 || s.Misses != 2 || s.FullHits != 2 {
		r.t.Errorf("prefix statistics: %+v, want 6 hits, 2 misses, 2 full hits", s)
	}
}

func repeatedPrompt(r *fixture) {
	prompt := r.tokens(12, 62)
	g := r.generator(generate.Options{PrefixBytes: manyBytes})
	defer g.Close()
	var stats generate.Stats
	p := generate.Params{MaxTokens: 3, IgnoreEOS: true, Stats: &stats}
	first := collect(g.Tokens(r.t.Context(), prompt, p))
	r.engine.reset()
	r.equal("tokens", first, collect(g.Tokens(r.t.Context(), prompt, p)))
	r.equal("tokens reused", len(prompt), stats.ReusedTokens)
	for _, c := range r.engine.reset() {
		if c.At < len(prompt) {
			r.t.Errorf("position %d of a cached prompt was computed", c.At)
		}
	}
}

func onlyPromptsCached(r *fixture) {
	prompt := r.tokens(8, 63)
	g := r.generator(generate.Options{PrefixBytes: manyBytes})
	defer g.Close()
	first := collect(g.Tokens(r.t.Context(), prompt, generate.Params{MaxTokens: 5, IgnoreEOS: true}))
	var stats generate.Stats
	longer := slices.Concat(prompt, first.IDs)
	collect(g.Tokens(r.t.Context(), longer, generate.Params{MaxTokens: 1, Stats: &stats}))
	r.equal("tokens reused", len(prompt), stats.ReusedTokens)
}

func boundedCache(r *fixture) {
	// Measure the size of a cached prompt, which depends on the engine.
	probe := r.generator(generate.Options{PrefixBytes: manyBytes})
	defer probe.Close()
	ask := func(g *generate.Generator, first int) int {
		var stats generate.Stats
		prompt := slices.Concat([]int{first}, r.tokens(7, 64))
		got := collect(g.Tokens(r.t.Context(), prompt, generate.Params{MaxTokens: 1, IgnoreEOS: true, Stats: &stats}))
		if got.Err != nil {
			r.t.Fatalf("generating: %v", got.Err)
		}
		return stats.ReusedTokens
	}
	ask(probe, 1)
	limit := probe.PrefixStats().Bytes*5/2 + 1 // two and a half prompts
	g := r.generator(generate.Options{PrefixBytes: limit})
	defer g.Close()
	ask(g, 1)
	ask(g, 2)
	r.equal("the first again", 8, ask(g, 1))
	ask(g, 3) // evicts 2
	r.equal("the one used since", 8, ask(g, 1))
	r.equal("the one not used", 0, ask(g, 2))
	s := g.PrefixStats()
	if s.Bytes > limit || s.Entries != 2 || s.Evictions != 2 {
		r.t.Errorf("a cache of %d bytes: %+v", limit, s)
	}
}
