package requant

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/quant"
)

func TestParseRecipe(t *testing.T) {
	for _, f := range quant.Formats() {
		r, err := ParseRecipe(f.String())
		if err != nil || r.base != f || r.mix {
			t.Errorf("%v: %+v, %v", f, r, err)
		}
		if again, err := ParseRecipe(r.String()); err != nil || again != r {
			t.Errorf("%v: its name %q gives %+v, %v", f, r, again, err)
		}
		if r.FileType() == 0 && f != quant.F32 {
			t.Errorf("%v has no general.file_type", f)
		}
	}
	r, err := ParseRecipe("Q4_K_M")
	if err != nil || !r.mix || r.String() != Q4KM || r.FileType() != 15 {
		t.Errorf("q4_k_m: %+v, %v", r, err)
	}
	for _, name := range []string{"", "Q4", "Q4_K ", "format(2)", "Q1_0", "q9_z"} {
		_, err := ParseRecipe(name)
		if !errors.Is(err, quant.ErrUnsupported) {
			t.Errorf("%q: error %v", name, err)
			continue
		}
		for _, known := range Names() {
			if !strings.Contains(err.Error(), known) {
				t.Errorf("%v does not name %v", err, known)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	untied, tied, mixture := Model{Layers: 32}, Model{Layers: 32, Tied: true}, Model{Layers: 32, Experts: true}
	tests := []struct {
		name, reason string
		recipe       string
		tensor       string
		dims         []int
		model        Model
		want         string // the format, or a part of the reason to keep it
	}{
		{"plain", "one format for all matrices", "q8_0", "blk.0.attn_q.weight", []int{4096, 4096}, untied, "Q8_0"},
		{"norm", "vectors stay", "q8_0", "blk.0.attn_norm.weight", []int{4096}, untied, "one dimension"},
		{"bias", "biases stay even if written as a matrix", "q8_0", "blk.0.attn_q.bias", []int{4096, 1}, untied, "not a weight"},
		{"AltUp", "llama.cpp keeps it", "q4_k_m", "altup_proj.weight", []int{2048, 2048, 3}, untied, "AltUp"},
		{"LAuReL", "llama.cpp keeps it", "q4_k_m", "blk.3.laurel_l.weight", []int{2048, 64}, untied, "LAuReL"},
		{"positions", "a lookup that is added as it is", "q8_0", "position_embd.weight", []int{768, 1024}, untied, "positions"},
		{"router", "tiny, and decisive", "q8_0", "blk.0.ffn_gate_inp.weight", []int{2048, 128}, untied, "router"},
		{"short rows", "half a block", "q4_k", "blk.0.attn_q.weight", []int{1152, 1024}, untied, "rows of 1152 do not fill blocks of 256"},
		{"small blocks", "the same rows fill smaller blocks", "q8_0", "blk.0.attn_q.weight", []int{1152, 1024}, untied, "Q8_0"},
		{"half", "blocks of one", "f16", "blk.0.attn_q.weight", []int{7, 3}, untied, "F16"},
		{"mix: query", "the rest", "q4_k_m", "blk.0.attn_q.weight", []int{4096, 4096}, untied, "Q4_K"},
		{"mix: output", "more bits", "q4_k_m", "output.weight", []int{4096, 128256}, untied, "Q6_K"},
		{"mix: embedding", "only a lookup", "q4_k_m", "token_embd.weight", []int{4096, 128256}, untied, "Q4_K"},
		{"mix: tied embedding", "it is the output too", "q4_k_m", "token_embd.weight", []int{4096, 128256}, tied, "Q6_K"},
		{"mix: first value", "the first eighth", "q4_k_m", "blk.3.attn_v.weight", []int{4096, 1024}, untied, "Q6_K"},
		{"mix: a value between", "every third, and this is not it", "q4_k_m", "blk.4.attn_v.weight", []int{4096, 1024}, untied, "Q4_K"},
		{"mix: third value", "every third", "q4_k_m", "blk.6.attn_v.weight", []int{4096, 1024}, untied, "Q6_K"},
		{"mix: last value", "the last eighth", "q4_k_m", "blk.28.attn_v.weight", []int{4096, 1024}, untied, "Q6_K"},
		{"mix: experts' down", "stacked experts too", "q4_k_m", "blk.0.ffn_down_exps.weight", []int{768, 2048, 128}, untied, "Q6_K"},
		{"mxfp4: experts", "of a mixture", "mxfp4", "blk.0.ffn_up_exps.weight", []int{2880, 2880, 32}, mixture, "MXFP4"},
		{"mxfp4: query", "the rest of a mixture has more bits", "mxfp4", "blk.0.attn_q.weight", []int{2880, 4096}, mixture, "Q8_0"},
		{"mxfp4: dense", "one format for all matrices", "mxfp4", "blk.0.attn_q.weight", []int{2880, 4096}, untied, "MXFP4"},
		{"mix: no layer", "a name that only looks like one", "q4_k_m", "blk.x.attn_v.weight", []int{256, 256}, untied, "Q4_K"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRecipe(tt.recipe)
			if err != nil {
				t.Fatal(err)
			}
			f, why := r.Choose(tt.tensor, tt.dims, tt.model)
			if why == "" {
				why = f.String()
			}
			if !strings.Contains(why, tt.want) {
				t.Errorf("%s: %q, want %q", tt.reason, why, tt.want)
			}
		})
	}
}

// The layers with more bits, computed by hand from the rule.
func TestMoreBitsLayers(t *testing.T) {
	tests := []struct {
		name, reason string
		layers       int
		want         []int
	}{
		{"16", "Llama 3.2 1B", 16, []int{0, 1, 4, 7, 10, 13, 14, 15}},
		{"28", "Qwen 2.5: 28/8 is rounded down", 28, []int{0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27}},
		{"1", "no eighth at all", 1, []int{0}},
		{"4", "less than eight", 4, []int{2, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []int
			for l := range tt.layers {
				v := wantsMoreBits(fmt.Sprintf("blk.%d.attn_v.weight", l), Model{Layers: tt.layers})
				if down := wantsMoreBits(fmt.Sprintf("blk.%d.ffn_down.weight", l), Model{Layers: tt.layers}); down != v {
					t.Errorf("layer %d: value %v, down %v", l, v, down)
				}
				if v {
					got = append(got, l)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, d)
			}
		})
	}
}

func TestFileTypesAreDistinct(t *testing.T) {
	seen := []uint32{15}
	for _, f := range quant.Formats() {
		if slices.Contains(seen, f.FileType()) {
			t.Errorf("%v: file type %d is another's", f, f.FileType())
		}
		seen = append(seen, f.FileType())
	}
}
