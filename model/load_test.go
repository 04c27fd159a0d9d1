package model

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// base is the configuration of every tiny model before its architecture's own
// facts.
func base(arch string) Config {
	return Config{
		Arch: arch, Name: "tiny", Layers: tiny.Layers, Hidden: tiny.Hidden, Heads: tiny.Heads, KVHeads: 2,
		HeadDim: tiny.HeadDim, ValueDim: tiny.HeadDim, FFN: tiny.FFN, Vocab: tiny.Vocab, Context: tiny.Context,
		NormEps: 1e-5, RopeDim: tiny.HeadDim, RopeTheta: 1e4, RopeScale: 1, RopeAttnFactor: 1,
		EmbedScale: 1, AttnScale: 1 / math.Sqrt(tiny.HeadDim), Gated: true,
	}
}

func TestLoadArchitectures(t *testing.T) {
	sqrt32 := float32(math.Sqrt(tiny.Hidden))
	tests := map[string]func(c *Config){
		"llama": func(c *Config) { c.RopeInterleaved, c.WindowPattern = true, 1 },
		"qwen2": func(c *Config) {},
		"qwen3": func(c *Config) {},
		"qwen3moe": func(c *Config) {
			c.Experts, c.ExpertsUsed, c.ExpertFFN = tiny.Experts, tiny.Used, tiny.FFN
		},
		"gpt2": func(c *Config) {
			c.KVHeads, c.LayerNorm, c.Activation, c.Gated = tiny.Heads, true, GELU, false
			c.RopeDim, c.RopeTheta = 0, 0
		},
		"phi2": func(c *Config) {
			c.KVHeads, c.LayerNorm, c.Activation, c.Gated = tiny.Heads, true, GELU, false
			c.RopeDim, c.ParallelFFN = tiny.HeadDim/2, true
		},
		"phi3": func(c *Config) {},
		"gemma2": func(c *Config) {
			c.Activation, c.EmbedScale, c.Window, c.WindowPattern = GELU, sqrt32, 5, 2
			c.AttnSoftcap, c.OutputSoftcap = 50, 30
		},
		"gemma3": func(c *Config) {
			c.Activation, c.EmbedScale, c.Window, c.WindowPattern = GELU, sqrt32, 5, 6
			c.KVHeads, c.RopeTheta, c.LocalRopeTheta = 1, 1e6, 1e4
		},
	}
	for _, arch := range Architectures() {
		t.Run(arch, func(t *testing.T) {
			want := base(arch)
			if tests[arch] == nil {
				t.Fatal("no expectation for this architecture")
			}
			tests[arch](&want)
			m, err := Load(tiny.New(arch, 1).File())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, m.Config); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
			checkShapes(t, m)
		})
	}
}

// checkShapes holds every weight to what Weights and Layer document.
func checkShapes(t *testing.T, m *Model) {
	t.Helper()
	c, w := m.Config, m.Weights
	matrix := func(what string, x Matrix, rows, cols int) {
		t.Helper()
		size, err := x.Format.RowBytes(cols)
		if err != nil || x.Rows != rows || x.Cols != cols || len(x.Data) != rows*size {
			t.Errorf("%s is %d × %d in %d bytes, want %d × %d", what, x.Rows, x.Cols, len(x.Data), rows, cols)
		}
	}
	linear := func(what string, x Linear, rows, cols int, bias bool) {
		t.Helper()
		matrix(what, x.W, rows, cols)
		if bias && len(x.Bias) != rows || !bias && x.Bias != nil {
			t.Errorf("%s has a bias of %d, want one: %v", what, len(x.Bias), bias)
		}
	}
	norm := func(what string, x Norm, n int, there, bias bool) {
		t.Helper()
		if there && len(x.Weight) != n || !there && x.Weight != nil || bias && len(x.Bias) != n || !bias && x.Bias != nil {
			t.Errorf("%s has a weight of %d and a bias of %d", what, len(x.Weight), len(x.Bias))
		}
	}
	all := c.Arch == "gpt2" || c.Arch == "phi2"
	qk := c.Arch == "qwen3" || c.Arch == "qwen3moe" || c.Arch == "gemma3"
	gemma := c.Arch == "gemma2" || c.Arch == "gemma3"
	matrix("embedding", w.Embedding, c.Vocab, c.Hidden)
	linear("output", w.Output, c.Vocab, c.Hidden, c.Arch == "phi2")
	norm("output norm", w.OutputNorm, c.Hidden, true, c.LayerNorm)
	if len(w.Layers) != c.Layers {
		t.Fatalf("%d layers, want %d", len(w.Layers), c.Layers)
	}
	for _, l := range w.Layers {
		linear("Q", l.Q, c.Heads*c.HeadDim, c.Hidden, all || c.Arch == "qwen2")
		linear("K", l.K, c.KVHeads*c.HeadDim, c.Hidden, all || c.Arch == "qwen2")
		linear("V", l.V, c.KVHeads*c.ValueDim, c.Hidden, all || c.Arch == "qwen2")
		linear("O", l.O, c.Hidden, c.Heads*c.ValueDim, all)
		norm("attention norm", l.AttnNorm, c.Hidden, true, c.LayerNorm)
		norm("Q norm", l.QNorm, c.HeadDim, qk, false)
		norm("K norm", l.KNorm, c.HeadDim, qk, false)
		norm("post-attention norm", l.AttnPostNorm, c.Hidden, gemma, false)
		norm("FFN norm", l.FFNNorm, c.Hidden, !c.ParallelFFN, c.LayerNorm && !c.ParallelFFN)
		norm("post-FFN norm", l.FFNPostNorm, c.Hidden, gemma, false)
		if c.Experts > 0 {
			matrix("router", l.Router, c.Experts, c.Hidden)
			for _, e := range l.Experts {
				matrix("expert gate", e.Gate, c.ExpertFFN, c.Hidden)
				matrix("expert up", e.Up, c.ExpertFFN, c.Hidden)
				matrix("expert down", e.Down, c.Hidden, c.ExpertFFN)
			}
			continue
		}
		if c.Gated {
			linear("gate", l.Gate, c.FFN, c.Hidden, all)
		}
		linear("up", l.Up, c.FFN, c.Hidden, all)
		linear("down", l.Down, c.Hidden, c.FFN, all)
		if l.Router.Rows > 0 || (l.Gate.W.Rows > 0) != c.Gated {
			t.Error("a router in a dense layer, or a gate where there should be none")
		}
	}
}

func bytesOf(t *testing.T, f *gguf.File, name string) []byte {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %q", name)
	}
	return x.Data
}

func floats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// Fused tensors must be cut in the right order and place.
func TestFusedViews(t *testing.T) {
	const p = "blk.1."
	concat := func(parts ...[]byte) []byte {
		var all []byte
		for _, x := range parts {
			all = append(all, x...)
		}
		return all
	}
	equal := func(t *testing.T, what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	load := func(t *testing.T, arch string) (*gguf.File, Layer) {
		f := tiny.New(arch, 1).File()
		m, err := Load(f)
		if err != nil {
			t.Fatal(err)
		}
		return f, m.Weights.Layers[1]
	}
	t.Run("qkv", func(t *testing.T) {
		f, l := load(t, "gpt2")
		equal(t, "weights", bytesOf(t, f, p+"attn_qkv.weight"), concat(l.Q.W.Data, l.K.W.Data, l.V.W.Data))
		bias := append(append(append([]float32(nil), l.Q.Bias...), l.K.Bias...), l.V.Bias...)
		equal(t, "bias", floats(bytesOf(t, f, p+"attn_qkv.bias")), bias)
	})
	t.Run("grouped qkv", func(t *testing.T) {
		f, l := load(t, "phi3")
		equal(t, "weights", bytesOf(t, f, p+"attn_qkv.weight"), concat(l.Q.W.Data, l.K.W.Data, l.V.W.Data))
	})
	t.Run("gate and up", func(t *testing.T) {
		f, l := load(t, "phi3")
		equal(t, "weights", bytesOf(t, f, p+"ffn_up.weight"), concat(l.Gate.W.Data, l.Up.W.Data))
	})
	t.Run("experts", func(t *testing.T) {
		f, l := load(t, "qwen3moe")
		var gate, up, down []byte
		for _, e := range l.Experts {
			gate, up, down = append(gate, e.Gate.Data...), append(up, e.Up.Data...), append(down, e.Down.Data...)
		}
		equal(t, "gate", bytesOf(t, f, p+"ffn_gate_exps.weight"), gate)
		equal(t, "up", bytesOf(t, f, p+"ffn_up_exps.weight"), up)
		equal(t, "down", bytesOf(t, f, p+"ffn_down_exps.weight"), down)
	})
	t.Run("tied", func(t *testing.T) {
		m, err := Load(tiny.New("qwen2", 1).File())
		if err != nil {
			t.Fatal(err)
		}
		if &m.Weights.Output.W.Data[0] != &m.Weights.Embedding.Data[0] {
			t.Error("the output is not the embedding")
		}
	})
}

func TestNeedTokenizer(t *testing.T) {
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	m, err := Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	if tok, err := m.NeedTokenizer(); tok == nil || tok != m.Tokenizer || err != nil {
		t.Errorf("a model with a vocabulary gave %v, %v", tok, err)
	}
}
