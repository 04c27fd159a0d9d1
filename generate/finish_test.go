package generate

import (
	"context"
	"errors"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
)

func TestBreak(t *testing.T) {
	for n := 1; n <= 5; n++ {
		e := newFake(t).speak(1, "abcdefgh")
		var stats Stats
		var got string
		for tok, err := range Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 8, Stats: &stats}) {
			if err != nil {
				t.Fatal(err)
			}
			if got += tok.Text; len(got) == n {
				break
			}
		}
		if want := "abcdefgh"[:n]; got != want || len(e.forwards) != n || stats.Finish != FinishBreak {
			t.Errorf("left after %d: %q with %d passes, finish %v", n, got, len(e.forwards), stats.Finish)
		}
		e.idle(t)
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
	e.idle(t)
}

// A generation can be canceled before it begins, between tokens and during a forward pass,
// whether or not the engine checks its context.
func TestCancel(t *testing.T) {
	const says = "abcdefgh"
	for _, blind := range []bool{false, true} {
		for n := range 6 {
			e := newFake(t).speak(1, says)
			e.blind = blind
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			passes := 0
			e.before = func(op string, _ []int) error {
				if op == "forward" {
					if passes++; passes == n+1 {
						cancel()
					}
				}
				return nil
			}
			got := collect(Tokens(ctx, e, []int{1}, Params{MaxTokens: 8}))
			if got.Err != context.Canceled || got.Text != says[:n] {
				t.Errorf("blind %v, canceled in pass %d: %q, error %v", blind, n+1, got.Text, got.Err)
			}
			e.idle(t)
		}
	}
	for n := range 12 {
		e := newFake(t).speak(1, says)
		e.blind = n >= 6
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
		if last != context.Canceled || text != says[:n] || len(e.forwards) != n {
			t.Errorf("canceled after token %d: %q in %d passes, error %v", n, text, len(e.forwards), last)
		}
		if stats.Finish != FinishError || n == 0 && e.opened > 0 {
			t.Errorf("canceled after token %d: finish %v, %d sessions", n, stats.Finish, e.opened)
		}
		e.idle(t)
	}
}

// panics returns the value that f panics with.
func panics(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// A panic of the caller's loop or of a callback of the engine reaches the caller. It leaves
// no session open, and the next request works.
func TestPanics(t *testing.T) {
	const says = "abEN"
	prompt, p := []int{1, 2, 3}, Params{MaxTokens: 9, Stop: []string{"END"}}
	for _, tt := range []struct {
		name string
		op   string // whose nth call panics; "": the loop, at its nth token
		n    int
	}{
		{"at the first token", "", 1},
		{"at a later token", "", 2},
		{"at the text that was held back", "", 5},
		{"opening a session", "open", 1},
		{"in the prompt", "forward", 1},
		{"in a step", "forward", 3},
		{"in a snapshot", "snapshot", 1},
		{"restoring a prefix", "restore", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t).speak(len(prompt), says)
			g, err := New(e, Options{PrefixBytes: 1 << 20, Parallel: 1})
			if err != nil {
				t.Fatal(err)
			}
			if tt.op == "restore" {
				collect(g.Tokens(t.Context(), prompt, p))
			}
			arm := func() {
				n := 0
				e.before = func(op string, _ []int) error {
					if op == tt.op {
						if n++; n == tt.n {
							panic("planted")
						}
					}
					return nil
				}
			}
			arm()
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
			e.idle(t)
			if arm(); tt.op != "" {
				got := panics(func() { g.BatchTokens(t.Context(), [][]int{prompt, prompt, prompt}, p) })
				if stored := tt.op == "snapshot"; got != "planted" && !stored {
					t.Errorf("the panic in a batch is %v", got)
				}
				e.idle(t)
			}
			e.before = nil
			if got := collect(g.Tokens(t.Context(), prompt, p)); got.Err != nil || got.Text != says {
				t.Errorf("afterwards: %q, error %v", got.Text, got.Err)
			}
			e.idle(t)
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			e.liveSnapshots(t, "closed", 0)
		})
	}
}

// After an engine's error the generated tokens stand, held-back text comes out, and the
// session is closed.
func TestEngineErrors(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name, reason string
		op           string
		at           int // number of the call of op that fails, from 1
		want         string
	}{
		{"no session", "nothing was computed", "open", 1, ""},
		{"prefill", "no token", "forward", 1, ""},
		{"first step", "the token from the prefill stands", "forward", 2, "a"},
		{"while text is held back", "it was generated before the error", "forward", 4, "aEN"},
		{"snapshot", "a prompt that cannot be kept", "snapshot", 1, ""},
		{"close", "reported at the end", "close", 1, "aENd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t).speak(1, "aENd")
			n := 0
			e.before = func(op string, _ []int) error {
				if op == tt.op {
					if n++; n == tt.at {
						return broken
					}
				}
				return nil
			}
			g, err := New(e, Options{PrefixBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			p := Params{MaxTokens: 9, Stop: []string{"END"}}
			got := collect(g.Tokens(t.Context(), []int{1}, p))
			if !errors.Is(got.Err, broken) || got.Text != tt.want {
				t.Errorf("%s: %q, error %v; want %q", tt.reason, got.Text, got.Err, tt.want)
			}
			e.idle(t)
			// The next request works.
			if got := collect(g.Tokens(t.Context(), []int{1}, p)); got.Err != nil || got.Text != "aENd" {
				t.Errorf("afterwards: %q, error %v", got.Text, got.Err)
			}
			e.idle(t)
		})
	}
}

func TestUntilContextFull(t *testing.T) {
	e := newFake(t)
	e.choose = func([]int) int { return 'x' }
	for _, n := range []int{1, tiny.Context - 1, tiny.Context} {
		got := collect(Tokens(t.Context(), e, make([]int, n), Params{MaxTokens: -1}))
		if got.Err != nil || len(got.IDs) != tiny.Context-n {
			t.Errorf("after %d positions: %d tokens, error %v", n, len(got.IDs), got.Err)
		}
	}
}
