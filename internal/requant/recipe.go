// Package requant decides which block format each tensor of a model file gets,
// and rewrites files so: the mixes that quantizing tools share, and the parallel
// writing of blocks in order.
package requant

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/quant"
)

// Q4KM names the mix of Q4_K and Q6_K that most published 4-bit models use.
const Q4KM = "q4_k_m"

// Recipe says which format each tensor of a model is stored in.
type Recipe struct {
	name string
	base quant.Format
	mix  bool // some tensors get Q6_K
}

// ParseRecipe understands a format's name (every tensor in it) and "q4_k_m", in
// either case. Unknown names wrap quant.ErrUnsupported and list the choices.
func ParseRecipe(name string) (Recipe, error) {
	if strings.EqualFold(name, Q4KM) {
		return Recipe{Q4KM, quant.Q4_K, true}, nil
	}
	for _, f := range quant.Formats() {
		if strings.EqualFold(name, f.String()) {
			return Recipe{strings.ToLower(f.String()), f, false}, nil
		}
	}
	return Recipe{}, fmt.Errorf("requant: %w %q: want one of %s", quant.ErrUnsupported, name, strings.Join(Names(), ", "))
}

// String is the name that ParseRecipe understands.
func (r Recipe) String() string { return r.name }

// CanEncode reports whether existing weights can be converted by this recipe.
func (r Recipe) CanEncode() bool { return r.base.CanEncode() && (!r.mix || quant.Q6_K.CanEncode()) }

// QuantizationVersion is the value of general.quantization_version for the
// layouts of package quant.
const QuantizationVersion uint32 = 2

// FileType is the value of general.file_type for the recipe.
func (r Recipe) FileType() uint32 {
	if r.mix {
		return 15 // MOSTLY_Q4_K_M
	}
	return r.base.FileType()
}

// Model is what a recipe must know of the whole model.
type Model struct {
	Layers int
	Tied   bool // the embedding serves as the output matrix too
}

// Choose gives the format of the tensor with the given name and dimensions
// (dims[0] is the row length). A non-empty reason means that the recipe does not
// apply: the tensor keeps what it has. Where only the row length is in the way, f is
// the format that the tensor would have had.
func (r Recipe) Choose(name string, dims []int, m Model) (f quant.Format, reason string) {
	switch {
	case len(dims) < 2:
		return 0, "one dimension"
	case !strings.HasSuffix(name, ".weight"):
		return 0, "not a weight"
	case name == "position_embd.weight":
		return 0, "positions"
	case strings.HasSuffix(name, ".ffn_gate_inp.weight"):
		return 0, "expert router"
	}
	f = r.base
	if r.mix && wantsMoreBits(name, m) {
		f = quant.Q6_K
	}
	if n := f.BlockLen(); dims[0]%n != 0 {
		return f, fmt.Sprintf("rows of %d do not fill blocks of %d", dims[0], n)
	}
	return f, ""
}

// Substitute is the format of 32 weights a block that takes the place of f where rows
// do not fill its blocks of 256, as llama.cpp chooses it: the next with as many bits.
// It is 0, F32, for formats that need none.
func Substitute(f quant.Format) quant.Format { return substitutes[f] }

var substitutes = map[quant.Format]quant.Format{
	quant.Q2_K: quant.IQ4_NL, quant.Q3_K: quant.IQ4_NL, quant.IQ4_XS: quant.IQ4_NL,
	quant.Q4_K: quant.Q5_0, quant.Q5_K: quant.Q5_1, quant.Q6_K: quant.Q8_0,
}

// wantsMoreBits picks the tensors that q4_k_m stores in Q6_K, as llama.cpp's
// mix of that name does: the output matrix, and in the first and last eighth of
// the layers and every third between, the value and down projections.
func wantsMoreBits(name string, m Model) bool {
	if name == "output.weight" || name == "token_embd.weight" && m.Tied {
		return true
	}
	layer, part, ok := splitLayer(name)
	if !ok || part != "attn_v.weight" && !strings.HasPrefix(part, "ffn_down") {
		return false
	}
	eighth := m.Layers / 8
	return layer < eighth || layer >= 7*m.Layers/8 || (layer-eighth)%3 == 2
}

// splitLayer takes "blk.3.attn_v.weight" apart.
func splitLayer(name string) (layer int, part string, ok bool) {
	rest, found := strings.CutPrefix(name, "blk.")
	if !found {
		return 0, "", false
	}
	num, part, found := strings.Cut(rest, ".")
	if !found {
		return 0, "", false
	}
	layer, err := strconv.Atoi(num)
	return layer, part, err == nil && layer >= 0
}

// Names lists what ParseRecipe understands, in the order of the formats.
func Names() []string {
	var names []string
	for _, f := range quant.Formats() {
		names = append(names, strings.ToLower(f.String()))
	}
	return append(names, Q4KM)
}

// Encodable lists the names of recipes into which existing weights can be
// converted.
func Encodable() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		r, err := ParseRecipe(name)
		return err != nil || !r.CanEncode()
	})
}
