package perplexity

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// fake is an engine that returns constant logits and records its inputs. Measure does not
// call the methods of the embedded interfaces, which are nil.
type fake struct {
	model.Engine
	m       *model.Model
	logits  []float32 // of every position
	windows [][]int
	fail    error
}

func (f *fake) Model() *model.Model  { return f.m }
func (f *fake) Limits() model.Limits { return model.Limits{PromptTokens: 1 << 20} }
func (f *fake) NewSequence(capacity int) (model.Sequence, error) {
	return &fakeSequence{f: f, capacity: capacity}, nil
}

func (f *fake) Step(_ context.Context, rows []model.Row) (model.Pass, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	s, tokens := rows[0].Sequence.(*fakeSequence), rows[0].Tokens
	if !rows[0].Prompt {
		return nil, errors.New("a text is a prompt")
	}
	if s.length += len(tokens); s.length > s.capacity {
		return nil, model.CheckCapacity(s.length, s.capacity)
	}
	last := &f.windows[len(f.windows)-1]
	*last = append(*last, tokens...)
	return fakePass{{Logits: slices.Repeat(f.logits, len(tokens))}}, nil
}

type fakePass []model.Result

func (p fakePass) Wait() ([]model.Result, error) { return p, nil }

type fakeSequence struct {
	model.Sequence
	f        *fake
	capacity int
	length   int
}

func (s *fakeSequence) Close() error { return nil }
func (s *fakeSequence) Len() int     { return s.length }

func (s *fakeSequence) Truncate(n int) error {
	if n == 0 { // a window begins
		s.f.windows = append(s.f.windows, nil)
	}
	s.length = n
	return nil
}

func tinyModel(t *testing.T) *model.Model {
	t.Helper()
	m, err := golden.Model()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const text = "Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes."

func TestUniformModel(t *testing.T) {
	m := tinyModel(t)
	vocab := m.Config.Vocab
	eng := &fake{m: m, logits: make([]float32, vocab)}
	done := 0
	r, err := Measure(t.Context(), eng, text, Options{Window: 9, Progress: func(n int) { done += n }})
	if err != nil {
		t.Fatal(err)
	}
	tokens := m.Tokenizer.Encode(text, false)
	var windows [][]int
	for part := range slices.Chunk(tokens, 8) {
		windows = append(windows, append([]int{0}, part...)) // BOS is token 0
	}
	if d := cmp.Diff(windows, eng.windows); d != "" {
		t.Errorf("windows (-want +got):\n%s", d)
	}
	if r.Tokens != len(tokens) || done != len(tokens) || r.Bytes != len(text) || r.Windows != len(windows) {
		t.Errorf("%+v, %d reported; want %d tokens, %d bytes, %d windows", r, done, len(tokens), len(text), len(windows))
	}
	if e := math.Abs(r.Perplexity()/float64(vocab) - 1); !(e < 1e-9) {
		t.Errorf("perplexity %v, want %d: every token is equally likely", r.Perplexity(), vocab)
	}
	if !(r.StdErr() < 1e-7) {
		t.Errorf("standard error %v of equal numbers", r.StdErr())
	}
	want := float64(len(tokens)) * math.Log2(float64(vocab)) / float64(len(text))
	if e := math.Abs(r.BitsPerByte() - want); !(e < 1e-9) {
		t.Errorf("%v bits a byte, want %v", r.BitsPerByte(), want)
	}
}

// Large logits, whose exponentials overflow, give probabilities.
func TestLargeLogits(t *testing.T) {
	m := tinyModel(t)
	eng := &fake{m: m, logits: make([]float32, m.Config.Vocab)}
	for i := range eng.logits {
		eng.logits[i] = 1e4
	}
	r, err := Measure(t.Context(), eng, text, Options{})
	if err != nil || !(math.Abs(r.Nats()-math.Log(float64(m.Config.Vocab))) < 1e-9) {
		t.Errorf("%v nats, error %v", r.Nats(), err)
	}
}

func TestStandardError(t *testing.T) {
	r := Result{Tokens: 4, NLL: 1 + 2 + 3 + 6, sumOfSqr: 1 + 4 + 9 + 36}
	if want := math.Sqrt(14.0 / 3 / 4); math.Abs(r.StdErr()-want) > 1e-12 {
		t.Errorf("%v, want %v", r.StdErr(), want)
	}
	if one := (Result{Tokens: 1, NLL: 1, sumOfSqr: 1}); !math.IsInf(one.StdErr(), 1) {
		t.Errorf("one token has a standard error of %v", one.StdErr())
	}
}

// The reference engine, compared with the definition: each probability from one pass over
// its window.
func TestAgainstTheDefinition(t *testing.T) {
	m := tinyModel(t)
	eng, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat(text+" ", 5) // more tokens than one step takes
	const window = 100
	r, err := Measure(t.Context(), eng, long, Options{Window: window})
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0
	for part := range slices.Chunk(m.Tokenizer.Encode(long, false), window-1) {
		s, err := eng.NewSequence(0)
		if err != nil {
			t.Fatal(err)
		}
		out, err := model.Forward(t.Context(), eng, model.Row{Sequence: s, Tokens: append([]int{0}, part...), Prompt: true, Want: model.WantAll})
		if err != nil {
			t.Fatal(err)
		}
		for i, next := range part {
			sum := 0.0
			row := out.Logits[i*m.Config.Vocab:][:m.Config.Vocab]
			for _, x := range row {
				sum += math.Exp(float64(x))
			}
			want -= math.Log(math.Exp(float64(row[next])) / sum)
		}
	}
	if !(math.Abs(r.NLL-want) < 1e-6*want) {
		t.Errorf("sum %v, want %v", r.NLL, want)
	}
	if r.Perplexity() > 1000 {
		t.Errorf("perplexity %v: the model has not learned its own book", r.Perplexity())
	}
}

func TestMeasureRefuses(t *testing.T) {
	m := tinyModel(t)
	uniform := make([]float32, m.Config.Vocab)
	broken := errors.New("broken")
	silent := model.Model{Config: m.Config, Weights: m.Weights, File: m.File}
	tests := []struct {
		name, reason string
		eng          *fake
		text         string
		window       int
		want         error
	}{
		{"no vocabulary", "there are no tokens", &fake{m: &silent}, text, 0, model.ErrNoTokenizer},
		{"empty text", "nothing to predict", &fake{m: m, logits: uniform}, "", 0, ErrTooShort},
		{"window beyond the context", "refused before anything is computed", &fake{m: m, logits: uniform}, text, 1025, model.ErrContextLimit},
		{"window of one", "no room for a prediction", &fake{m: m, logits: uniform}, text, 1, model.ErrContextLimit},
		{"negative window", "a programmer's mistake is still an error", &fake{m: m, logits: uniform}, text, -1, model.ErrContextLimit},
		{"engine fails", "its error is passed on", &fake{m: m, fail: broken}, text, 0, broken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Measure(t.Context(), tt.eng, tt.text, Options{Window: tt.window}); !errors.Is(err, tt.want) {
				t.Errorf("%s: error %v, want %v", tt.reason, err, tt.want)
			}
		})
	}
}
