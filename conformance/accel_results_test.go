package conformance

import (
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// TestAccelTapKeepsLogits computes the logits of a prompt that takes several launches. The tap reads through the same buffer as they do.
func TestAccelTapKeepsLogits(t *testing.T) {
	m := goldenModel(t, "arch/llama-gqa.gguf")
	tokens := testTokens(m.Config.Vocab, 40)
	var all [2][]float32
	for i, o := range []accel.Options{{}, {Tap: func(int, string, int, int, []float32) {}}} {
		s := openText(t, accelEngine(t, m, smallDevice, o))
		defer s.Close()
		out, err := s.Forward(t.Context(), tokens, model.WantAll)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = slices.Clone(out.Logits)
	}
	if i := slices.IndexFunc(all[0], func(x float32) bool { return x != 0 }); i < 0 || !slices.Equal(all[0], all[1]) {
		t.Error("with a tap, the logits differ")
	}
}

// TestAccelRestoresHostChoice queues a step with another token behind one whose token the host chooses. If it fails, the sequence goes
// on with that token.
func TestAccelRestoresHostChoice(t *testing.T) {
	const chosen = 900
	dev := faultinject.New(accelDevice(t, smallDevice))
	m := largeVocabulary(t)
	e, err := accel.New(t.Context(), m, dev, accel.Options{MaxSequences: 1, KVPages: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer checkClosed(t, e)
	p := sampling.Params{Bias: map[int]float32{}} // more biases than the device has room for
	for id := range m.Config.Vocab {
		p.Bias[id] = 1
	}
	p.Bias[chosen] = 1000
	open := func() text {
		s := openText(t, e)
		if err := s.SetSampling(&p, nil, nil); err != nil {
			t.Fatal(err)
		}
		return s
	}
	step := func(s text, tokens []int, want model.Want) model.Pass {
		t.Helper()
		pass, err := e.Step(t.Context(), []model.Row{s.row(tokens, want)})
		if err != nil {
			t.Fatal(err)
		}
		return pass
	}
	logits := func(pass model.Pass) []float32 {
		t.Helper()
		out, err := pass.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(out[0].Logits)
	}
	s := open()
	first, second := step(s, []int{1, 2}, model.WantToken), step(s, []int{3}, model.WantNothing)
	if out, err := first.Wait(); err != nil || out[0].Token != chosen {
		t.Fatalf("%+v, error %v, want token %d", out, err, chosen)
	}
	dev.Fail(faultinject.Plan{Call: faultinject.EventSynchronize, N: 1})
	if _, err := second.Wait(); err == nil {
		t.Fatal("no error")
	}
	dev.Fail(faultinject.Plan{})
	got := logits(step(s, nil, model.WantLogits))
	s.Close()
	fresh := open()
	defer fresh.Close()
	if want := logits(step(fresh, []int{1, 2, chosen}, model.WantLogits)); !slices.Equal(got, want) {
		t.Error("the sequence went on with another token")
	}
}
