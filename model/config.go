package model

// Activation is the feed-forward non-linearity.
type Activation int

const (
	SiLU Activation = iota // x·σ(x)
	GELU                   // the tanh approximation
)

// RopeStyle says which elements of a head are rotated together.
type RopeStyle int

const (
	RopeNone RopeStyle = iota // learned positions
	RopeNorm                  // neighbors (2i, 2i+1)
	RopeNeoX                  // halves (i, i+dim/2)
)

// Config is a model's architecture as numbers: engines branch on these fields and
// never on the architecture's name.
type Config struct {
	Arch string // general.architecture
	Name string // general.name, may be empty

	Layers   int
	Hidden   int
	Heads    int
	KVHeads  int
	HeadDim  int // of queries and keys
	ValueDim int // of values, per head
	FFN      int // dense feed-forward width
	Vocab    int
	Context  int // trained context length: the limit of a session

	LayerNorm bool // LayerNorm with bias; else RMSNorm
	NormEps   float32

	Rope           RopeStyle
	RopeDim        int     // rotated elements of a head, even, ≤ HeadDim
	RopeTheta      float64 // base of the frequencies
	RopeScale      float64 // positions are multiplied by it (linear scaling); 1: none
	RopeAttnFactor float64 // multiplies sine and cosine (LongRoPE); 1: none
	// LongContext is where LongRoPE changes over: a session with a larger capacity divides its
	// frequencies by Weights.LongRopeFactors; 0: RopeFactors always.
	LongContext int
	// LocalRopeTheta is the base in sliding-window layers, unscaled (Gemma 3); 0: RopeTheta everywhere.
	LocalRopeTheta float64

	Window        int // sliding window in positions, the current one included; 0: none
	WindowPattern int // of each n layers the last attends globally, the others by Window; 1: all by Window

	EmbedScale    float32 // multiplies the embedding; 1: none
	AttnScale     float64 // multiplies q·k
	AttnSoftcap   float64 // s → cap·tanh(s/cap); 0: none
	OutputSoftcap float64
	ParallelFFN   bool // attention and FFN read the same norm and are added together (Phi-2)
	Activation    Activation
	Gated         bool // down(act(gate·x) ⊙ (up·x)); else down(act(up·x))

	Experts     int // 0: dense
	ExpertsUsed int
	ExpertFFN   int
}

// LayerWindow is the sliding window of layer l in positions, 0 for global attention.
func (c Config) LayerWindow(l int) int {
	if c.Window > 0 && (c.WindowPattern <= 1 || (l+1)%c.WindowPattern != 0) {
		return c.Window
	}
	return 0
}

// LayerRopeTheta is the base of layer l's rotation frequencies and the factor on
// its positions.
func (c Config) LayerRopeTheta(l int) (theta, scale float64) {
	if c.LocalRopeTheta > 0 && c.LayerWindow(l) > 0 {
		return c.LocalRopeTheta, 1
	}
	return c.RopeTheta, c.RopeScale
}

// LongRope reports whether a session that holds capacity positions rotates by
// LongRopeFactors. Sessions that differ in this compute different functions.
func (c Config) LongRope(capacity int) bool {
	return c.LongContext > 0 && capacity > c.LongContext
}
