package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
)

func TestGenerateTrace(t *testing.T) {
	args := []string{"generate", "--temperature", "0", "--max-tokens", "13", "Well, Prince,"}
	plain := succeed(t, "", args...)
	traced := succeed(t, "", append(args, "--trace")...)
	if traced.out != plain.out || strings.Contains(plain.err, "first token") {
		t.Errorf("%q with a trace, %q without, whose standard error is %q", traced.out, plain.out, plain.err)
	}
	for _, want := range []string{"first token", "prefill", "5 tokens", "total", "12 steps: median", "\n  11  "} {
		if !strings.Contains(traced.err, want) {
			t.Errorf("the trace does not say %q:\n%s", want, traced.err)
		}
	}
	if strings.Contains(traced.err, "kernels") {
		t.Errorf("the CPU has no kernels:\n%s", traced.err)
	}
	if none := succeed(t, "", "generate", "--trace", "--max-tokens", "0", "x"); strings.Contains(none.err, "first token") {
		t.Errorf("nothing was computed: %q", none.err)
	}
	if one := succeed(t, "", "generate", "--trace", "--max-tokens", "1", "x"); strings.Contains(one.err, "steps") {
		t.Errorf("there was no step: %q", one.err)
	}
}

// On a device the trace has one table for the prompt and one for the steps.
func TestGenerateTraceOfDevice(t *testing.T) {
	r := succeed(t, "", "generate", "--device", "emu", "--trace", "--temperature", "0", "--max-tokens", "3", "Well, Prince,")
	_, kernels, _ := strings.Cut(r.err, "kernels of the prompt")
	prompt, steps, ok := strings.Cut(kernels, "kernels of the steps")
	if !ok {
		t.Fatalf("no tables:\n%s", r.err)
	}
	for _, c := range []struct{ table, want, reason string }{
		{prompt, `attention +6 .*flash_`, "six layers, one pass"},
		{steps, `: 2 passes, [\d.]+ ms, 1 ns per warp instruction`, "two steps after the first token, on an emulator's clock"},
		{steps, `attention +12 .*attention_decode`, "six layers, two passes"},
		{steps, `argmax +4 .*argmax_merge, argmax_slice`, "two kernels"},
	} {
		if !regexp.MustCompile(c.want).MatchString(c.table) {
			t.Errorf("%s: %q is not in\n%s", c.reason, c.want, c.table)
		}
	}
}

// slow is an engine whose passes take a known time.
type slow struct{ model.Engine }

type slowPass struct{ model.Pass }

const pause = 2 * time.Millisecond

func (slow) Step(context.Context, []model.Row) (model.Pass, error) { return slowPass{}, nil }

func (slowPass) Wait() ([]model.Result, error) {
	time.Sleep(pause)
	return nil, nil
}

func TestTraceSums(t *testing.T) {
	tr := new(trace)
	eng := observed{slow{}, tr.pass, tr.passed}
	for i := range 5 {
		prompt := i < 2
		pass, err := eng.Step(t.Context(), []model.Row{{Tokens: []int{1}, Prompt: prompt}})
		if err != nil {
			t.Fatal(err)
		}
		tr.timed(accel.Timing{
			Launches:  []accel.Launch{{Op: "short", Kernel: "b"}, {Op: "long", Kernel: "a"}, {Op: "short", Kernel: "a"}},
			Durations: []time.Duration{time.Microsecond, 6 * time.Microsecond, time.Microsecond},
		})
		if _, err := pass.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if len(tr.steps) != 3 || sum(tr.steps) < 3*pause || tr.prompt < 2*pause {
		t.Errorf("prompt %v, steps %v", tr.prompt, tr.steps)
	}
	var out bytes.Buffer
	tr.print(&env{errw: &out}, generate.Stats{
		PromptTokens: 1, Waited: 1 * time.Millisecond, Prefill: 20 * time.Millisecond, FirstToken: 4321 * time.Millisecond,
	})
	for _, want := range []string{
		`waited +1\.00\n`, `prefill +20\.00 +1 tokens, 50\.0 tokens/s\n`, `total +4321\.00\n`,
		`3 steps: median .* least .* most `,
		`the prompt: 2 passes, 0\.02 ms, of [\d.]+ ms\n`,
		`3 passes, 0\.02 ms, of [\d.]+ ms\noperation .*\nlong +3 +0\.02 +75\.0% +6\.0 +a\nshort +6 +0\.01 +25\.0% +1\.0 +a, b\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
