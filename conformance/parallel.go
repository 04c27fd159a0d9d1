package conformance

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
)

// parallelBehaviors cover several sequences at once.
var parallelBehaviors = []Behavior{
	{"concurrent sessions", "results do not depend on other sessions, bit for bit", concurrentSessions},
	{"batch equals alone", "prompts of different lengths with their own stops", batchEqualsAlone},
	{"empty batch", "an empty list gives an empty list", emptyBatch},
	{"empty prompt in a batch", "a typed error for that prompt only", emptyPromptInBatch},
	{"500 concurrent calls", "any goroutine may call the engine", concurrentCalls},
}

func concurrentSessions(r *fixture) {
	const n = 8
	var want, got [n][]float32
	prompt := func(i int) []int { return r.tokens(6+3*i, uint64(70+i)) }
	for i := range n {
		want[i] = r.lastLogits(prompt(i))
	}
	var errs [n]error
	var wg sync.WaitGroup
	for i := range n {
		s := r.session(minContext)
		wg.Go(func() {
			for _, part := range slices.Collect(slices.Chunk(prompt(i), 1+i)) {
				out, err := s.Forward(r.t.Context(), part, model.WantLast)
				if err != nil {
					errs[i] = err
					return
				}
				got[i] = slices.Clone(out.Logits)
			}
		})
	}
	wg.Wait()
	for i := range n {
		if errs[i] != nil {
			r.t.Errorf("session %d: %v", i, errs[i])
			continue
		}
		r.sameBits(fmt.Sprintf("session %d", i), want[i], got[i])
	}
}

func batchEqualsAlone(r *fixture) {
	var prompts [][]int
	for i := range 7 {
		prompts = append(prompts, r.tokens(1+5*i, uint64(80+i)))
	}
	for _, p := range []generate.Params{
		{MaxTokens: 10, IgnoreEOS: true},
		{MaxTokens: 10, IgnoreEOS: true, Temperature: 1.5, Seed: 3, Stop: []string{"a", "e"}},
	} {
		for _, o := range []generate.Options{{Parallel: 1}, {Parallel: 4}, {Parallel: 7, PrefixBytes: manyBytes}} {
			for i, got := range r.generator(o).BatchTokens(r.t.Context(), prompts, p) {
				want := r.generate(prompts[i], p)
				r.equal(fmt.Sprintf("prompt %d, %d in parallel", i, o.Parallel), want, generated{got.Tokens, got.Text, got.Err})
			}
		}
	}
}

func emptyBatch(r *fixture) {
	if got := r.generator(generate.Options{}).BatchText(r.t.Context(), nil, generate.Params{MaxTokens: 1}); got == nil || len(got) != 0 {
		r.t.Errorf("no prompts gave %v", got)
	}
}

func emptyPromptInBatch(r *fixture) {
	prompts := [][]int{r.tokens(3, 90), {}, r.tokens(5, 91)}
	p := generate.Params{MaxTokens: 3, IgnoreEOS: true}
	for i, got := range r.generator(generate.Options{}).BatchTokens(r.t.Context(), prompts, p) {
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
		return generate.Params{MaxTokens: 1 + k%3, Temperature: float64(k % 2), Seed: uint64(k), IgnoreEOS: true}
	}
	var want [kinds]generated
	for k := range kinds {
		want[k] = r.generate(prompt(k), params(k))
	}
	g := r.generator(generate.Options{PrefixBytes: manyBytes})
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
