package conformance

import (
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// wideModel is one layer of real width but few rows: of a length at which parts of a row have
// several blocks, and where there is little shared memory a vector does not fit, and is cut
// into slices that meet in the workspace.
func wideModel(t testing.TB, recipe string, ffn int) *model.Model {
	t.Helper()
	p, err := synth.Find("llama-3.2-1b")
	if err != nil {
		t.Fatal(err)
	}
	p.Layers, p.Hidden, p.FFN, p.Heads, p.KVHeads, p.Vocab, p.BOS, p.EOS, p.Context = 1, 256, ffn, 4, 2, 300, 298, 299, 512
	f, err := p.File(t.Context(), recipe, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAccelWide holds long rows to the reference, on devices with much and with little
// shared memory.
func TestAccelWide(t *testing.T) {
	notShort(t)
	for _, c := range []struct {
		name, recipe string
		ffn          int
		capability   int
	}{
		{"q4_k_m", "q4_k_m", 14336, 90},
		{"q8_0, little shared memory", "q8_0", 8192, 86},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := wideModel(t, c.recipe, c.ffn)
			tokens := spread(m.Config.Vocab, 18)
			device := emu.Options{SMs: 4, IgnoreRaces: true, ComputeCapability: c.capability}
			got := accelTrace(t, m, device, accel.Options{KV: accel.KVF32, Prefill: accel.Stepwise, KVPages: 4}, tokens, 17)
			within(t, refTrace(t, m, ref.Numerics{}, tokens, nil), got, layerdiff.Numerics{Float: bound32}, nil)
		})
	}
}
