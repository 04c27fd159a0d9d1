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
			func(m *tiny.Model) { m.Set(".attention.sliding_window", uint32(7)) }, func(c *Config) { c.Window = 7 }},
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
		{"gemma3's base", "has a default", "gemma3",
			func(m *tiny.Model) { m.Delete(".rope.freq_base") }, func(c *Config) {}},
		{"gemma3 scaled", "only in global layers", "gemma3",
			func(m *tiny.Model) {
				m.Set(".rope.scaling.type", "linear")
				m.Set(".rope.scaling.factor", float32(8))
			}, func(c *Config) { c.RopeScale = 0.125 }},
		{"factor alone", "is linear", "llama",
			func(m *tiny.Model) { m.Set(".rope.scaling.factor", float32(4)) }, func(c *Config) { c.RopeScale = 0.25 }},
		{"old factor", "an older key", "llama",
			func(m *tiny.Model) { m.Set(".rope.scale_linear", float32(2)) }, func(c *Config) { c.RopeScale = 0.5 }},
		{"factor 0", "no scaling", "llama",
			func(m *tiny.Model) { m.Set(".rope.scaling.factor", float32(0)) }, func(c *Config) {}},
		{"scaling none", "the factor does not count", "llama",
			func(m *tiny.Model) {
				m.Set(".rope.scaling.type", "none")
				m.Set(".rope.scaling.factor", float32(4))
			}, func(c *Config) {}},
		{"attention factor", "LongRoPE's", "phi3",
			func(m *tiny.Model) { m.Set(".rope.scaling.attn_factor", float32(1.25)) }, func(c *Config) { c.RopeAttnFactor = 1.25 }},
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
			}, func(c *Config) { c.Experts, c.ExpertsUsed, c.ExpertFFN = tiny.Experts, tiny.Used, tiny.FFN }},
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

func TestLayerWindowAndTheta(t *testing.T) {
	gemma3 := Config{Window: 5, WindowPattern: 6, RopeTheta: 1e6, RopeScale: 0.125, LocalRopeTheta: 1e4}
	mistral := Config{Window: 7, WindowPattern: 1, RopeTheta: 1e4, RopeScale: 1}
	gemma2 := Config{Window: 3, WindowPattern: 2, RopeTheta: 1e4, RopeScale: 1}
	tests := []struct {
		name, reason string
		c            Config
		layer        int
		window       int
		theta, scale float64
	}{
		{"gemma3 first", "local, unscaled", gemma3, 0, 5, 1e4, 1},
		{"gemma3 fifth", "local, unscaled", gemma3, 4, 5, 1e4, 1},
		{"gemma3 sixth", "global, scaled", gemma3, 5, 0, 1e6, 0.125},
		{"gemma3 seventh", "local again", gemma3, 6, 5, 1e4, 1},
		{"gemma2 first", "local", gemma2, 0, 3, 1e4, 1},
		{"gemma2 second", "global", gemma2, 1, 0, 1e4, 1},
		{"mistral", "every layer is local", mistral, 5, 7, 1e4, 1},
		{"llama", "no window", Config{WindowPattern: 1, RopeTheta: 5e5, RopeScale: 1}, 0, 0, 5e5, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			theta, scale := tt.c.LayerRopeTheta(tt.layer)
			got := fmt.Sprint(tt.c.LayerWindow(tt.layer), theta, scale)
			if want := fmt.Sprint(tt.window, tt.theta, tt.scale); got != want {
				t.Errorf("%s: window, base, scale are %s, want %s", tt.reason, got, want)
			}
		})
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
	if diff := cmp.Diff(floats(bytesOf(t, f, "rope_freqs.weight")), m.RopeFactors(0)); diff != "" {
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
		if diff := cmp.Diff(floats(bytesOf(t, f, name)), m.RopeFactors(capacity)); diff != "" {
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
			m.Weights.RopeFactors = slices.Repeat([]float32{tt.short}, c.RopeDim/2)
			m.Weights.LongRopeFactors = slices.Repeat([]float32{tt.long}, c.RopeDim/2)
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
