package conformance

import (
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
)

// streamCase is a way to compute the logits of some steps after a prompt. All ways must
// give the same bits.
type streamCase struct {
	name, reason string
	o            accel.Options
	run          func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32
}

var oneStream = []streamCase{
	{"alone", "the expected bits", accel.Options{}, alone},
	{"eager", "launches without graphs", accel.Options{Eager: true}, alone},
	{"small chunks", "a prompt in many chunks", accel.Options{Chunk: 3}, alone},
	{"two calls", "a prompt in two calls", accel.Options{}, func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		s := openText(t, e)
		defer s.Close()
		promptThenSteps(t, s, prompt[:9], nil)
		return promptThenSteps(t, s, prompt[9:], tokens)
	}},
	{"forked", "a shared prefix, as after a prefix cache hit", accel.Options{}, func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		first := openText(t, e)
		promptThenSteps(t, first, prompt, tokens[:3])
		s := fork(t, first, len(prompt)-2)
		defer s.Close()
		stepLogits(t, first, prompt[:2])
		first.Close()
		alone(t, e, tokens, prompt) // reuses the pages
		return promptThenSteps(t, s, prompt[len(prompt)-2:], tokens)
	}},
	{"swapped", "a sequence that was in host memory in the middle", accel.Options{}, func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		s := openText(t, e)
		defer s.Close()
		got := promptThenSteps(t, s, prompt, tokens[:2])
		if err := s.SwapOut(); err != nil {
			t.Fatal(err)
		}
		alone(t, e, tokens, prompt) // reuses the pages
		if err := s.SwapIn(); err != nil {
			t.Fatal(err)
		}
		return append(got, stepLogits(t, s, tokens[2:])...)
	}},
	{"truncated", "pages and positions that held other values", accel.Options{}, func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		s := openText(t, e)
		defer s.Close()
		promptThenSteps(t, s, prompt, nil)
		promptThenSteps(t, s, prompt, tokens[:2])
		if err := s.Truncate(len(prompt)); err != nil {
			t.Fatal(err)
		}
		return stepLogits(t, s, tokens)
	}},
	{"among 16", "a step with sequences that join and leave", accel.Options{}, among(16)},
	{"among 16, 4 per step", "sequences take turns in the batch slots", accel.Options{MaxSequences: 4, KVPages: 64}, among(16)},
	{"prepared", "a graph that Prepare captured", accel.Options{}, func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		if err := e.Prepare(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		before := e.Stats().Captures
		got := alone(t, e, prompt, tokens)
		if after := e.Stats().Captures; before == 0 || after != before {
			t.Errorf("Prepare captured %d graphs, and the steps %d more", before, after-before)
		}
		return got
	}},
}

func alone(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
	t.Helper()
	return freshLogits(t, e, prompt, tokens)
}

// among computes the stream beside n-1 others with other prompts and numbers of steps.
func among(n int) func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
	return func(t testing.TB, e *accel.Engine, prompt, tokens []int) []float32 {
		t.Helper()
		list := []*stream{{s: openText(t, e), prompt: prompt, tokens: tokens}}
		for i := range n - 1 {
			list = append(list, &stream{s: openText(t, e), prompt: prompt[i%len(prompt)/2:], tokens: tokens[:1+i%len(tokens)]})
		}
		together(t, e, list, e.Limits().Sequences)
		for _, x := range list {
			x.s.Close()
		}
		return list[0].logits
	}
}

// TestAccelDeterminism computes the same logits in many ways and demands the same bits.
// Another prompt must give other bits.
func TestAccelDeterminism(t *testing.T) {
	slowParallel(t)
	models := map[string]*model.Model{"tiny llama": tinyModel(t, "llama")}
	if *longCases {
		models["q4_k"] = goldenModel(t, "quant/q4_k.gguf")
		models["qwen3moe"] = tinyModel(t, "qwen3moe")
		models["gemma3"] = tinyModel(t, "gemma3")
		models["gemma3n"] = tinyModel(t, "gemma3n")
		models["gemma4"] = tinyModel(t, "gemma4")
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
					t.Errorf("%s: the hash of the logits is %s, want %s", c.reason, got, want)
				}
			})
		}
		other := slices.Clone(prompt)
		other[len(other)-1]++ // earlier tokens may be outside of the sliding window
		if got := hashLogits(alone(t, accelEngine(t, m, smallDevice, accel.Options{}), other, tokens)); got == want {
			t.Errorf("%s: another prompt gives the same logits", name)
		}
	}
}

// TestAccelAdversarialDevice runs a prompt and steps on an emulator that detects races,
// starts queued work late and orders warps and copies adversarially. It demands the bits of
// an emulator with the default order.
func TestAccelAdversarialDevice(t *testing.T) {
	slowParallel(t)
	m := tinyModel(t, "qwen3moe")
	all := testTokens(m.Config.Vocab, 9)
	hostile := emu.Options{SMs: 4, Schedule: emu.Adversarial(*kernelSeed), Async: emu.Late, LateStreams: true}
	for _, o := range []accel.Options{{}, {Eager: true}} {
		want := hashLogits(alone(t, accelEngine(t, m, smallDevice, o), all[:6], all[6:]))
		if got := hashLogits(alone(t, accelEngine(t, m, hostile, o), all[:6], all[6:])); got != want {
			t.Errorf("%+v: the logits depend on the order of warps", o)
		}
	}
}
