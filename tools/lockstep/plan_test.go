package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
)

func TestPlanOfDevice(t *testing.T) {
	r := succeed(t, "", "plan", "--device", "emu", "--kv", "bf16", "--sequences", "3", "--positions", "100", "--launches")
	for _, want := range []string{
		"emulated sm_90, compute capability 9.0, 4 SMs",
		"6 pages of 64 positions, BF16", // two a sequence
		"decoding step of 3 sequences: ",
		"prompt chunk of 100 tokens: ",
		"0 to 5  attention",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the plan has no %q:\n%s", want, r.out)
		}
	}
	if again := succeed(t, "", "plan", "--device", "emu"); strings.Contains(again.out, "launches") || !strings.Contains(again.out, "16 pages of 64 positions, F16") {
		t.Errorf("without flags:\n%s", again.out)
	}
}

// A plan that does not fit is printed too.
func TestPlanTooLarge(t *testing.T) {
	gpu(t, emu.Options{Memory: 1 << 20}, nil)
	r := runCommand(t, "", "plan", "--device", "gpu")
	if r.status != exitError || !strings.Contains(r.out, "weights") || !strings.Contains(r.err, "--device gpu: the embedded model") || !strings.Contains(r.err, "out of device memory") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("status %d, output %q, standard error %q", r.status, r.out, r.err)
	}
}

func TestPlanOfCPU(t *testing.T) {
	r := succeed(t, "", "plan", "--device", "cpu", "--kv", "f16", "--sequences", "2")
	whole := succeed(t, "", "inspect", tinyModel).out
	weights := regexp.MustCompile(`weights\s+(\S+ \S+)`)
	if got, want := weights.FindStringSubmatch(r.out), weights.FindStringSubmatch(whole); got == nil || got[1] != want[1] {
		t.Errorf("weights %q, inspect want %q", got, want)
	}
	cache := regexp.MustCompile(`KV cache\D*1024 positions\s+\S+ \S+ in F16\s+(\S+ \S+) in F32`).FindStringSubmatch(whole)
	if cache == nil || !strings.Contains(r.out, cache[1]+"  2 × 1024 positions, F16") {
		t.Errorf("two F16 caches are as large as one F32 cache, %q:\n%s", cache, r.out)
	}
	refused(t, runCommand(t, "", "plan", "--positions", "1025"), exitError, "--positions", "1025", "1024")
}

// A model of which one position is too large for the reference is planned, and refused.
func TestPlanRefusedByReference(t *testing.T) {
	m, err := model.Open(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Config.FFN = 1 << 24
	var out strings.Builder
	err = (&planCmd{Sequences: 1, Positions: 8}).onCPU(&env{out: &out}, m)
	if !strings.Contains(fmt.Sprint(err), "--device cpu: the embedded model: ref: unsupported: one position needs ") || !strings.Contains(out.String(), "total") {
		t.Errorf("error %v, output %q", err, out.String())
	}
}

// auto plans for the device that generate selects.
func TestPlanAuto(t *testing.T) {
	tests := []struct {
		name, reason string
		device       emu.Options
		err          error
		want         []string
	}{
		{"no driver", "without the searched names", smallGPU, driver.ErrNoDriver, []string{"auto selects the CPU: no GPU driver\n", "cpu\n"}},
		{"no device", "with the reason", smallGPU, fmt.Errorf("device 0 of 0: %w", driver.ErrNoDevice), []string{"auto selects the CPU", "device 0 of 0", "cpu\n"}},
		{"fits", "the GPU's plan", smallGPU, nil, []string{"emulated sm_90", "activations"}},
		{"too large", "both plans", emu.Options{Memory: 1 << 20}, nil, []string{"activations", "auto selects the CPU", "out of device memory", "cpu\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gpu(t, tt.device, tt.err)
			r := succeed(t, "", "plan")
			for _, s := range tt.want {
				if !strings.Contains(r.out, s) {
					t.Errorf("%s: %q is missing:\n%s", tt.reason, s, r.out)
				}
			}
		})
	}
}

// Only equal neighbors are merged.
func TestLayerRanges(t *testing.T) {
	launch := func(layer int, op string) accel.Launch { return accel.Launch{Layer: layer, Op: op} }
	list := []accel.Launch{
		launch(-1, "embed"),
		launch(0, "a"), launch(0, "b"), launch(1, "a"), launch(1, "b"),
		launch(2, "a"), launch(2, "c"),
		launch(3, "a"), launch(3, "b"),
		launch(-1, "logits"), launch(-1, "argmax"),
	}
	var got []string
	for _, r := range layerRanges(list) {
		got = append(got, fmt.Sprintf("%v: %d", r, len(r.launches)))
	}
	if want := "[-: 1 0 to 1: 2 2: 2 3: 2 -: 2]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
