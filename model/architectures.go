package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// architecture holds the facts about an architecture that its files do not state. The zero value
// is a dense Llama without windows. Sources: the models' published code, and ggml's
// GGUF conventions.
type architecture struct {
	// Positions.
	rope            ropeKind
	theta           float64 // base if the file has no rope.freq_base; 0: 10000
	localTheta      float64 // base in sliding-window layers, whose RoPE is not scaled then; 0: theta
	unscaledWindows bool    // sliding-window layers have the same base, but RoPE is not scaled in them
	optionalRope    bool    // no RoPE if rope.scaling.finetuned is false
	scaling         string  // how RoPE is scaled, if the file has no rope.scaling.type
	// globalScaling is the RoPE factor of layers without windows in files of Ollama, which lack the key. It applies if the context
	// has at least globalScalingContext positions. 0: none.
	globalScaling float64
	unrotated     unrotatedLayers
	ropeSections  bool // the key rope.dimension_sections is required: M-RoPE; in a text all sections have the same position

	// Norms.
	layerNorm   bool    // LayerNorm; else RMSNorm
	noNormBias  bool    // LayerNorm without biases
	normEps     float64 // if the file has none; 0: it must have it
	norms       normPlacement
	ffnNormName string // of the norm before the FFN; "": ffn_norm
	qkNorm      qkNormRule
	valueNorm   bool // an RMS norm of each value head, without weights
	// noQKNormExperts identifies one size of the architecture by its number of experts.
	// That size has no norm of queries and keys. 0: no such size.
	noQKNormExperts int
	sinks           bool // attention has sinks
	attnGate        bool // attn_q holds the rows of each head's query, then those of its gate
	deltaNet        deltaNetRule

	// Feed-forward networks.
	activation Activation
	ungated    bool // down(act(up·x))
	fusedGate  bool // tensor ffn_up holds the rows of gate, then of up
	// If the file lacks activation_sparsity_scale, the first sparseLayers layers have the scale sparsity. If sparsity is 0,
	// the architecture has none, and the key is ignored.
	sparseLayers int
	sparsity     float64
	parallel     parallelRule

	// Mixtures of experts.
	experts     expertRule
	router      routerRule
	shared      sharedRule
	denseLayers bool // the key leading_dense_block_count is used
	interleaved bool // the key interleave_moe_layer_step is used

	// Biases.
	biases     biasRule
	outputBias bool // output.bias is required

	// Layers.
	localHeads       bool // heads have another size in sliding-window layers, where RoPE has no factors
	sharedKV         bool // the key attention.shared_kv_layers is used
	optionalV        bool // without attn_v, values are the keys before their norm and RoPE
	fewerLayerInputs bool // the last tokens may have no inputs of layers: see Weights.InputEmbedding
	layerInput       bool // the key embedding_length_per_layer_input is used
	// ownKVLayers is the number of first layers with keys and values of their own, if the file has no
	// attention.shared_kv_layers; 0: all.
	ownKVLayers     int
	layerInputWidth int  // if the file has no embedding_length_per_layer_input
	streams         int  // AltUp with this number of streams, of which the first is active; 0: none
	laurelRank      int  // of LAuReL; 0: none
	layerScale      bool // optional tensors layer_output_scale multiply the residual stream after the layer's last norm

	// Scales and limits.
	scaleEmbedding bool // by √hidden
	scaleKeys      bool // the keys embedding_scale and residual_scale; only for models whose norms all read the residual stream
	outputScale    outputScaleRule
	queryScale     bool       // the key attention.temperature_scale
	unrotatedScale QueryScale // of queries in layers without RoPE
	attnScale      float64    // if the file has none; 0: 1/√(head dim)
	attnSoftcap    float64    // if the file has none
	outputSoftcap  float64    // if the file has none
	// headScaleLayers identifies one size of the architecture by its number of layers.
	// That size scales attention by 1/√(hidden/heads), all others by 1/√(head dim).
	// 0: no such size.
	headScaleLayers int

	// Sliding windows.
	window        int  // if the file has none
	needsWindow   bool // the file must have attention.sliding_window; 0 is no window
	windowPattern int  // n > 1: every n-th layer is global, the others have windows; 1: all have windows; 0: windows in the file are ignored
	windowLayers  int  // only the size of the architecture with this number of layers has windows; 0: all sizes
	// windowChunks: see Config.WindowChunks. The window of the table replaces that of a file, unless that is 0.
	windowChunks bool

	// mtpLayers: the key nextn_predict_layers is used. See Config.MTPLayers.
	mtpLayers bool

	// Vocabulary.
	pre           string // the pre-tokenizer, if the file names none or a general one
	surplusTokens bool   // tokens without a row in the embedding are dropped
}

// ropeKind says how the model encodes positions.
type ropeKind int

const (
	ropeInterleaved ropeKind = iota // rotate pairs (2i, 2i+1); ggml: NORM
	ropeHalves                      // rotate pairs (i, i+dim/2); ggml: NEOX
	ropeNone                        // learned positions
)

// unrotatedLayers says which layers have no RoPE.
type unrotatedLayers int

const (
	unrotatedNone   unrotatedLayers = iota
	unrotatedFourth                 // every fourth layer
	unrotatedGlobal                 // if some layers have windows, those that have none
)

// normPlacement says where a layer has norms.
type normPlacement int

const (
	normsBefore normPlacement = iota // before attention and before the FFN
	normsAround                      // before and after both; those after come before the residual is added
	normsAfter                       // after both
)

// qkNormRule says what a norm of queries and keys normalizes. Its kind is that of the other norms.
type qkNormRule int

const (
	qkNormNone         qkNormRule = iota
	qkNormHead                    // each head; all heads share the weights
	qkNormHeadOptional            // qkNormHead, if the first layer has the weights
	qkNormHeadsOwn                // each head with weights of its own, if the first layer has them
	qkNormAll                     // all heads together
	qkNormUnit                    // each head, without weights, after RoPE, in the layers that have RoPE
)

// deltaNetRule says whether layers are Gated DeltaNets in place of attention, and which heads belong together.
type deltaNetRule int

const (
	deltaNetNever   deltaNetRule = iota
	deltaNetTiled                // value head h reads key head h % key heads
	deltaNetGrouped              // value head h reads key head h / (value heads / key heads)
)

// parallelRule says whether attention and FFN read the same norm.
type parallelRule int

const (
	parallelNever parallelRule = iota
	parallelAlways
	parallelOptional // if the file has no norm before the FFN
)

// outputScaleRule says what the key logit_scale does to logits.
type outputScaleRule int

const (
	outputScaleNone outputScaleRule = iota
	outputScaleMultiply
	outputScaleDivide
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

// routerRule says how experts are chosen and weighted. Probabilities are the softmax of the
// router's logits unless it says otherwise.
type routerRule int

const (
	// routerNormalized divides the weights of the chosen experts by their sum.
	routerNormalized routerRule = iota
	// routerPlain divides them only if expert_weights_norm is true.
	routerPlain
	// routerSigmoid is routerPlain with the keys expert_gating_func (default: sigmoid) and
	// expert_weights_scale. The bias exp_probs_b is required.
	routerSigmoid
	// routerSigmoidInput uses sigmoids. They multiply the inputs of the chosen experts.
	routerSigmoidInput
)

// sharedRule says whether each mixture has an expert that every token uses.
type sharedRule int

const (
	sharedNever    sharedRule = iota
	sharedOptional            // if the file has its width, expert_shared_feed_forward_length
	sharedGated               // of that width; its output has a gate
	sharedCounted             // as wide as expert_shared_count experts
	sharedOne                 // as wide as an expert
	// sharedDense: it is the dense network. It, the experts and the router have norms of their own, and experts may
	// have scales.
	sharedDense
)

// architectures maps general.architecture to its facts. The sliding windows of Phi-3 and
// StarCoder2 are ignored, as by llama.cpp.
var architectures = map[string]architecture{
	"llama":    {windowPattern: 1, experts: expertsOptional}, // also Mistral, with its window, and Mixtral
	"qwen2":    {rope: ropeHalves, biases: biasQKV},
	"qwen3":    {rope: ropeHalves, qkNorm: qkNormHead},
	"qwen3moe": {rope: ropeHalves, qkNorm: qkNormHead, experts: expertsAlways},
	"qwen2moe": {rope: ropeHalves, biases: biasQKV, experts: expertsAlways, router: routerPlain, shared: sharedGated},
	"glm4moe": {
		rope: ropeHalves, biases: biasQKV, qkNorm: qkNormHeadOptional, ffnNormName: "post_attention_norm",
		experts: expertsAlways, router: routerSigmoid, shared: sharedCounted, denseLayers: true, mtpLayers: true,
	},
	"gpt2":       {rope: ropeNone, layerNorm: true, biases: biasAll, activation: GELU, ungated: true},
	"starcoder2": {rope: ropeHalves, layerNorm: true, biases: biasAll, activation: GELU, ungated: true},
	"phi2": {
		rope: ropeHalves, layerNorm: true, biases: biasAll, outputBias: true,
		activation: GELU, ungated: true, parallel: parallelAlways,
	},
	"phi3": {rope: ropeHalves, fusedGate: true},
	"gemma2": {
		rope: ropeHalves, activation: GELU, norms: normsAround, scaleEmbedding: true,
		window: 4096, windowPattern: 2, attnSoftcap: 50, outputSoftcap: 30, headScaleLayers: 46,
	},
	"gemma3": {
		rope: ropeHalves, theta: 1e6, localTheta: 1e4, globalScaling: 8, activation: GELU, qkNorm: qkNormHead, norms: normsAround,
		normEps: 1e-6, scaleEmbedding: true, windowPattern: 6, headScaleLayers: 62, surplusTokens: true,
	},
	"gemma": {rope: ropeHalves, activation: GELU, scaleEmbedding: true},
	"gemma4": {
		rope: ropeHalves, localTheta: 1e4, activation: GELU, qkNorm: qkNormHead, valueNorm: true, norms: normsAround,
		scaleEmbedding: true, attnScale: 1, windowPattern: 6, localHeads: true, sharedKV: true, optionalV: true, layerInput: true, layerScale: true,
		experts: expertsOptional, shared: sharedDense,
	},
	"gemma3n": {
		rope: ropeHalves, theta: 1e6, localTheta: 1e4, activation: GELU, qkNorm: qkNormHead, valueNorm: true, norms: normsAround,
		scaleEmbedding: true, attnScale: 1, outputSoftcap: 30, windowPattern: 5, sharedKV: true, ownKVLayers: 20,
		layerInput: true, fewerLayerInputs: true, layerInputWidth: 256, streams: 4, laurelRank: 64, sparseLayers: 10, sparsity: 1.6448533535003662,
	},
	"seed_oss": {rope: ropeHalves, biases: biasQKV, ffnNormName: "post_attention_norm"},
	"glm4":     {norms: normsAround, biases: biasQKV, fusedGate: true},
	"smollm3":  {unrotated: unrotatedFourth},
	"mistral3": {queryScale: true, experts: expertsOptional, pre: "tekken"},
	"granite":  {optionalRope: true, scaleKeys: true, outputScale: outputScaleDivide},
	"granitemoe": {
		optionalRope: true, scaleKeys: true, outputScale: outputScaleDivide, experts: expertsAlways, shared: sharedOptional,
	},
	"gpt-oss": {
		rope: ropeHalves, biases: biasAll, ffnNormName: "post_attention_norm", activation: ClampedSwiGLU, sinks: true,
		experts: expertsAlways, windowPattern: 2, needsWindow: true, pre: "gpt-4o",
	},
	"olmo2": {rope: ropeHalves, norms: normsAfter, qkNorm: qkNormAll, windowPattern: 4, unscaledWindows: true},
	"exaone4": {
		rope: ropeHalves, norms: normsAfter, qkNorm: qkNormHead,
		window: 4096, windowPattern: 4, windowLayers: 64, unrotated: unrotatedGlobal,
	},
	"cohere2": {
		layerNorm: true, noNormBias: true, parallel: parallelAlways, outputScale: outputScaleMultiply,
		windowPattern: 4, needsWindow: true, unrotated: unrotatedGlobal,
	},
	"llama4": {
		qkNorm: qkNormUnit, noQKNormExperts: 128, experts: expertsAlways, router: routerSigmoidInput, shared: sharedOne, interleaved: true,
		window: 8192, windowPattern: 4, windowChunks: true, unrotated: unrotatedGlobal,
		unrotatedScale: QueryScale{Scale: 0.1, Block: 8192, Offset: 1, Unrotated: true},
	},
	"qwen35": {
		rope: ropeHalves, ropeSections: true, qkNorm: qkNormHead, attnGate: true, deltaNet: deltaNetTiled,
		ffnNormName: "post_attention_norm", mtpLayers: true,
	},
	"qwen35moe": {
		rope: ropeHalves, ropeSections: true, qkNorm: qkNormHead, attnGate: true, deltaNet: deltaNetTiled,
		ffnNormName: "post_attention_norm", experts: expertsAlways, shared: sharedGated, mtpLayers: true,
	},
	"qwen3next": {
		rope: ropeHalves, qkNorm: qkNormHead, attnGate: true, deltaNet: deltaNetGrouped,
		ffnNormName: "post_attention_norm", experts: expertsAlways, shared: sharedGated, mtpLayers: true,
	},
	"stablelm": {rope: ropeHalves, layerNorm: true, parallel: parallelOptional, qkNorm: qkNormHeadsOwn},
}

// unitQKNorm reports whether queries and keys have norms without weights.
func (a architecture) unitQKNorm(c *Config) bool {
	return a.qkNorm == qkNormUnit && c.Experts != a.noQKNormExperts
}

const archKey = "general.architecture"

// Architectures returns the values of general.architecture that Load supports, sorted.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

func architectureOf(name string) (architecture, error) {
	a, ok := architectures[name]
	if alias, known := archAliases[name]; known {
		a, ok = architectures[alias.name], true
		alias.change(&a)
	}
	if !ok {
		return architecture{}, fmt.Errorf("key %q: %w %.80q: it is none of %s",
			archKey, errUnsupportedArch, name, strings.Join(Architectures(), ", "))
	}
	return a, nil
}
