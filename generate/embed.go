package generate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// Embed returns the embedding of token ids, [hidden]: the states after the final norm, pooled as
// model.Config.Pooling says and scaled to length 1. It is scheduled like a generation, and its
// errors are those of Generator.Tokens.
func (g *Generator) Embed(ctx context.Context, tokens []int) ([]float32, error) {
	c := &g.model.Config
	r := &request{vocab: c.Vocab, arrived: time.Now(), pool: &pool{how: c.Pooling, sum: make([]float64, c.Hidden)}}
	err := g.initRequest(r, tokens)
	if err == nil {
		err = g.scheduler.submit(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("generate: embed: %w", err)
	}
	if err := r.read(func(Token) bool { return true }); err != nil {
		return nil, err
	}
	return r.pool.normalized(), nil
}

// pool reduces the states of all positions to one.
type pool struct {
	how model.Pooling
	sum []float64 // [hidden], of the states that how selects
	n   int       // positions so far
}

// add adds the states of the next positions, [positions, hidden]. It returns the number of all
// positions so far.
func (p *pool) add(states []float32) int {
	for ; len(states) > 0; states = states[len(p.sum):] {
		if p.n++; p.how == model.PoolFirst && p.n > 1 {
			continue
		}
		for i, x := range states[:len(p.sum)] {
			if p.how == model.PoolLast {
				p.sum[i] = 0
			}
			p.sum[i] += float64(x)
		}
	}
	return p.n
}

// normalized returns the pooled vector scaled to length 1: the sum has the direction of the mean. A zero vector stays zero.
func (p *pool) normalized() []float32 {
	squares := 0.0
	for _, x := range p.sum {
		squares += float64(x * x)
	}
	out := make([]float32, len(p.sum))
	for i, x := range p.sum {
		if squares > 0 {
			out[i] = float32(x / math.Sqrt(squares))
		}
	}
	return out
}
