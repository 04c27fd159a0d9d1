package plan

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/quant"
)

// TestKernels compares the kernels that are listed with those of the commands, and demands that the kernels of every shape are among all.
func TestKernels(t *testing.T) {
	hopper := driver.Properties{ComputeCapability: 90, PTXVersion: 90, SMs: 132, SharedPerCTA: 227 << 10, Memory: 1 << 30}
	for _, arch := range tiny.Architectures() {
		m, err := model.Load(tiny.New(arch, 1).File())
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewLayout(m, hopper, Config{Sequences: 4, Chunk: 64, KVPages: 16, KV: quant.F16})
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		end := l.Memory.Placeholders()
		l.Buffers.StepTokens, l.Buffers.StepResults = end, end
		all := names(l.Kernels())
		for _, s := range []Shape{{Tokens: 1, Pages: 1, Logits: true}, {Tokens: 4, Pages: 2, Logits: true, Sample: true}, Prompt(3), Prompt(64)} {
			commands, err := l.Commands(s, nil)
			if s.Prefill() && err == nil {
				var logits []Command
				logits, err = l.PromptLogits(0, 1, l.Buffers.StepTokens, nil)
				commands = append(commands, logits...)
			}
			if err != nil {
				t.Fatalf("%s, %+v: %v", arch, s, err)
			}
			launched := map[string]bool{}
			for _, c := range commands {
				launched[c.Kernel] = true
			}
			listed := names(l.KernelsFor(s))
			if diff := cmp.Diff(slices.Sorted(maps.Keys(launched)), listed); diff != "" {
				t.Errorf("%s, %+v: launched (-) and listed (+):\n%s", arch, s, diff)
			}
			for _, name := range listed {
				if _, found := slices.BinarySearch(all, name); !found {
					t.Errorf("%s, %+v: %s is not among all kernels", arch, s, name)
				}
			}
		}
	}
}

// TestRoundedBytes compares the sizes of rounded activations and routes with those of every number of tokens. With some numbers of
// experts, the tokens per expert change their size class within one of all tokens. On one SM, columns are as many as fit.
func TestRoundedBytes(t *testing.T) {
	hopper := driver.Properties{ComputeCapability: 90, PTXVersion: 90, SMs: 1, SharedPerCTA: 227 << 10, Memory: 1 << 30}
	for used := 1; used <= 8; used++ {
		m, err := model.Load(tiny.New("qwen2moe", 1).File())
		if err != nil {
			t.Fatal(err)
		}
		m.Config.ExpertsUsed = min(used, m.Config.Experts)
		for _, chunk := range []int{90, 190, 384} {
			l, err := NewLayout(m, hopper, Config{Sequences: 4, Chunk: chunk, KVPages: 16, KV: quant.F16})
			if err != nil {
				t.Fatal(err)
			}
			rounded, routes := l.roundedBytes()
			for tokens := 1; tokens <= chunk; tokens++ {
				if r, e := l.roundedBytesOf(tokens); r > rounded || e > routes {
					t.Fatalf("%d of %d experts, %d tokens of %d: %d and %d bytes, but there are %d and %d", used, m.Config.Experts, tokens, chunk, r, e, rounded, routes)
				}
			}
		}
	}
}

// names returns the sorted names of kernels.
func names(list []kernel.Spec) (names []string) {
	for _, s := range list {
		names = append(names, s.Name())
	}
	slices.Sort(names)
	return names
}
