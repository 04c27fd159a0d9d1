package conformance

import (
	"slices"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
)

// streamCase is a way to compute the logits of steps behind a prompt, which must be the
// same in every way.
type streamCase struct {
	name, reason string
	o            accel.Options
	run          func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32
}

var oneStream = []streamCase{
	{"alone", "what all others are held to", accel.Options{}, alone},
	{"eager", "kernel by kernel, not as a graph", accel.Options{Eager: true}, alone},
	{"small chunks", "the prompt in many parts", accel.Options{Chunk: 3}, alone},
	{"two calls", "the prompt onto a cache that is not empty", accel.Options{}, func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		s := openSession(t, e)
		defer s.Close()
		promptThenSteps(t, s, prompt[:9], nil)
		return promptThenSteps(t, s, prompt[9:], tokens)
	}},
	{"restored", "a prefix from host memory, as after a hit of the prefix cache", accel.Options{}, func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		first, s := openSession(t, e), openSession(t, e)
		defer s.Close()
		promptThenSteps(t, first, prompt, tokens[:3])
		snap, err := first.Snapshot(len(prompt))
		if err != nil {
			t.Fatal(err)
		}
		first.Close()
		alone(t, e, tokens, prompt) // the pages are another's for a while
		if err := s.Restore(snap, len(prompt)-2); err != nil {
			t.Fatal(err)
		}
		return promptThenSteps(t, s, prompt[len(prompt)-2:], tokens)
	}},
	{"truncated", "pages and positions that held something else", accel.Options{}, func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		s := openSession(t, e)
		defer s.Close()
		promptThenSteps(t, s, prompt, nil)
		promptThenSteps(t, s, prompt, tokens[:2])
		if err := s.Truncate(len(prompt)); err != nil {
			t.Fatal(err)
		}
		return stepLogits(t, s, tokens)
	}},
	{"among 16", "one step for sequences of many lengths, some of which come and go", accel.Options{}, among(16)},
	{"among 16, 4 a step", "more sequences than rows", accel.Options{MaxSequences: 4, KVPages: 64}, among(16)},
	{"warmed", "a graph that was captured before there was anything to compute", accel.Options{}, func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		if err := e.Warm(t.Context(), len(prompt)+len(tokens), 1); err != nil {
			t.Fatal(err)
		}
		before := e.Stats().Captures
		got := alone(t, e, prompt, tokens)
		if after := e.Stats().Captures; before == 0 || after != before {
			t.Errorf("%d graphs were captured ahead, and %d later", before, after-before)
		}
		return got
	}},
}

func openSession(t testing.TB, e *accel.Engine) model.Session {
	t.Helper()
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func alone(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
	t.Helper()
	return freshLogits(t, e, prompt, tokens)
}

// among has n-1 neighbors, of which each has another prompt, begins when it likes and
// ends after another number of steps.
func among(n int) func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
	return func(t testing.TB, e *accel.Engine, prompt, tokens []int) (got []float32) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range n - 1 {
			wg.Go(func() { freshLogits(t, e, prompt[i%len(prompt)/2:], tokens[:1+i%len(tokens)]) })
		}
		wg.Go(func() { got = freshLogits(t, e, prompt, tokens) })
		wg.Wait()
		return got
	}
}

// TestAccelDeterminism computes one stream of logits in many ways, which must give the
// same bits; and another stream, which must not.
func TestAccelDeterminism(t *testing.T) {
	slowParallel(t)
	models := map[string]*model.Model{"tiny llama": tinyModel(t, "llama")}
	if *longCases {
		models["q4_k"] = goldenModel(t, "quant/q4_k.gguf")
		models["qwen3moe"] = tinyModel(t, "qwen3moe")
		models["gemma3"] = tinyModel(t, "gemma3")
	}
	for name, m := range models {
		all := testTokens(m.Config.Vocab, 26)
		prompt, tokens := all[:20], all[20:]
		var want string
		for _, c := range oneStream {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				e := accelEngine(t, m, smallDevice, c.o)
				got := hashLogits(c.run(t, e, prompt, tokens))
				if want == "" {
					want = got
					t.Logf("SHA-256 of the logits: %s", want)
				}
				if got != want {
					t.Errorf("%s: the stream of logits is %s, want %s", c.reason, got, want)
				}
			})
		}
		other := slices.Clone(prompt)
		other[len(other)-1]++ // the first ones are behind a sliding window
		if got := hashLogits(alone(t, accelEngine(t, m, smallDevice, accel.Options{}), other, tokens)); got == want {
			t.Errorf("%s: another prompt gives the same stream", name)
		}
	}
}

// TestAccelAdversarialDevice runs a prompt and steps on a device that looks for races,
// lets work begin only when something waits for it, and warps and copies come in the
// worst order: kernels follow one another as they must, and nothing reads what is on its
// way. The logits are those of a kind device, whatever it rounds.
func TestAccelAdversarialDevice(t *testing.T) {
	slowParallel(t)
	m := tinyModel(t, "qwen3moe")
	all := testTokens(m.Config.Vocab, 9)
	hostile := emu.Options{SMs: 4, Schedule: emu.Adversarial(*kernelSeed), Async: emu.Late, LateStreams: true}
	for _, o := range []accel.Options{{}, {Prefill: accel.PrefillExact, Eager: true}} {
		want := hashLogits(alone(t, accelEngine(t, m, smallDevice, o), all[:6], all[6:]))
		if got := hashLogits(alone(t, accelEngine(t, m, hostile, o), all[:6], all[6:])); got != want {
			t.Errorf("%+v: the order of warps shows in the logits", o)
		}
	}
}
