package generate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
)

// A break ends the generation. Tokens that the loop has not taken do not count.
func TestBreak(t *testing.T) {
	for n := 1; n <= 5; n++ {
		e := newFake(t).speak(1, strings.Repeat("abcdefgh", 8))
		g := newTest(t, e, Options{})
		var stats Stats
		var got string
		for tok, err := range g.Tokens(t.Context(), []int{1}, Params{MaxTokens: 64, Stats: &stats}) {
			if err != nil {
				t.Fatal(err)
			}
			if got += tok.Text; len(got) == n {
				break
			}
		}
		if want := "abcdefgh"[:n]; got != want || stats.Finish != FinishBreak {
			t.Errorf("left after %d: %q, finish %v", n, got, stats.Finish)
		}
	}
}

// After a break the sequence must not yield again, neither held-back text nor an error of
// closing: that would panic.
func TestBreakIsFinal(t *testing.T) {
	e := newFake(t).speak(1, "EN")
	e.before = func(op string, _ []int) error {
		if op == "close" {
			return errors.New("broken")
		}
		return nil
	}
	for range Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 8, Stop: []string{"END"}}) {
		break
	}
	for token := range Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 8, Stop: []string{"END"}}) {
		if token.ID == NoToken { // the text that was held back
			break
		}
	}
	e.idle(t, nil)
}

// A generation can be canceled before it begins, between tokens and during a forward pass,
// whether or not the engine checks its context.
func TestCancel(t *testing.T) {
	const says = "abcdefgh"
	for _, ignored := range []bool{false, true} {
		for n := range 6 {
			e := newFake(t).speak(1, says)
			e.ignoreContext = ignored
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			passes := 0
			e.before = func(op string, _ []int) error {
				if op == "wait" {
					if passes++; passes == n+1 {
						cancel()
					}
				}
				return nil
			}
			got := collect(Tokens(ctx, e, []int{1}, Params{MaxTokens: 8}))
			if got.Err != context.Canceled || !strings.HasPrefix(says[:n], got.Text) {
				t.Errorf("context ignored %v, canceled in pass %d: %q, error %v", ignored, n+1, got.Text, got.Err)
			}
			if len(e.steps) > n+2 {
				t.Errorf("context ignored %v, canceled in pass %d: %d steps", ignored, n+1, len(e.steps))
			}
			e.idle(t, nil)
		}
	}
	for n := range 12 {
		e := newFake(t).speak(1, says)
		e.ignoreContext = n >= 6
		n %= 6
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if n == 0 {
			cancel()
		}
		var text string
		var last error
		var stats Stats
		for tok, err := range Tokens(ctx, e, []int{1}, Params{MaxTokens: 8, Stats: &stats}) {
			if text, last = text+tok.Text, err; len(text) == n {
				cancel()
			}
		}
		if last != context.Canceled || text != says[:n] {
			t.Errorf("canceled after token %d: %q, error %v", n, text, last)
		}
		if stats.Finish != FinishError || n == 0 && e.opened > 0 {
			t.Errorf("canceled after token %d: finish %v, %d sequences", n, stats.Finish, e.opened)
		}
		e.idle(t, nil)
	}
}

// panics returns the value that f panics with.
func panics(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// A panic of the caller's loop, of a hook or of a callback of the engine reaches the caller. It
// leaves nothing behind, and the next request works.
func TestPanics(t *testing.T) {
	const says = "abEN"
	prompt := []int{1, 2, 3}
	for _, tt := range []struct {
		name string
		op   string // the operation or callback that panics; "": the loop over the tokens
		n    int    // of its call, or of the token
	}{
		{"at the first token", "", 1},
		{"at a later token", "", 2},
		{"at the text that was held back", "", 5},
		{"opening a sequence", "open", 1},
		{"in the prompt", "row", 1},
		{"in a step", "row", 3},
		{"waiting for the prompt", "wait", 1},
		{"waiting for a step", "wait", 3},
		{"in a choice", "choose", 1},
		{"keeping a prefix", "fork", 1},
		{"in a hook", "hook", 2},
		{"starting a mask", "start", 1},
		{"in a mask", "mask", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t).speak(len(prompt), says)
			g := newTest(t, e, Options{})
			var mu sync.Mutex
			armed, n := true, 0
			plant := func(op string) {
				mu.Lock()
				defer mu.Unlock()
				if armed && op == tt.op {
					if n++; n == tt.n {
						panic("planted")
					}
				}
			}
			e.before = func(op string, _ []int) error {
				plant(op)
				return nil
			}
			p := Params{MaxTokens: 9, Stop: []string{"END"}}
			switch tt.op {
			case "hook", "choose":
				p.Logits = func([]int, []float32) { plant("hook") }
			case "start", "mask":
				p.Mask = func() func([]int) ([]uint32, error) {
					plant("start")
					permit := anything()
					return func(generated []int) ([]uint32, error) {
						plant("mask")
						return permit(generated)
					}
				}
			}
			got := panics(func() {
				n := 0
				for range g.Tokens(t.Context(), prompt, p) {
					if n++; tt.op == "" && n == tt.n {
						panic("planted")
					}
				}
			})
			if got != "planted" {
				t.Errorf("the panic is %v", got)
			}
			mu.Lock()
			n = 0
			mu.Unlock()
			if tt.op != "" && tt.op != "fork" {
				other := [][]int{{4, 4, 4}, {5, 5, 5}, {6, 6, 6}}
				if got := panics(func() { g.BatchTokens(t.Context(), other, p) }); got != "planted" {
					t.Errorf("the panic in a batch is %v", got)
				}
			}
			mu.Lock()
			armed = false
			mu.Unlock()
			if got := collect(g.Tokens(t.Context(), prompt, p)); got.Err != nil || got.Text != says {
				t.Errorf("afterwards: %q, error %v", got.Text, got.Err)
			}
		})
	}
}

// failing returns a fakeEngine.before that fails call at of an operation, counted from 1.
func failing(op string, at int, err error) func(string, []int) error {
	n := 0
	return func(called string, _ []int) error {
		if called == op {
			if n++; n == at {
				return err
			}
		}
		return nil
	}
}

// An answer is an answer even if its tokens cannot enter the prefix cache, or its sequence cannot be closed.
func TestErrorsAfterResult(t *testing.T) {
	for _, tt := range []struct {
		name, op string
		at       int // number of the call of op that fails, from 1
	}{
		{"storing the answer", "fork", 2},
		{"closing the prompt, part of the answer", "close", 1},
		{"closing the sequence", "close", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			broken := errors.New("broken")
			e := newFake(t).speak(1, "aENd")
			e.before = failing(tt.op, tt.at, broken)
			g := newTest(t, e, Options{})
			if got := collect(g.Tokens(t.Context(), []int{1}, Params{MaxTokens: 4})); got.Err != nil || got.Text != "aENd" {
				t.Errorf("%q, error %v", got.Text, got.Err)
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			if err := g.Load().StepError; !errors.Is(err, broken) {
				t.Errorf("StepError is %v", err)
			}
		})
	}
}

// A prompt that cannot enter the prefix cache is continued all the same.
func TestPromptNotStored(t *testing.T) {
	e := newFake(t).speak(1, "aENd")
	forks := 0
	e.before = func(op string, _ []int) error {
		if op == "fork" {
			if forks++; forks == 1 {
				return errors.New("broken")
			}
		}
		return nil
	}
	g := newTest(t, e, Options{})
	if got := collect(g.Tokens(t.Context(), []int{1}, Params{MaxTokens: 4})); got.Err != nil || got.Text != "aENd" || forks < 2 {
		t.Errorf("%q after %d forks, error %v", got.Text, forks, got.Err)
	}
}

// After an engine's error the generated tokens stand, held-back text comes out, and the next
// request works.
func TestEngineErrors(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name, reason string
		op           string
		at           int // number of the call of op that fails, from 1
		want         string
	}{
		{"no sequence", "nothing was computed", "open", 1, ""},
		{"no pages", "an error that is not about the number of free ones", "reserve", 1, ""},
		{"prompt", "no token", "row", 1, ""},
		{"prompt, late", "no token", "wait", 1, ""},
		{"first step, late", "the token from the prompt stands", "wait", 2, "a"},
		{"while text is held back", "it was generated before the error", "wait", 4, "aEN"},
		{"choice", "the one after the first", "choose", 2, "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t).speak(1, "aENd")
			e.before = failing(tt.op, tt.at, broken)
			g := newTest(t, e, Options{})
			p := Params{MaxTokens: 4, Stop: []string{"END"}}
			if tt.op == "choose" {
				p.Mask = anything
			}
			got := collect(g.Tokens(t.Context(), []int{1}, p))
			if !errors.Is(got.Err, broken) || got.Text != tt.want {
				t.Errorf("%s: %q, error %v; want %q", tt.reason, got.Text, got.Err, tt.want)
			}
			if got := collect(g.Tokens(t.Context(), []int{1}, p)); got.Err != nil || got.Text != "aENd" {
				t.Errorf("afterwards: %q, error %v", got.Text, got.Err)
			}
		})
	}
}

// A step that the engine refuses while another runs is tried again after that.
func TestRefusedStep(t *testing.T) {
	e := newFake(t).speak(1, "abcd")
	n := 0
	e.before = func(op string, _ []int) error {
		if op == "row" {
			if n++; n == 3 {
				return errors.New("broken")
			}
		}
		return nil
	}
	got := collect(Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 4}))
	if got.Err != nil || got.Text != "abcd" {
		t.Errorf("%q, error %v", got.Text, got.Err)
	}
}

// A choice of the engine outside the vocabulary ends the generation.
func TestNoChoice(t *testing.T) {
	for name, logits := range map[string]float32{"NaN": nan, "-Inf": negInf} {
		e := newFake(t)
		e.script = func(history []int) []float32 {
			out := make([]float32, tiny.Vocab)
			if len(history) > 2 {
				for i := range out {
					out[i] = logits
				}
			}
			return out
		}
		got := collect(Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 9}))
		if !errors.Is(got.Err, ErrNoChoice) || len(got.IDs) != 2 {
			t.Errorf("%s: %d tokens, error %v", name, len(got.IDs), got.Err)
		}
	}
}

func TestUntilContextFull(t *testing.T) {
	e := newFake(t)
	e.choose = func([]int) int { return 'x' }
	for _, pages := range []int{0, 1000, 10} {
		e.limits.Pages = pages
		limit := positions(e)
		for _, n := range []int{1, limit - 1, limit} {
			var s Stats
			got := collect(Tokens(t.Context(), e, make([]int, n), Params{MaxTokens: -1, Stats: &s}))
			if got.Err != nil || len(got.IDs) != limit-n || s.Finish != FinishLength {
				t.Errorf("%d pages, after %d positions: %d tokens, finish %v, error %v", pages, n, len(got.IDs), s.Finish, got.Err)
			}
		}
	}
}
