package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// Limits on the sizes in a file, at least those of published models. Products of sizes
// within them fit an int.
const (
	maxLayers  = 512
	maxExperts = 512
	maxHeads   = 1 << 14
	maxHeadDim = 1 << 14
	maxHidden  = 1 << 20
	maxFFN     = 1 << 24
	maxVocab   = sampling.MaxVocab
	maxContext = 1 << 24
	maxTaps    = 16
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
		ParallelFFN: a.parallel == parallelAlways,
	}
	if a.parallel == parallelOptional {
		_, norm := f.Tensor("blk.0.ffn_norm.weight")
		c.ParallelFFN = !norm
		k.has("use_parallel_residual") // marks the key as read: as in llama.cpp, the tensors decide
	}
	c.Name, _ = read(k, "general.name", gguf.Value.Str)
	readNorm(k, &c, a)
	readWindow(k, &c, a)
	readHeads(k, &c, a)
	readFFN(k, &c, a)
	if a.layerInput {
		c.LayerInput = k.count("embedding_length_per_layer_input", a.layerInputWidth, 0, maxHidden)
	}
	readStreams(k, &c, a)
	if a.mtpLayers {
		c.MTPLayers = k.count("nextn_predict_layers", 0, 0, c.Layers-1)
	}
	readRope(k, &c, a)
	readDeltaNet(k, &c, a)
	readAttention(k, &c, a)
	readScales(k, &c, a)
	readPooling(k, &c)
	setShapes(&c)
	readSharedKV(k, &c, a)
	refuseUnread(k, &c, keyRules)
	c.Layers -= c.MTPLayers // block_count, and what is listed by layer, include them
	if c.Recurrent = c.Recurrent[:min(len(c.Recurrent), c.Layers)]; !slices.Contains(c.Recurrent, true) {
		c.Recurrent = nil
	}
	return c, k.err
}

// readPooling reads llama.cpp's number of a pooling. Its 0 (none) and 4 (a classifier) become PoolMean.
func readPooling(k *keys, c *Config) {
	const mean = 1
	switch k.count("pooling_type", mean, 0, 4) {
	case 2:
		c.Pooling = PoolFirst
	case 3:
		c.Pooling = PoolLast
	}
}

// rmsEpsName is the key of ε of an RMS norm.
const rmsEpsName = "attention.layer_norm_rms_epsilon"

func readNorm(k *keys, c *Config, a architecture) {
	key := rmsEpsName
	if c.LayerNorm {
		key = "attention.layer_norm_epsilon"
	}
	if !k.has(key) && a.normEps == 0 {
		k.missing(key)
		return
	}
	c.NormEps = float32(k.positive(key, a.normEps))
	if c.NormEps == 0 {
		k.bad(key, "too small for a float32")
	}
}

// Keys that several functions read.
const (
	kvHeadsName   = "attention.head_count_kv"
	localHeadName = "attention.key_length_swa"
)

// readHeads reads the sizes of heads. Until setShapes, c.HeadDim and c.ValueDim are those of layers without a window.
func readHeads(k *keys, c *Config, a architecture) {
	const heads = "attention.head_count"
	if !k.has(heads) {
		k.missing(heads)
	}
	c.Heads = k.perLayer(heads, c.Layers, 1, 1, maxHeads)
	kvHeads := readKVHeads(k, c, a)
	for _, n := range kvHeads {
		if c.Heads%n != 0 {
			k.bad(heads, "%d heads are no multiple of %d key-value heads", c.Heads, n)
		}
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
	if a.attnGate && c.ValueDim != c.HeadDim {
		k.bad("attention.value_length", "%d, want the %d elements of a query: each has a gate", c.ValueDim, c.HeadDim)
	}
	for l, n := range kvHeads {
		s := LayerShape{KVHeads: n, HeadDim: c.HeadDim, ValueDim: c.ValueDim}
		if a.localHeads && c.LayerWindow(l) > 0 {
			s.HeadDim, s.ValueDim = k.need(localHeadName, 1, maxHeadDim), k.need("attention.value_length_swa", 1, maxHeadDim)
		}
		c.Shapes = append(c.Shapes, s)
	}
}

// readKVHeads reads the key-value heads of each layer. A file may have 0 for layers without attention, which get the largest number
// of all layers.
func readKVHeads(k *keys, c *Config, a architecture) []int {
	fewest := 1
	if a.deltaNet != deltaNetNever {
		fewest = 0
	}
	list := k.eachLayer(kvHeadsName, c.Layers, c.Heads, fewest, maxHeads)
	most := slices.Max(list)
	if most == 0 {
		k.bad(kvHeadsName, "no layer has key-value heads")
		most = 1
	}
	for l, n := range list {
		list[l] = cmp.Or(n, most)
	}
	return list
}

// setShapes sets the largest sizes of all layers. It clears Shapes if all layers have these.
func setShapes(c *Config) {
	for _, s := range c.Shapes {
		c.KVHeads, c.HeadDim, c.ValueDim = max(c.KVHeads, s.KVHeads), max(c.HeadDim, s.HeadDim), max(c.ValueDim, s.ValueDim)
	}
	for _, s := range c.Shapes {
		if s != c.Shapes[0] {
			return
		}
	}
	c.HeadDim, c.ValueDim = c.Shapes[0].HeadDim, c.Shapes[0].ValueDim // all layers may have windows
	c.Shapes = nil
}

// readSharedKV reads which layers use the keys and values of others.
func readSharedKV(k *keys, c *Config, a architecture) {
	const shared = "attention.shared_kv_layers"
	if !a.sharedKV {
		return
	}
	absent := 0
	if a.ownKVLayers > 0 {
		absent = max(0, c.Layers-a.ownKVLayers)
	}
	c.SharedKVLayers = k.count(shared, absent, 0, c.Layers-1)
	for l := c.Layers - c.SharedKVLayers; l < c.Layers; l++ {
		from := c.CacheLayer(l)
		if from < 0 {
			k.bad(shared, "%d, but no layer before them has keys and values for layer %d", c.SharedKVLayers, l)
			return
		}
		if have, want := c.LayerShape(from).KVHeads, c.LayerShape(l).KVHeads; have != want {
			k.bad(kvHeadsName, "layer %d has %d, and uses the keys of layer %d with %d", l, want, from, have)
		}
	}
}

// readStreams reads the form of AltUp and LAuReL. Engines compute the streams of the table, of which the first is active.
func readStreams(k *keys, c *Config, a architecture) {
	if a.streams > 0 {
		const streams, active = "altup.num_inputs", "altup.active_idx"
		if n := k.count(streams, a.streams, 0, maxHidden); n != a.streams {
			k.unsupported(streams, "%d streams, want %d", n, a.streams)
		}
		if n := k.count(active, 0, 0, maxHidden); n != 0 {
			k.unsupported(active, "stream %d, want 0", n)
		}
	}
	c.Streams, c.LaurelRank = a.streams, a.laurelRank
}

// readSparsity reads the activation sparsity of each layer. Published files have −Inf in layers without it.
func readSparsity(k *keys, c *Config, a architecture) {
	const scale = "activation_sparsity_scale"
	if a.sparsity == 0 {
		return
	}
	list := make([]float64, c.Layers)
	for l := range min(a.sparseLayers, c.Layers) {
		list[l] = a.sparsity
	}
	if v, ok := k.value(k.name(scale)); ok {
		if v.IsArray() && v.Len() != c.Layers { // checked before memory is allocated for them
			k.bad(scale, "%d values for %d layers", v.Len(), c.Layers)
			return
		}
		each, _ := read(k, k.name(scale), gguf.Value.Floats)
		for l, x := range each {
			switch {
			case math.IsInf(x, -1):
				x = 0
			case !(x >= 0) || math.IsInf(x, 1):
				k.bad(scale, "layer %d has %v, want at least 0", l, x)
			}
			list[l] = x
		}
	}
	if slices.Max(list) > 0 {
		c.Sparsity = list
	}
}

func readFFN(k *keys, c *Config, a architecture) {
	const width = "feed_forward_length"
	c.Experts = k.count("expert_count", 0, 0, maxExperts)
	switch {
	case a.experts == expertsNever && c.Experts > 0:
		k.unsupported("expert_count", "%d experts in this architecture", c.Experts)
	case a.experts == expertsAlways && c.Experts == 0:
		k.need("expert_count", 1, maxExperts)
	}
	widths := k.eachLayer(width, c.Layers, 0, 0, maxFFN)
	c.FFN = slices.Max(widths)
	if c.Experts > 0 {
		readExperts(k, c, a)
	}
	for l, n := range widths {
		c.Shapes[l].FFN = n
		switch {
		case n > 0 || c.isMixture(l) && a.shared != sharedDense:
		case c.FFN == 0:
			k.need(width, 1, maxFFN)
		default:
			k.bad(width, "layer %d has 0", l)
		}
	}
	readSparsity(k, c, a)
}

// readExperts reads the form of mixtures of experts.
func readExperts(k *keys, c *Config, a architecture) {
	c.ExpertsUsed = k.need("expert_used_count", 1, c.Experts)
	c.ExpertFFN = k.count("expert_feed_forward_length", c.FFN, 1, maxFFN)
	if c.ExpertFFN == 0 {
		k.need("expert_feed_forward_length", 1, maxFFN)
	}
	if a.denseLayers {
		c.DenseLayers = k.count("leading_dense_block_count", 0, 0, c.Layers)
	}
	if a.interleaved {
		c.MixtureStep = k.need("interleave_moe_layer_step", 1, c.Layers)
	}
	c.ExpertNorm, c.ExpertScale = a.router == routerNormalized, 1
	if a.router == routerPlain || a.router == routerSigmoid {
		c.ExpertNorm = k.flag("expert_weights_norm", false)
	}
	switch a.router {
	case routerSigmoid:
		const softmax, sigmoid = 1, 2 // llama.cpp's numbers; 0: the default
		c.RouterSigmoid = k.count("expert_gating_func", sigmoid, 0, sigmoid) != softmax
		c.ExpertScale = k.scale("expert_weights_scale")
	case routerSigmoidInput:
		c.RouterSigmoid, c.ExpertInputs = true, true
	}
	switch a.shared {
	case sharedOptional:
		c.SharedFFN = k.count("expert_shared_feed_forward_length", 0, 0, maxFFN)
	case sharedGated:
		c.SharedFFN = k.need("expert_shared_feed_forward_length", 1, maxFFN)
	case sharedOne:
		c.SharedFFN = c.ExpertFFN
	case sharedDense:
		c.SharedFFN = c.FFN
	case sharedCounted:
		const count = "expert_shared_count"
		n := k.need(count, 0, maxExperts)
		if c.SharedFFN = n * c.ExpertFFN; c.SharedFFN > maxFFN {
			k.bad(count, "%d times the width %d of an expert is more than %d", n, c.ExpertFFN, maxFFN)
		}
	}
}

func readRope(k *keys, c *Config, a architecture) {
	if a.rope == ropeNone || a.optionalRope && !k.flag("rope.scaling.finetuned", true) {
		return
	}
	r := &c.Rope
	r.Scale, r.Magnitude = 1, 1
	c.RopeInterleaved = a.rope == ropeInterleaved
	r.Dim = readRopeDim(k, "rope.dimension_count", c.HeadDim)
	r.Theta = k.positive("rope.freq_base", cmp.Or(a.theta, 1e4))
	if a.localTheta > 0 || a.unscaledWindows {
		c.LocalRope = *r
	}
	if a.localTheta > 0 {
		c.LocalRope.Theta = k.positive("rope.freq_base_swa", a.localTheta)
	}
	if a.localHeads && c.Window > 0 {
		c.LocalRope.NoFactors = true
		c.LocalRope.Dim = readRopeDim(k, "rope.dimension_count_swa", k.need(localHeadName, 1, maxHeadDim))
	}
	readRopeScaling(k, c, a)
	if a.unitQKNorm(c) && r.Magnitude != 1 { // see loader.unitNorm
		k.unsupported("rope.scaling.type", "RoPE multiplies queries and keys by %v before their norm", r.Magnitude)
	}
	if a.ropeSections {
		checkSections(k, r.Dim/2)
	}
	for l := range c.Layers {
		if a.unrotated == unrotatedFourth && l%4 == 3 || a.unrotated == unrotatedGlobal && c.Window > 0 && c.LayerWindow(l) == 0 {
			c.Unrotated = append(c.Unrotated, make([]bool, l+1-len(c.Unrotated))...)
			c.Unrotated[l] = true
		}
	}
}

// readRopeDim reads the number of rotated elements of a head; all, if the file does not say.
func readRopeDim(k *keys, key string, headDim int) int {
	dim := k.count(key, headDim, 1, maxHeadDim)
	switch {
	case dim%2 != 0:
		k.bad(key, "%d is odd, and elements are rotated in pairs", dim)
	case dim > headDim:
		k.bad(key, "%d is more than the head size %d", dim, headDim)
	}
	return dim
}

// checkSections checks the sections of M-RoPE, numbers of pairs that turn by the same of a token's positions. The
// positions of a token of a text are equal, so that they do not matter if the sections cover all pairs.
func checkSections(k *keys, pairs int) {
	const sections = "rope.dimension_sections"
	if !k.has(sections) {
		k.missing(sections)
		return
	}
	list, ok := read(k, k.name(sections), gguf.Value.Ints)
	total := int64(0)
	for _, n := range list {
		if n < 0 || n > maxHeadDim {
			k.bad(sections, "%d pairs", n)
			return
		}
		total += n
	}
	switch {
	case !ok:
	case len(list) != 3 && len(list) != 4: // the fourth is 0 in published models
		k.bad(sections, "%d sections, want 3 or 4", len(list))
	case total != int64(pairs):
		k.unsupported(sections, "sections of %d pairs, want all %d", total, pairs)
	}
}

// readDeltaNet reads which layers are Gated DeltaNets, and their shape.
func readDeltaNet(k *keys, c *Config, a architecture) {
	const (
		interval, listed  = "full_attention_interval", "attention.recurrent_layers"
		inner, valueHeads = "ssm.inner_size", "ssm.time_step_rank"
	)
	if a.deltaNet == deltaNetNever {
		return
	}
	recurrent, every := make([]bool, c.Layers), k.count(interval, 4, 1, maxLayers)
	for l := range recurrent {
		recurrent[l] = (l+1)%every != 0
	}
	if v, ok := k.value(k.name(listed)); ok {
		if v.IsArray() && v.Len() != c.Layers { // checked before memory is allocated for them
			k.bad(listed, "%d values for %d layers", v.Len(), c.Layers)
			return
		}
		recurrent, _ = read(k, k.name(listed), bools)
	}
	c.Recurrent = recurrent
	s := &c.DeltaNet
	*s = DeltaNetShape{
		KeyHeads: k.need("ssm.group_count", 1, maxHeads), ValueHeads: k.need(valueHeads, 1, maxHeads),
		Dim: k.need("ssm.state_size", 1, maxHeadDim), Taps: k.need("ssm.conv_kernel", 2, maxTaps), Tiled: a.deltaNet == deltaNetTiled,
	}
	if s.ValueHeads%s.KeyHeads != 0 {
		k.bad(valueHeads, "%d value heads are no multiple of %d key heads", s.ValueHeads, s.KeyHeads)
	}
	if n := k.need(inner, 1, maxFFN); n != s.Values() {
		k.bad(inner, "%d, want %d heads of the state size %d", n, s.ValueHeads, s.Dim)
	}
}

// globalScalingContext: see architecture.globalScaling.
const globalScalingContext = 1 << 17

// readRopeScaling reads how RoPE is adapted to contexts beyond the original one.
func readRopeScaling(k *keys, c *Config, a architecture) {
	const kind, factor, original = "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length"
	r := &c.Rope
	scale := 1.0
	if a.globalScaling > 0 && c.Context >= globalScalingContext && k.fromOllama() {
		scale = a.globalScaling
	}
	if key := factor; k.has(key) {
		scale = k.notNegative(key, 1)
	} else if key := "rope.scale_linear"; k.has(key) {
		scale = k.notNegative(key, 1)
	}
	if scale == 0 { // converters write 0 for models without scaling
		scale = 1
	}
	switch t := cmp.Or(k.text(kind), a.scaling); t {
	case "", "linear":
		r.Scale = 1 / scale
	case "none":
	case "longrope":
		if scale != 1 {
			k.unsupported(factor, "%v together with longrope", scale)
		}
	case "yarn":
		readYaRN(k, c, scale)
	default:
		k.unsupported(kind, "%.80q, want linear, longrope, yarn or none", t)
	}
	const attn = "rope.scaling.attn_factor"
	if x := k.scaleOrZero(attn, 1); x == 0 {
		k.bad(attn, "0, want more than 0")
	} else {
		r.Magnitude *= x
	}
	c.LongContext = k.count(original, c.Context, 1, maxContext)
}

// readYaRN reads the parameters of YaRN with a factor, as llama.cpp applies them. Its magnitude is
// (1 + 0.1·ln factor)/(1 + 0.1·L·ln factor) with L for yarn_log_multiplier.
func readYaRN(k *keys, c *Config, factor float64) {
	const base, external = "rope.freq_base", "rope.scaling.yarn_ext_factor"
	r := &c.Rope
	r.YaRN = YaRN{
		Factor:   factor,
		Context:  k.count("rope.scaling.original_context_length", c.Context, 1, maxContext),
		BetaFast: k.positive("rope.scaling.yarn_beta_fast", 32),
		BetaSlow: k.positive("rope.scaling.yarn_beta_slow", 1),
	}
	if r.Theta <= 1 {
		k.bad(base, "%v, want more than 1 with YaRN", r.Theta)
	}
	if x := k.float(external, 1); x != 1 && x != -1 { // -1 means that the model does not say
		k.unsupported(external, "%v, want 1", x)
	}
	log := portable.Log(factor)
	r.Magnitude = (1 + float64(0.1*log)) / (1 + float64(0.1*k.notNegative("rope.scaling.yarn_log_multiplier", 0)*log))
	if !(r.Magnitude > 0) || math.IsInf(r.Magnitude, 0) {
		k.bad("rope.scaling.factor", "%v with YaRN multiplies queries and keys by %v", factor, r.Magnitude)
	}
}

// readWindow reads which layers attend within a window. The pattern is a bool per layer, or a number n of at least 2: every
// n-th layer is global. In the table, 1 means that none is; a file cannot say that.
func readWindow(k *keys, c *Config, a architecture) {
	const window, pattern = "attention.sliding_window", "attention.sliding_window_pattern"
	if a.windowPattern == 0 || a.windowLayers > 0 && c.Layers != a.windowLayers {
		return
	}
	if a.needsWindow && !k.has(window) {
		k.missing(window)
	}
	if c.Window = k.count(window, a.window, 0, maxContext); c.Window == 0 && a.localHeads { // the sizes of layers depend on it
		k.need(window, 1, maxContext)
	}
	if c.WindowChunks = a.windowChunks && c.Window > 0; c.WindowChunks {
		c.Window = a.window
	}
	windowed := make([]bool, c.Layers)
	if v, ok := k.value(k.name(pattern)); ok && v.IsArray() {
		if v.Len() != c.Layers { // checked before memory is allocated for them
			k.bad(pattern, "%d values for %d layers", v.Len(), c.Layers)
			return
		}
		windowed, _ = read(k, k.name(pattern), bools)
	} else {
		every := k.count(pattern, a.windowPattern, 2, maxLayers)
		for l := range windowed {
			windowed[l] = every == 1 || (l+1)%every != 0
		}
	}
	if c.Window > 0 {
		c.Windowed = windowed
	}
}

// readScales reads the factors of embedding, residuals, queries and logits.
func readScales(k *keys, c *Config, a architecture) {
	c.EmbedScale, c.OutputScale = 1, 1
	if a.scaleEmbedding {
		c.EmbedScale = float32(math.Sqrt(float64(c.Hidden)))
	}
	if a.scaleKeys {
		// The residual stream is x = e·embedding + r·(sum of all branches). Engines hold x/r, so that they need not
		// multiply each branch. A norm reads x/r as it reads x if its ε is divided by r².
		const residual = "residual_scale"
		r := float64(k.scale(residual))
		c.EmbedScale = float32(float64(k.scale("embedding_scale")) / r)
		c.NormEps = float32(float64(c.NormEps) / (r * r))
		for _, v := range []float32{c.EmbedScale, c.NormEps} {
			if !(v > 0) || math.IsInf(float64(v), 0) {
				k.bad(residual, "%v is too small or too large", r)
			}
		}
	}
	switch a.outputScale {
	case outputScaleMultiply:
		c.OutputScale = k.scale("logit_scale")
	case outputScaleDivide:
		c.OutputScale = 1 / k.scale("logit_scale")
	}
	c.QueryScale = a.unrotatedScale
	if a.queryScale {
		c.QueryScale.Scale = k.scaleOrZero("attention.temperature_scale", 0)
	}
	if a.queryScale && c.QueryScale.Scale > 0 {
		c.QueryScale.Block = k.need("rope.scaling.original_context_length", 1, maxContext)
	}
}

func readAttention(k *keys, c *Config, a architecture) {
	dim := float64(c.HeadDim)
	if c.Layers == a.headScaleLayers {
		dim = float64(c.Hidden / c.Heads)
	}
	if c.AttnScale = k.scaleOrZero("attention.scale", 0); c.AttnScale == 0 {
		c.AttnScale = cmp.Or(a.attnScale, 1/math.Sqrt(dim))
	}
	c.AttnSoftcap = k.scaleOrZero("attn_logit_softcapping", a.attnSoftcap)
	c.OutputSoftcap = k.scaleOrZero("final_logit_softcapping", a.outputSoftcap)
}

// checkAngles refuses a model whose last position is rotated by a larger angle than
// portable.SinCos accepts.
func checkAngles(m *Model) error {
	c, w := m.Config, m.Weights
	k := &keys{f: m.File, prefix: c.Arch}
	if w.LongRopeFactors != nil {
		short := ropeDivisors{k, "rope_factors_short.weight", w.RopeFactors, min(c.Context, c.LongContext)}
		long := ropeDivisors{k, "rope_factors_long.weight", w.LongRopeFactors, c.Context}
		return cmp.Or(short.check(c), long.check(c))
	}
	return ropeDivisors{k, "rope_freqs.weight", w.RopeFactors, c.Context}.check(c)
}

// ropeDivisors is a tensor of divisors of the RoPE frequencies (nil: all 1), and the
// number of positions that use it.
type ropeDivisors struct {
	keys      *keys // of the file
	tensor    string
	divisors  []float32
	positions int
}

func (d ropeDivisors) check(c Config) error {
	err := d.checkBase(c, "rope.freq_base", c.Rope)
	if err == nil {
		err = d.checkBase(c, "rope.freq_base_swa", c.LocalRope)
	}
	return err
}

// checkBase checks the angles of a RoPE; base is the key of its Theta. The error names the key or tensor that makes an
// angle too large.
func (d ropeDivisors) checkBase(c Config, base string, r Rope) error {
	freq := r.frequencies(d.divisors)
	plain := Rope{Dim: r.Dim, Theta: r.Theta, Scale: 1}.frequencies(nil)
	for i, undivided := range r.frequencies(nil) {
		undivided *= float64(d.positions - 1)
		angle := float64(d.positions-1) * freq[i]
		if angle <= portable.MaxAngle {
			continue
		}
		key := "context_length"
		switch {
		case plain[i] > 1:
			key = base
		case r.Scale > 1 || r.YaRN.Factor > 0:
			key = "rope.scaling.factor"
		}
		culprit := fmt.Sprintf("key %q", d.keys.name(key))
		if undivided <= portable.MaxAngle { // it is the divisor
			culprit = fmt.Sprintf("tensor %q", d.tensor)
		}
		return fmt.Errorf("%s: %w: position %d is rotated by %.3g radians, at most %.3g are possible",
			culprit, errBadKey, d.positions-1, angle, portable.MaxAngle)
	}
	return nil
}
