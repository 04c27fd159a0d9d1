package main

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/model"
)

// chunkLen is the number of prompt tokens between two updates of the progress line.
const chunkLen = 32

// chunkedEngine computes a prompt in chunks, with the same bits, and shows its progress.
type chunkedEngine struct {
	model.Engine
	begin func(total int) *progress
}

// withProgress wraps an engine to show the progress of prompts, if standard error is a
// terminal.
func (e *env) withProgress(eng model.Engine) model.Engine {
	if !isTerminal(e.errw) {
		return eng
	}
	return chunkedEngine{eng, func(total int) *progress { return e.progress("prompt", int64(total)) }}
}

func (p chunkedEngine) NewSession(capacity int) (model.Session, error) {
	s, err := p.Engine.NewSession(capacity)
	if err != nil {
		return nil, err
	}
	return &chunkedSession{s, p}, nil
}

type chunkedSession struct {
	model.Session
	engine chunkedEngine
}

func (s *chunkedSession) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	start := s.Len()
	whole := len(tokens) <= chunkLen || want == model.WantAll
	if whole || len(tokens) > s.Cap()-start || model.CheckTokens(tokens, s.engine.Model().Config.Vocab) != nil {
		return s.Session.Forward(ctx, tokens, want) // in one call, so that an error is about all tokens
	}
	p := s.engine.begin(len(tokens))
	defer p.end()
	for ; len(tokens) > chunkLen; tokens = tokens[chunkLen:] {
		if _, err := s.Session.Forward(ctx, tokens[:chunkLen], model.WantNothing); err != nil {
			return model.Output{}, errors.Join(err, s.Truncate(start))
		}
		p.add(chunkLen)
	}
	out, err := s.Session.Forward(ctx, tokens, want)
	if err != nil {
		return model.Output{}, errors.Join(err, s.Truncate(start))
	}
	p.add(len(tokens))
	return out, nil
}
