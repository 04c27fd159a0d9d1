package conformance

import (
	"slices"

	"github.com/lockstep-go/lockstep/generate"
)

// prefixBehaviors cover the prefix cache.
var prefixBehaviors = []Behavior{
	{"prefix hit equals miss", "the same bits for any reused part of a prompt", prefixHitEqualsMiss},
	{"repeated prompt", "only the last position of a cached prompt is computed again", repeatedPrompt},
	{"answers are cached", "the next prompt of a conversation computes no position again", answersCached},
	{"prefix cache is bounded", "the least recently used text is evicted", boundedCache},
}

const manyTokens = 1 << 20

// logitsOf generates with g and returns the logits that each token is chosen from.
func (r *fixture) logitsOf(g *generate.Generator, prompt []int) (generated, [][]float32) {
	r.t.Helper()
	var logits [][]float32
	got := collect(g.Tokens(r.t.Context(), prompt, generate.Params{MaxTokens: 4, IgnoreEOS: true, Logits: func(_ []int, l []float32) {
		logits = append(logits, slices.Clone(l))
	}}))
	if got.Err != nil {
		r.t.Fatalf("generating: %v", got.Err)
	}
	return got, logits
}

func prefixHitEqualsMiss(r *fixture) {
	a := r.tokens(24, 60)
	tail := r.tokens(9, 61)
	prompts := [][]int{
		a, a, a[:10], slices.Concat(a, tail), slices.Concat(a[:17], tail), a[:1], a[:10], slices.Concat(a[:23], tail[:1]),
	}
	var want []generated
	var wantLogits [][][]float32
	alone := r.generator(generate.Options{PrefixTokens: -1})
	for _, prompt := range prompts {
		tokens, logits := r.logitsOf(alone, prompt)
		want, wantLogits = append(want, tokens), append(wantLogits, logits)
	}
	if err := alone.Close(); err != nil {
		r.t.Errorf("closing: %v", err)
	}
	g := r.generator(generate.Options{PrefixTokens: manyTokens})
	for i, prompt := range prompts {
		got, logits := r.logitsOf(g, prompt)
		r.equal("tokens", want[i], got)
		r.equal("tokens with logits", len(wantLogits[i]), len(logits))
		for k := range min(len(wantLogits[i]), len(logits)) {
			r.sameBits("a token after a shared prefix", wantLogits[i][k], logits[k])
		}
	}
	// The first prompt has nothing to share, and of the prompt of one token nothing remains.
	if s := g.Load().Prefix; s.Hits != 6 || s.Misses != 2 || s.Reused != 23+9+24+17+9+23 {
		r.t.Errorf("prefix statistics: %+v, want 6 hits, 2 misses, 105 positions reused", s)
	}
}

func repeatedPrompt(r *fixture) {
	prompt := r.tokens(12, 62)
	g := r.generator(generate.Options{PrefixTokens: manyTokens})
	defer g.Close()
	var stats generate.Stats
	p := generate.Params{MaxTokens: 3, IgnoreEOS: true, Stats: &stats}
	first := collect(g.Tokens(r.t.Context(), prompt, p))
	r.engine.reset()
	r.equal("tokens", first, collect(g.Tokens(r.t.Context(), prompt, p)))
	r.equal("tokens reused", len(prompt)-1, stats.ReusedTokens)
	for _, c := range r.engine.reset() {
		if c.At < len(prompt)-1 {
			r.t.Errorf("position %d of a cached prompt was computed", c.At)
		}
	}
}

func answersCached(r *fixture) {
	prompt := r.tokens(8, 63)
	g := r.generator(generate.Options{PrefixTokens: manyTokens})
	defer g.Close()
	first := collect(g.Tokens(r.t.Context(), prompt, generate.Params{MaxTokens: 5, IgnoreEOS: true}))
	var stats generate.Stats
	longer := slices.Concat(prompt, first.IDs)
	got := collect(g.Tokens(r.t.Context(), longer, generate.Params{MaxTokens: 3, IgnoreEOS: true, Stats: &stats}))
	r.equal("tokens reused", len(longer)-1, stats.ReusedTokens) // the last token was chosen, but not computed
	alone := r.generator(generate.Options{PrefixTokens: -1})
	defer alone.Close()
	r.equal("tokens", collect(alone.Tokens(r.t.Context(), longer, generate.Params{MaxTokens: 3, IgnoreEOS: true})), got)
}

func boundedCache(r *fixture) {
	const limit = 8*5/2 + 1 // two and a half prompts
	g := r.generator(generate.Options{PrefixTokens: limit})
	defer g.Close()
	ask := func(first int) int {
		var stats generate.Stats
		prompt := slices.Concat([]int{first}, r.tokens(7, 64))
		got := collect(g.Tokens(r.t.Context(), prompt, generate.Params{MaxTokens: 1, IgnoreEOS: true, Stats: &stats}))
		if got.Err != nil {
			r.t.Fatalf("generating: %v", got.Err)
		}
		return stats.ReusedTokens
	}
	ask(1)
	ask(2)
	r.equal("the first again", 7, ask(1))
	ask(3) // evicts 2
	r.equal("the one used since", 7, ask(1))
	r.equal("the one not used", 0, ask(2))
	if s := g.Load().Prefix; s.Positions > limit || s.Entries != 2 || s.Evictions != 2 {
		r.t.Errorf("a cache of %d positions: %+v", limit, s)
	}
}
