package model

import (
	"cmp"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// Limits on the sizes in a file, far above any published model. Products of sizes
// within them fit an int.
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

// readConfig reads and checks the metadata keys of an architecture. Vocab is the file's
// vocab_size, or 0 if it has none.
func readConfig(f *gguf.File, name string, a architecture) (Config, error) {
	k := &keys{f: f, prefix: name}
	c := Config{
		Arch:        name,
		Layers:      k.need("block_count", 1, maxLayers),
		Hidden:      k.need("embedding_length", 1, maxHidden),
		Context:     k.need("context_length", 1, maxContext),
		Vocab:       k.count("vocab_size", 0, 1, maxVocab),
		LayerNorm:   a.layerNorm,
		Activation:  a.activation,
		Gated:       !a.ungated,
		ParallelFFN: a.parallel,
		EmbedScale:  1,
	}
	if a.scaleEmbedding {
		c.EmbedScale = float32(math.Sqrt(float64(c.Hidden)))
	}
	c.Name, _ = read(k, "general.name", gguf.Value.Str)
	readNorm(k, &c)
	readHeads(k, &c)
	readFFN(k, &c, a)
	readRope(k, &c, a)
	readWindow(k, &c, a)
	readAttention(k, &c, a)
	readPooling(k, &c)
	refuseUnread(k, &c, keyRules)
	return c, k.err
}

// readPooling reads llama.cpp's number of a pooling. Its 0 (none) and 4 (a classifier) name no
// embedding.
func readPooling(k *keys, c *Config) {
	const mean = 1
	switch k.count("pooling_type", mean, 0, 4) {
	case 2:
		c.Pooling = PoolFirst
	case 3:
		c.Pooling = PoolLast
	}
}

func readNorm(k *keys, c *Config) {
	key := "attention.layer_norm_rms_epsilon"
	if c.LayerNorm {
		key = "attention.layer_norm_epsilon"
	}
	if !k.has(key) {
		k.missing(key)
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
		k.missing(heads)
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

func readFFN(k *keys, c *Config, a architecture) {
	c.Experts = k.count("expert_count", 0, 0, maxExperts)
	switch {
	case a.experts == expertsNever && c.Experts > 0:
		k.unsupported("expert_count", "%d experts in this architecture", c.Experts)
	case a.experts == expertsAlways && c.Experts == 0:
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

func readRope(k *keys, c *Config, a architecture) {
	c.RopeScale, c.RopeAttnFactor = 1, 1
	if a.rope == ropeNone {
		return
	}
	const dim = "rope.dimension_count"
	c.RopeInterleaved = a.rope == ropeInterleaved
	c.RopeDim = k.count(dim, c.HeadDim, 1, maxHeadDim)
	switch {
	case c.RopeDim%2 != 0:
		k.bad(dim, "%d is odd, and elements are rotated in pairs", c.RopeDim)
	case c.RopeDim > c.HeadDim:
		k.bad(dim, "%d is more than the head size %d", c.RopeDim, c.HeadDim)
	}
	c.RopeTheta = k.positive("rope.freq_base", cmp.Or(a.theta, 1e4))
	if a.localTheta > 0 {
		c.LocalRopeTheta = k.positive("rope.freq_base_swa", a.localTheta)
	}
	readRopeScaling(k, c)
}

// readRopeScaling reads how RoPE is adapted to contexts beyond the original one.
func readRopeScaling(k *keys, c *Config) {
	const kind, factor = "rope.scaling.type", "rope.scaling.factor"
	scale := 1.0
	if key := factor; k.has(key) {
		scale = k.notNegative(key, 1)
	} else if key := "rope.scale_linear"; k.has(key) {
		scale = k.notNegative(key, 1)
	}
	if scale == 0 { // converters write 0 for models without scaling
		scale = 1
	}
	switch t := k.text(kind); t {
	case "", "linear":
		c.RopeScale = 1 / scale
	case "none":
	case "longrope":
		if scale != 1 {
			k.unsupported(factor, "%v together with longrope", scale)
		}
	default:
		k.unsupported(kind, "%.80q, want linear, longrope or none", t)
	}
	c.RopeAttnFactor = k.positive("rope.scaling.attn_factor", 1)
	c.LongContext = k.count("rope.scaling.original_context_length", c.Context, 1, maxContext)
}

func readWindow(k *keys, c *Config, a architecture) {
	if a.windowPattern == 0 {
		return
	}
	c.Window = k.count("attention.sliding_window", a.window, 0, maxContext)
	c.WindowPattern = k.count("attention.sliding_window_pattern", a.windowPattern, 2, maxLayers)
}

func readAttention(k *keys, c *Config, a architecture) {
	dim := float64(c.HeadDim)
	if c.Layers == a.headScaleLayers {
		dim = float64(c.Hidden / c.Heads)
	}
	c.AttnScale = k.notNegative("attention.scale", 0)
	if c.AttnScale == 0 {
		c.AttnScale = 1 / math.Sqrt(dim)
	}
	c.AttnSoftcap = k.notNegative("attn_logit_softcapping", a.attnSoftcap)
	c.OutputSoftcap = k.notNegative("final_logit_softcapping", a.outputSoftcap)
}

// checkAngles refuses a model whose last position is rotated by a larger angle than
// portable.SinCos accepts.
func checkAngles(m *Model) error {
	c, w := m.Config, m.Weights
	if w.LongRopeFactors != nil {
		short := ropeDivisors{"rope_factors_short.weight", w.RopeFactors, min(c.Context, c.LongContext)}
		long := ropeDivisors{"rope_factors_long.weight", w.LongRopeFactors, c.Context}
		return cmp.Or(short.check(c), long.check(c))
	}
	return ropeDivisors{"rope_freqs.weight", w.RopeFactors, c.Context}.check(c)
}

// ropeDivisors is a tensor of divisors of the RoPE frequencies (nil: all 1), and the
// number of positions that use it.
type ropeDivisors struct {
	tensor    string
	divisors  []float32
	positions int
}

func (d ropeDivisors) check(c Config) error {
	err := d.checkBase(c, "rope.freq_base", c.RopeTheta, c.RopeScale)
	if err == nil && c.LocalRopeTheta > 0 {
		err = d.checkBase(c, "rope.freq_base_swa", c.LocalRopeTheta, 1)
	}
	return err
}

// checkBase checks the angles position · scale · theta^(−2i/dim) / divisor[i] of one
// base. The error names the key or tensor that makes an angle too large.
func (d ropeDivisors) checkBase(c Config, base string, theta, scale float64) error {
	for i := range c.RopeDim / 2 {
		freq := portable.Pow(theta, -float64(2*i)/float64(c.RopeDim))
		plain := float64(d.positions-1) * freq * scale
		angle := plain
		if d.divisors != nil {
			angle /= float64(d.divisors[i])
		}
		if angle <= portable.MaxAngle {
			continue
		}
		culprit := "key \"" + c.Arch + "."
		switch {
		case plain <= portable.MaxAngle: // it is the divisor
			culprit = "tensor \"" + d.tensor
		case freq > 1:
			culprit += base
		case scale > 1:
			culprit += "rope.scaling.factor"
		default:
			culprit += "context_length"
		}
		return fmt.Errorf("%s\": %w: position %d is rotated by %.3g radians, at most %.3g are possible",
			culprit, errBadKey, d.positions-1, angle, portable.MaxAngle)
	}
	return nil
}
