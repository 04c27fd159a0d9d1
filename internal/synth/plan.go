package synth

import (
	"cmp"
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
	experts   bool      // the last dimension counts experts
	half      bool      // BF16 if the recipe does not apply; else F32
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
	if n := p.LayerInput; n > 0 {
		b.matrix("per_layer_token_embd", p.Layers*n, p.Vocab, 1)
		b.matrix("per_layer_model_proj", p.Hidden, p.Layers*n, 1)
		b.norm("per_layer_proj_norm", n)
	}
	if p.AltUp {
		for _, name := range []string{"altup_proj", "altup_unembd_proj"} {
			b.add(Tensor{Name: name + ".weight", Dims: []int{p.Hidden, p.Hidden, altUpStreams - 1}, std: 1 / math.Sqrt(float64(p.Hidden)), half: true})
		}
	}
	if p.RopeDim == 0 {
		b.add(Tensor{Name: "position_embd.weight", Dims: []int{p.Hidden, p.Context}, std: 0.5 / math.Sqrt(float64(p.Hidden))})
	}
	if p.RopeFactors != nil {
		factors := p.RopeFactors(p.RopeDim, float64(p.RopeTheta))
		b.add(Tensor{Name: "rope_freqs.weight", Dims: []int{len(factors)}, exact: factors})
	}
	for l := range p.Layers {
		b.prefix = fmt.Sprintf("blk.%d.", l)
		b.norm("attn_norm", p.Hidden)
		if p.isDeltaNet(l) {
			b.deltaNet()
		} else {
			b.attention(l)
		}
		b.feedForward()
		if p.LayerInput > 0 {
			b.matrix("inp_gate", p.Hidden, p.LayerInput, 1)
			b.matrix("proj", p.LayerInput, p.Hidden, 1)
			b.norm("post_norm", p.Hidden)
		}
		if p.AltUp {
			b.altUp()
		}
		if p.LayerScale {
			b.around("layer_output_scale.weight", 1, 1)
		}
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
// except the lookup tables and the experts that the token does not use.
func (p Plan) BytesPerToken() int64 {
	n := p.Bytes()
	for _, t := range p.Tensors {
		switch {
		case t.Name == "position_embd.weight" || t.Name == "per_layer_token_embd.weight" || t.Name == "token_embd.weight" && !p.Preset.Tied:
			n -= t.Bytes
		case t.experts:
			n -= t.Bytes / int64(p.Preset.Experts) * int64(p.Preset.Experts-p.Preset.ExpertsUsed)
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
	f, reason := b.plan.Recipe.Choose(t.Name, t.Dims, requant.Model{Layers: p.Layers, Tied: p.Tied, Experts: p.Experts > 0})
	if reason != "" { // without a format that does not fit, the substitute is F32
		if f = requant.Substitute(f); t.half {
			f = quant.BF16
		}
	}
	t.Format = f
	row, err := t.Format.RowBytes(t.Dims[0])
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("synth: tensor %q: %w", t.Name, err)
	}
	t.Bytes = int64(row)
	for _, n := range t.Dims[1:] {
		t.Bytes *= int64(n)
	}
	b.plan.Tensors = append(b.plan.Tensors, t)
}

// matrix adds a matrix that multiplies the variance of its input by gain².
func (b *builder) matrix(name string, cols, rows int, gain float64) {
	b.add(Tensor{Name: name + ".weight", Dims: []int{cols, rows}, std: gain / math.Sqrt(float64(cols))})
}

func (b *builder) bias(name string, n int) {
	b.add(Tensor{Name: name + ".bias", Dims: []int{n}, std: 0.05})
}

// linear adds a matrix, and a bias if the model has biases.
func (b *builder) linear(name string, cols, rows int, gain float64) {
	b.matrix(name, cols, rows, gain)
	if b.plan.Preset.Biases {
		b.bias(name, rows)
	}
}

// stack adds the matrices of all experts as one tensor, and their biases if the model has biases.
func (b *builder) stack(name string, cols, rows int, gain float64) {
	p := b.plan.Preset
	b.add(Tensor{Name: name + ".weight", Dims: []int{cols, rows, p.Experts}, std: gain / math.Sqrt(float64(cols)), experts: true})
	if p.Biases {
		b.add(Tensor{Name: name + ".bias", Dims: []int{rows, p.Experts}, std: 0.05, experts: true})
	}
}

// around adds a vector of n factors near mean.
func (b *builder) around(name string, n int, mean float64) {
	b.add(Tensor{Name: name, Dims: []int{n}, mean: mean, std: 0.1 * mean})
}

func (b *builder) norm(name string, n int) {
	b.around(name+".weight", n, 1)
	if b.plan.Preset.LayerNorm {
		b.bias(name, n)
	}
}

func (b *builder) attention(layer int) {
	p := b.plan.Preset
	kvHeads, headDim, values := p.KVHeads, p.HeadDim, p.Local == nil
	if p.isLocal(layer) {
		kvHeads, headDim, values = p.Local.KVHeads, p.Local.HeadDim, true
	}
	q, kv := p.Heads*headDim, kvHeads*headDim
	if p.FusedQKV {
		b.linear("attn_qkv", p.Hidden, q+2*kv, 1)
	} else {
		if p.AttnGate {
			b.project("attn_q", 2*q)
		} else {
			b.project("attn_q", q)
		}
		b.project("attn_k", kv)
		if values {
			b.project("attn_v", kv)
		}
	}
	if p.QKNorm {
		scale := 1.0
		if p.UnitScale {
			scale = 1 / math.Sqrt(float64(headDim))
		}
		b.around("attn_q_norm.weight", headDim, 1)
		b.around("attn_k_norm.weight", headDim, scale)
	}
	if p.Sinks {
		b.add(Tensor{Name: "attn_sinks.weight", Dims: []int{p.Heads}, std: 1})
	}
	b.linear("attn_output", q, p.Hidden, b.residualGain)
	if p.PostNorms {
		b.norm("post_attention_norm", p.Hidden)
	}
}

// deltaNet adds a Gated DeltaNet. The values of ssm_a are negative, so that states decay.
func (b *builder) deltaNet() {
	hidden, d := b.plan.Preset.Hidden, b.plan.Preset.DeltaNet
	keys, values := d.KeyHeads*d.Dim, d.ValueHeads*d.Dim
	b.linear("attn_qkv", hidden, 2*keys+values, 1)
	b.linear("attn_gate", hidden, values, 1)
	b.matrix("ssm_conv1d", d.Taps, 2*keys+values, 1)
	b.bias("ssm_dt", d.ValueHeads)
	b.around("ssm_a", d.ValueHeads, -1)
	b.linear("ssm_beta", hidden, d.ValueHeads, 1)
	b.linear("ssm_alpha", hidden, d.ValueHeads, 1)
	b.norm("ssm_norm", d.Dim)
	b.linear("ssm_out", values, hidden, b.residualGain)
}

// Sizes that files of Gemma 3n do not state.
const altUpStreams, laurelRank = 4, 64

// altUp adds what AltUp and LAuReL have in a layer. A layer corrects the streams more than it predicts.
func (b *builder) altUp() {
	const n = altUpStreams
	hidden := b.plan.Preset.Hidden
	b.norm("altup_router_norm", hidden)
	b.matrix("altup_router", hidden, n, math.Sqrt(float64(hidden))) // its input is divided by hidden
	b.matrix("altup_predict_coef", n, n*n, 0.1)
	b.matrix("altup_correct_coef", n, n, 1)
	b.around("altup_correct_scale.weight", hidden, 1)
	b.add(Tensor{Name: "laurel_l.weight", Dims: []int{hidden, laurelRank}, std: 1 / math.Sqrt(float64(hidden)), half: true})
	b.add(Tensor{Name: "laurel_r.weight", Dims: []int{laurelRank, hidden}, std: 1 / math.Sqrt(float64(laurelRank)), half: true})
	b.norm("laurel_post_norm", hidden)
}

// project adds the matrix of Q, K or V.
func (b *builder) project(name string, rows int) {
	b.linear(name, b.plan.Preset.Hidden, rows, 1)
	if b.plan.Preset.QKVBias {
		b.bias(name, rows)
	}
}

func (b *builder) feedForward() {
	p := b.plan.Preset
	if !p.Parallel {
		b.norm(cmp.Or(p.FFNNormName, "ffn_norm"), p.Hidden)
	}
	if p.Experts > 0 {
		b.mixture()
	}
	if p.Experts == 0 || p.ExpertsBeside {
		if !p.Ungated {
			b.linear("ffn_gate", p.Hidden, p.FFN, 1)
		}
		b.linear("ffn_up", p.Hidden, p.FFN, 1)
		b.linear("ffn_down", p.FFN, p.Hidden, b.residualGain)
	}
	if p.PostNorms {
		b.norm("post_ffw_norm", p.Hidden)
	}
}

// mixture adds a router and its experts, and a shared expert with its gate. A router beside a dense FFN divides its input by √Hidden.
func (b *builder) mixture() {
	p := b.plan.Preset
	if p.ExpertsBeside {
		b.linear("ffn_gate_inp", p.Hidden, p.Experts, math.Sqrt(float64(p.Hidden)))
		b.around("ffn_gate_inp.scale", p.Hidden, 1)
		b.stack("ffn_gate_up_exps", p.Hidden, 2*p.ExpertFFN, 1)
		b.around("ffn_down_exps.scale", p.Experts, 1)
		b.norm("pre_ffw_norm_2", p.Hidden)
		b.norm("post_ffw_norm_1", p.Hidden)
		b.norm("post_ffw_norm_2", p.Hidden)
	} else {
		b.linear("ffn_gate_inp", p.Hidden, p.Experts, 1)
		b.stack("ffn_gate_exps", p.Hidden, p.ExpertFFN, 1)
		b.stack("ffn_up_exps", p.Hidden, p.ExpertFFN, 1)
	}
	b.stack("ffn_down_exps", p.ExpertFFN, p.Hidden, b.residualGain)
	if p.SharedFFN > 0 {
		b.linear("ffn_gate_shexp", p.Hidden, p.SharedFFN, 1)
		b.linear("ffn_up_shexp", p.Hidden, p.SharedFFN, 1)
		b.linear("ffn_down_shexp", p.SharedFFN, p.Hidden, b.residualGain)
		b.add(Tensor{Name: "ffn_gate_inp_shexp.weight", Dims: []int{p.Hidden}, std: 1 / math.Sqrt(float64(p.Hidden))})
	}
}

// firstQuarter returns divisors of the dim/2 RoPE frequencies that leave all but the first quarter of the pairs
// unrotated.
func firstQuarter(dim int, _ float64) []float32 {
	out := slices.Repeat([]float32{1e30}, dim/2)
	for i := range dim / 8 {
		out[i] = 1
	}
	return out
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
