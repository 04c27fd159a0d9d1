package synth

import (
	"testing"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/quant"
)

// Gemma 3's rows of 1152 fill no blocks of 256.
func TestSubstitutes(t *testing.T) {
	preset, err := Find("gemma3-1b")
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := requant.ParseRecipe("q4_k_m")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(preset, recipe, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]quant.Format{
		"token_embd.weight":     quant.Q8_0, // in place of Q6_K: it is the output matrix, too
		"blk.3.attn_q.weight":   quant.Q5_0, // in place of Q4_K
		"blk.0.attn_v.weight":   quant.Q8_0, // in place of Q6_K
		"blk.3.ffn_down.weight": quant.Q4_K, // rows of 6912
	}
	for _, tensor := range plan.Tensors {
		if f, ok := want[tensor.Name]; ok && tensor.Format != f {
			t.Errorf("%s is %v, want %v", tensor.Name, tensor.Format, f)
		}
		delete(want, tensor.Name)
	}
	if len(want) > 0 {
		t.Errorf("not in the plan: %v", want)
	}
}
