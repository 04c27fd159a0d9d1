package conformance

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// stream is what steps gave: the SHA-256 of the bits of all logits, in order.
func stream(logits []float32) string {
	h := sha256.New()
	for _, v := range logits {
		h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// stepwise gives a session a prompt and then one token after the other, and returns the
// logits of the latter.
func stepwise(t testing.TB, s model.Session, prompt, tokens []int) []float32 {
	t.Helper()
	if _, err := s.Forward(t.Context(), prompt, model.WantNothing); err != nil {
		t.Fatal(err)
	}
	return steps(t, s, tokens)
}

// steps gives a session one token after the other, and returns their logits.
func steps(t testing.TB, s model.Session, tokens []int) (all []float32) {
	t.Helper()
	for _, token := range tokens {
		out, err := s.Forward(t.Context(), []int{token}, model.WantLast)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, out.Logits...)
	}
	return all
}

// fresh is stepwise with a session of its own.
func fresh(t testing.TB, e model.Engine, prompt, tokens []int) []float32 {
	t.Helper()
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return stepwise(t, s, prompt, tokens)
}

// TestAccelGraphs holds steps that are graphs to steps that are not, over more positions
// than a page has and again behind a longer prompt; and to other tokens, which must give
// another stream.
func TestAccelGraphs(t *testing.T) {
	notShort(t)
	m := tinyModel(t, "llama")
	prompt, tokens := 52, spread(m.Config.Vocab, 66)
	if *longCases {
		prompt = 3
	}
	eager := accelEngine(t, m, smallDevice, accel.Options{Eager: true})
	graphs := accelEngine(t, m, smallDevice, accel.Options{})
	want := stream(fresh(t, eager, tokens[:prompt], tokens[prompt:]))
	if got := stream(fresh(t, graphs, tokens[:prompt], tokens[prompt:])); got != want {
		t.Errorf("by graphs %s, eagerly %s", got, want)
	}
	long := spread(m.Config.Vocab, 80)
	if a, b := stream(fresh(t, eager, long, tokens[:6])), stream(fresh(t, graphs, long, tokens[:6])); a != b {
		t.Errorf("behind a longer prompt: by graphs %s, eagerly %s", b, a)
	}
	if got := stream(fresh(t, graphs, tokens[:prompt], tokens[prompt:])); got != want {
		t.Errorf("again: by graphs %s, eagerly %s", got, want)
	}
	other := append([]int{tokens[0] + 1}, tokens[1:prompt]...)
	if got := stream(fresh(t, graphs, other, tokens[prompt:])); got == want {
		t.Error("another first token gives the same stream")
	}
	s, none := graphs.Stats(), eager.Stats()
	if s.CaptureFailures != 0 || s.Captures != 2 || s.GraphLaunches != s.Steps || none.Captures != 0 || none.GraphLaunches != 0 {
		t.Errorf("one graph for one page and one for two: %+v; and none: %+v", s, none)
	}
}
