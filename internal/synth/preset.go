// Package synth generates model files with the shapes of published models and random
// weights, for tests and benchmarks. The vocabulary encodes any text byte by byte, unless
// Plan.SetTokenizer replaces it.
package synth

import (
	"errors"
	"fmt"
	"strings"
)

// ErrPreset reports an unknown name.
var ErrPreset = errors.New("unknown preset")

// Preset is the shape of a published model. Sizes come from its config.json. The tensors
// are those of its usual GGUF file.
type Preset struct {
	Name  string
	Title string // general.name
	Arch  string

	Layers, Hidden, FFN     int
	Heads, KVHeads, HeadDim int
	Vocab, Context          int
	Tied                    bool // the output matrix is the embedding

	NormEps     float32
	LayerNorm   bool // LayerNorm with biases
	RopeDim     int  // 0: learned positions
	RopeTheta   float32
	RopeFactors func(dim int, theta float64) []float32 // divisors of the dim/2 frequencies; nil: none

	Biases      bool // on every matrix of a layer
	QKVBias     bool // biases on Q, K and V only (Qwen 2)
	FusedQKV    bool
	QKNorm      bool
	UnitScale   bool // attention does not divide by √HeadDim; the norm of the keys does
	Sinks       bool
	AttnGate    bool   // attn_q holds a gate of the output of each head
	PostNorms   bool   // norms after attention and FFN too (Gemma)
	FFNNormName string // "": ffn_norm
	Ungated     bool   // the FFN has no gate matrix
	Parallel    bool   // FFN and attention share a norm and run in parallel (Phi-2)
	OutBias     bool
	Window      int
	Local       *localLayers
	DeltaNet    *deltaNetLayers

	Experts, ExpertsUsed, ExpertFFN int  // 0 experts: a dense FFN
	ExpertsBeside                   bool // the experts are beside a dense FFN, with norms of their own (Gemma 4)
	SharedFFN                       int  // width of the shared expert, which has a gate; 0: none
	LayerScale                      bool // layer_output_scale
	LayerInput                      int  // width of the inputs of layers; 0: none
	AltUp                           bool // AltUp and LAuReL (Gemma 3n)

	Keys []pair // more metadata; the name of a key follows "Arch."

	Pre    string // pre-tokenizer
	BOS    int
	EOS    int
	AddBOS bool
}

// localLayers are the layers with a window, if their sizes differ from those of the other layers. The other layers use
// their keys as values.
type localLayers struct {
	every            int // every n-th layer has no window
	KVHeads, HeadDim int
	RopeTheta        float32
}

// isLocal reports whether layer l is one of p.Local.
func (p Preset) isLocal(l int) bool { return p.Local != nil && (l+1)%p.Local.every != 0 }

// deltaNetLayers are the layers that have a Gated DeltaNet instead of attention (Qwen3.5).
type deltaNetLayers struct {
	every                int // every n-th layer has attention
	KeyHeads, ValueHeads int
	Dim                  int // of each head
	Taps                 int // of the convolution
}

// isDeltaNet reports whether layer l is one of p.DeltaNet.
func (p Preset) isDeltaNet(l int) bool { return p.DeltaNet != nil && (l+1)%p.DeltaNet.every != 0 }

// llama3Scale holds the parameters of Llama 3.1's rope scaling.
type llama3Scale struct {
	factor, low, high, original float64
}

var presets = []Preset{
	{
		Name: "llama-3.2-1b", Title: "Llama 3.2 1B", Arch: "llama",
		Layers: 16, Hidden: 2048, FFN: 8192, Heads: 32, KVHeads: 8, HeadDim: 64, Vocab: 128256, Context: 131072, Tied: true,
		NormEps: 1e-5, RopeDim: 64, RopeTheta: 500000, RopeFactors: llama3Scale{32, 1, 4, 8192}.factors,
		Pre: "llama-bpe", BOS: 128000, EOS: 128001, AddBOS: true,
	},
	{
		Name: "llama-3.1-8b", Title: "Llama 3.1 8B", Arch: "llama",
		Layers: 32, Hidden: 4096, FFN: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256, Context: 131072,
		NormEps: 1e-5, RopeDim: 128, RopeTheta: 500000, RopeFactors: llama3Scale{8, 1, 4, 8192}.factors,
		Pre: "llama-bpe", BOS: 128000, EOS: 128001, AddBOS: true,
	},
	{
		Name: "qwen2.5-1.5b", Title: "Qwen2.5 1.5B", Arch: "qwen2",
		Layers: 28, Hidden: 1536, FFN: 8960, Heads: 12, KVHeads: 2, HeadDim: 128, Vocab: 151936, Context: 32768, Tied: true,
		NormEps: 1e-6, RopeDim: 128, RopeTheta: 1e6, QKVBias: true,
		Pre: "qwen2", BOS: 151643, EOS: 151645,
	},
	{
		Name: "qwen2.5-7b", Title: "Qwen2.5 7B", Arch: "qwen2",
		Layers: 28, Hidden: 3584, FFN: 18944, Heads: 28, KVHeads: 4, HeadDim: 128, Vocab: 152064, Context: 32768,
		NormEps: 1e-6, RopeDim: 128, RopeTheta: 1e6, QKVBias: true,
		Pre: "qwen2", BOS: 151643, EOS: 151645,
	},
	{
		Name: "qwen3-8b", Title: "Qwen3 8B", Arch: "qwen3",
		Layers: 36, Hidden: 4096, FFN: 12288, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 151936, Context: 40960,
		NormEps: 1e-6, RopeDim: 128, RopeTheta: 1e6, QKNorm: true,
		Pre: "qwen2", BOS: 151643, EOS: 151645,
	},
	{
		Name: "gemma3-1b", Title: "Gemma 3 1B", Arch: "gemma3",
		Layers: 26, Hidden: 1152, FFN: 6912, Heads: 4, KVHeads: 1, HeadDim: 256, Vocab: 262144, Context: 32768, Tied: true,
		NormEps: 1e-6, RopeDim: 256, RopeTheta: 1e6, QKNorm: true, PostNorms: true, Window: 512,
		Pre: "default", BOS: 2, EOS: 1, AddBOS: true,
	},
	{
		Name: "phi-2", Title: "Phi-2", Arch: "phi2",
		Layers: 32, Hidden: 2560, FFN: 10240, Heads: 32, KVHeads: 32, HeadDim: 80, Vocab: 51200, Context: 2048,
		NormEps: 1e-5, LayerNorm: true, Biases: true, RopeDim: 32, RopeTheta: 10000,
		FusedQKV: true, Ungated: true, Parallel: true, OutBias: true,
		Pre: "gpt-2", BOS: 50256, EOS: 50256,
	},
	{
		Name: "gpt2", Title: "GPT-2", Arch: "gpt2",
		Layers: 12, Hidden: 768, FFN: 3072, Heads: 12, KVHeads: 12, HeadDim: 64, Vocab: 50257, Context: 1024, Tied: true,
		NormEps: 1e-5, LayerNorm: true, Biases: true, FusedQKV: true, Ungated: true,
		Pre: "gpt-2", BOS: 50256, EOS: 50256,
	},
	{
		Name: "gpt-oss-20b", Title: "gpt-oss 20B", Arch: "gpt-oss",
		Layers: 24, Hidden: 2880, FFN: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Vocab: 201088, Context: 131072,
		NormEps: 1e-5, RopeDim: 64, RopeTheta: 150000, Biases: true, Sinks: true, FFNNormName: "post_attention_norm", Window: 128,
		Experts: 32, ExpertsUsed: 4, ExpertFFN: 2880,
		Keys: []pair{
			{"rope.scaling.type", "yarn"}, {"rope.scaling.factor", float32(32)}, {"rope.scaling.original_context_length", uint32(4096)},
		},
		Pre: "gpt-4o", BOS: 199998, EOS: 200002,
	},
	{
		Name: "gemma4-26b-a4b", Title: "Gemma 4 26B A4B", Arch: "gemma4",
		Layers: 30, Hidden: 2816, FFN: 2112, Heads: 16, KVHeads: 2, HeadDim: 512, Vocab: 262144, Context: 262144, Tied: true,
		NormEps: 1e-6, RopeDim: 512, RopeTheta: 1e6, RopeFactors: firstQuarter,
		QKNorm: true, UnitScale: true, PostNorms: true, LayerScale: true,
		Window: 1024, Local: &localLayers{every: 6, KVHeads: 8, HeadDim: 256, RopeTheta: 10000},
		Experts: 128, ExpertsUsed: 8, ExpertFFN: 704, ExpertsBeside: true,
		Keys: []pair{{"final_logit_softcapping", float32(30)}},
		Pre:  "default", BOS: 2, EOS: 1, AddBOS: true,
	},
	{
		Name: "qwen3.5-35b-a3b", Title: "Qwen3.5 35B A3B", Arch: "qwen35moe",
		Layers: 40, Hidden: 2048, Heads: 16, KVHeads: 2, HeadDim: 256, Vocab: 248320, Context: 262144,
		NormEps: 1e-6, RopeDim: 64, RopeTheta: 1e7, QKNorm: true, AttnGate: true, FFNNormName: "post_attention_norm",
		DeltaNet: &deltaNetLayers{every: 4, KeyHeads: 16, ValueHeads: 32, Dim: 128, Taps: 4},
		Experts:  256, ExpertsUsed: 8, ExpertFFN: 512, SharedFFN: 512,
		Keys: []pair{{"rope.dimension_sections", []int32{11, 11, 10, 0}}},
		Pre:  "qwen35", BOS: 248044, EOS: 248046,
	},
	{
		Name: "gemma3n-e4b", Title: "Gemma 3n E4B", Arch: "gemma3n",
		Layers: 35, Hidden: 2048, FFN: 16384, Heads: 8, KVHeads: 2, HeadDim: 256, Vocab: 262144, Context: 32768, Tied: true,
		NormEps: 1e-6, RopeDim: 256, RopeTheta: 1e6, QKNorm: true, UnitScale: true, PostNorms: true, Window: 512,
		LayerInput: 256, AltUp: true,
		Pre: "default", BOS: 2, EOS: 1, AddBOS: true,
	},
}

// Presets returns the names of all presets.
func Presets() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.Name
	}
	return names
}

// Find returns the preset with that name. The error wraps ErrPreset and lists the names.
func Find(name string) (Preset, error) {
	for _, p := range presets {
		if p.Name == name {
			return p, nil
		}
	}
	return Preset{}, fmt.Errorf("%w %q: choose one of %s", ErrPreset, name, strings.Join(Presets(), ", "))
}
