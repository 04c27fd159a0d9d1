package model

import (
	"context"
	"sync"
)

// Result is what one prompt of a batch gave. With an error, what was generated
// before it stands.
type Result struct {
	Tokens []int
	Text   string
	Stats  Stats
	Err    error
}

// GenerateBatch continues texts of any lengths, several at once, and returns one
// result each, in order. Every result is what Generate alone gives, with the same
// seed for each; an error concerns one prompt only. p.Stats is not used. No
// prompts give no results.
func (g *Generator) GenerateBatch(ctx context.Context, prompts []string, p Params) []Result {
	return g.batch(len(prompts), p, func(i int, p Params, res *Result) {
		for t, err := range g.Generate(ctx, prompts[i], p) {
			res.add(t, err)
		}
	})
}

// GenerateBatchTokens is GenerateBatch for prompts of token ids.
func (g *Generator) GenerateBatchTokens(ctx context.Context, prompts [][]int, p Params) []Result {
	return g.batch(len(prompts), p, func(i int, p Params, res *Result) {
		for t, err := range g.GenerateTokens(ctx, prompts[i], p) {
			res.add(t, err)
		}
	})
}

// batch runs one for each of n prompts, Options.Parallel at a time.
func (g *Generator) batch(n int, p Params, one func(i int, p Params, res *Result)) []Result {
	results := make([]Result, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, g.opts.Parallel) {
		wg.Go(func() {
			for i := range next {
				own := p
				own.Stats = &results[i].Stats
				one(i, own, &results[i])
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return results
}

func (res *Result) add(t Token, err error) {
	if err != nil {
		res.Err = err
		return
	}
	if t.ID != NoToken {
		res.Tokens = append(res.Tokens, t.ID)
	}
	res.Text += t.Text
}
