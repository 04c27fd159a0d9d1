package conformance

import (
	"context"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// TestAccelGoroutines: as many goroutines as a server may have call one engine at once, each
// with a sequence of its own, and get the bits that each gets alone. Some give up midway.
func TestAccelGoroutines(t *testing.T) {
	callers := 256
	if testing.Short() {
		callers = 8
	}
	m := tinyModel(t, "llama")
	e := accelEngine(t, m, smallDevice, accel.Options{MaxSequences: 16, KVPages: callers, Chunk: 16})
	request := func(ctx context.Context, prompt []int) ([]float32, error) {
		s, err := e.NewSession(0)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if _, err := s.Forward(ctx, prompt, model.WantGreedy); err != nil {
			return nil, err
		}
		var all []float32
		for _, token := range prompt {
			out, err := s.Forward(ctx, []int{token}, model.WantLast)
			if err != nil {
				return nil, err
			}
			all = append(all, out.Logits...)
		}
		return all, nil
	}
	prompts := [][]int{{3, 4}, {5, 6, 7}, {8, 9}}
	var alone [][]float32
	for _, p := range prompts {
		logits, err := request(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		alone = append(alone, logits)
	}
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			ctx := t.Context()
			if gaveUp := i%7 == 6; gaveUp {
				after, cancel := newCountdown(ctx, i%5)
				defer cancel()
				request(after, prompts[i%len(prompts)])
				return
			}
			got, err := request(ctx, prompts[i%len(prompts)])
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
				return
			}
			if want := alone[i%len(prompts)]; firstDifference(want, got) >= 0 {
				t.Errorf("caller %d: %d and %d logits, which part at %d", i, len(want), len(got), firstDifference(want, got))
			}
		})
	}
	group.Wait()
	if n := e.Stats().PagesInUse; n != 0 {
		t.Errorf("%d pages are still held", n)
	}
	if largest := e.Stats().LargestStep; largest < 2 {
		t.Errorf("no two sequences ever stepped together: %d", largest)
	}
}
