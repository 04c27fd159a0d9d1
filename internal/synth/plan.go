package synth

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/quant"
)

// Plan lists the tensors of a model file, in file order.
type Plan struct {
	Preset  Preset // Layers may be fewer than the published model's
	Recipe  requant.Recipe
	Tensors []Tensor

	tokenizer []pair // of SetTokenizer; nil: a byte-level vocabulary
}

// Tensor is a tensor of a plan.
type Tensor struct {
	Name   string
	Format quant.Format
	Dims   []int // Dims[0] is the row length
	Bytes  int64

	mean, std float64
	exact     []float32 // values that replace random ones
}

// MaxLayers is the limit of package model.
const MaxLayers = 512

// NewPlan lists the tensors of a preset. If layers is not 0, it replaces the number of
// layers; it may be at most MaxLayers. A matrix whose rows do not fill the blocks of the
// recipe has the format of requant.Substitute. Vectors, biases and learned positions are
// F32. The error wraps quant.ErrUnsupported if the recipe is not one of Recipes.
func NewPlan(p Preset, r requant.Recipe, layers int) (Plan, error) {
	if layers < 0 || layers > MaxLayers {
		return Plan{}, fmt.Errorf("synth: %d layers, want 1 to %d", layers, MaxLayers)
	}
	if err := checkFormats(r.Formats()...); err != nil {
		return Plan{}, fmt.Errorf("%w; choose one of %s", err, strings.Join(Recipes(), ", "))
	}
	if layers > 0 {
		p.Layers = layers
	}
	plan := Plan{Preset: p, Recipe: r}
	b := builder{plan: &plan, residualGain: 1 / math.Sqrt(float64(2*p.Layers))}
	b.matrix("token_embd", p.Hidden, p.Vocab, 1)
	if p.RopeDim == 0 {
		b.add(Tensor{Name: "position_embd.weight", Dims: []int{p.Hidden, p.Context}, std: 0.5 / math.Sqrt(float64(p.Hidden))})
	}
	if p.RopeScale != nil {
		factors := p.RopeScale.factors(p.RopeDim, float64(p.RopeTheta))
		b.add(Tensor{Name: "rope_freqs.weight", Dims: []int{len(factors)}, exact: factors})
	}
	for l := range p.Layers {
		b.prefix = fmt.Sprintf("blk.%d.", l)
		b.attention()
		b.feedForward()
	}
	b.prefix = ""
	b.norm("output_norm", p.Hidden)
	if !p.Tied {
		b.matrix("output", p.Hidden, p.Vocab, 1)
	}
	if p.OutBias {
		b.bias("output", p.Vocab)
	}
	return plan, b.err
}

// Recipes returns the names of the recipes whose formats have a generator.
func Recipes() []string {
	return slices.DeleteFunc(requant.Names(), func(name string) bool {
		r, err := requant.ParseRecipe(name)
		return err != nil || checkFormats(r.Formats()...) != nil
	})
}

// Bytes returns the size of all tensors, without padding.
func (p Plan) Bytes() int64 {
	var n int64
	for _, t := range p.Tensors {
		n += t.Bytes
	}
	return n
}

// BytesPerToken returns the bytes of weights that an engine reads per token: all tensors
// except the lookup tables.
func (p Plan) BytesPerToken() int64 {
	n := p.Bytes()
	for _, t := range p.Tensors {
		if t.Name == "position_embd.weight" || t.Name == "token_embd.weight" && !p.Preset.Tied {
			n -= t.Bytes
		}
	}
	return n
}

// builder adds tensors to a plan and keeps the first error.
type builder struct {
	plan         *Plan
	prefix       string
	residualGain float64 // of the matrices that write to the residual stream
	err          error
}

func (b *builder) add(t Tensor) {
	p := b.plan.Preset
	t.Name = b.prefix + t.Name
	f, reason := b.plan.Recipe.Choose(t.Name, t.Dims, requant.Model{Layers: p.Layers, Tied: p.Tied})
	switch {
	case reason == "":
		t.Format = f
	case isMatrix(t):
		t.Format = requant.Substitute(f)
	default:
		t.Format = quant.F32
	}
	row, err := t.Format.RowBytes(t.Dims[0])
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("synth: tensor %q: %w", t.Name, err)
	}
	t.Bytes = int64(row)
	if len(t.Dims) == 2 {
		t.Bytes *= int64(t.Dims[1])
	}
	b.plan.Tensors = append(b.plan.Tensors, t)
}

func isMatrix(t Tensor) bool { return len(t.Dims) == 2 && t.Name != "position_embd.weight" }

// matrix adds a matrix that multiplies the variance of its input by gain².
func (b *builder) matrix(name string, cols, rows int, gain float64) {
	b.add(Tensor{Name: name + ".weight", Dims: []int{cols, rows}, std: gain / math.Sqrt(float64(cols))})
}

func (b *builder) bias(name string, n int) {
	b.add(Tensor{Name: name + ".bias", Dims: []int{n}, std: 0.05})
}

// linear adds a matrix, and a bias if the model has LayerNorm.
func (b *builder) linear(name string, cols, rows int, gain float64) {
	b.matrix(name, cols, rows, gain)
	if b.plan.Preset.LayerNorm {
		b.bias(name, rows)
	}
}

func (b *builder) norm(name string, n int) {
	b.add(Tensor{Name: name + ".weight", Dims: []int{n}, mean: 1, std: 0.1})
	if b.plan.Preset.LayerNorm {
		b.bias(name, n)
	}
}

func (b *builder) attention() {
	p := b.plan.Preset
	q, kv := p.Heads*p.HeadDim, p.KVHeads*p.HeadDim
	b.norm("attn_norm", p.Hidden)
	if p.FusedQKV {
		b.linear("attn_qkv", p.Hidden, q+2*kv, 1)
	} else {
		for _, m := range []struct {
			name string
			rows int
		}{{"attn_q", q}, {"attn_k", kv}, {"attn_v", kv}} {
			b.linear(m.name, p.Hidden, m.rows, 1)
			if p.QKVBias {
				b.bias(m.name, m.rows)
			}
		}
	}
	if p.QKNorm {
		b.norm("attn_q_norm", p.HeadDim)
		b.norm("attn_k_norm", p.HeadDim)
	}
	b.linear("attn_output", q, p.Hidden, b.residualGain)
	if p.PostNorms {
		b.norm("post_attention_norm", p.Hidden)
	}
}

func (b *builder) feedForward() {
	p := b.plan.Preset
	if !p.Parallel {
		b.norm("ffn_norm", p.Hidden)
	}
	if !p.Ungated {
		b.linear("ffn_gate", p.Hidden, p.FFN, 1)
	}
	b.linear("ffn_up", p.Hidden, p.FFN, 1)
	b.linear("ffn_down", p.FFN, p.Hidden, b.residualGain)
	if p.PostNorms {
		b.norm("post_ffw_norm", p.Hidden)
	}
}

// factors returns the divisors of the dim/2 RoPE frequencies by Llama 3.1's rope scaling:
// 1 for short wavelengths, the full factor for long ones, interpolated between.
func (s llama3Scale) factors(dim int, theta float64) []float32 {
	out := make([]float32, dim/2)
	for i := range out {
		wave := 2 * math.Pi * portable.Pow(theta, float64(2*i)/float64(dim))
		turns := s.original / wave
		switch {
		case turns > s.high:
			out[i] = 1
		case turns < s.low:
			out[i] = float32(s.factor)
		default:
			smooth := (turns - s.low) / (s.high - s.low)
			out[i] = float32(1 / (float64((1-smooth)/s.factor) + smooth))
		}
	}
	return out
}
