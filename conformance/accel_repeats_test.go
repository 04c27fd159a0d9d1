package conformance

import (
	"fmt"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// repeatedRequest is a request to repeat: a prompt, greedy steps, and a step that returns
// logits. The engine queues some of the greedy steps ahead.
type repeatedRequest struct {
	testing.TB
	e      *accel.Engine
	prompt []int
	prefix model.Snapshot // the prompt without its last two tokens
}

// stream returns the tokens and the hash of the logits.
func (r *repeatedRequest) stream(s model.Session, prompt []int) string {
	r.Helper()
	var tokens []int
	input := prompt
	for _, want := range []model.Want{model.WantGreedy, model.WantGreedy, model.WantGreedy, model.WantGreedy, model.WantLast} {
		out, err := s.Forward(r.Context(), input, want)
		if err != nil {
			r.Error(err)
			return ""
		}
		input = []int{out.Greedy}
		if tokens = append(tokens, out.Greedy); want == model.WantLast {
			return fmt.Sprint(tokens, " ", hashLogits(out.Logits))
		}
	}
	return ""
}

func (r *repeatedRequest) alone() string {
	s := openSession(r, r.e)
	defer s.Close()
	return r.stream(s, r.prompt)
}

// amongOthers is alone while other sessions compute other prompts.
func (r *repeatedRequest) amongOthers() (got string) {
	var group sync.WaitGroup
	group.Go(func() { got = r.alone() })
	for i := range 2 {
		other := openSession(r, r.e)
		defer other.Close()
		group.Go(func() { r.stream(other, r.prompt[2+i:]) })
	}
	group.Wait()
	return got
}

func (r *repeatedRequest) restored() string {
	s := openSession(r, r.e)
	defer s.Close()
	if err := s.Restore(r.prefix, r.prefix.Len()); err != nil {
		r.Error(err)
		return ""
	}
	return r.stream(s, r.prompt[s.Len():])
}

// TestAccelRepeats repeats a request 40 times, or 1000 times with -long or -gpu: alone,
// among others, after a restored prefix, and sometimes in eager mode. All results must be
// equal, and another prompt must differ.
func TestAccelRepeats(t *testing.T) {
	slowParallel(t)
	count := 40
	if *longCases || *onGPU {
		count = 1000
	}
	m := minimalModel(t)
	tokens := testTokens(m.Config.Vocab, 6)
	graphs := &repeatedRequest{TB: t, e: accelEngine(t, m, smallDevice, accel.Options{KVPages: 8}), prompt: tokens}
	eager := &repeatedRequest{TB: t, e: accelEngine(t, m, smallDevice, accel.Options{KVPages: 8, Eager: true}), prompt: tokens}
	s := openSession(t, graphs.e)
	defer s.Close()
	promptThenSteps(t, s, tokens[:4], nil)
	var err error
	if graphs.prefix, err = s.Snapshot(4); err != nil {
		t.Fatal(err)
	}
	ways := []struct {
		name string
		run  func() string
	}{{"alone", graphs.alone}, {"among others", graphs.amongOthers}, {"after a restored prefix", graphs.restored}}
	want := graphs.alone()
	for i := range count - 1 {
		way := ways[i%len(ways)]
		if got := way.run(); got != want {
			t.Fatalf("repeat %d, %s: %s, want %s", i, way.name, got, want)
		}
		if i%10 == 0 {
			if got := eager.alone(); got != want {
				t.Fatalf("repeat %d, eager: %s, want %s", i, got, want)
			}
		}
	}
	t.Logf("%d times %s; %+v", count, want, graphs.e.Stats())
	if s := graphs.e.Stats(); s.LargestBatch < 2 || s.GraphLaunches != s.Steps || eager.e.Stats().GraphLaunches != 0 {
		t.Errorf("no step had two sequences, or some step was no graph: %+v", s)
	}
	other := *graphs
	other.prompt = append([]int{tokens[0] + 1}, tokens[1:]...)
	if got := other.alone(); got == want {
		t.Error("another first token gives the same logits")
	}
}
