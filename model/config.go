package model

import "github.com/lockstep-go/lockstep/internal/portable"

// Activation is the nonlinearity of the feed-forward networks.
type Activation int

const (
	SiLU Activation = iota // x·σ(x)
	GELU                   // the tanh approximation
	// ClampedSwiGLU multiplies x·σ(1.702·x), x = min(gate, 7), by 1 + up, with up limited to ±7 (gpt-oss).
	ClampedSwiGLU
)

// Pooling makes one embedding of the states of all positions.
type Pooling int

const (
	PoolMean  Pooling = iota // the mean over all positions
	PoolFirst                // the state of the first position (CLS)
	PoolLast                 // the state of the last position
)

// Config is a model's architecture as numbers. Engines use these fields and never the
// architecture's name.
type Config struct {
	Arch string // general.architecture
	Name string // general.name, may be empty

	Layers int
	// MTPLayers is the number of blocks that follow the layers in the file and predict further
	// tokens. They are not loaded.
	MTPLayers int
	Hidden    int // width of the residual stream
	Heads     int // query heads
	KVHeads   int
	HeadDim   int // of queries and keys
	ValueDim  int // of values
	FFN       int // width of the dense feed-forward networks
	// Shapes holds the sizes of each layer if layers differ. The fields above are then the largest of all layers.
	Shapes []LayerShape
	// SharedKVLayers is the number of last layers that have no keys and values of their own: see CacheLayer.
	SharedKVLayers int
	Vocab          int
	Context        int // trained context length: the largest capacity of a sequence
	LayerInput     int // width of the per-layer input of each token (the per-layer embeddings of Gemma 4); 0: none
	Streams        int // residual streams of AltUp (Gemma 3n), see Layer.StreamRouter; 0: one, without AltUp
	LaurelRank     int // rank of LAuReL (Gemma 3n), see Layer.LaurelIn; 0: none

	LayerNorm bool    // LayerNorm; else RMSNorm
	NormEps   float32 // ε of every norm

	Rope            Rope
	LocalRope       Rope   // of sliding-window layers, if they have another one (Gemma 3); else Dim is 0
	RopeInterleaved bool   // pairs are (2i, 2i+1) (ggml: NORM); else (i, i+Dim/2) (ggml: NEOX)
	Unrotated       []bool // by layer: layers without RoPE, such as every fourth one of SmolLM3; nil: none
	// LongContext is the largest capacity of a sequence that uses Weights.RopeFactors;
	// larger sequences use LongRopeFactors. 0: RopeFactors always.
	LongContext int

	Window   int    // sliding window in positions, the current one included; 0: none
	Windowed []bool // by layer: layers that attend within Window, the others attend globally; nil if Window is 0
	// WindowChunks cuts the positions into chunks of Window: a position sees those of its own chunk up to itself
	// (Llama 4). Window is a power of two then. Else the window slides.
	WindowChunks bool

	// If Recurrent[l], layer l is a Gated DeltaNet instead of attention. Sequences then have a state beside their
	// keys and values. nil: none.
	Recurrent []bool
	DeltaNet  DeltaNetShape

	EmbedScale    float32    // multiplies the embedding; 1: none
	QueryScale    QueryScale // see LayerQueryScale
	AttnScale     float64    // multiplies q·k
	AttnSoftcap   float64    // limits scores: cap·tanh(s/cap); 0: none
	OutputScale   float32    // multiplies logits (Granite, Command R); 1: none
	OutputSoftcap float64    // limits logits: cap·tanh(logit/cap); 0: none
	ParallelFFN   bool       // attention and FFN read the same norm (Phi-2)
	Activation    Activation
	Gated         bool // FFN is down(act(gate·x) ⊙ (up·x)); else down(act(up·x))
	// Sparsity is the activation sparsity of each layer (Gemma 3n): before act, an element g of gate·x becomes
	// max(g − mean − Sparsity·deviation, 0), with the mean and the standard deviation (of n−1) of gate·x. 0: g stays; nil: in
	// all layers.
	Sparsity []float64

	Pooling Pooling // of embeddings

	// Mixtures of experts. See Layer.Router.
	Experts       int     // experts per mixture; 0: all layers are dense
	ExpertsUsed   int     // experts per token
	ExpertFFN     int     // width of an expert
	SharedFFN     int     // width of the shared expert, which every token uses; 0: none
	DenseLayers   int     // the first layers, which are dense
	MixtureStep   int     // only every MixtureStep-th layer is a mixture, the others are dense; 0: all are mixtures
	RouterSigmoid bool    // the probability of an expert is the sigmoid of its logit; else softmax of all logits
	ExpertNorm    bool    // the weights of the chosen experts are divided by their sum
	ExpertScale   float32 // multiplies the weights of the chosen experts; 1: none
	ExpertInputs  bool    // the weight of a chosen expert multiplies its input; else its output
}

// QueryScale multiplies the queries at position p by 1 + Scale·ln(⌊(p+Offset)/Block⌋ + 1) after RoPE, so that
// attention stays sharp in long contexts (Ministral 3, Llama 4). Scale 0: it does not.
type QueryScale struct {
	Scale     float64
	Block     int  // positions
	Offset    int  // positions
	Unrotated bool // only in layers without RoPE
}

// At returns the factor at a position. It has the same bits on every machine.
func (s QueryScale) At(position int) float64 {
	if s.Scale == 0 {
		return 1
	}
	return 1 + float64(s.Scale*portable.Log(float64((position+s.Offset)/s.Block+1)))
}

// LayerShape holds the sizes in which layers may differ.
type LayerShape struct {
	KVHeads  int
	HeadDim  int // of queries and keys
	ValueDim int // of values
	FFN      int // width of the dense feed-forward network
}

// LayerShape returns the sizes of layer l.
func (c Config) LayerShape(l int) LayerShape {
	if c.Shapes != nil {
		return c.Shapes[l]
	}
	return LayerShape{c.KVHeads, c.HeadDim, c.ValueDim, c.FFN}
}

// CacheLayer returns the layer whose keys and values layer l attends to. The last SharedKVLayers layers use those of the
// last layer before them that has a window as they do, or none as they do; the others use their own. It returns -1 if
// there is no such layer, which Load refuses.
func (c Config) CacheLayer(l int) int {
	own := c.Layers - c.SharedKVLayers
	if l < own {
		return l
	}
	for own--; own >= 0 && c.LayerWindow(own) != c.LayerWindow(l); own-- {
	}
	return own
}

// CacheWidth returns the number of elements of keys and values that all layers together have per position.
func (c Config) CacheWidth() int {
	n := 0
	for l := range c.Layers - c.SharedKVLayers {
		if c.IsRecurrent(l) {
			continue
		}
		s := c.LayerShape(l)
		n += s.KVHeads * (s.HeadDim + s.ValueDim)
	}
	return n
}

// DeltaNetShape is the shape of all Gated DeltaNets of a model. See DeltaNet.
type DeltaNetShape struct {
	KeyHeads   int
	ValueHeads int // a multiple of KeyHeads
	Dim        int // of queries, keys and values
	Taps       int // positions of the convolution, the current one included
	// Tiled: value head h reads key head h % KeyHeads. Else it reads h / (ValueHeads/KeyHeads).
	Tiled bool
}

// Keys is the width of all queries and of all keys.
func (s DeltaNetShape) Keys() int { return s.KeyHeads * s.Dim }

// Values is the width of all values.
func (s DeltaNetShape) Values() int { return s.ValueHeads * s.Dim }

// Channels is the width of the convolution: queries, keys and values.
func (s DeltaNetShape) Channels() int { return 2*s.Keys() + s.Values() }

// IsRecurrent reports whether layer l is a Gated DeltaNet. Other layers have attention.
func (c *Config) IsRecurrent(l int) bool { return l < len(c.Recurrent) && c.Recurrent[l] }

// isMixture reports whether layer l is a mixture of experts.
func (c *Config) isMixture(l int) bool {
	return c.Experts > 0 && l >= c.DenseLayers && (l+1)%max(c.MixtureStep, 1) == 0
}

// LayerQueryScale returns the factors of the queries of layer l.
func (c Config) LayerQueryScale(l int) QueryScale {
	if c.QueryScale.Unrotated && c.LayerRope(l).Dim > 0 {
		return QueryScale{}
	}
	return c.QueryScale
}

// FirstVisible returns the first position that a query at a position sees in layer l.
func (c Config) FirstVisible(l, position int) int {
	window := c.LayerWindow(l)
	switch {
	case window == 0:
		return 0
	case c.WindowChunks:
		return position / window * window
	}
	return max(0, position-window+1)
}

// LayerWindow returns the window of layer l in positions, 0 for global attention.
func (c Config) LayerWindow(l int) int {
	if l < len(c.Windowed) && c.Windowed[l] {
		return c.Window
	}
	return 0
}

// LongRope reports whether a sequence of capacity positions uses LongRopeFactors. Sequences
// that differ in this compute different functions.
func (c Config) LongRope(capacity int) bool {
	return c.LongContext > 0 && capacity > c.LongContext
}
