package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/quant"
)

// TestConfigKeys covers defaults for absent keys, and keys with unusual values.
func TestConfigKeys(t *testing.T) {
	const head = tiny.HeadDim
	tests := []struct {
		name, reason string
		arch         string
		change       func(m *tiny.Model)
		want         func(c *Config)
	}{
		{"no vocab_size", "the embedding has the number", "llama",
			func(m *tiny.Model) { m.Delete(".vocab_size") }, func(c *Config) {}},
		{"no head_count_kv", "as many as heads", "gpt2",
			func(m *tiny.Model) { m.Delete(".attention.head_count_kv") }, func(c *Config) {}},
		{"no general.name", "it is optional", "llama",
			func(m *tiny.Model) { m.Delete("general.name") }, func(c *Config) { c.Name = "" }},
		{"uint64 keys", "any integer type is allowed", "llama",
			func(m *tiny.Model) { m.Set(".block_count", uint64(tiny.Layers)) }, func(c *Config) {}},
		{"per layer", "equal values for all layers", "llama",
			func(m *tiny.Model) {
				m.Set(".attention.head_count", []int32{tiny.Heads, tiny.Heads})
				m.Set(".attention.head_count_kv", []uint32{2, 2})
				m.Set(".feed_forward_length", []int32{tiny.FFN, tiny.FFN})
			}, func(c *Config) {}},
		{"mistral", "a window in all layers", "llama",
			func(m *tiny.Model) { m.Set(".attention.sliding_window", uint32(7)) }, func(c *Config) { c.Window, c.Windowed = 7, []bool{true, true} }},
		{"windows by layer", "instead of a period", "gemma2",
			func(m *tiny.Model) { m.Set(".attention.sliding_window_pattern", []bool{false, true}) }, func(c *Config) { c.Windowed = []bool{false, true} }},
		{"qwen2's window", "is not used by these models", "qwen2",
			func(m *tiny.Model) { m.Set(".attention.sliding_window", uint32(7)) }, func(c *Config) {}},
		{"phi-3's window", "is not applied", "phi3",
			func(m *tiny.Model) { m.Set(".attention.sliding_window", uint32(7)) }, func(c *Config) {}},
		{"gemma2's window", "has a default", "gemma2",
			func(m *tiny.Model) { m.Delete(".attention.sliding_window") }, func(c *Config) { c.Window = 4096 }},
		{"gemma2's caps", "the file overrides the default", "gemma2",
			func(m *tiny.Model) {
				m.Set(".attn_logit_softcapping", float32(20))
				m.Set(".final_logit_softcapping", float32(0))
			}, func(c *Config) { c.AttnSoftcap, c.OutputSoftcap = 20, 0 }},
		{"gemma3 with a long context", "only files of Ollama lack its scaling", "gemma3",
			func(m *tiny.Model) { m.Set(".context_length", uint32(1<<17)) }, func(c *Config) { c.Context = 1 << 17 }},
		{"granitemoe's scale", "as small as it may be", "granitemoe",
			func(m *tiny.Model) { m.Set(".logit_scale", float32(0x1p-64)) }, func(c *Config) { c.OutputScale = 0x1p64 }},
		{"gemma3's base", "has a default", "gemma3",
			func(m *tiny.Model) { m.Delete(".rope.freq_base") }, func(c *Config) {}},
		{"gemma3 scaled", "only in global layers", "gemma3",
			func(m *tiny.Model) {
				m.Set(".rope.scaling.type", "linear")
				m.Set(".rope.scaling.factor", float32(8))
			}, func(c *Config) { c.Rope.Scale = 0.125 }},
		{"factor alone", "is linear", "llama",
			func(m *tiny.Model) { m.Set(".rope.scaling.factor", float32(4)) }, func(c *Config) { c.Rope.Scale = 0.25 }},
		{"old factor", "an older key", "llama",
			func(m *tiny.Model) { m.Set(".rope.scale_linear", float32(2)) }, func(c *Config) { c.Rope.Scale = 0.5 }},
		{"factor 0", "no scaling", "llama",
			func(m *tiny.Model) { m.Set(".rope.scaling.factor", float32(0)) }, func(c *Config) {}},
		{"scaling none", "the factor does not count", "llama",
			func(m *tiny.Model) {
				m.Set(".rope.scaling.type", "none")
				m.Set(".rope.scaling.factor", float32(4))
			}, func(c *Config) {}},
		{"YaRN", "without a multiplier, sines grow with the factor", "qwen2",
			func(m *tiny.Model) {
				m.Set(".rope.scaling.type", "yarn")
				m.Set(".rope.scaling.factor", float32(4))
				m.Set(".rope.scaling.yarn_beta_slow", float32(2))
				m.Set(".rope.scaling.yarn_ext_factor", float32(1))
			}, func(c *Config) {
				c.Rope.YaRN = YaRN{Factor: 4, Context: tiny.Context, BetaFast: 32, BetaSlow: 2}
				c.Rope.Magnitude = 1 + 0.1*portable.Log(4)
			}},
		{"YaRN and windows", "RoPE within windows is as it was", "olmo2",
			func(m *tiny.Model) {
				m.Set(".rope.scaling.type", "yarn")
				m.Set(".rope.scaling.factor", float32(4))
				m.Set(".rope.scaling.yarn_log_multiplier", float32(1))
			}, func(c *Config) { c.Rope.YaRN = YaRN{Factor: 4, Context: tiny.Context, BetaFast: 32, BetaSlow: 1} }},
		{"no RoPE", "the file switches it off", "granite",
			func(m *tiny.Model) { m.Set(".rope.scaling.finetuned", false) }, func(c *Config) { c.Rope = Rope{}; c.RopeInterleaved = false }},
		{"scales of 0", "are not set", "granite",
			func(m *tiny.Model) {
				for _, key := range []string{".embedding_scale", ".residual_scale", ".logit_scale", ".attention.scale"} {
					m.Set(key, float32(0))
				}
			}, func(c *Config) {
				c.EmbedScale, c.NormEps, c.OutputScale, c.AttnScale = 1, 1e-5, 1, 1/math.Sqrt(tiny.HeadDim)
			}},
		{"no windows", "then all layers have RoPE", "cohere2",
			func(m *tiny.Model) { m.Set(".attention.sliding_window", uint32(0)) }, func(c *Config) { c.Window, c.Windowed, c.Unrotated = 0, nil, nil }},
		{"no chunks", "then all layers have RoPE", "llama4",
			func(m *tiny.Model) { m.Set(".attention.sliding_window", uint32(0)) },
			func(c *Config) { c.Window, c.WindowChunks, c.Windowed, c.Unrotated = 0, false, nil, nil }},
		{"a window and chunks", "chunks have one size", "llama4",
			func(m *tiny.Model) { m.Set(".attention.sliding_window", uint32(7)) }, func(c *Config) {}},
		{"a router as it is", "keys that say what is known", "llama4",
			func(m *tiny.Model) {
				m.Set(".expert_gating_func", uint32(2))
				m.Set(".expert_weights_norm", false)
			}, func(c *Config) {}},
		{"windows of the other size", "this one has none", "exaone4",
			func(m *tiny.Model) { m.Set(".attention.sliding_window", uint32(7)) }, func(c *Config) {}},
		{"sequential", "as the norm says, not the key", "stablelm",
			func(m *tiny.Model) {
				m.Set(".use_parallel_residual", true)
				for i := range tiny.Layers {
					m.Add(fmt.Sprintf("blk.%d.ffn_norm.weight", i), tiny.Hidden)
					m.Add(fmt.Sprintf("blk.%d.ffn_norm.bias", i), tiny.Hidden)
				}
			}, func(c *Config) { c.ParallelFFN = false }},
		{"attention factor", "LongRoPE's", "phi3",
			func(m *tiny.Model) { m.Set(".rope.scaling.attn_factor", float32(1.25)) }, func(c *Config) { c.Rope.Magnitude = 1.25 }},
		{"original context without factors", "there is nothing to change over to", "phi3",
			func(m *tiny.Model) { m.Set(".rope.scaling.original_context_length", uint32(16)) }, func(c *Config) {}},
		{"long factors", "change over at the original context", "phi3",
			func(m *tiny.Model) {
				m.Set(".rope.scaling.original_context_length", uint32(16))
				m.Add("rope_factors_short.weight", head/2)
				m.Add("rope_factors_long.weight", head/2)
			}, func(c *Config) { c.LongContext = 16 }},
		{"pooling of the first position", "for embeddings", "qwen3",
			func(m *tiny.Model) { m.Set(".pooling_type", uint32(2)) }, func(c *Config) { c.Pooling = PoolFirst }},
		{"pooling of the last position", "for embeddings", "qwen3",
			func(m *tiny.Model) { m.Set(".pooling_type", uint32(3)) }, func(c *Config) { c.Pooling = PoolLast }},
		{"no pooling", "the default remains", "llama",
			func(m *tiny.Model) { m.Set(".pooling_type", uint32(0)) }, func(c *Config) {}},
		{"attention scale", "instead of 1/√d", "llama",
			func(m *tiny.Model) { m.Set(".attention.scale", float32(0.5)) }, func(c *Config) { c.AttnScale = 0.5 }},
		{"mixtral", "a llama of experts, as wide as the dense network would be", "llama",
			func(m *tiny.Model) {
				m.Set(".expert_count", uint32(tiny.Experts))
				m.Set(".expert_used_count", uint32(tiny.Used))
				for i := range tiny.Layers {
					p := fmt.Sprintf("blk.%d.ffn_", i)
					for _, name := range []string{"gate", "up", "down"} {
						m.Drop(p + name + ".weight")
					}
					m.Add(p+"gate_inp.weight", tiny.Hidden, tiny.Experts)
					m.Add(p+"gate_exps.weight", tiny.Hidden, tiny.FFN, tiny.Experts)
					m.Add(p+"up_exps.weight", tiny.Hidden, tiny.FFN, tiny.Experts)
					m.Add(p+"down_exps.weight", tiny.FFN, tiny.Hidden, tiny.Experts)
				}
			}, setExperts},
		{"normalized experts", "the file says so", "qwen2moe",
			func(m *tiny.Model) { m.Set(".expert_weights_norm", true) }, func(c *Config) { c.ExpertNorm = true }},
		{"router defaults", "a sigmoid, and weights as they are", "glm4moe",
			func(m *tiny.Model) {
				for _, key := range []string{".expert_gating_func", ".expert_weights_norm", ".expert_weights_scale"} {
					m.Delete(key)
				}
			}, func(c *Config) { c.ExpertNorm, c.ExpertScale = false, 1 }},
		{"gating function 0", "the default", "glm4moe",
			func(m *tiny.Model) { m.Set(".expert_gating_func", uint32(0)) }, func(c *Config) {}},
		{"gating function 1", "softmax", "glm4moe",
			func(m *tiny.Model) { m.Set(".expert_gating_func", uint32(1)) }, func(c *Config) { c.RouterSigmoid = false }},
		{"scale 0", "some writers write 0 for a value that is not set", "glm4moe",
			func(m *tiny.Model) { m.Set(".expert_weights_scale", float32(0)) }, func(c *Config) { c.ExpertScale = 1 }},
		{"no shared expert", "a count of 0", "glm4moe",
			func(m *tiny.Model) {
				m.Set(".expert_shared_count", uint32(0))
				for _, name := range []string{"gate", "up", "down"} {
					m.Drop("blk.1.ffn_" + name + "_shexp.weight")
				}
			}, func(c *Config) { c.SharedFFN = 0 }},
		{"a block that predicts further tokens", "it is skipped, and arrays have a value for it", "glm4moe",
			func(m *tiny.Model) {
				m.Set(".nextn_predict_layers", uint32(1))
				m.Set(".block_count", uint32(tiny.Layers+1))
				m.Set(".attention.head_count_kv", []uint32{2, 2, 2})
				m.Add(fmt.Sprintf("blk.%d.nextn.eh_proj.weight", tiny.Layers), 2*tiny.Hidden, tiny.Hidden)
			}, func(c *Config) { c.MTPLayers = 1 }},
		{"recurrent layers by layer", "instead of a period, with predictors", "qwen35",
			func(m *tiny.Model) {
				m.Set(".full_attention_interval", uint32(1))
				m.Set(".block_count", uint32(tiny.Layers+1))
				m.Set(".nextn_predict_layers", uint32(1))
				m.Set(".attention.recurrent_layers", []bool{true, false, false})
				m.Add(fmt.Sprintf("blk.%d.nextn.eh_proj.weight", tiny.Layers), 2*tiny.Hidden, tiny.Hidden)
			}, func(c *Config) { c.MTPLayers = 1 }},
		{"recurrent layers by default", "every fourth layer has attention", "qwen35",
			func(m *tiny.Model) {
				m.Delete(".full_attention_interval")
				m.OneLayer()
			}, func(c *Config) { c.Layers, c.Recurrent = 1, []bool{true} }},
		{"all layers dense", "no layer has experts", "glm4moe",
			func(m *tiny.Model) {
				m.Set(".leading_dense_block_count", uint32(tiny.Layers))
				for _, name := range []string{"gate_inp", "gate_exps", "up_exps", "down_exps", "gate_shexp", "up_shexp", "down_shexp"} {
					m.Drop("blk.1.ffn_" + name + ".weight")
				}
				m.Drop("blk.1.exp_probs_b.bias")
				m.Add("blk.1.ffn_gate.weight", tiny.Hidden, tiny.FFN)
				m.Add("blk.1.ffn_up.weight", tiny.Hidden, tiny.FFN)
				m.Add("blk.1.ffn_down.weight", tiny.FFN, tiny.Hidden)
			}, func(c *Config) { c.DenseLayers = tiny.Layers }},
		{"keys that are not used", "some files have them in layers that use the keys and values of others", "gemma4",
			func(m *tiny.Model) {
				m.Add("blk.2.attn_k.weight", tiny.Hidden, 2*tiny.HeadDim)
				m.Add("blk.2.attn_v.weight", tiny.Hidden, 2*tiny.HeadDim)
				m.Add("blk.2.attn_k_norm.weight", tiny.HeadDim)
			}, func(c *Config) {}},
		{"values that are keys", "in layers with windows, too", "gemma4",
			func(m *tiny.Model) { m.Drop("blk.0.attn_v.weight") }, func(c *Config) {}},
		{"no scales", "they are optional", "gemma4",
			func(m *tiny.Model) {
				m.Drop("blk.1.layer_output_scale.weight")
				m.Drop("blk.1.ffn_down_exps.scale")
			}, func(c *Config) {}},
		{"separate gates and ups of experts", "older files", "gemma4",
			func(m *tiny.Model) {
				m.Drop("blk.1.ffn_gate_up_exps.weight")
				m.Add("blk.1.ffn_gate_exps.weight", tiny.Hidden, tiny.FFN, tiny.Experts)
				m.Add("blk.1.ffn_up_exps.weight", tiny.Hidden, tiny.FFN, tiny.Experts)
			}, func(c *Config) {}},
		{"partial local RoPE", "half of a head turns in layers with a window", "gemma4",
			func(m *tiny.Model) { m.Set(".rope.dimension_count_swa", uint32(tiny.HeadDim/2)) }, func(c *Config) { c.LocalRope.Dim = tiny.HeadDim / 2 }},
		{"vector formats", "halves are decoded", "llama",
			func(m *tiny.Model) {
				m.Reformat("blk.0.attn_norm.weight", quant.F16)
				m.Reformat("output_norm.weight", quant.BF16)
			}, func(c *Config) {}},
		{"block formats", "matrices stay as they are", "llama",
			func(m *tiny.Model) {
				m.Reformat("blk.0.attn_q.weight", quant.Q8_0)
				m.Reformat("token_embd.weight", quant.Q4_0)
			}, func(c *Config) {}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plain, err := Load(tiny.New(tt.arch, 1).File())
			if err != nil {
				t.Fatal(err)
			}
			spec := tiny.New(tt.arch, 1)
			tt.change(spec)
			m, err := Load(spec.File())
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			want := plain.Config
			tt.want(&want)
			if diff := cmp.Diff(want, m.Config); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
			checkShapes(t, m, expectations[m.Config.Arch])
		})
	}
}

// TestOptionalTensors drops what files may lack.
func TestOptionalTensors(t *testing.T) {
	for _, c := range []struct {
		arch    string
		tensors []string // of each layer
		expect  func(*expectation)
	}{
		{"glm4moe", []string{"attn_q_norm.weight", "attn_k_norm.weight"}, func(e *expectation) { e.qkNorm = false }},
	} {
		spec, e := tiny.New(c.arch, 1), expectations[c.arch]
		for i := range tiny.Layers {
			for _, name := range c.tensors {
				spec.Drop(fmt.Sprintf("blk.%d.%s", i, name))
			}
		}
		m, err := Load(spec.File())
		if err != nil {
			t.Fatalf("%s without %v: %v", c.arch, c.tensors, err)
		}
		c.expect(&e)
		checkShapes(t, m, e)
	}
}

// TestSharedExpertOfOptionalWidth loads shared experts without a gate, whose width is a key that
// files may lack.
func TestSharedExpertOfOptionalWidth(t *testing.T) {
	const arch = "qwen2moe"
	a := architecture{rope: ropeHalves, biases: biasQKV, experts: expertsAlways, shared: sharedOptional}
	e := expectations[arch]
	e.sharedGate = false
	for _, width := range []int{0, tiny.SharedFFN} {
		spec := tiny.New(arch, 1)
		for i := range tiny.Layers {
			spec.Drop(fmt.Sprintf("blk.%d.ffn_gate_inp_shexp.weight", i))
		}
		if width == 0 {
			spec.Delete(".expert_shared_feed_forward_length")
			for i := range tiny.Layers {
				for _, name := range []string{"gate", "up", "down"} {
					spec.Drop(fmt.Sprintf("blk.%d.ffn_%s_shexp.weight", i, name))
				}
			}
		}
		f := spec.File()
		c, err := readConfig(f, arch, a)
		if err != nil || c.SharedFFN != width || !c.ExpertNorm {
			t.Fatalf("width %d: config %+v, error %v", width, c, err)
		}
		w, err := loadWeights(f, a, &c)
		if err != nil {
			t.Fatalf("width %d: %v", width, err)
		}
		checkShapes(t, &Model{Config: c, Weights: w}, e)
	}
}

// TestAttentionScaleByDepth covers the two models whose attention scale is not 1/√(head
// dim).
func TestAttentionScaleByDepth(t *testing.T) {
	for arch, depth := range map[string]int{"gemma2": 46, "gemma3": 62} {
		spec := tiny.New(arch, 1)
		spec.Set(".attention.key_length", uint32(16))
		for _, layers := range []int{depth - 1, depth} {
			spec.Set(".block_count", uint32(layers))
			c, err := readConfig(spec.File(), arch, architectures[arch])
			if err != nil {
				t.Fatal(err)
			}
			want := 1 / math.Sqrt(16)
			if layers == depth {
				want = 1 / math.Sqrt(tiny.Hidden/tiny.Heads)
			}
			if c.AttnScale != want {
				t.Errorf("%s of %d layers scales attention by %v, want %v", arch, layers, c.AttnScale, want)
			}
		}
	}
}

// TestFewerLayerInputs loads a file of Gemma 3n in which the last tokens have no inputs of layers.
func TestFewerLayerInputs(t *testing.T) {
	const rows = tiny.Vocab - 3
	cols, spec := layerInputs("gemma3n"), tiny.New("gemma3n", 1)
	spec.Reshape("per_layer_token_embd.weight", cols, rows)
	m, err := Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	if w := m.Weights.InputEmbedding; w.Rows != rows || w.Cols != cols {
		t.Errorf("the embedding for layers is %d×%d, want %d×%d", w.Rows, w.Cols, rows, cols)
	}
}

// TestGemma3nWithoutKeys covers what files of Gemma 3n may leave to the architecture.
func TestGemma3nWithoutKeys(t *testing.T) {
	const arch, layers = "gemma3n", 30
	spec := tiny.New(arch, 1)
	spec.Set(".block_count", uint32(layers))
	for _, key := range []string{
		".attention.sliding_window_pattern", ".attention.shared_kv_layers", ".embedding_length_per_layer_input", sparsityKey, ".altup.num_inputs", ".altup.active_idx",
	} {
		spec.Delete(key)
	}
	c, err := readConfig(spec.File(), arch, architectures[arch])
	if err != nil {
		t.Fatal(err)
	}
	if c.SharedKVLayers != 10 || c.LayerInput != 256 || c.Streams != 4 {
		t.Errorf("%d layers share keys and values, layers have inputs of %d, and %d streams", c.SharedKVLayers, c.LayerInput, c.Streams)
	}
	for l := range layers {
		window, sparsity := 5, 0.0
		if l%5 == 4 {
			window = 0
		}
		if l < 10 {
			sparsity = float64(float32(1.6448533535003662))
		}
		if c.LayerWindow(l) != window || c.Sparsity[l] != sparsity {
			t.Errorf("layer %d has the window %d and the sparsity %v, want %d and %v", l, c.LayerWindow(l), c.Sparsity[l], window, sparsity)
		}
	}
}

// TestLayers covers what differs between layers.
func TestLayers(t *testing.T) {
	const g, w, n, l = "global", "windowed", "global without RoPE", "windowed, with a base of its own and without scaling"
	for _, tt := range []struct {
		arch   string
		layers []string
	}{
		{"llama", []string{w, w, w}},
		{"gemma2", []string{w, g, w, g}},
		{"gemma3", []string{l, l, l, l, l, g, l}},
		{"olmo2", []string{w, w, w, g, w}},
		{"cohere2", []string{w, w, w, n, w}},
		{"smollm3", []string{g, g, g, n, g, g, g, n, g}},
		{"exaone4", slices.Repeat([]string{w, w, w, n}, 16)},
		{"exaone4", slices.Repeat([]string{g}, 30)},
	} {
		spec := tiny.New(tt.arch, 1)
		spec.Set(".block_count", uint32(len(tt.layers)))
		spec.Set(".attention.sliding_window", uint32(5))
		spec.Delete(".attention.sliding_window_pattern")
		spec.Set(".rope.freq_base", float32(1e6))
		c, err := readConfig(spec.File(), tt.arch, architectures[tt.arch])
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for layer := range tt.layers {
			kind, rope := g, c.LayerRope(layer)
			switch {
			case c.LayerWindow(layer) == 5 && rope.Theta == 1e4:
				kind = l
			case c.LayerWindow(layer) == 5:
				kind = w
			case rope.Dim == 0:
				kind = n
			}
			got = append(got, kind)
		}
		if diff := cmp.Diff(tt.layers, got); diff != "" {
			t.Errorf("%s of %d layers (-want +got):\n%s", tt.arch, len(tt.layers), diff)
		}
	}
}

// TestYaRN compares with frequencies that the definition gives for a few pairs.
func TestYaRN(t *testing.T) {
	r := Rope{Dim: 128, Theta: 1e4, Scale: 1, YaRN: YaRN{Factor: 4, Context: 4096, BetaFast: 32, BetaSlow: 1}}
	got, plain := r.frequencies(nil), Rope{Dim: 128, Theta: 1e4, Scale: 1}.frequencies(nil)
	// Pairs turn 4096/(2π)·1e4^(−i/64) times: more than 32 up to pair 20.9, more than 1 up to 45.03.
	for i, want := range map[int]float64{0: 1, 20: 1, 33: 1 - 0.75*13/26, 46: 0.25, 63: 0.25} {
		if factor := got[i] / plain[i]; math.Abs(factor-want) > 1e-12 {
			t.Errorf("pair %d: the frequency is multiplied by %v, want %v", i, factor, want)
		}
	}
}

// TestQueryScale covers both ends of a block.
func TestQueryScale(t *testing.T) {
	s := QueryScale{Scale: 0.5, Block: 16}
	for position, want := range map[int]float64{0: 1, 15: 1, 16: 1 + 0.5*math.Log(2), 47: 1 + 0.5*math.Log(3), 48: 2} {
		if position == 48 {
			want = 1 + 0.5*math.Log(4)
		}
		if got := s.At(position); math.Abs(got-want) > 1e-15 {
			t.Errorf("position %d: %v, want %v", position, got, want)
		}
	}
}

func TestRopeFactors(t *testing.T) {
	spec := tiny.New("llama", 1)
	spec.Add("rope_freqs.weight", tiny.HeadDim/2)
	f := spec.File()
	m, err := Load(f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(floats(bytesOf(t, f, "rope_freqs.weight")), m.Weights.RopeFactors); diff != "" {
		t.Errorf("llama 3 (-want +got):\n%s", diff)
	}
	spec = tiny.New("phi3", 1)
	spec.Set(".rope.scaling.original_context_length", uint32(16))
	spec.Add("rope_factors_short.weight", tiny.HeadDim/2)
	spec.Add("rope_factors_long.weight", tiny.HeadDim/2)
	f = spec.File()
	if m, err = Load(f); err != nil {
		t.Fatal(err)
	}
	for capacity, name := range map[int]string{1: "rope_factors_short.weight", 16: "rope_factors_short.weight", 17: "rope_factors_long.weight"} {
		var got []float32 // the divisors
		plain := m.Config.Rope.frequencies(nil)
		for i, f := range m.RopeFrequencies(0, m.Config.LongRope(capacity)) {
			got = append(got, float32(plain[i]/f))
		}
		if diff := cmp.Diff(floats(bytesOf(t, f, name)), got); diff != "" {
			t.Errorf("phi-3 at %d positions (-want +got):\n%s", capacity, diff)
		}
	}
}

// RoPE divisors near 0 make angles beyond portable.MaxAngle.
func TestRopeDivisorsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		short, long  float32
		culprit      string
	}{
		{"ordinary", "short factors serve short sessions only", 1, 4, ""},
		{"small", "still within the bound", 1e-4, 1e-4, ""},
		{"short too small", "the short set is looked at", 1e-6, 1, "rope_factors_short.weight"},
		{"long too small", "the long set is looked at", 1, 4e-5, "rope_factors_long.weight"},
		{"short as small", "its positions are fewer", 4e-5, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := baseConfig("phi3")
			c.Context, c.LongContext = 97, 17
			m := &Model{Config: c}
			m.Weights.RopeFactors = slices.Repeat([]float32{tt.short}, c.Rope.Dim/2)
			m.Weights.LongRopeFactors = slices.Repeat([]float32{tt.long}, c.Rope.Dim/2)
			err := checkAngles(m)
			if (err == nil) != (tt.culprit == "") || err != nil && (!errors.Is(err, errBadKey) || !strings.Contains(err.Error(), tt.culprit)) {
				t.Errorf("%s: %v, want an error of %q", tt.reason, err, tt.culprit)
			}
		})
	}
}

// An unknown block format is quant.ErrUnsupported, whichever package refuses it.
func TestUnsupportedFormat(t *testing.T) {
	spec := tiny.New("llama", 1)
	data := spec.Bytes()
	x, _ := spec.File().Tensor("output_norm.weight")
	at := bytes.Index(data, []byte("output_norm.weight")) + len("output_norm.weight") + 4 + 8*len(x.Dims)
	binary.LittleEndian.PutUint32(data[at:], 16) // IQ2_XXS
	path := filepath.Join(t.TempDir(), "iq2.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if !errors.Is(err, quant.ErrUnsupported) || !strings.Contains(err.Error(), "output_norm.weight") {
		t.Errorf("an IQ2_XXS tensor gave %v", err)
	}
}
