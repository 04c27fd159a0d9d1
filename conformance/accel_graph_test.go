package conformance

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/model"
)

// stream is what steps gave: the SHA-256 of the bits of all logits, in order.
func hashLogits(logits []float32) string {
	h := sha256.New()
	for _, v := range logits {
		h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// stepwise gives a session a prompt and then one token after the other, and returns the
// logits of the latter.
func promptThenSteps(t testing.TB, s model.Session, prompt, tokens []int) []float32 {
	t.Helper()
	if _, err := s.Forward(t.Context(), prompt, model.WantNothing); err != nil {
		t.Fatal(err)
	}
	return stepLogits(t, s, tokens)
}

// steps gives a session one token after the other, and returns their logits.
func stepLogits(t testing.TB, s model.Session, tokens []int) (all []float32) {
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
func freshLogits(t testing.TB, e model.Engine, prompt, tokens []int) []float32 {
	t.Helper()
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return promptThenSteps(t, s, prompt, tokens)
}

// TestAccelGraphs holds steps that are graphs to steps that are not, over more positions
// than a page has and again behind a longer prompt; and to other tokens, which must give
// another stream.
func TestAccelGraphs(t *testing.T) {
	slowParallel(t)
	m := minimalModel(t)
	prompt, tokens := 52, testTokens(m.Config.Vocab, 66)
	if *longCases {
		prompt = 3
	}
	eager := accelEngine(t, m, smallDevice, accel.Options{Eager: true})
	graphs := accelEngine(t, m, smallDevice, accel.Options{})
	want := hashLogits(freshLogits(t, eager, tokens[:prompt], tokens[prompt:]))
	if got := hashLogits(freshLogits(t, graphs, tokens[:prompt], tokens[prompt:])); got != want {
		t.Errorf("by graphs %s, eagerly %s", got, want)
	}
	long := testTokens(m.Config.Vocab, 80)
	if a, b := hashLogits(freshLogits(t, eager, long, tokens[:6])), hashLogits(freshLogits(t, graphs, long, tokens[:6])); a != b {
		t.Errorf("behind a longer prompt: by graphs %s, eagerly %s", b, a)
	}
	if got := hashLogits(freshLogits(t, graphs, tokens[:prompt], tokens[prompt:])); got != want {
		t.Errorf("again: by graphs %s, eagerly %s", got, want)
	}
	other := append([]int{tokens[0] + 1}, tokens[1:prompt]...)
	if got := hashLogits(freshLogits(t, graphs, other, tokens[prompt:])); got == want {
		t.Error("another first token gives the same stream")
	}
	s, none := graphs.Stats(), eager.Stats()
	if s.CaptureFailures != 0 || s.Captures != 2 || s.GraphLaunches != s.Steps || none.Captures != 0 || none.GraphLaunches != 0 {
		t.Errorf("one graph for one page and one for two: %+v; and none: %+v", s, none)
	}
}

// greedyAndLogits is what a prompt gives: the tokens chosen behind it, and the logits of a
// few steps.
func greedyAndLogits(t *testing.T, e *accel.Engine, prompt []int) ([]int, string) {
	t.Helper()
	return greedyContinuation(t, e, prompt, 6), hashLogits(freshLogits(t, e, prompt, prompt[:2]))
}

// TestAccelCaptureFails fails what only a capture calls, the first time or always. The
// passes without a graph run kernel by kernel with the same results, and the engine says
// how many there are and why.
func TestAccelCaptureFails(t *testing.T) {
	slowParallel(t)
	m := minimalModel(t)
	prompt := testTokens(m.Config.Vocab, 5)
	healthy := accelEngine(t, m, smallDevice, accel.Options{Prefill: accel.PrefillExact})
	wantTokens, wantLogits := greedyAndLogits(t, healthy, prompt)
	want := healthy.Stats()
	if want.Captures < 2 || want.CaptureFailures != 0 || want.CaptureError != nil || want.EagerPasses != 0 {
		t.Fatalf("where nothing fails, not everything is a graph: %+v", want)
	}
	for _, call := range []faultinject.Call{faultinject.StreamCapture, faultinject.StreamEndCapture, faultinject.StreamInstantiate} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, always %v", call, always), func(t *testing.T) {
				dev := faultinject.New(accelDevice(t, smallDevice))
				e, err := accel.New(t.Context(), m, dev, accel.Options{Prefill: accel.PrefillExact})
				if err != nil {
					t.Fatal(err)
				}
				defer checkClosed(t, e)
				dev.Fail(faultinject.Plan{Call: call, N: 1, Onward: always})
				tokens, logits := greedyAndLogits(t, e, prompt)
				if !slices.Equal(tokens, wantTokens) || logits != wantLogits {
					t.Errorf("without a graph the tokens are %v and the logits %s; want %v and %s", tokens, logits, wantTokens, wantLogits)
				}
				failed, s := dev.Injected(), e.Stats()
				if len(failed) == 0 || !always && len(failed) != 1 || !errors.Is(s.CaptureError, failed[len(failed)-1].Err) {
					t.Fatalf("failed were %v, the engine says %v", failed, s.CaptureError)
				}
				if s.CaptureFailures != len(failed) || s.Captures != want.Captures-len(failed) || always != (s.Captures == 0) {
					t.Errorf("%d captures failed of %d: %+v", len(failed), want.Captures, s)
				}
				if s.EagerPasses == 0 || s.EagerPasses+s.GraphLaunches != s.Steps || always != (s.GraphLaunches == 0) {
					t.Errorf("not each step was either a graph or eager: %+v", s)
				}
			})
		}
	}
}

// TestAccelStepCalls lists what a greedy step asks of the device between two others: a graph
// leaves its tokens where the host finds them, and nothing is copied.
func TestAccelStepCalls(t *testing.T) {
	m := minimalModel(t)
	for _, c := range []struct {
		name string
		o    accel.Options
		want []faultinject.Call
	}{
		{"ahead", accel.Options{}, []faultinject.Call{faultinject.StreamRecord, faultinject.GraphLaunch, faultinject.EventSynchronize}},
		{"asked for", accel.Options{SyncScheduling: true}, []faultinject.Call{faultinject.StreamWriteAsync, faultinject.GraphLaunch, faultinject.StreamSynchronize}},
		{"eager", accel.Options{Eager: true}, []faultinject.Call{faultinject.StreamWriteAsync, faultinject.StreamLaunch, faultinject.StreamSynchronize}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := faultinject.New(accelDevice(t, smallDevice))
			e, err := accel.New(t.Context(), m, dev, c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer checkClosed(t, e)
			s, err := e.NewSession(0)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var before int
			out := model.Output{Greedy: 3}
			for range 4 { // after one that captures, and one from which on steps are foreseen
				before = len(dev.Calls())
				if out, err = s.Forward(t.Context(), []int{out.Greedy}, model.WantGreedy); err != nil {
					t.Fatal(err)
				}
			}
			if got := dev.Calls()[before:]; !slices.Equal(got, c.want) {
				t.Errorf("a step calls %v, want %v", got, c.want)
			}
		})
	}
}
