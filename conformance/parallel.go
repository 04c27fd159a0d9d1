package conformance

import (
	"errors"
	"fmt"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// parallelBehaviors cover several generations at once.
var parallelBehaviors = []Behavior{
	{"batch equals alone", "prompts of different lengths with their own stops", batchEqualsAlone},
	{"empty batch", "an empty list gives an empty list", emptyBatch},
	{"empty prompt in a batch", "a typed error for that prompt only", emptyPromptInBatch},
	{"500 concurrent calls", "any goroutine may use a generator", concurrentCalls},
}

func batchEqualsAlone(r *fixture) {
	var prompts [][]int
	for i := range 7 {
		prompts = append(prompts, r.tokens(1+5*i, uint64(80+i)))
	}
	for _, p := range []generate.Params{
		{MaxTokens: 10, IgnoreEOS: true},
		{MaxTokens: 10, IgnoreEOS: true, Sampling: sampling.Params{Temperature: 1.5, Seed: 3}, Stop: []string{"a", "e"}},
	} {
		var want []generated
		for _, prompt := range prompts {
			want = append(want, r.generate(prompt, p))
		}
		for _, o := range []generate.Options{{}, {PromptTokens: 5}, {PrefixTokens: manyTokens}} {
			g := r.generator(o)
			for i, got := range g.BatchTokens(r.t.Context(), prompts, p) {
				r.equal(fmt.Sprintf("prompt %d, %+v", i, o), want[i], generated{got.Tokens, got.Text, got.Err})
			}
			if err := g.Close(); err != nil {
				r.t.Errorf("closing: %v", err)
			}
		}
	}
}

func emptyBatch(r *fixture) {
	g := r.generator(generate.Options{})
	defer g.Close()
	if got := g.BatchText(r.t.Context(), nil, generate.Params{MaxTokens: 1}); got == nil || len(got) != 0 {
		r.t.Errorf("no prompts gave %v", got)
	}
}

func emptyPromptInBatch(r *fixture) {
	prompts := [][]int{r.tokens(3, 90), {}, r.tokens(5, 91)}
	p := generate.Params{MaxTokens: 3, IgnoreEOS: true}
	g := r.generator(generate.Options{PrefixTokens: -1})
	list := g.BatchTokens(r.t.Context(), prompts, p)
	if err := g.Close(); err != nil {
		r.t.Errorf("closing: %v", err)
	}
	for i, got := range list {
		if i == 1 {
			if !errors.Is(got.Err, model.ErrEmptyPrompt) || len(got.Tokens) != 0 {
				r.t.Errorf("the empty prompt: %v, error %v", got.Tokens, got.Err)
			}
			continue
		}
		r.equal("the prompt next to it", r.generate(prompts[i], p), generated{got.Tokens, got.Text, got.Err})
	}
}

func concurrentCalls(r *fixture) {
	const calls, kinds = 500, 10
	prompt := func(k int) []int { return r.tokens(1+k%4, uint64(k%3)) }
	params := func(k int) generate.Params {
		return generate.Params{MaxTokens: 1 + k%3, Sampling: sampling.Params{Temperature: float64(k % 2), Seed: uint64(k)}, IgnoreEOS: true}
	}
	var want [kinds]generated
	for k := range kinds {
		want[k] = r.generate(prompt(k), params(k))
	}
	g := r.generator(generate.Options{PrefixTokens: manyTokens})
	defer g.Close()
	var wrong sync.Map // call: difference
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			k := i % kinds
			if diff := cmp.Diff(want[k], collect(g.Tokens(r.t.Context(), prompt(k), params(k)))); diff != "" {
				wrong.Store(i, diff)
			}
		})
	}
	wg.Wait()
	wrong.Range(func(i, diff any) bool {
		r.t.Errorf("call %v (-alone +concurrent):\n%v", i, diff)
		return false // one difference is enough
	})
}
