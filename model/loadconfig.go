package model

import (
	"math"

	"github.com/lockstep-go/lockstep/model/gguf"
)

// Limits on what a file may claim, far above any published model. They keep every
// product of sizes within an int.
const (
	maxLayers  = 512
	maxExperts = 512
	maxHeads   = 1 << 14
	maxHeadDim = 1 << 14
	maxHidden  = 1 << 20
	maxFFN     = 1 << 24
	maxVocab   = 1 << 24
	maxContext = 1 << 24
)

// readConfig reads and checks the numbers of an architecture. Vocab is the file's
// claim, or 0: the embedding decides.
func readConfig(f *gguf.File, arch string, fam family) (Config, error) {
	k := &keys{f: f, arch: arch}
	c := Config{
		Arch:       arch,
		Layers:     k.need("block_count", 1, maxLayers),
		Hidden:     k.need("embedding_length", 1, maxHidden),
		Context:    k.need("context_length", 1, maxContext),
		Vocab:      k.count("vocab_size", 0, 1, maxVocab),
		LayerNorm:  fam.layerNorm,
		Activation: fam.activation,
		Gated:      !fam.ungated,

		ParallelFFN: fam.parallel,
		EmbedScale:  1,
	}
	if fam.scaleEmbedding {
		c.EmbedScale = float32(math.Sqrt(float64(c.Hidden)))
	}
	c.Name, _ = read(k, "general.name", gguf.Value.Str)
	readNorm(k, &c)
	readHeads(k, &c)
	readFFN(k, &c, fam)
	readRope(k, &c, fam)
	readWindow(k, &c, fam)
	readAttention(k, &c, fam)
	refuseForeign(k)
	return c, k.err
}

func readNorm(k *keys, c *Config) {
	key := "attention.layer_norm_rms_epsilon"
	if c.LayerNorm {
		key = "attention.layer_norm_epsilon"
	}
	if !k.has(key) {
		k.need(key, 0, 0)
		return
	}
	c.NormEps = float32(k.positive(key, 0))
	if c.NormEps == 0 {
		k.bad(key, "too small for a float32")
	}
}

func readHeads(k *keys, c *Config) {
	const heads, kvHeads = "attention.head_count", "attention.head_count_kv"
	if !k.has(heads) {
		k.need(heads, 1, 1)
	}
	c.Heads = k.perLayer(heads, c.Layers, 1, 1, maxHeads)
	c.KVHeads = k.perLayer(kvHeads, c.Layers, c.Heads, 1, maxHeads)
	if c.Heads%c.KVHeads != 0 {
		k.bad(heads, "%d heads are no multiple of %d key-value heads", c.Heads, c.KVHeads)
	}
	dim := c.Hidden / c.Heads
	if !k.has("attention.key_length") || !k.has("attention.value_length") {
		if c.Hidden%c.Heads != 0 {
			k.bad("embedding_length", "%d is no multiple of the %d heads, and the file gives no head size", c.Hidden, c.Heads)
		}
		dim = max(dim, 1)
	}
	c.HeadDim = k.count("attention.key_length", dim, 1, maxHeadDim)
	c.ValueDim = k.count("attention.value_length", dim, 1, maxHeadDim)
}

func readFFN(k *keys, c *Config, fam family) {
	c.Experts = k.count("expert_count", 0, 0, maxExperts)
	switch {
	case fam.mixture == mixtureNever && c.Experts > 0:
		k.unsupported("expert_count", "%d experts in this architecture", c.Experts)
	case fam.mixture == mixtureAlways && c.Experts == 0:
		k.need("expert_count", 1, maxExperts)
	}
	c.FFN = k.perLayer("feed_forward_length", c.Layers, 0, 0, maxFFN)
	if c.Experts == 0 {
		if c.FFN == 0 {
			k.need("feed_forward_length", 1, maxFFN)
		}
		return
	}
	c.ExpertsUsed = k.need("expert_used_count", 1, c.Experts)
	c.ExpertFFN = k.count("expert_feed_forward_length", c.FFN, 1, maxFFN)
	if c.ExpertFFN == 0 {
		k.need("expert_feed_forward_length", 1, maxFFN)
	}
}

func readWindow(k *keys, c *Config, fam family) {
	if fam.pattern == 0 {
		return
	}
	c.Window = k.count("attention.sliding_window", fam.window, 0, maxContext)
	c.WindowPattern = k.count("attention.sliding_window_pattern", fam.pattern, 2, maxLayers)
}

func readAttention(k *keys, c *Config, fam family) {
	dim := float64(c.HeadDim)
	if c.Layers == fam.wideDepth {
		dim = float64(c.Hidden / c.Heads)
	}
	c.AttnScale = k.notNegative("attention.scale", 0)
	if c.AttnScale == 0 {
		c.AttnScale = 1 / math.Sqrt(dim)
	}
	c.AttnSoftcap = k.notNegative("attn_logit_softcapping", fam.attnCap)
	c.OutputSoftcap = k.notNegative("final_logit_softcapping", fam.outputCap)
}

// foreign lists keys by which a file would ask for something that no architecture
// of the table does, each with the values that ask for nothing.
var foreign = []struct {
	key     string
	neutral []float64 // a bool is 0 or 1
}{
	{"attention.causal", []float64{1}},
	{"attention.clamp_kqv", []float64{0}},
	{"attention.max_alibi_bias", []float64{0}},
	{"embedding_scale", []float64{0, 1}},
	{"expert_gating_func", []float64{0, 1}}, // 1: softmax
	{"expert_shared_count", []float64{0}},
	{"expert_weights_scale", []float64{0, 1}},
	{"leading_dense_block_count", []float64{0}},
	{"logit_scale", []float64{0, 1}},
	{"residual_scale", []float64{0, 1}},
}

// refuseForeign keeps a model from being computed as something it is not.
func refuseForeign(k *keys) {
	for _, row := range foreign {
		v, ok := k.f.Value(k.name(row.key))
		if ok && !isOneOf(v, row.neutral) {
			k.unsupported(row.key, "%s", v)
		}
	}
}

func isOneOf(v gguf.Value, allowed []float64) bool {
	if v.IsArray() {
		return false
	}
	var x float64
	if b, err := v.Bool(); err == nil {
		if b {
			x = 1
		}
	} else if n, err := v.Uint(); err == nil {
		x = float64(n)
	} else if x, err = v.Float(); err != nil {
		return false
	}
	for _, a := range allowed {
		if x == a {
			return true
		}
	}
	return false
}
