package model

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
)

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

// TestFusedViews checks the order and the borders of the parts of fused tensors.
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
			gate, up, down = append(gate, e.Gate.W.Data...), append(up, e.Up.W.Data...), append(down, e.Down.W.Data...)
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
