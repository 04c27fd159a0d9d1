package accel_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// TestEndedPasses checks that an engine frees the masks and the results of large passes once smaller
// ones follow.
func TestEndedPasses(t *testing.T) {
	const sequences, passes = 8, 4 // as many passes can be in flight
	e := idleEngine(t, accel.Options{MaxSequences: sequences})
	vocab := e.Model().Config.Vocab
	wait := func(p model.Pass, err error) []model.Result {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		results, err := p.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	prompt := func(r model.Row) model.Row {
		t.Helper()
		s, err := e.NewSequence(0)
		if err != nil {
			t.Fatal(err)
		}
		r.Sequence, r.Tokens, r.Prompt = s, []int{1, 2, 3}, true
		return r
	}
	for _, tt := range []struct {
		name string
		row  model.Row
		do   func(rows []model.Row) (freed func() bool)
	}{
		{"masks", model.Row{Want: model.WantToken, Hold: true}, func(rows []model.Row) func() bool {
			var choices []model.Choose
			for _, r := range rows {
				mask := make([]uint32, (vocab+31)/32)
				mask[0] = 1
				choices = append(choices, model.Choose{Sequence: r.Sequence, Mask: mask})
			}
			last := weak.Make(&choices[len(choices)-1].Mask[0])
			wait(e.Step(t.Context(), rows))
			wait(e.Choose(t.Context(), choices))
			return func() bool { return last.Value() == nil }
		}},
		{"hidden states", model.Row{Want: model.WantHidden}, func(rows []model.Row) func() bool {
			hidden := weak.Make(&wait(e.Step(t.Context(), rows))[0].Hidden[0])
			return func() bool { return hidden.Value() == nil }
		}},
		{"logits", model.Row{Want: model.WantLogits}, func(rows []model.Row) func() bool {
			logits := weak.Make(&wait(e.Step(t.Context(), rows))[0].Logits[0])
			return func() bool { return logits.Value() == nil }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var freed []func() bool
			for range passes {
				var rows []model.Row
				for range sequences {
					rows = append(rows, prompt(tt.row))
				}
				freed = append(freed, tt.do(rows))
				for _, r := range rows {
					r.Sequence.Close()
				}
			}
			small := prompt(model.Row{Want: model.WantToken})
			defer small.Sequence.Close()
			for range passes {
				wait(e.Step(t.Context(), []model.Row{small}))
			}
			runtime.GC()
			for i, f := range freed {
				if !f() {
					t.Errorf("pass %d is not freed", i)
				}
			}
		})
	}
}
