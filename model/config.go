package model

// Activation is the nonlinearity of the feed-forward networks.
type Activation int

const (
	SiLU Activation = iota // x·σ(x)
	GELU                   // the tanh approximation
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

	Layers   int
	Hidden   int // width of the residual stream
	Heads    int // query heads
	KVHeads  int
	HeadDim  int // of queries and keys
	ValueDim int // of values
	FFN      int // width of the dense feed-forward networks
	Vocab    int
	Context  int // trained context length: the largest capacity of a sequence

	LayerNorm bool    // LayerNorm with bias; else RMSNorm
	NormEps   float32 // ε of every norm

	RopeDim         int     // rotated elements per head, even, ≤ HeadDim; 0: no RoPE
	RopeInterleaved bool    // pairs are (2i, 2i+1) (ggml: NORM); else (i, i+RopeDim/2) (ggml: NEOX)
	RopeTheta       float64 // base of the frequencies
	RopeScale       float64 // multiplies positions (linear scaling); 1: none
	RopeAttnFactor  float64 // multiplies sine and cosine (LongRoPE); 1: none
	// LongContext is the largest capacity of a sequence that uses Weights.RopeFactors;
	// larger sequences use LongRopeFactors. 0: RopeFactors always.
	LongContext int
	// LocalRopeTheta is the base, without scaling, in sliding-window layers (Gemma 3).
	// 0: RopeTheta.
	LocalRopeTheta float64

	Window        int // sliding window in positions, the current one included; 0: none
	WindowPattern int // every n-th layer attends globally, the others within Window; 1: all within Window

	EmbedScale    float32 // multiplies the embedding; 1: none
	AttnScale     float64 // multiplies q·k
	AttnSoftcap   float64 // limits scores: cap·tanh(s/cap); 0: none
	OutputSoftcap float64 // limits logits: cap·tanh(logit/cap); 0: none
	ParallelFFN   bool    // attention and FFN read the same norm (Phi-2)
	Activation    Activation
	Gated         bool // FFN is down(act(gate·x) ⊙ (up·x)); else down(act(up·x))

	Pooling Pooling // of embeddings

	Experts     int // experts per layer; 0: dense
	ExpertsUsed int // experts per token
	ExpertFFN   int // width of an expert
}

// LayerWindow returns the sliding window of layer l in positions, 0 for global attention.
func (c Config) LayerWindow(l int) int {
	if c.Window > 0 && (c.WindowPattern <= 1 || (l+1)%c.WindowPattern != 0) {
		return c.Window
	}
	return 0
}

// LayerRopeTheta returns the RoPE base of layer l and the factor on its positions.
func (c Config) LayerRopeTheta(l int) (theta, scale float64) {
	if c.LocalRopeTheta > 0 && c.LayerWindow(l) > 0 {
		return c.LocalRopeTheta, 1
	}
	return c.RopeTheta, c.RopeScale
}

// LongRope reports whether a sequence of capacity positions uses LongRopeFactors. Sequences
// that differ in this compute different functions.
func (c Config) LongRope(capacity int) bool {
	return c.LongContext > 0 && capacity > c.LongContext
}
