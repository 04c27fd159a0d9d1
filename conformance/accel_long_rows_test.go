package conformance

import (
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// longRowModel returns a model of one layer with rows of many segments. V has format
// v, or that of the recipe if v is F32.
func longRowModel(t testing.TB, recipe string, ffn int, v quant.Format) *model.Model {
	t.Helper()
	p, err := synth.Find("llama-3.2-1b")
	if err != nil {
		t.Fatal(err)
	}
	p.Layers, p.Hidden, p.FFN, p.Heads, p.KVHeads, p.Vocab, p.BOS, p.EOS, p.Context = 1, 256, ffn, 4, 2, 300, 298, 299, 512
	r, err := requant.ParseRecipe(recipe)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := synth.NewPlan(p, r, 0)
	if err != nil {
		t.Fatal(err)
	}
	if v != quant.F32 {
		reformat(t, &plan, "blk.0.attn_v.weight", v)
	}
	f, err := plan.File(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// reformat changes the format of a tensor in a plan.
func reformat(t testing.TB, plan *synth.Plan, name string, f quant.Format) {
	t.Helper()
	i := slices.IndexFunc(plan.Tensors, func(w synth.Tensor) bool { return w.Name == name })
	w := &plan.Tensors[i]
	row, err := f.RowBytes(w.Dims[0])
	if err != nil {
		t.Fatal(err)
	}
	w.Format, w.Bytes = f, int64(row)*int64(w.Dims[1])
}

// TestAccelLongRows compares models with long rows with the reference, on a device with bulk copies and on one
// without.
func TestAccelLongRows(t *testing.T) {
	slowParallel(t)
	for _, c := range []struct {
		name, recipe string
		ffn          int
		v            quant.Format // see longRowModel
		capability   int
	}{
		{"q4_k_m", "q4_k_m", 14336, quant.F32, 90},
		{"q4_k and q8_0, side by side", "q4_k", 512, quant.Q8_0, 90},
		{"q2_k and q4_k, whose activations are rounded differently", "q2_k", 512, quant.Q4_K, 90},
		{"q8_0, without bulk copies", "q8_0", 8192, quant.F32, 86},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := longRowModel(t, c.recipe, c.ffn, c.v)
			tokens := testTokens(m.Config.Vocab, 18)
			device := emu.Options{SMs: 4, IgnoreRaces: true, ComputeCapability: c.capability}
			got := accelTrace(t, m, device, accel.Options{KVPages: 4}, tokens, 16, 1)
			checkRounded(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, got)
		})
	}
}
