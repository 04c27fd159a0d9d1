// Package perplexity measures the perplexity of a model on a text.
package perplexity

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/model"
)

// ErrTooShort reports a text without a token to predict.
var ErrTooShort = errors.New("the text has no token to predict")

// Result is a measurement. Logarithms are natural.
type Result struct {
	Tokens   int     // predicted tokens
	Bytes    int     // bytes of text of these tokens
	Windows  int     // windows of the text
	NLL      float64 // negative log-likelihood: Σ −log p
	sumOfSqr float64 // Σ (log p)²
}

// Nats returns the mean of −log p per token.
func (r Result) Nats() float64 { return r.NLL / float64(r.Tokens) }

// Perplexity returns exp(Nats).
func (r Result) Perplexity() float64 { return math.Exp(r.Nats()) }

// BitsPerByte returns the mean of −log₂ p per byte of text, which is comparable between
// vocabularies. It is infinite if the tokens have no text.
func (r Result) BitsPerByte() float64 { return r.NLL / math.Ln2 / float64(r.Bytes) }

// StdErr returns the standard error of Nats, as if tokens were independent.
func (r Result) StdErr() float64 {
	n := float64(r.Tokens)
	if n < 2 {
		return math.Inf(1)
	}
	mean := r.Nats()
	variance := max(0, (r.sumOfSqr-n*mean*mean)/(n-1))
	return math.Sqrt(variance / n)
}

// Options configures Measure.
type Options struct {
	// Window is the number of positions per window; 0 means the context of the model.
	// Windows do not overlap, and the KV cache is empty at the start of each.
	Window int
	// Progress, if not nil, is called with the number of tokens done since the last call.
	Progress func(tokens int)
}

// batch is the number of positions per Forward, which bounds the memory for logits.
const batch = 64

// Measure predicts each token of a text from the previous tokens of its window. If the
// vocabulary has a BOS token, every window begins with it; otherwise the first token of a
// window is not predicted. Errors wrap model.ErrNoTokenizer, ErrTooShort,
// model.ErrContextLimit if the window exceeds the context, or those of the engine.
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
	s, err := eng.NewSequence(window)
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	var lead []int
	if bos, ok := tok.BOS(); ok {
		lead = []int{bos}
	}
	var r Result
	meter := meter{engine: eng, sequence: s, model: m, lead: len(lead), progress: opts.Progress}
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

// meter accumulates results over the windows.
type meter struct {
	engine   model.Engine
	sequence model.Sequence
	model    *model.Model
	lead     int // tokens before the text of a window: 1 with BOS, else 0
	progress func(int)
}

// window predicts seq[1:].
func (m *meter) window(ctx context.Context, r *Result, seq []int) error {
	if err := m.sequence.Truncate(0); err != nil {
		return err
	}
	r.Windows++
	vocab := m.model.Config.Vocab
	for at := 0; at < len(seq); at += batch {
		part := seq[at:min(at+batch, len(seq))]
		out, err := model.Forward(ctx, m.engine, model.Row{Sequence: m.sequence, Tokens: part, Prompt: true, Want: model.WantAll})
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

// predict adds one prediction to r. logits is [vocab].
func (m *meter) predict(r *Result, logits []float32, next int) {
	nll := logSumExp(logits) - float64(logits[next])
	r.Tokens++
	r.Bytes += len(m.model.Tokenizer.Bytes(next))
	r.NLL += nll
	r.sumOfSqr += float64(nll * nll)
}

// logSumExp returns log Σ exp(x). It subtracts the maximum, so that nothing overflows.
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
