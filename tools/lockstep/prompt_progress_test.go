package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/conformance"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// chunked returns the engine of a small model with progress shown on screen, and one
// without.
func chunked(t *testing.T, screen *bytes.Buffer) (split chunkedEngine, plain model.Engine) {
	t.Helper()
	m, err := golden.Model()
	if err != nil {
		t.Fatal(err)
	}
	if plain, err = ref.New(m, ref.Options{}); err != nil {
		t.Fatal(err)
	}
	e := &env{errw: screen}
	return chunkedEngine{plain, func(total int) *progress {
		p := e.progress("prompt", int64(total))
		p.show(screen, 0)
		return p
	}}, plain
}

// A chunked engine behaves like any other.
func TestChunkedEngineConforms(t *testing.T) {
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	eng, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := chunkedEngine{eng, func(total int) *progress { return (&env{}).progress("prompt", int64(total)) }}
	for _, b := range conformance.Behaviors() {
		t.Run(b.Name, func(t *testing.T) { b.Check(t, e) })
	}
}

func TestChunkedEngine(t *testing.T) {
	tokens := make([]int, 3*chunkLen+5)
	for i := range tokens {
		tokens[i] = 5 + 7*i
	}
	tests := []struct {
		name, reason string
		n            int
		want         model.Want
		shown        bool
	}{
		{"long", "three chunks and a rest", len(tokens), model.WantLast, true},
		{"whole chunks", "the last one is full", 2 * chunkLen, model.WantLast, true},
		{"greedy", "the output is that of the last chunk", chunkLen + 1, model.WantGreedy, true},
		{"short", "one chunk is not split", chunkLen, model.WantLast, false},
		{"all", "logits of every position need one call", len(tokens), model.WantAll, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var screen bytes.Buffer
			split, plain := chunked(t, &screen)
			got, want := forward(t, split, tokens[:tt.n], tt.want), forward(t, plain, tokens[:tt.n], tt.want)
			same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
			if got.Greedy != want.Greedy || !slices.EqualFunc(got.Logits, want.Logits, same) {
				t.Errorf("%s: other bits than in one call", tt.reason)
			}
			text := screen.String()
			if strings.Contains(text, "prompt") != tt.shown {
				t.Errorf("%s: progress %q", tt.reason, text)
			}
			if last := text[strings.LastIndex(text, "\r")+1:]; strings.TrimSpace(last) != "" {
				t.Errorf("the line is not cleared: %q", last)
			}
		})
	}
}

func forward(t *testing.T, e model.Engine, tokens []int, want model.Want) model.Output {
	t.Helper()
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Forward(t.Context(), tokens, want)
	if err != nil || s.Len() != len(tokens) {
		t.Fatalf("%d positions, error %v", s.Len(), err)
	}
	out.Logits = slices.Clone(out.Logits)
	return out
}

// An interrupt between two chunks leaves the session unchanged.
func TestChunkedInterrupted(t *testing.T) {
	var screen bytes.Buffer
	e, _ := chunked(t, &screen)
	ctx, cancel := context.WithCancel(t.Context())
	e.begin = func(total int) *progress {
		p := (&env{errw: &screen}).progress("prompt", int64(total))
		p.show(writerFunc(func(b []byte) (int, error) { cancel(); return screen.Write(b) }), 0)
		return p
	}
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Forward(ctx, make([]int, 3), model.WantNothing); err != nil {
		t.Fatal(err)
	}
	_, err = s.Forward(ctx, make([]int, 3*chunkLen), model.WantLast)
	if !errors.Is(err, context.Canceled) || s.Len() != 3 {
		t.Errorf("error %v, %d positions, want 3", err, s.Len())
	}
}
