// Package perplexity measures how well a model predicts a text.
package perplexity

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/model"
)

// ErrTooShort means a text in which there is nothing to predict.
var ErrTooShort = errors.New("the text has no token to predict")

// Result is a measurement over Tokens predictions. The logarithms are natural.
type Result struct {
	Tokens   int     // predicted
	Bytes    int     // of text that these tokens stand for
	Windows  int     // into which the text was cut
	NLL      float64 // sum of −log p
	sumOfSqr float64 // of −log p
}

// Nats is the mean of −log p over the tokens.
func (r Result) Nats() float64 { return r.NLL / float64(r.Tokens) }

// Perplexity is exp(Nats).
func (r Result) Perplexity() float64 { return math.Exp(r.Nats()) }

// BitsPerByte makes models of different vocabularies comparable. It is infinite
// when the tokens stand for no text.
func (r Result) BitsPerByte() float64 { return r.NLL / math.Ln2 / float64(r.Bytes) }

// StdErr is the standard error of Nats, taking the tokens as independent.
func (r Result) StdErr() float64 {
	n := float64(r.Tokens)
	if n < 2 {
		return math.Inf(1)
	}
	mean := r.Nats()
	variance := max(0, (r.sumOfSqr-n*mean*mean)/(n-1))
	return math.Sqrt(variance / n)
}

// Options says how to measure.
type Options struct {
	// Window is how many positions the model sees at once: the text is cut into
	// windows that do not overlap, and each begins anew. 0: the model's context.
	Window int
	// Progress, when not nil, is told of every count of tokens done.
	Progress func(tokens int)
}

// atOnce bounds the logits in memory: positions computed by one call.
const atOnce = 64

// Measure predicts each token of a text from those before it in its window. Where
// the vocabulary has a BOS token, every window begins with it; else a window's
// first token is not predicted. Errors: model.ErrNoTokenizer, ErrTooShort, a
// model.ErrContextLimit for a window beyond the context, and those of the engine.
func Measure(ctx context.Context, eng model.Engine, text string, opts Options) (Result, error) {
	m := eng.Model()
	tok, err := m.NeedTokenizer()
	if err != nil {
		return Result{}, err
	}
	window := opts.Window
	if window == 0 {
		window = m.Config.Context
	}
	if window < 2 {
		return Result{}, fmt.Errorf("perplexity: window: %d, want at least 2 positions: %w", window, model.ErrContextLimit)
	}
	if err := model.CheckCapacity(window, m.Config.Context); err != nil {
		return Result{}, fmt.Errorf("perplexity: window: %w", err)
	}
	s, err := eng.NewSession(window)
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	var lead []int
	if bos, ok := tok.BOS(); ok {
		lead = []int{bos}
	}
	var r Result
	meter := meter{session: s, model: m, lead: len(lead), progress: opts.Progress}
	for tokens := tok.Encode(text, false); len(tokens) > 0; {
		n := min(window-len(lead), len(tokens))
		if err := meter.window(ctx, &r, append(lead[:len(lead):len(lead)], tokens[:n]...)); err != nil {
			return Result{}, err
		}
		tokens = tokens[n:]
	}
	if r.Tokens == 0 {
		return Result{}, ErrTooShort
	}
	return r, nil
}

// meter adds up windows.
type meter struct {
	session  model.Session
	model    *model.Model
	lead     int // tokens at a window's beginning that are not the text's
	progress func(int)
}

// window predicts seq[1], seq[2], … .
func (m *meter) window(ctx context.Context, r *Result, seq []int) error {
	if err := m.session.Truncate(0); err != nil {
		return err
	}
	r.Windows++
	vocab := m.model.Config.Vocab
	for at := 0; at < len(seq); at += atOnce {
		part := seq[at:min(at+atOnce, len(seq))]
		out, err := m.session.Forward(ctx, part, model.WantAll)
		if err != nil {
			return fmt.Errorf("at token %d of window %d: %w", at, r.Windows, err)
		}
		for i := range part {
			if at+i+1 < len(seq) {
				m.predict(r, out.Logits[i*vocab:(i+1)*vocab], seq[at+i+1])
			}
		}
		if m.progress != nil {
			m.progress(len(part) - max(0, m.lead-at))
		}
	}
	return nil
}

// predict counts one token.
func (m *meter) predict(r *Result, logits []float32, next int) {
	nll := logSumExp(logits) - float64(logits[next])
	r.Tokens++
	r.Bytes += len(m.model.Tokenizer.Bytes(next))
	r.NLL += nll
	r.sumOfSqr += float64(nll * nll)
}

// logSumExp is log Σ exp(x), with the largest taken out so that nothing overflows.
func logSumExp(x []float32) float64 {
	top := float32(math.Inf(-1))
	for _, v := range x {
		top = max(top, v)
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v - top))
	}
	return float64(top) + math.Log(sum)
}
