package conformance

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// TestAccelGraphs compares graphs with eager launches, over a page boundary and again after
// a longer prompt. Other tokens must give other bits.
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
		t.Errorf("graphs: %s, eager: %s", got, want)
	}
	long := testTokens(m.Config.Vocab, 80)
	if a, b := hashLogits(freshLogits(t, eager, long, tokens[:6])), hashLogits(freshLogits(t, graphs, long, tokens[:6])); a != b {
		t.Errorf("after a longer prompt: graphs: %s, eager: %s", b, a)
	}
	if got := hashLogits(freshLogits(t, graphs, tokens[:prompt], tokens[prompt:])); got != want {
		t.Errorf("again: graphs: %s, eager: %s", got, want)
	}
	other := append([]int{tokens[0] + 1}, tokens[1:prompt]...)
	if got := hashLogits(freshLogits(t, graphs, other, tokens[prompt:])); got == want {
		t.Error("another first token gives the same logits")
	}
	s, none := graphs.Stats(), eager.Stats()
	if s.CaptureFailures != 0 || s.Captures != 2 || s.GraphLaunches != s.DecodeSteps || none.Captures != 0 || none.GraphLaunches != 0 {
		t.Errorf("want one graph for one page and one for two, got %+v; eager: %+v", s, none)
	}
}

// greedyAndLogits returns the greedy tokens after a prompt and a hash of the logits of a
// few steps.
func greedyAndLogits(t *testing.T, e *accel.Engine, prompt []int) ([]int, string) {
	t.Helper()
	s := openText(t, e)
	defer s.Close()
	if _, err := model.Forward(t.Context(), e, model.Row{Sequence: s.Sequence, Tokens: prompt[:1]}); err != nil { // a step without logits has a graph of its own
		t.Fatal(err)
	}
	return greedyContinuation(t, e, prompt, 6), hashLogits(freshLogits(t, e, prompt, prompt[:2]))
}

// TestAccelCaptureFails lets the calls that only a capture makes fail, once or always. Steps
// without a graph must run eagerly with the same results, and Stats must report them with
// the error.
func TestAccelCaptureFails(t *testing.T) {
	slowParallel(t)
	m := minimalModel(t)
	prompt := testTokens(m.Config.Vocab, 5)
	healthy := accelEngine(t, m, smallDevice, accel.Options{})
	wantTokens, wantLogits := greedyAndLogits(t, healthy, prompt)
	want := healthy.Stats()
	if want.Captures < 2 || want.CaptureFailures != 0 || want.CaptureError != nil || want.EagerPasses != want.Chunks {
		t.Fatalf("without failures, some step is no graph: %+v", want)
	}
	for _, call := range []faultinject.Call{faultinject.StreamCapture, faultinject.StreamEndCapture, faultinject.StreamInstantiate} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, always %v", call, always), func(t *testing.T) {
				dev := faultinject.New(accelDevice(t, smallDevice))
				e, err := accel.New(t.Context(), m, dev, accel.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer checkClosed(t, e)
				dev.Fail(faultinject.Plan{Call: call, N: 1, Onward: always})
				tokens, logits := greedyAndLogits(t, e, prompt)
				if !slices.Equal(tokens, wantTokens) || logits != wantLogits {
					t.Errorf("without a graph: tokens %v, logits %s; want %v and %s", tokens, logits, wantTokens, wantLogits)
				}
				failed, s := dev.Injected(), e.Stats()
				if len(failed) == 0 || !always && len(failed) != 1 || !errors.Is(s.CaptureError, failed[len(failed)-1].Err) {
					t.Fatalf("failed calls %v, but Stats has %v", failed, s.CaptureError)
				}
				if s.CaptureFailures != len(failed) || s.Captures != want.Captures-len(failed) || always != (s.Captures == 0) {
					t.Errorf("%d captures failed of %d: Stats %+v", len(failed), want.Captures, s)
				}
				if s.EagerPasses == s.Chunks || s.EagerPasses+s.GraphLaunches != s.DecodeSteps+s.Chunks || always != (s.GraphLaunches == 0) {
					t.Errorf("graph and eager steps do not add up: %+v", s)
				}
			})
		}
	}
}

// TestAccelStepCalls lists the device calls of a step between two others. A step leaves
// its token and the next position on the device and writes the token to host memory. So a graph
// needs no copy. Without a graph, a copy keeps kernels from starting early. Nothing waits between a
// row whose choice is held, the choice, and the row after it: the chosen token is copied on the
// device, the mask and the position of the choice are sent.
func TestAccelStepCalls(t *testing.T) {
	m := minimalModel(t)
	graph := []faultinject.Call{faultinject.GraphLaunch, faultinject.StreamRecord, faultinject.EventSynchronize}
	sampled := sampling.Params{Temperature: 1, TopK: 3, FrequencyPenalty: 1, LogProb: true}
	for _, c := range []struct {
		name  string
		o     accel.Options
		ahead bool     // the next step is queued before the last is waited for
		mask  []uint32 // of a held choice; nil: none is held
		p     sampling.Params
		want  []faultinject.Call
	}{
		{"ahead", accel.Options{}, true, nil, sampling.Params{}, graph},
		{"sampled", accel.Options{}, true, nil, sampled, graph},
		{"one by one", accel.Options{}, false, nil, sampling.Params{}, graph},
		{"eager", accel.Options{Eager: true}, false, nil, sampling.Params{}, []faultinject.Call{faultinject.StreamWriteAsync, faultinject.StreamLaunch, faultinject.StreamRecord, faultinject.EventSynchronize}},
		{"held", accel.Options{}, true, []uint32{0xFF}, sampled, []faultinject.Call{
			faultinject.StreamWriteAsync, faultinject.GraphLaunch, faultinject.StreamCopy, faultinject.StreamRecord,
			faultinject.StreamWriteAsync, faultinject.StreamWriteAsync, faultinject.StreamLaunch, faultinject.StreamRecord,
			faultinject.EventSynchronize, faultinject.EventSynchronize,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := faultinject.New(accelDevice(t, smallDevice))
			e, err := accel.New(t.Context(), m, dev, c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer checkClosed(t, e)
			s := openText(t, e)
			defer s.Close()
			if err := s.SetSampling(&c.p, nil, nil); err != nil {
				t.Fatal(err)
			}
			row := s.row([]int{3}, model.WantToken)
			row.Prompt, row.Hold = false, c.mask != nil
			var before int
			var last, passes []model.Pass
			for range 4 { // the first step captures a graph
				before = len(dev.Calls())
				p, err := e.Step(t.Context(), []model.Row{row})
				if err != nil {
					t.Fatal(err)
				}
				if passes = []model.Pass{p}; c.mask != nil {
					if p, err = e.Choose(t.Context(), []model.Choose{{Sequence: s.Sequence, Mask: c.mask}}); err != nil {
						t.Fatal(err)
					}
					passes = append(passes, p)
				}
				row.Tokens = nil
				if c.ahead {
					passes, last = last, passes
				}
				for _, p := range passes {
					if _, err := p.Wait(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := dev.Calls()[before:]; !slices.Equal(got, c.want) {
				t.Errorf("a step makes the calls %v, want %v", got, c.want)
			}
		})
	}
}
