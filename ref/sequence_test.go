package ref_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/ref"
)

// Prefill, single steps, uneven parts, one worker and many workers give the same bits, for
// every architecture and format, over more positions than one chunk.
func TestEveryWayToTheSamePositionGivesTheSameBits(t *testing.T) {
	var tokens []int
	for i := range 70 {
		tokens = append(tokens, (i*i*7+3*i+5)%64)
	}
	ways := []struct {
		name    string
		parts   []int
		workers int
		chunk   int
	}{
		{"single steps", slices.Repeat([]int{1}, 70), 2, 32},
		{"uneven parts across a chunk", []int{31, 1, 2, 33, 3}, 3, 32},
		{"one worker", []int{70}, 1, 32},
		{"an odd number of workers", []int{70}, 7, 32},
		{"chunks of five", []int{70}, 2, 5},
	}
	for _, file := range oracles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".gguf"), func(t *testing.T) {
			m := open(t, file)
			want := forward(t, newText(t, engine(t, m, ref.Options{Workers: 2})), tokens, model.WantAll)
			for _, w := range ways {
				e := engine(t, m, ref.Options{Workers: w.workers})
				e.SetChunk(w.chunk)
				s := newText(t, e)
				var got []float32
				at := 0
				for _, n := range w.parts {
					got = append(got, forward(t, s, tokens[at:at+n], model.WantAll)...)
					at += n
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: the logits differ in bits", w.name)
				}
			}
		})
	}
}

func TestWantedLogitsMatch(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "llama-gqa.gguf"))
	e := engine(t, m, ref.Options{})
	all := forward(t, newText(t, e), oracleTokens(), model.WantAll)
	row := all[len(all)-m.Config.Vocab:]
	if last := forward(t, newText(t, e), oracleTokens(), model.WantLogits); !slices.Equal(last, row) {
		t.Error("WantLogits differs from the last row of WantAll")
	}
	out, err := newText(t, e).Forward(t.Context(), oracleTokens(), model.WantToken)
	if err != nil || out.Logits != nil || out.Token != model.Argmax(row) {
		t.Errorf("WantToken gives %d and %d logits (%v), want %d and none", out.Token, len(out.Logits), err, model.Argmax(row))
	}
	s := newText(t, e)
	if out, err := s.Forward(t.Context(), oracleTokens(), model.WantNothing); err != nil || out.Logits != nil {
		t.Errorf("WantNothing gives %d logits (%v)", len(out.Logits), err)
	}
	if s.Len() != len(oracleTokens()) {
		t.Errorf("WantNothing left %d positions, want %d", s.Len(), len(oracleTokens()))
	}
}

// A continuation after Truncate or Fork has the same bits as without them, also with a sliding
// window that has left the beginning. A fork and its origin do not write to each other.
func TestTruncateAndFork(t *testing.T) {
	for _, arch := range []string{"gemma3", "gpt2", "qwen3moe", "qwen35"} {
		t.Run(arch, func(t *testing.T) {
			m := open(t, filepath.Join("..", "golden", "arch", arch+".gguf"))
			e := engine(t, m, ref.Options{})
			tokens := oracleTokens()
			const cut = 14
			want := forward(t, newText(t, e), tokens, model.WantAll)[cut*m.Config.Vocab:]

			s := newText(t, e)
			forward(t, s, tokens, model.WantNothing)
			forks := make([]model.Sequence, 2)
			for i := range forks {
				var err error
				if forks[i], err = s.Fork(cut); err != nil {
					t.Fatal(err)
				}
				defer forks[i].Close()
			}
			forward(t, text{forks[0], e}, []int{1, 2, 3}, model.WantNothing) // must leave no trace
			for name, x := range map[string]text{"Truncate": s, "Fork": {forks[1], e}} {
				if err := x.Truncate(cut); err != nil {
					t.Fatal(err)
				}
				if got := forward(t, x, tokens[cut:], model.WantAll); !slices.Equal(got, want) {
					t.Errorf("the continuation after %s differs", name)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := forks[0].Truncate(cut); err != nil {
				t.Fatal(err)
			}
			if got := forward(t, text{forks[0], e}, tokens[cut:], model.WantAll); !slices.Equal(got, want) {
				t.Error("the continuation after the origin was closed differs")
			}
		})
	}
}

// countdown is a context that is done from its n-th question on. It counts the questions.
type countdown struct {
	context.Context
	n     int64
	asked atomic.Int64
}

func (c *countdown) Err() error {
	if c.asked.Add(1) >= c.n {
		return context.Canceled
	}
	return nil
}

// TestCancel cancels a prompt at many moments. The engine looks at its context at least
// once per row of a matrix. Once that is done, each worker ends, and the sequence is as it
// was. The moments are counted in questions to the context, not in time.
func TestCancel(t *testing.T) {
	for _, arch := range []string{"llama-gqa", "qwen3moe", "qwen35"} {
		m := open(t, filepath.Join("..", "golden", "arch", arch+".gguf"))
		const workers = 3
		e := engine(t, m, ref.Options{Workers: workers})
		tokens := oracleTokens()
		want := forward(t, newText(t, e), tokens, model.WantLogits)

		s := newText(t, e)
		forward(t, s, tokens[:5], model.WantNothing)
		whole := &countdown{Context: t.Context(), n: math.MaxInt64}
		if _, err := newText(t, e).Forward(whole, tokens[5:], model.WantLogits); err != nil {
			t.Fatal(err)
		}
		total := whole.asked.Load()
		rows := m.Config.Vocab
		for _, l := range m.Weights.Layers {
			rows += l.Q.W.Rows + l.K.W.Rows + l.V.W.Rows + l.O.W.Rows + l.Up.W.Rows + l.Gate.W.Rows + l.Down.W.Rows
		}
		if total < int64(rows) {
			t.Errorf("%s: the context was asked %d times in a prompt, for matrices of %d rows", arch, total, rows)
		}
		for n := int64(1); n < total; n += total/40 + 1 {
			ctx := &countdown{Context: t.Context(), n: n}
			_, err := s.Forward(ctx, tokens[5:], model.WantLogits)
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: canceled at question %d of %d: error %v", arch, n, total, err)
			}
			if after := ctx.asked.Load() - n; after > 2*workers {
				t.Errorf("%s: the context was asked %d times more after question %d", arch, after, n)
			}
			if s.Len() != 5 {
				t.Fatalf("%s: %d positions after a canceled prompt, want 5", arch, s.Len())
			}
		}
		if got := forward(t, s, tokens[5:], model.WantLogits); !slices.Equal(got, want) {
			t.Errorf("%s: the sequence computes something else after canceled prompts", arch)
		}
	}
}

func TestErrorsLeaveTheSequenceUsable(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "llama-gqa.gguf"))
	e := engine(t, m, ref.Options{})
	s := textOf(t, e, 8)
	forward(t, s, []int{1, 2, 3}, model.WantNothing)
	closed := newText(t, e)
	closed.Close()
	_, forkErr := s.Fork(4)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	fwd := func(ctx context.Context, s text, tokens ...int) error {
		_, err := s.Forward(ctx, tokens, model.WantLogits)
		return err
	}
	cases := []struct {
		name string
		err  error
		want string
		is   error
	}{
		{"no tokens", fwd(t.Context(), s), "empty prompt", model.ErrEmptyPrompt},
		{"overflow names both numbers", fwd(t.Context(), s, 1, 2, 3, 4, 5, 6), "needs 9 positions and there are 8", model.ErrContextLimit},
		{"token too large", fwd(t.Context(), s, 1, 99999), "token 99999 at index 1", model.ErrBadToken},
		{"token negative", fwd(t.Context(), s, -1), "token -1 at index 0", model.ErrBadToken},
		{"canceled", fwd(canceled, s, 4), "canceled", context.Canceled},
		{"truncate beyond the end", s.Truncate(4), "holds 3 positions", nil},
		{"truncate below zero", s.Truncate(-1), "holds 3 positions", nil},
		{"fork of more than there is", forkErr, "holds 3 positions", nil},
		{"reserve beyond the capacity", s.Reserve(9), "needs 9 positions and there are 8", model.ErrContextLimit},
		{"closed", fwd(t.Context(), closed, 1), "closed", model.ErrClosed},
	}
	for _, c := range cases {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) || c.is != nil && !errors.Is(c.err, c.is) {
			t.Errorf("%s: error %v, want one with %q", c.name, c.err, c.want)
		}
	}
	if s.Len() != 3 {
		t.Errorf("the errors left %d positions, want 3", s.Len())
	}
	fresh := forward(t, newText(t, e), []int{1, 2, 3, 4}, model.WantLogits)
	if got := forward(t, s, []int{4}, model.WantLogits); !slices.Equal(got, fresh) {
		t.Error("the sequence computes something else after the errors")
	}
}

// Forward after File.Close gives an error and no crash.
func TestForwardAfterFileClose(t *testing.T) {
	m, err := model.Open(filepath.Join("..", "golden", "arch", "llama-gqa.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	s := newText(t, engine(t, m, ref.Options{}))
	forward(t, s, []int{1, 2}, model.WantNothing)
	if err := m.File.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Forward(t.Context(), []int{3}, model.WantLogits); !errors.Is(err, gguf.ErrClosed) {
		t.Errorf("error %v, want gguf.ErrClosed", err)
	}
	if s.Len() != 2 {
		t.Errorf("%d positions, want 2", s.Len())
	}
}

// TestForwardTruncatedFile cuts the model file short while a prompt is computed. The rest of
// the last page then reads as zeros without a fault, which only a look at the file's size
// detects. Earlier pages fault.
func TestForwardTruncatedFile(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join("..", "golden", "arch", "llama-gqa.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		size int // of the file afterwards
	}{
		{"last byte", len(whole) - 1},
		{"last pages", len(whole) / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cut.gguf")
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			m := open(t, path)
			cut := false
			e := engine(t, m, ref.Options{Tap: func(layer int, op string, _, _ int, _ []float64) {
				if cut && layer == 0 && op == "query" {
					if err := os.Truncate(path, int64(c.size)); err != nil {
						t.Skipf("this system does not cut a mapped file: %v", err)
					}
				}
			}})
			s := newText(t, e)
			forward(t, s, []int{1, 2}, model.WantNothing)
			cut = true
			if _, err := s.Forward(t.Context(), []int{3, 4}, model.WantLogits); !errors.Is(err, gguf.ErrTruncated) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want gguf.ErrTruncated with the path", err)
			}
			if s.Len() != 2 {
				t.Errorf("%d positions, want 2", s.Len())
			}
		})
	}
}

// TestModelInUse closes a model that has open sequences, which must stay usable.
func TestModelInUse(t *testing.T) {
	m, err := model.Open(filepath.Join("..", "golden", "arch", "llama-gqa.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	e := engine(t, m, ref.Options{})
	a, b := newText(t, e), newText(t, e)
	for _, s := range []text{a, b} {
		if err := m.Close(); !errors.Is(err, model.ErrInUse) {
			t.Fatalf("closing a model with an open sequence: %v, want ErrInUse", err)
		}
		forward(t, s, []int{1, 2}, model.WantLogits)
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.Close(); err != nil {
		t.Errorf("closing a model after its sequences: %v", err)
	}
	if _, err := e.NewSequence(0); !errors.Is(err, gguf.ErrClosed) {
		t.Errorf("a sequence of a closed model: %v, want gguf.ErrClosed", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "llama-gqa.gguf"))
	for name, o := range map[string]ref.Options{
		"KV":      {Numerics: ref.Numerics{KV: 9}},
		"Flash":   {Numerics: ref.Numerics{FlashBlock: -1}},
		"Workers": {Workers: -1},
	} {
		if _, err := ref.New(m, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, want one that names it", name, err)
		}
	}
	e := engine(t, m, ref.Options{})
	if _, err := e.NewSequence(m.Config.Context + 1); !errors.Is(err, model.ErrContextLimit) {
		t.Errorf("sequence beyond the context: %v", err)
	}
	if _, err := e.NewSequence(-1); err == nil {
		t.Error("negative capacity accepted")
	}
}

// Each Numerics changes the logits, by about its unit roundoff.
func TestNumericsRoundWhereTheySay(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "llama-gqa.gguf"))
	logits := func(n ref.Numerics) []float32 {
		return forward(t, newText(t, engine(t, m, ref.Options{Numerics: n})), oracleTokens(), model.WantAll)
	}
	exact := logits(ref.Numerics{})
	cases := []struct {
		name     string
		numerics ref.Numerics
		lo, hi   float64 // relative L2 to the exact logits
	}{
		{"F16 cache", ref.Numerics{KV: model.KVF16}, 1e-6, 2e-3},
		{"BF16 cache", ref.Numerics{KV: model.KVBF16}, 1e-5, 2e-2},
		{"F16 products", ref.Numerics{F16Products: true}, 1e-5, 4e-3},
		{"attention in halves", ref.Numerics{FlashBlock: 8}, 1e-5, 4e-3},
		{"attention in bfloat16", ref.Numerics{FlashBlock: 8, KV: model.KVBF16}, 1e-4, 4e-2},
	}
	for _, c := range cases {
		d := relativeL2(logits(c.numerics), exact)
		t.Logf("%s: relative L2 %.2e", c.name, d)
		if !(d >= c.lo && d <= c.hi) {
			t.Errorf("%s: relative L2 %.2e, want between %.0e and %.0e", c.name, d, c.lo, c.hi)
		}
	}
}

// Rows of one step give the bits of each sequence alone. A row without tokens continues with the
// token that was chosen, and Choose chooses what a row with Hold left open.
func TestRows(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "qwen2.gguf"))
	e := engine(t, m, ref.Options{})
	tokens := oracleTokens()
	step := func(rows ...model.Row) []model.Result {
		t.Helper()
		pass, err := e.Step(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		results, err := pass.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	alone := newText(t, e)
	want := step(model.Row{Sequence: alone.Sequence, Tokens: tokens, Prompt: true, Want: model.WantLogits})[0]
	next := step(model.Row{Sequence: alone.Sequence, Tokens: []int{want.Token}, Want: model.WantLogits})[0]
	if want.Token != model.Argmax(want.Logits) || len(next.Logits) != m.Config.Vocab {
		t.Fatalf("token %d and %d logits", want.Token, len(next.Logits))
	}

	var rows []model.Row
	for range 4 {
		rows = append(rows, model.Row{Sequence: newText(t, e).Sequence, Tokens: tokens, Prompt: true, Want: model.WantLogits})
	}
	rows[1].Tokens, rows[2].Want, rows[3].Hold = tokens[:3], model.WantHidden, true
	results := step(rows...)
	if !slices.Equal(results[0].Logits, want.Logits) || !slices.Equal(results[3].Logits, want.Logits) {
		t.Error("logits beside other rows differ")
	}
	if n := len(tokens) * m.Config.Hidden; len(results[2].Hidden) != n || results[2].Token != -1 || results[3].Token != -1 {
		t.Errorf("%d states, want %d; tokens %d and %d, want none", len(results[2].Hidden), n, results[2].Token, results[3].Token)
	}
	if got := step(model.Row{Sequence: rows[0].Sequence, Want: model.WantLogits})[0]; !slices.Equal(got.Logits, next.Logits) {
		t.Error("a row without tokens does not continue with the chosen token")
	}
	banned := make([]uint32, (m.Config.Vocab+31)/32)
	banned[5/32] = 1 << 5
	pass, err := e.Choose(t.Context(), []model.Choose{{Sequence: rows[3].Sequence, Mask: banned}})
	if err != nil {
		t.Fatal(err)
	}
	if chosen, err := pass.Wait(); err != nil || chosen[0].Token != 5 {
		t.Errorf("chose %v (%v), want the only permitted token, 5", chosen, err)
	}
	if _, err := e.Choose(t.Context(), []model.Choose{{Sequence: rows[3].Sequence}}); err == nil {
		t.Error("a second choice for one row was accepted")
	}

	// A step with a bad row computes nothing.
	before := rows[0].Sequence.Len()
	for name, bad := range map[string]model.Row{
		"token":    {Sequence: rows[1].Sequence, Tokens: []int{-1}},
		"repeated": {Sequence: rows[0].Sequence, Tokens: []int{1}},
		"empty":    {Sequence: rows[2].Sequence},
		"foreign":  {Sequence: newText(t, engine(t, m, ref.Options{})).Sequence, Tokens: []int{1}},
	} {
		if _, err := e.Step(t.Context(), []model.Row{{Sequence: rows[0].Sequence, Tokens: []int{1}}, bad}); err == nil || !strings.Contains(err.Error(), "row 1") {
			t.Errorf("%s: error %v, want one of row 1", name, err)
		}
		if rows[0].Sequence.Len() != before {
			t.Errorf("%s: the step changed another row", name)
		}
	}
}

// TestCheckpoints goes back to positions before, at and after checkpoints of the states of Gated DeltaNets, further
// back than the checkpoints that a sequence keeps, and into a pass that failed.
func TestCheckpoints(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "qwen35.gguf"))
	e := engine(t, m, ref.Options{})
	tokens := moreOracleTokens(m.Config.Context, m.Config.Vocab)
	for _, cut := range []int{0, 1, 255, 256, 257, 511} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			next := tokens[cut:min(cut+9, len(tokens))]
			clean := newText(t, e)
			if cut > 0 {
				forward(t, clean, tokens[:cut], model.WantNothing)
			}
			want := forward(t, clean, next, model.WantAll)
			s := newText(t, e)
			forward(t, s, tokens, model.WantNothing)
			if at := s.Sequence.(model.Resumer).ResumesAt(cut); at != cut/256*256 {
				t.Errorf("%d positions resume at %d", cut, at)
			}
			fork, err := s.Fork(cut)
			if err != nil {
				t.Fatal(err)
			}
			defer fork.Close()
			if err := s.Truncate(cut); err != nil {
				t.Fatal(err)
			}
			ctx := &countdown{Context: t.Context(), n: 20} // ends while the states are computed again, or after that
			if _, err := s.Forward(ctx, next, model.WantAll); !errors.Is(err, context.Canceled) || s.Len() != cut {
				t.Fatalf("error %v, %d positions, want the countdown's and %d", err, s.Len(), cut)
			}
			for name, x := range map[string]text{"Truncate": s, "Fork": {fork, e}} {
				if got := forward(t, x, next, model.WantAll); !slices.Equal(got, want) {
					t.Errorf("the continuation after %s differs", name)
				}
			}
		})
	}
}
