package model

// readRope reads how positions are rotated. Keys: rope.dimension_count,
// rope.freq_base, rope.freq_base_swa and rope.scaling.*.
func readRope(k *keys, c *Config, fam family) {
	c.Rope = fam.rope
	c.RopeScale, c.RopeAttnFactor = 1, 1
	if c.Rope == RopeNone {
		return
	}
	const dim = "rope.dimension_count"
	c.RopeDim = k.count(dim, c.HeadDim, 1, maxHeadDim)
	switch {
	case c.RopeDim%2 != 0:
		k.bad(dim, "%d is odd, and elements are rotated in pairs", c.RopeDim)
	case c.RopeDim > c.HeadDim:
		k.bad(dim, "%d is more than the head size %d", c.RopeDim, c.HeadDim)
	}
	c.RopeTheta = k.positive("rope.freq_base", fam.theta)
	if fam.localTheta > 0 {
		c.LocalRopeTheta = k.positive("rope.freq_base_swa", fam.localTheta)
	}
	readRopeScaling(k, c)
}

// readRopeScaling reads what stretches a model beyond the context that it was
// first trained for.
func readRopeScaling(k *keys, c *Config) {
	const kind, factor = "rope.scaling.type", "rope.scaling.factor"
	stretch := 1.0
	if key := factor; k.has(key) {
		stretch = k.notNegative(key, 1)
	} else if key := "rope.scale_linear"; k.has(key) {
		stretch = k.notNegative(key, 1)
	}
	if stretch == 0 { // written by converters for models without scaling
		stretch = 1
	}
	switch t := k.text(kind); t {
	case "", "linear":
		c.RopeScale = 1 / stretch
	case "none":
	case "longrope":
		if stretch != 1 {
			k.unsupported(factor, "%v together with longrope", stretch)
		}
	default:
		k.unsupported(kind, "%.80q: positions can be scaled by linear, longrope or none", t)
	}
	c.RopeAttnFactor = k.positive("rope.scaling.attn_factor", 1)
	c.LongContext = k.count("rope.scaling.original_context_length", c.Context, 1, maxContext)
}
