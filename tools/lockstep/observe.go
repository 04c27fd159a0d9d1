package main

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// observed is an engine that reports its passes. Its user waits for each pass before the next.
type observed struct {
	model.Engine
	begin func(rows []model.Row)
	done  func(rows []model.Row, took time.Duration)
}

// observedPass is a pass of an observed engine.
type observedPass struct {
	model.Pass
	engine observed
	rows   []model.Row
	begin  time.Time
}

func (o observed) Step(ctx context.Context, rows []model.Row) (model.Pass, error) {
	o.begin(rows)
	begin := time.Now()
	pass, err := o.Engine.Step(ctx, rows)
	if err != nil {
		return nil, err
	}
	return &observedPass{pass, o, rows, begin}, nil
}

func (p *observedPass) Wait() ([]model.Result, error) {
	results, err := p.Pass.Wait()
	if err == nil {
		p.engine.done(p.rows, time.Since(p.begin))
	}
	return results, err
}
