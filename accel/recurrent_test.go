package accel_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

// recurrentEngine returns an engine of a model with a recurrent state on an idle device.
func recurrentEngine(t *testing.T, o accel.Options) *accel.Engine {
	t.Helper()
	m, err := model.Load(tiny.New("qwen35", 1).File())
	if err != nil {
		t.Fatal(err)
	}
	return newEngine(t, m, o, func(d driver.Device) driver.Device { return idleDevice{d} })
}

// computed returns how many tokens f computes as prompts and in decode steps.
func computed(e *accel.Engine, f func()) (prompt, steps int) {
	before := e.Stats()
	f()
	after := e.Stats()
	return after.ChunkTokens - before.ChunkTokens, after.DecodeTokens - before.DecodeTokens
}

// TestRecomputedTokens counts the tokens that are computed again before a row, because the sequence does not have its
// state.
func TestRecomputedTokens(t *testing.T) {
	e := recurrentEngine(t, accel.Options{Checkpoint: 16, MaxSequences: 2, KVPages: 64})
	tokens := make([]int, 40)
	forward := func(s model.Sequence, n int, prompt bool) {
		t.Helper()
		for ; n > 0; n-- {
			row := model.Row{Sequence: s, Tokens: tokens[:1], Prompt: prompt}
			if prompt {
				row.Tokens, n = tokens[:n], 1
			}
			if _, err := model.Forward(t.Context(), e, row); err != nil {
				t.Fatal(err)
			}
		}
	}
	fork := func(s model.Sequence, n int) model.Sequence {
		t.Helper()
		f, err := s.Fork(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	s := newSequence(t, e)
	forward(s, 40, true)
	forward(s, 10, false) // positions 40 to 49
	for _, c := range []struct {
		name          string
		run           func()
		prompt, steps int // tokens that are computed, those of a new step included
	}{
		{"a sequence with its state", func() { forward(s, 1, false) }, 0, 1},
		{"swapped", func() {
			if err := s.SwapOut(); err != nil {
				t.Fatal(err)
			}
			if err := s.SwapIn(); err != nil {
				t.Fatal(err)
			}
			forward(s, 1, false)
		}, 0, 1},
		{"a fork behind the last checkpoint", func() { forward(fork(s, 51), 1, false) }, 3, 1},
		{"a fork at the end", func() { forward(fork(s, 52), 1, false) }, 0, 1},
		{"another fork there", func() { forward(s, 1, false); forward(fork(s, 52), 1, false) }, 0, 2},
		{"a fork of a prompt", func() { forward(fork(s, 38), 1, false) }, 38 - 32, 1},
		{"a fork at a checkpoint", func() { forward(fork(s, 16), 1, false) }, 0, 1},
		{"a fork before the first checkpoint", func() { forward(fork(s, 15), 1, false) }, 15, 1},
		{"truncated within what was generated", func() {
			if err := s.Truncate(45); err != nil {
				t.Fatal(err)
			}
			forward(s, 1, false)
		}, 45 - 32, 1},
		{"another place was taken", func() { // more sequences than there are places
			for range 14 {
				forward(fork(s, 1), 1, false)
			}
			forward(s, 1, false)
		}, 14 + 46, 14 + 1},
	} {
		if prompt, steps := computed(e, c.run); prompt != c.prompt || steps != c.steps {
			t.Errorf("%s: %d tokens in prompts and %d in steps, want %d and %d", c.name, prompt, steps, c.prompt, c.steps)
		}
	}
}

// TestNoAttention plans the memory of a model without keys and values, whose pages are empty.
func TestNoAttention(t *testing.T) {
	spec := tiny.New("qwen35", 1)
	spec.OneLayer()
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, m, accel.Options{}, func(d driver.Device) driver.Device { return idleDevice{d} })
	if l := e.Limits(); l.Pages < 1 {
		t.Errorf("%+v", l)
	}
	s := newSequence(t, e)
	if _, err := model.Forward(t.Context(), e, model.Row{Sequence: s, Tokens: make([]int, 70), Prompt: true}); err != nil {
		t.Error(err)
	}
}

// TestResumesAt forks a prompt where positions of it resume, which computes nothing again.
func TestResumesAt(t *testing.T) {
	e := recurrentEngine(t, accel.Options{Checkpoint: 16, MaxSequences: 4, KVPages: 64})
	s := newSequence(t, e)
	if _, err := model.Forward(t.Context(), e, model.Row{Sequence: s, Tokens: make([]int, 40), Prompt: true}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ n, want int }{{1, 0}, {15, 0}, {16, 16}, {31, 16}, {32, 32}, {39, 32}, {41, 32}, {40, 40}} { // a fork at the end leaves a checkpoint there
		n, want := c.n, c.want
		at := s.(model.Resumer).ResumesAt(n)
		if at != want {
			t.Errorf("%d positions resume at %d, want %d", n, at, want)
		}
		f, err := s.Fork(at)
		if err != nil {
			t.Fatal(err)
		}
		prompt, _ := computed(e, func() {
			if _, err := model.Forward(t.Context(), e, model.Row{Sequence: f, Tokens: make([]int, 1), Prompt: true}); err != nil {
				t.Fatal(err)
			}
		})
		if prompt != 1 {
			t.Errorf("a fork at %d computes %d tokens, want 1", at, prompt)
		}
		f.Close()
	}
}

// TestCheckpointsStay counts the tokens that two forks compute again in one step. Sequences that were closed, and the state of
// the first fork, must not take the places of the checkpoints that the forks need.
func TestCheckpointsStay(t *testing.T) {
	e := recurrentEngine(t, accel.Options{Checkpoint: 16, MaxSequences: 2, KVPages: 64})
	tokens := make([]int, 40)
	prompt := func(n int) model.Sequence {
		t.Helper()
		s := newSequence(t, e)
		if _, err := model.Forward(t.Context(), e, model.Row{Sequence: s, Tokens: tokens[:n], Prompt: true}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	var rows []model.Row
	fork := func(s model.Sequence) {
		t.Helper()
		f, err := s.Fork(18)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		rows = append(rows, model.Row{Sequence: f, Tokens: tokens[:1]})
	}
	first, second := prompt(20), prompt(20)
	for range 6 {
		prompt(40).Close()
	}
	for range 4 { // so that no place is free
		prompt(1)
	}
	fork(first)
	fork(second)
	again, steps := computed(e, func() {
		p, err := e.Step(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			t.Fatal(err)
		}
	})
	if again != 2*(18-16) || steps != 2 {
		t.Errorf("%d tokens in prompts and %d in steps, want %d and 2", again, steps, 2*(18-16))
	}
}

// TestTooManyStates queues a step with more rows than the device has states for.
func TestTooManyStates(t *testing.T) {
	e := recurrentEngine(t, accel.Options{MaxSequences: 1, KVPages: 64})
	var rows []model.Row
	for range 10 {
		rows = append(rows, model.Row{Sequence: newSequence(t, e), Tokens: []int{1}, Prompt: true})
	}
	const want = "step of 9 sequences with recurrent states; it can have up to 8"
	if _, err := e.Step(t.Context(), rows[:9]); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	if _, err := e.Step(t.Context(), rows[:8]); err != nil {
		t.Error(err)
	}
}

// TestUnsupportedState refuses heads that the kernels cannot compute, before anything is allocated.
func TestUnsupportedState(t *testing.T) {
	m, err := model.Load(tiny.New("qwen35", 1).File())
	if err != nil {
		t.Fatal(err)
	}
	m.Config.DeltaNet.Dim = 24
	_, err = accel.PlanMemory(m, driver.Properties{ComputeCapability: 90, SMs: 4, SharedPerCTA: 227 << 10}, 1<<40, accel.Options{})
	if !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), "heads of 24 elements, want a multiple of 16") {
		t.Errorf("error %v", err)
	}
}
