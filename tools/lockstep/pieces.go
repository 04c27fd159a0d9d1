package main

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/model"
)

// pieceLen is how many positions of a long run are computed between two looks at
// the progress.
const pieceLen = 32

// pieces is an engine that computes long runs of tokens piece by piece, to the
// same bits, and shows how far it is.
type pieces struct {
	model.Engine
	begin func(total int) *progress
}

// inPieces lets an engine show its progress when somebody could see it.
func (e *env) inPieces(eng model.Engine) model.Engine {
	if !isTerminal(e.errw) {
		return eng
	}
	return pieces{eng, func(total int) *progress { return e.progress("prompt", int64(total)) }}
}

func (p pieces) NewSession(capacity int) (model.Session, error) {
	s, err := p.Engine.NewSession(capacity)
	if err != nil {
		return nil, err
	}
	return &pieceSession{s, p}, nil
}

type pieceSession struct {
	model.Session
	engine pieces
}

func (s *pieceSession) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	start := s.Len()
	whole := len(tokens) <= pieceLen || want == model.WantAll
	if whole || len(tokens) > s.Cap()-start || model.CheckTokens(tokens, s.engine.Model().Config.Vocab) != nil {
		return s.Session.Forward(ctx, tokens, want) // an error tells of all the tokens
	}
	p := s.engine.begin(len(tokens))
	defer p.end()
	for ; len(tokens) > pieceLen; tokens = tokens[pieceLen:] {
		if _, err := s.Session.Forward(ctx, tokens[:pieceLen], model.WantNothing); err != nil {
			return model.Output{}, errors.Join(err, s.Truncate(start))
		}
		p.add(pieceLen)
	}
	out, err := s.Session.Forward(ctx, tokens, want)
	if err != nil {
		return model.Output{}, errors.Join(err, s.Truncate(start))
	}
	p.add(len(tokens))
	return out, nil
}
