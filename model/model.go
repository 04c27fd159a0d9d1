// Package model describes what an engine computes: the configuration and the quantized
// weights of a transformer, loaded from a GGUF file, and the interface that engines
// implement.
package model

import (
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
	"github.com/lockstep-go/lockstep/quant"
)

// Model is a loaded and checked GGUF file. It is read-only and safe for concurrent use.
type Model struct {
	Config    Config
	Weights   Weights
	Tokenizer *tokenizer.Tokenizer // nil: see NeedTokenizer
	File      *gguf.File           // close it through Model.Close
	Warnings  []string             // why the model may be worse than the one that the file was made from

	noTokenizer error // why Tokenizer is nil although the file has a vocabulary

	mu    sync.Mutex
	users int // calls of Acquire without release
}

// Matrix is a row-major weight matrix [Rows, Cols]. Each row is a whole number of blocks
// of Format. A matrix that the model does not have has 0 rows.
type Matrix struct {
	Name   string // of the tensor
	Format quant.Format
	Rows   int
	Cols   int
	Data   []byte // may lie in a mapped file: read it inside gguf.Guard
}

// Norm is a normalization of runs of Width elements, such as the residual stream at a position, or one head of it.
// Weight (the gain) and Bias (nil: none) are [Width], or [runs·Width] if each run, such as a head, has its own. Weight
// is nil if the model has no such norm.
type Norm struct {
	Weight []float32
	Bias   []float32
	Width  int
}

// Linear is y = W·x + b with W [out, in] and b [out] or nil.
type Linear struct {
	W    Matrix
	Bias []float32
}

// Weights holds every tensor of a model. Tensors that a file fuses (QKV of GPT-2 and Phi,
// gate and up of Phi-3) are split into views of their rows.
type Weights struct {
	Embedding   Matrix    // [vocab, hidden]
	Position    Matrix    // [context, hidden]: learned positions (GPT-2)
	RopeFactors []float32 // [rope dim/2]: divisors of the RoPE frequencies; nil: all 1
	// LongRopeFactors replaces RopeFactors in sequences with a capacity above Config.LongContext (Phi-3).
	LongRopeFactors []float32
	// The input of each layer for a token: see Layer.InputGate. Absent if Config.LayerInput is 0.
	InputEmbedding  Matrix // [vocab, layers·layer input]; Gemma 3n may have fewer rows: as in transformers, a token without one has row 0
	InputProjection Matrix // [layers·layer input, hidden], of the embedding
	InputNorm       Norm   // of the input of a layer, after InputProjection
	Layers          []Layer
	// The residual streams of AltUp. Stream 0 begins as the scaled embedding, and stream j as StreamIn[j−1]·x of it. At the
	// end the final norm reads (stream 0 + Σ_j StreamOut[j−1]·(stream j))/streams. Each product is scaled to the length of
	// stream 0. Empty without AltUp.
	StreamIn, StreamOut []Matrix // [hidden, hidden]
	OutputNorm          Norm
	Output              Linear // [vocab, hidden]: lm_head; the embedding if tied
}

// Layer is one transformer block.
type Layer struct {
	AttnNorm Norm   // absent if a model has only norms after attention and FFN (OLMo 2)
	Q        Linear // [heads·head dim, hidden]
	// K and V are absent, as is KNorm, in a layer that uses the keys and values of another: see Config.CacheLayer.
	K            Linear    // [kv heads·head dim, hidden]
	V            Linear    // [kv heads·value dim, hidden]
	O            Linear    // [hidden, heads·value dim]
	AttnGate     Linear    // [heads·value dim, hidden]: the sigmoid of its product multiplies the input of O (Qwen3.5); absent: 1
	QNorm, KNorm Norm      // before RoPE: of each head (Qwen3), or of all heads together (OLMo 2)
	VNorm        Norm      // of each head (Gemma 4)
	Sinks        []float32 // [heads]: one more logit of each head's softmax, without a value vector (gpt-oss); nil: none
	AttnPostNorm Norm      // after O, before the residual (Gemma 2, OLMo 2)
	DeltaNet     *DeltaNet // replaces all from Q to AttnPostNorm; nil in layers with attention

	FFNNorm Norm // absent if Config.ParallelFFN, or as AttnNorm
	// Gate, Up and Down are the dense network or, in a mixture of experts, the shared expert,
	// which may be absent.
	Gate        Linear // [ffn, hidden]; absent unless Config.Gated
	Up          Linear // [ffn, hidden]
	Down        Linear // [hidden, ffn]
	FFNPostNorm Norm   // after Down, before the residual (Gemma 2, OLMo 2)

	// Experts are chosen by their probability plus RouterBias. The probability alone is the weight
	// of an expert's output.
	Router       Linear    // [experts, hidden]; absent in a dense layer
	RouterBias   []float32 // [experts]; nil: none
	Experts      []Expert  // nil in a dense layer
	ExpertScales []float32 // [experts]: multiply the experts' outputs; nil: all 1
	SharedGate   Matrix    // [1, hidden]; its product's sigmoid multiplies the shared expert's output; absent: 1
	// Norms of a mixture whose parts have their own (Gemma 4). The router and the experts read the residual stream
	// through RouterNorm and ExpertNorm, and the shared expert through FFNNorm; without them, all through FFNNorm.
	RouterNorm, ExpertNorm         Norm
	SharedPostNorm, ExpertPostNorm Norm // of the outputs of the shared expert and the experts, before their sum

	// InputGate and InputProjection add InputPostNorm(InputProjection·(act(InputGate·x) ⊙ input)) to the residual
	// stream x after the feed-forward network. input is the layer's part of
	//
	//	(InputNorm(InputProjection·e/√hidden) + √(layer input)·InputEmbedding[token])/√2
	//
	// with the weights of the model, where e is the scaled embedding of the token. Absent if Config.LayerInput is 0.
	InputGate       Matrix // [layer input, hidden]
	InputProjection Matrix // [hidden, layer input]
	InputPostNorm   Norm

	// AltUp (arXiv 2301.13310): a layer computes stream 0 and predicts the others. With the coefficients
	// m(x) = tanh(StreamRouter·StreamNorm(x)), the layer begins with
	//
	//	P[j] = X[j] + Σ_i (Predict·m(X[0]))[j·streams+i] · X[i]
	//
	// It computes y from P[0], and ends with
	//
	//	X[j] = P[j] + (1 + (Correct·m(y))[j]) · (y − P[0])
	//
	// The input of the layer reads CorrectScale ⊙ X[0], and is added to all streams but X[0]. Absent without AltUp.
	StreamNorm       Norm      // includes the factor 1/hidden
	StreamRouter     Matrix    // [streams, hidden]
	Predict, Correct []float32 // [streams·streams, streams] and [streams, streams]
	CorrectScale     []float32 // [hidden]

	// LAuReL (arXiv 2411.07501): the residual stream after attention is
	//
	//	(x + h + LaurelPostNorm(LaurelOut·LaurelIn·h) + AttnPostNorm(O·…))/√2
	//
	// with h = AttnNorm(x). Absent if Config.LaurelRank is 0.
	LaurelIn       Matrix // [rank, hidden]
	LaurelOut      Matrix // [hidden, rank]
	LaurelPostNorm Norm

	OutputScale float32 // multiplies the residual stream at the end of the layer; 1, unless the layer ends with a norm
}

// Linears returns the projections that a layer has, without those of its experts.
func (l *Layer) Linears() []Linear {
	list := []Linear{l.Q, l.K, l.V, l.AttnGate, l.O, l.Gate, l.Up, l.Down, l.Router, {W: l.SharedGate}, {W: l.InputGate}, {W: l.InputProjection},
		{W: l.StreamRouter}, {W: l.LaurelIn}, {W: l.LaurelOut},
	}
	if d := l.DeltaNet; d != nil {
		list = append(list, d.Q, d.K, d.V, d.Z, d.Beta, d.Alpha, d.Out)
	}
	return slices.DeleteFunc(list, func(y Linear) bool { return y.W.Rows == 0 })
}

// DeltaNet is a Gated DeltaNet (arXiv 2412.06464) as in Qwen3-Next. For each value head with the key head that belongs
// to it, S is a matrix [Dim, Dim], 0 at first:
//
//	[q, k, v] = SiLU(conv([Q, K, V]·x))                    q and k divided by max(|·|, ε) of each head
//	decay     = e^(A · softplus(Alpha·x + DecayBias)),  β = σ(Beta·x)
//	S         ← decay·S
//	S         ← S + k·(β·(v − Sᵀk))ᵀ
//	y         = Out·(rms(Sᵀq/√Dim)·Norm ⊙ SiLU(Z·x))
//
// The convolution is causal and of each channel alone: conv(u)[c] = Σ_i Conv[c][i]·u[c] of the position Taps−1−i before.
type DeltaNet struct {
	Q, K        Linear    // [keys, hidden]
	V, Z        Linear    // [values, hidden]
	Beta, Alpha Linear    // [value heads, hidden]
	Conv        []float32 // [channels, taps]: of Q, then of K, then of V
	DecayBias   []float32 // [value heads]
	A           []float32 // [value heads]: below 0 in published models
	Norm        Norm      // of each head
	Out         Linear    // [hidden, values]
}

// Expert is one feed-forward network of a mixture of experts. Its matrices are views of
// stacked tensors.
type Expert struct {
	Gate, Up Linear // [expert ffn, hidden]
	Down     Linear // [hidden, expert ffn]
}
