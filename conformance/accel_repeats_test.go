package conformance

import (
	"fmt"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// repeatedRequest is a request to repeat: a prompt, greedy steps of which each is queued before the
// last is waited for, and a step that returns logits.
type repeatedRequest struct {
	testing.TB
	e      *accel.Engine
	prompt []int
	prefix text // the prompt without its last two tokens
}

// run continues texts with their prompts, in the same steps. It returns the tokens and the hash of
// the logits of the first.
func (r *repeatedRequest) run(prompts [][]int, list ...text) string {
	r.Helper()
	var tokens []int
	var last model.Pass
	wait := func() (out model.Result) {
		results, err := last.Wait()
		if err != nil {
			r.Fatal(err)
		}
		tokens = append(tokens, results[0].Token)
		return results[0]
	}
	for step, want := range []model.Want{model.WantToken, model.WantToken, model.WantToken, model.WantToken, model.WantLogits} {
		var rows []model.Row
		for i, s := range list {
			row := model.Row{Sequence: s.Sequence, Want: want}
			if step == 0 {
				row.Tokens, row.Prompt = prompts[i], true
			}
			rows = append(rows, row)
		}
		p, err := r.e.Step(r.Context(), rows)
		if err != nil {
			r.Fatal(err)
		}
		if last != nil {
			wait()
		}
		last = p
	}
	out := wait()
	for _, s := range list {
		s.Close()
	}
	return fmt.Sprint(tokens, " ", hashLogits(out.Logits))
}

func (r *repeatedRequest) alone() string { return r.run([][]int{r.prompt}, openText(r, r.e)) }

// amongOthers is alone beside sequences with other prompts.
func (r *repeatedRequest) amongOthers() string {
	return r.run([][]int{r.prompt, r.prompt[2:], r.prompt[3:]}, openText(r, r.e), openText(r, r.e), openText(r, r.e))
}

func (r *repeatedRequest) forked() string {
	s := fork(r, r.prefix, r.prefix.Len())
	return r.run([][]int{r.prompt[s.Len():]}, s)
}

// TestAccelRepeats repeats a request 40 times, or 1000 times with -long or -gpu: alone,
// among others, after a shared prefix, and sometimes in eager mode. All results must be
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
	graphs.prefix = openText(t, graphs.e)
	defer graphs.prefix.Close()
	promptThenSteps(t, graphs.prefix, tokens[:4], nil)
	ways := []struct {
		name string
		run  func() string
	}{{"alone", graphs.alone}, {"among others", graphs.amongOthers}, {"after a shared prefix", graphs.forked}}
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
	if s := graphs.e.Stats(); s.LargestBatch < 2 || s.GraphLaunches != s.DecodeSteps || eager.e.Stats().GraphLaunches != 0 {
		t.Errorf("no step had two sequences, or some step was no graph: %+v", s)
	}
	other := *graphs
	other.prompt = append([]int{tokens[0] + 1}, tokens[1:]...)
	if got := other.alone(); got == want {
		t.Error("another first token gives the same logits")
	}
}
