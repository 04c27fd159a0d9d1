package conformance

import (
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// TestAccelCallbackPanics lets a tap and a timer panic in a prompt and in a step. The sequence
// must keep its length and its pages, and the same call must then give the bits of an engine
// in which nothing panics.
func TestAccelCallbackPanics(t *testing.T) {
	m := minimalModel(t)
	tokens := testTokens(m.Config.Vocab, 5)
	armed := false
	trip := func() {
		if armed {
			armed = false
			panic("from a callback")
		}
	}
	for _, c := range []struct {
		name string
		o    accel.Options
	}{
		{"tap", accel.Options{Tap: func(int, string, int, int, []float32) { trip() }}},
		{"timer", accel.Options{Timer: func(accel.Timing) { trip() }}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := accelEngine(t, m, smallDevice, c.o)
			want := hashLogits(freshLogits(t, e, tokens[:3], tokens[3:]))
			s := openText(t, e)
			defer s.Close()
			var logits []float32
			for _, input := range [][]int{tokens[:3], tokens[3:4], tokens[4:]} {
				length, pages := s.Len(), e.Stats().PagesInUse
				armed = true
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the panic was lost")
						}
					}()
					s.Forward(t.Context(), input, model.WantLogits)
				}()
				if now := e.Stats().PagesInUse; s.Len() != length || now != pages {
					t.Errorf("after a panic in %d tokens at %d: %d positions in %d pages, want %d in %d", len(input), length, s.Len(), now, length, pages)
				}
				out, err := s.Forward(t.Context(), input, model.WantLogits)
				if err != nil {
					t.Fatal(err)
				}
				if len(input) == 1 {
					logits = append(logits, out.Logits...)
				}
			}
			if got := hashLogits(logits); got != want {
				t.Errorf("after the panics the logits are %s, want %s", got, want)
			}
		})
	}
}
