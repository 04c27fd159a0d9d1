// Package model is what both engines compute: the configuration and the still
// quantized weights of a transformer, the Session seam that an engine
// implements, sampling, and the one generation loop.
package model

import (
	"sync"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
	"github.com/lockstep-go/lockstep/quant"
)

// Model is a loaded GGUF file: checked, mapped and not yet computed with.
// It is read-only after loading and safe for concurrent use.
type Model struct {
	Config    Config
	Weights   Weights
	Tokenizer *tokenizer.Tokenizer // nil when the file has no vocabulary that can be used; see NeedTokenizer
	File      *gguf.File

	noTokenizer error // why Tokenizer is nil although the file has a vocabulary

	mu    sync.Mutex
	users int // acquisitions that are not released
}

// RopeFactors is what divides the rotation frequencies, [rope dim/2] or nil for
// all 1, in a session that holds capacity positions.
func (m *Model) RopeFactors(capacity int) []float32 {
	if m.Config.LongRope(capacity) {
		return m.Weights.LongRopeFactors
	}
	return m.Weights.RopeFactors
}

// Matrix is a weight matrix of Rows × Cols in row-major order, each row a whole
// number of blocks of Format. Data may lie in a mapped file: read it inside
// gguf.Guard.
type Matrix struct {
	Name   string
	Format quant.Format
	Rows   int
	Cols   int
	Data   []byte
}

// Empty reports whether the model has no such matrix.
func (m Matrix) Empty() bool { return m.Rows == 0 }

// Norm is a normalization's gain and, for LayerNorm, its bias; each [hidden]
// or, for the QK norms, [head dim]. Weight is nil when the model has no such norm.
type Norm struct {
	Weight []float32
	Bias   []float32
}

// Linear is y = W·x + b: W [out, in], Bias nil or [out].
type Linear struct {
	W    Matrix
	Bias []float32
}

// Weights holds every tensor of a model. Fused tensors of the file (QKV of GPT-2
// and Phi, gate+up of Phi-3) are split into views of their rows, so an engine
// sees one shape.
type Weights struct {
	Embedding   Matrix    // [vocab, hidden]
	Position    Matrix    // [context, hidden], learned positions (GPT-2); else empty
	RopeFactors []float32 // [rope dim/2] divisors of the rotation frequencies; nil: all 1
	// LongRopeFactors replaces RopeFactors in sessions of more than Config.LongContext
	// positions (Phi-3); read both through Model.RopeFactors.
	LongRopeFactors []float32
	Layers          []Layer
	OutputNorm      Norm
	Output          Linear // [vocab, hidden]; the embedding when tied
}

// Layer is one transformer block.
type Layer struct {
	AttnNorm     Norm
	Q, K, V, O   Linear // [heads·head dim, hidden], [kv heads·head dim, hidden] twice, [hidden, heads·value dim]
	QNorm, KNorm Norm   // per head, before RoPE (Qwen3, Gemma 3)
	AttnPostNorm Norm   // after O, before the residual (Gemma)

	FFNNorm     Norm // absent in a parallel block: the FFN reads AttnNorm's output (Phi-2)
	Gate        Linear
	Up          Linear // [ffn, hidden]
	Down        Linear // [hidden, ffn]
	FFNPostNorm Norm   // after Down, before the residual (Gemma)

	Router  Matrix // [experts, hidden]; empty in a dense layer
	Experts []Expert
}

// Expert is one feed-forward network of a mixture: views of the stacked tensors.
type Expert struct {
	Gate, Up, Down Matrix // [expert ffn, hidden] twice, [hidden, expert ffn]
}
