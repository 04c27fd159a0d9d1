package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// architecture holds the facts about an architecture that its files do not state. The zero value
// of each field is what Llama does. Sources: the models' published code, and ggml's
// GGUF conventions.
type architecture struct {
	// Positions.
	rope       ropeKind
	theta      float64 // base if the file has no rope.freq_base; 0: 10000
	localTheta float64 // base in sliding-window layers; 0: theta

	// Norms.
	layerNorm bool // LayerNorm with bias; else RMSNorm
	qkNorm    bool // RMSNorm of each head of Q and K
	postNorm  bool // norms after attention and after the FFN, before the residual

	// Feed-forward networks.
	activation Activation
	ungated    bool // down(act(up·x))
	fusedGate  bool // tensor ffn_up holds the rows of gate, then of up
	parallel   bool // attention and FFN read the same norm
	experts    expertRule

	// Biases.
	biases     biasRule
	outputBias bool // output.bias is required

	// Scales and limits.
	scaleEmbedding bool    // by √hidden
	attnSoftcap    float64 // if the file has none
	outputSoftcap  float64 // if the file has none
	// headScaleLayers identifies one size of the architecture by its number of layers.
	// That size scales attention by 1/√(hidden/heads), all others by 1/√(head dim).
	// 0: no such size.
	headScaleLayers int

	// Sliding windows.
	window        int // if the file has none
	windowPattern int // see Config.WindowPattern; 0: windows in the file are ignored
}

// ropeKind says how the model encodes positions.
type ropeKind int

const (
	ropeInterleaved ropeKind = iota // rotate pairs (2i, 2i+1); ggml: NORM
	ropeHalves                      // rotate pairs (i, i+dim/2); ggml: NEOX
	ropeNone                        // learned positions
)

// biasRule says which projections must have a bias. Others use a bias that the file has.
type biasRule int

const (
	biasOptional biasRule = iota
	biasQKV
	biasAll
)

// expertRule says whether feed-forward networks are mixtures of experts.
type expertRule int

const (
	expertsNever    expertRule = iota
	expertsOptional            // if the file has expert_count
	expertsAlways
)

// architectures maps general.architecture to its facts. The sliding windows of Phi-3 and
// StarCoder2 are ignored, as by llama.cpp.
var architectures = map[string]architecture{
	"llama":      {windowPattern: 1, experts: expertsOptional}, // also Mistral, with its window, and Mixtral
	"qwen2":      {rope: ropeHalves, biases: biasQKV},
	"qwen3":      {rope: ropeHalves, qkNorm: true},
	"qwen3moe":   {rope: ropeHalves, qkNorm: true, experts: expertsAlways},
	"gpt2":       {rope: ropeNone, layerNorm: true, biases: biasAll, activation: GELU, ungated: true},
	"starcoder2": {rope: ropeHalves, layerNorm: true, biases: biasAll, activation: GELU, ungated: true},
	"phi2": {
		rope: ropeHalves, layerNorm: true, biases: biasAll, outputBias: true,
		activation: GELU, ungated: true, parallel: true,
	},
	"phi3": {rope: ropeHalves, fusedGate: true},
	"gemma2": {
		rope: ropeHalves, activation: GELU, postNorm: true, scaleEmbedding: true,
		window: 4096, windowPattern: 2, attnSoftcap: 50, outputSoftcap: 30, headScaleLayers: 46,
	},
	"gemma3": {
		rope: ropeHalves, theta: 1e6, localTheta: 1e4, activation: GELU, qkNorm: true, postNorm: true,
		scaleEmbedding: true, windowPattern: 6, headScaleLayers: 62,
	},
}

const archKey = "general.architecture"

// Architectures returns the values of general.architecture that Load supports, sorted.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

func architectureOf(name string) (architecture, error) {
	a, ok := architectures[name]
	if !ok {
		return architecture{}, fmt.Errorf("key %q: %w %.80q: it is none of %s",
			archKey, errUnsupportedArch, name, strings.Join(Architectures(), ", "))
	}
	return a, nil
}
