package ref

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// pass holds the results of a step or of choices, which have ended.
type pass []model.Result

// Wait implements model.Pass.
func (p pass) Wait() ([]model.Result, error) { return p, nil }

// Step implements model.Engine. It computes one row after another and returns when it has
// computed all of them.
func (e *Engine) Step(ctx context.Context, rows []model.Row) (_ model.Pass, err error) {
	list, err := e.checkRows(rows)
	if err != nil {
		return nil, err
	}
	var before []int
	for _, r := range list {
		before = append(before, r.sequence.length)
	}
	done := false
	defer func() {
		if !done { // an error, or a panic of Options.Tap
			for i, r := range list {
				r.sequence.truncate(before[i])
			}
		}
	}()
	out := make(pass, len(list))
	last := make([][]float32, len(list)) // the logits from which each row's token is chosen
	for i, r := range list {
		values, err := r.sequence.chunks(ctx, r.tokens, r.want)
		if err != nil {
			return nil, err
		}
		out[i], last[i] = e.result(r.want, values)
	}
	done = true
	for i, r := range list {
		s := r.sequence
		s.last, s.held = sampling.NoToken, nil
		switch {
		case last[i] == nil:
			out[i].Token = sampling.NoToken
		case r.hold:
			s.held, out[i].Token = slices.Clone(last[i]), sampling.NoToken
		default:
			out[i].Choice = s.choose(last[i], nil)
		}
	}
	return out, nil
}

// Choose implements model.Engine.
func (e *Engine) Choose(_ context.Context, choices []model.Choose) (model.Pass, error) {
	var list []*sequence
	for i, c := range choices {
		s, err := e.own(c.Sequence)
		switch {
		case err != nil:
		case slices.Contains(list, s):
			err = fmt.Errorf("the sequence has another choice in this call")
		case s.held == nil:
			err = fmt.Errorf("the sequence's last row did not hold its choice")
		default:
			err = c.Check(e.model.Config.Vocab)
		}
		if err != nil {
			return nil, fmt.Errorf("ref: choice %d: %w", i, err)
		}
		list = append(list, s)
	}
	out := make(pass, len(list))
	for i, s := range list {
		logits := s.held
		if choices[i].Logits != nil {
			logits = choices[i].Logits
		}
		s.held = nil
		out[i].Choice = s.choose(logits, choices[i].Mask)
	}
	return out, nil
}

// choose chooses the sequence's next token.
func (s *sequence) choose(logits []float32, mask []uint32) sampling.Choice {
	if s.sampler == nil {
		s.sampler = sampling.New(&sampling.Params{}, len(logits))
	}
	c := s.sampler.Choose(logits, s.length, mask)
	if s.last = c.Token; c.Token >= 0 {
		s.sampler.Add(c.Token, true)
	}
	return c
}

// result returns what a row wants of the values that were computed for it, and the logits of
// its last position.
func (e *Engine) result(want model.Want, values []float32) (out model.Result, last []float32) {
	switch want {
	case model.WantNothing:
		return out, nil
	case model.WantHidden:
		out.Hidden = values
		return out, nil
	case model.WantLogits, model.WantAll:
		out.Logits = values
	}
	return out, values[len(values)-e.model.Config.Vocab:]
}

// row is a checked row.
type row struct {
	sequence *sequence
	tokens   []int
	want     model.Want
	hold     bool
}

// own returns a sequence of this engine.
func (e *Engine) own(s model.Sequence) (*sequence, error) {
	q, ok := s.(*sequence)
	if !ok || q.engine != e {
		return nil, fmt.Errorf("the sequence is of another engine")
	}
	if q.closed {
		return nil, model.ErrClosed
	}
	return q, nil
}

func (e *Engine) checkRows(rows []model.Row) ([]row, error) {
	var list []row
	for i, r := range rows {
		s, err := e.own(r.Sequence)
		if err != nil {
			return nil, fmt.Errorf("ref: row %d: %w", i, err)
		}
		if slices.ContainsFunc(list, func(r row) bool { return r.sequence == s }) {
			return nil, fmt.Errorf("ref: row %d: the sequence has another row in this step", i)
		}
		tokens := r.Tokens
		if tokens == nil && s.last != sampling.NoToken {
			tokens = []int{s.last}
		}
		if err := model.CheckTokens(tokens, e.model.Config.Vocab); err != nil {
			return nil, fmt.Errorf("ref: row %d: %w", i, err)
		}
		if err := s.checkRoom(s.length + len(tokens)); err != nil {
			return nil, fmt.Errorf("ref: row %d: %w", i, err)
		}
		list = append(list, row{s, tokens, r.Want, r.Hold})
	}
	return list, nil
}

// chunks runs forward on chunk after chunk and returns the wanted logits or states.
func (s *sequence) chunks(ctx context.Context, tokens []int, want model.Want) ([]float32, error) {
	file, chunk := s.engine.model.File, s.engine.chunk
	if err := file.Check(); err != nil { // gguf.Guard cannot recover from a read of a closed file
		return nil, err
	}
	if err := s.findStates(ctx); err != nil {
		return nil, err
	}
	var values []float32
	for from, to := 0, 0; from < len(tokens); from = to {
		to = from + s.untilCheckpoint(min(chunk, len(tokens)-from))
		partWant := want
		if to < len(tokens) && (want == model.WantToken || want == model.WantLogits) {
			partWant = model.WantNothing
		}
		part, err := s.forward(ctx, tokens[from:to], partWant)
		if err != nil {
			return nil, err
		}
		values = append(values, part...)
		s.keepStates()
	}
	// If the file became shorter within its last page, reads gave zeros without a fault.
	return values, file.Check()
}
