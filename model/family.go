package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// family is what distinguishes one architecture from another beyond the numbers
// in the file: a row of the table below. The facts follow the models' published
// code and the GGUF conventions of ggml.
type family struct {
	rope       RopeStyle
	theta      float64 // rope.freq_base when the file has none
	localTheta float64 // base in sliding-window layers; 0: theta

	layerNorm  bool // with bias; else RMSNorm
	qkNorm     bool
	postNorm   bool // after attention and after the FFN, before the residual
	activation Activation
	ungated    bool
	fusedGate  bool // ffn_up holds the gate's rows, then up's
	parallel   bool // one norm feeds attention and FFN
	mixture    mixtureRule

	biases     biasRule
	outputBias bool

	scaleEmbedding bool // by √hidden
	window         int  // sliding window when the file has none
	pattern        int  // WindowPattern; 0: a window in the file is not applied
	attnCap        float64
	outputCap      float64
	// wideDepth is the number of layers at which attention is scaled by
	// 1/√(hidden/heads) and not by 1/√(head dim); 0: at none.
	wideDepth int
}

// biasRule says which projections must have a bias. Where none is required, one
// that the file has is used.
type biasRule int

const (
	biasFree biasRule = iota // none required
	biasQKV
	biasAll
)

// mixtureRule says whether the feed-forward networks are mixtures of experts.
type mixtureRule int

const (
	mixtureNever mixtureRule = iota
	mixtureMaybe             // as expert_count says
	mixtureAlways
)

// families is the table of architectures. Phi-3's sliding window is not applied,
// as in the engine that files of this kind are made for.
var families = map[string]family{
	"llama":    {rope: RopeNorm, theta: 1e4, pattern: 1, mixture: mixtureMaybe}, // Mistral too, with its window
	"qwen2":    {rope: RopeNeoX, theta: 1e4, biases: biasQKV},
	"qwen3":    {rope: RopeNeoX, theta: 1e4, qkNorm: true},
	"qwen3moe": {rope: RopeNeoX, theta: 1e4, qkNorm: true, mixture: mixtureAlways},
	"gpt2":     {rope: RopeNone, layerNorm: true, biases: biasAll, activation: GELU, ungated: true},
	"phi2": {
		rope: RopeNeoX, theta: 1e4, layerNorm: true, biases: biasAll, outputBias: true,
		activation: GELU, ungated: true, parallel: true,
	},
	"phi3": {rope: RopeNeoX, theta: 1e4, fusedGate: true},
	"gemma2": {
		rope: RopeNeoX, theta: 1e4, activation: GELU, postNorm: true, scaleEmbedding: true,
		window: 4096, pattern: 2, attnCap: 50, outputCap: 30, wideDepth: 46,
	},
	"gemma3": {
		rope: RopeNeoX, theta: 1e6, localTheta: 1e4, activation: GELU, qkNorm: true, postNorm: true,
		scaleEmbedding: true, pattern: 6, wideDepth: 62,
	},
}

// Architectures lists the values of general.architecture that Load accepts, in
// alphabetical order.
func Architectures() []string { return slices.Sorted(maps.Keys(families)) }

func familyOf(arch string) (family, error) {
	fam, ok := families[arch]
	if !ok {
		return family{}, fmt.Errorf("key \"general.architecture\": %w %.80q: it is none of %s",
			ErrUnsupportedArch, arch, strings.Join(Architectures(), ", "))
	}
	return fam, nil
}
