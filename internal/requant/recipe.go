// Package requant converts model files to other block formats. A recipe chooses the
// format of each tensor, such as llama.cpp's mix Q4_K_M.
package requant

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/quant"
)

// Q4KM is llama.cpp's mix of Q4_K and Q6_K.
const Q4KM = "q4_k_m"

// Recipe chooses the format of each tensor of a model.
type Recipe struct {
	name string
	base quant.Format
	mix  bool // some tensors are Q6_K instead of base
}

// ParseRecipe parses the name of a format, which then applies to every tensor, or
// "q4_k_m". If a model has experts, "mxfp4" applies to these, and other matrices are Q8_0,
// as in llama.cpp's MXFP4_MOE. Case does not matter. The error wraps quant.ErrUnsupported and lists the names.
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

// String returns the name, which ParseRecipe accepts.
func (r Recipe) String() string { return r.name }

// Formats returns the formats that Choose returns for tensors to which the recipe applies.
func (r Recipe) Formats() []quant.Format {
	switch {
	case r.mix:
		return []quant.Format{r.base, quant.Q6_K}
	case r.base == quant.MXFP4:
		return []quant.Format{r.base, quant.Q8_0}
	}
	return []quant.Format{r.base}
}

// CanEncode reports whether Convert can apply this recipe.
func (r Recipe) CanEncode() bool {
	return !slices.ContainsFunc(r.Formats(), func(f quant.Format) bool { return !f.CanEncode() })
}

// QuantizationVersion is the value of general.quantization_version for the layouts of
// package quant.
const QuantizationVersion uint32 = 2

// FileType returns the value of general.file_type.
func (r Recipe) FileType() uint32 {
	if r.mix {
		return 15 // MOSTLY_Q4_K_M
	}
	return r.base.FileType()
}

// Model holds the properties of a model that a recipe depends on.
type Model struct {
	Layers  int
	Tied    bool // the output matrix is the embedding
	Experts bool // it has tensors of experts, which have three dimensions
}

// Choose returns the format of a tensor; dims[0] is the row length. If reason is not
// empty, the recipe does not apply and the tensor keeps its format. If the reason is the
// row length, f is the format that does not fit.
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
	case strings.HasSuffix(name, ".ssm_conv1d.weight"):
		return 0, "convolution"
	case strings.Contains(name, "altup_"):
		return 0, "AltUp"
	case strings.Contains(name, "laurel_"):
		return 0, "LAuReL"
	}
	f = r.base
	switch {
	case r.mix && wantsMoreBits(name, m):
		f = quant.Q6_K
	case r.base == quant.MXFP4 && m.Experts && len(dims) < 3:
		f = quant.Q8_0
	}
	if n := f.BlockLen(); dims[0]%n != 0 {
		return f, fmt.Sprintf("rows of %d do not fill blocks of %d", dims[0], n)
	}
	return f, ""
}

// Substitute returns the format that llama.cpp uses instead of f if rows do not fill blocks of
// 256 weights. The substitute has blocks of 32 and at least as many bits. If f does not have
// blocks of 256, Substitute returns F32.
func Substitute(f quant.Format) quant.Format { return substitutes[f] }

var substitutes = map[quant.Format]quant.Format{
	quant.Q2_K: quant.IQ4_NL, quant.Q3_K: quant.IQ4_NL, quant.IQ4_XS: quant.IQ4_NL,
	quant.Q4_K: quant.Q5_0, quant.Q5_K: quant.Q5_1, quant.Q6_K: quant.Q8_0,
}

// wantsMoreBits reports whether q4_k_m stores a tensor in Q6_K, by llama.cpp's rule: the
// output matrix, and the value and down projections of the first and last eighth of the
// layers and of every third layer between.
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

// splitLayer splits "blk.3.attn_v.weight" into 3 and "attn_v.weight".
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

// Names returns the names that ParseRecipe accepts, in the order of the formats.
func Names() []string {
	var names []string
	for _, f := range quant.Formats() {
		names = append(names, strings.ToLower(f.String()))
	}
	return append(names, Q4KM)
}

// Encodable returns the names of the recipes that Convert can apply.
func Encodable() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		r, err := ParseRecipe(name)
		return err != nil || !r.CanEncode()
	})
}
