package model

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
)

// expectation is what loading a tiny model of an architecture must give.
type expectation struct {
	config     func(c *Config) // changes Llama-like defaults; nil: nothing
	qkvBias    bool
	allBias    bool // of every projection
	outputBias bool
	qkNorm     bool
	qkNormAll  bool // its weights are those of all heads
	unitNorm   bool // layers with RoPE have norms of queries and keys that the file does not have
	noPreNorm  bool
	postNorm   bool
	noNormBias bool
	sinks      bool
	attnGate   bool
	routerBias bool
	sharedGate bool
	valueNorm  bool
	branches   bool // experts beside the dense network
	altUp      bool // AltUp and LAuReL
}

// sqrtHidden is the embedding scale of the tiny models that have one.
var sqrtHidden = float32(math.Sqrt(tiny.Hidden))

var expectations = map[string]expectation{
	"llama": {config: func(c *Config) { c.RopeInterleaved = true }},
	"qwen2": {qkvBias: true},
	"qwen3": {qkNorm: true},
	"qwen2moe": {qkvBias: true, sharedGate: true, config: func(c *Config) {
		setExperts(c)
		c.SharedFFN, c.ExpertNorm = tiny.SharedFFN, false
	}},
	"qwen3moe": {qkNorm: true, config: setExperts},
	"glm4moe": {qkvBias: true, qkNorm: true, routerBias: true, config: func(c *Config) {
		setExperts(c)
		c.Rope.Dim, c.SharedFFN, c.DenseLayers = tiny.HeadDim/2, tiny.SharedFFN, 1
		c.RouterSigmoid, c.ExpertScale = true, 1.5
	}},
	"gpt2": {allBias: true, config: func(c *Config) {
		c.KVHeads, c.LayerNorm, c.Activation, c.Gated = tiny.Heads, true, GELU, false
		c.Rope = Rope{}
	}},
	"starcoder2": {allBias: true, config: func(c *Config) {
		c.LayerNorm, c.Activation, c.Gated = true, GELU, false
	}},
	"phi2": {allBias: true, outputBias: true, config: func(c *Config) {
		c.KVHeads, c.LayerNorm, c.Activation, c.Gated = tiny.Heads, true, GELU, false
		c.Rope.Dim, c.ParallelFFN = tiny.HeadDim/2, true
	}},
	"phi3": {},
	"gemma2": {postNorm: true, config: func(c *Config) {
		c.Activation, c.EmbedScale, c.Window, c.Windowed = GELU, sqrtHidden, 5, []bool{true, false}
		c.AttnSoftcap, c.OutputSoftcap = 50, 30
	}},
	"gemma3": {qkNorm: true, postNorm: true, config: func(c *Config) {
		c.Activation, c.EmbedScale, c.Window, c.Windowed = GELU, sqrtHidden, 5, []bool{true, true}
		c.KVHeads, c.LocalRope, c.Rope.Theta = 1, c.Rope, 1e6
	}},
	"gemma": {config: func(c *Config) { c.Activation, c.EmbedScale = GELU, sqrtHidden }},
	"gemma4": {qkNorm: true, postNorm: true, valueNorm: true, branches: true, config: func(c *Config) {
		setExperts(c)
		c.Activation, c.EmbedScale, c.AttnScale, c.OutputSoftcap = GELU, sqrtHidden, 1, 30
		c.Layers, c.SharedKVLayers, c.LayerInput = tiny.Gemma4Layers, 2, tiny.LayerInput
		c.Window, c.Windowed, c.LocalRope = 5, []bool{true, false, true, false}, c.Rope
		c.LocalRope.NoFactors = true
		c.HeadDim, c.ValueDim, c.SharedFFN = 2*tiny.HeadDim, 2*tiny.HeadDim, tiny.FFN
		c.Rope.Dim, c.Rope.Theta = 2*tiny.HeadDim, 1e6
		for l := range c.Layers {
			s := tiny.Gemma4Sizes(l)
			c.Shapes = append(c.Shapes, LayerShape{s.KVHeads, s.HeadDim, s.HeadDim, s.FFN})
		}
	}},
	"gemma3n": {qkNorm: true, postNorm: true, valueNorm: true, altUp: true, config: func(c *Config) {
		c.Activation, c.EmbedScale, c.AttnScale, c.OutputSoftcap = GELU, sqrtHidden, 1, 30
		c.Layers, c.SharedKVLayers, c.LayerInput = tiny.Gemma3nLayers, 2, tiny.LayerInput
		c.Window, c.Windowed, c.LocalRope, c.Rope.Theta = 5, []bool{true, false, true, false}, c.Rope, 1e6
		c.Streams, c.LaurelRank, c.Sparsity = tiny.Streams, tiny.LaurelRank, []float64{1.25, 0, 0.5, 0}
	}},
	"seed_oss": {qkvBias: true},
	"glm4":     {qkvBias: true, postNorm: true, config: func(c *Config) { c.RopeInterleaved = true }},
	"smollm3":  {config: func(c *Config) { c.RopeInterleaved = true }},
	"mistral3": {config: func(c *Config) {
		c.RopeInterleaved, c.QueryScale = true, QueryScale{Scale: 0.5, Block: 16}
		c.Rope.YaRN = YaRN{Factor: 4, Context: 16, BetaFast: 32, BetaSlow: 1}
	}},
	"granite": {config: func(c *Config) {
		c.RopeInterleaved, c.EmbedScale, c.NormEps, c.AttnScale, c.OutputScale = true, 6, 4e-5, 0.25, 0.25
	}},
	"granitemoe": {config: func(c *Config) {
		setExperts(c)
		c.RopeInterleaved, c.EmbedScale, c.NormEps, c.OutputScale, c.SharedFFN = true, 6, 4e-5, 0.25, tiny.SharedFFN
	}},
	"gpt-oss": {allBias: true, sinks: true, config: func(c *Config) {
		setExperts(c)
		c.Activation, c.Window, c.Windowed = ClampedSwiGLU, 5, []bool{true, false}
	}},
	"olmo2": {noPreNorm: true, postNorm: true, qkNorm: true, qkNormAll: true, config: func(c *Config) {
		c.Window, c.Windowed, c.LocalRope = 5, []bool{true, false}, c.Rope
	}},
	"exaone4": {noPreNorm: true, postNorm: true, qkNorm: true},
	"cohere2": {noNormBias: true, config: func(c *Config) {
		c.RopeInterleaved, c.LayerNorm, c.ParallelFFN, c.OutputScale = true, true, true, 0.25
		c.Window, c.Windowed, c.Unrotated = 5, []bool{true, false}, []bool{false, true}
	}},
	"llama4": {unitNorm: true, config: func(c *Config) {
		setExperts(c)
		c.RopeInterleaved, c.MixtureStep, c.SharedFFN, c.ExpertNorm = true, 2, tiny.FFN, false
		c.RouterSigmoid, c.ExpertInputs = true, true
		c.Window, c.WindowChunks, c.Windowed, c.Unrotated = 8192, true, []bool{true, false}, []bool{false, true}
		c.QueryScale = QueryScale{Scale: 0.1, Block: 8192, Offset: 1, Unrotated: true}
	}},
	"qwen35": {qkNorm: true, attnGate: true, config: func(c *Config) {
		setDeltaNet(c)
		c.Rope.Dim, c.DeltaNet.Tiled = tiny.HeadDim/2, true
	}},
	"qwen35moe": {qkNorm: true, attnGate: true, sharedGate: true, config: func(c *Config) {
		setExperts(c)
		setDeltaNet(c)
		c.SharedFFN, c.DeltaNet.Tiled = tiny.SharedFFN, true
	}},
	"qwen3next": {qkNorm: true, attnGate: true, sharedGate: true, config: func(c *Config) {
		setExperts(c)
		setDeltaNet(c)
		c.SharedFFN = tiny.SharedFFN
	}},
	"stablelm": {qkNorm: true, qkNormAll: true, config: func(c *Config) { c.LayerNorm, c.ParallelFFN = true, true }},
}

// setExperts makes all layers Mixtral's mixtures.
func setExperts(c *Config) {
	c.Experts, c.ExpertsUsed, c.ExpertFFN, c.ExpertNorm, c.ExpertScale = tiny.Experts, tiny.Used, tiny.FFN, true, 1
}

// setDeltaNet makes the first layer a Gated DeltaNet.
func setDeltaNet(c *Config) {
	c.Recurrent = []bool{true, false}
	c.DeltaNet = DeltaNetShape{KeyHeads: tiny.KeyHeads, ValueHeads: tiny.ValueHeads, Dim: tiny.StateDim, Taps: tiny.Taps}
}

// baseConfig is the configuration of a tiny model before its expectation applies.
func baseConfig(arch string) Config {
	return Config{
		Arch: arch, Name: "tiny", Layers: tiny.Layers, Hidden: tiny.Hidden, Heads: tiny.Heads, KVHeads: 2,
		HeadDim: tiny.HeadDim, ValueDim: tiny.HeadDim, FFN: tiny.FFN, Vocab: tiny.Vocab, Context: tiny.Context,
		NormEps: 1e-5, Rope: Rope{Dim: tiny.HeadDim, Theta: 1e4, Scale: 1, Magnitude: 1},
		EmbedScale: 1, AttnScale: 1 / math.Sqrt(tiny.HeadDim), OutputScale: 1, Gated: true,
	}
}

func TestArchitectures(t *testing.T) {
	for _, arch := range Architectures() {
		t.Run(arch, func(t *testing.T) {
			e, ok := expectations[arch]
			if !ok {
				t.Fatal("no expectation for this architecture")
			}
			want := baseConfig(arch)
			if e.config != nil {
				e.config(&want)
			}
			m, err := Load(tiny.New(arch, 1).File())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, m.Config); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
			checkShapes(t, m, e)
		})
	}
}

// checkShapes checks the shape and presence of every weight.
func checkShapes(t *testing.T, m *Model, e expectation) {
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
	norm := func(what string, x Norm, n int, present, bias bool) {
		t.Helper()
		if present && len(x.Weight) != n || !present && x.Weight != nil || bias && len(x.Bias) != n || !bias && x.Bias != nil {
			t.Errorf("%s has a weight of %d and a bias of %d", what, len(x.Weight), len(x.Bias))
		}
	}
	matrix("embedding", w.Embedding, c.Vocab, c.Hidden)
	linear("output", w.Output, c.Vocab, c.Hidden, e.outputBias)
	bias := c.LayerNorm && !e.noNormBias
	headNorm := func(heads, dim int) int {
		if e.qkNormAll {
			return heads * dim
		}
		return dim
	}
	norm("output norm", w.OutputNorm, c.Hidden, true, bias)
	if len(w.Layers) != c.Layers {
		t.Fatalf("%d layers, want %d", len(w.Layers), c.Layers)
	}
	matrix("embedding of layers", w.InputEmbedding, c.Vocab*min(c.LayerInput, 1), c.Layers*c.LayerInput)
	matrix("projection to the inputs of layers", w.InputProjection, c.Layers*c.LayerInput, c.Hidden*min(c.LayerInput, 1))
	norm("norm of the inputs of layers", w.InputNorm, c.LayerInput, c.LayerInput > 0, false)
	streams := 0
	if e.altUp {
		streams = c.Streams
	}
	for name, list := range map[string][]Matrix{"inputs of streams": w.StreamIn, "outputs of streams": w.StreamOut} {
		if len(list) != max(streams-1, 0) {
			t.Fatalf("%d %s", len(list), name)
		}
		for _, x := range list {
			matrix(name, x, c.Hidden, c.Hidden)
		}
	}
	for i, l := range w.Layers {
		s, own := c.LayerShape(i), c.CacheLayer(i) == i && !c.IsRecurrent(i)
		if c.IsRecurrent(i) {
			d, s := l.DeltaNet, c.DeltaNet
			linear("delta Q", d.Q, s.Keys(), c.Hidden, false)
			linear("delta K", d.K, s.Keys(), c.Hidden, false)
			linear("delta V", d.V, s.Values(), c.Hidden, false)
			linear("Z", d.Z, s.Values(), c.Hidden, false)
			linear("beta", d.Beta, s.ValueHeads, c.Hidden, false)
			linear("alpha", d.Alpha, s.ValueHeads, c.Hidden, false)
			linear("out", d.Out, c.Hidden, s.Values(), false)
			norm("delta norm", d.Norm, s.Dim, true, false)
			if len(d.Conv) != s.Channels()*s.Taps || len(d.DecayBias) != s.ValueHeads || len(d.A) != s.ValueHeads {
				t.Errorf("%d taps, %d biases and %d factors of decays", len(d.Conv), len(d.DecayBias), len(d.A))
			}
		} else {
			linear("Q", l.Q, c.Heads*s.HeadDim, c.Hidden, e.allBias || e.qkvBias)
			linear("O", l.O, c.Hidden, c.Heads*s.ValueDim, e.allBias)
		}
		if own {
			linear("K", l.K, s.KVHeads*s.HeadDim, c.Hidden, e.allBias || e.qkvBias)
			linear("V", l.V, s.KVHeads*s.ValueDim, c.Hidden, e.allBias || e.qkvBias)
		} else if l.K.W.Rows > 0 || l.V.W.Rows > 0 {
			t.Error("K or V in a layer without keys and values of its own")
		}
		if e.attnGate && !c.IsRecurrent(i) {
			linear("gate of attention", l.AttnGate, c.Heads*s.ValueDim, c.Hidden, false)
		}
		norm("attention norm", l.AttnNorm, c.Hidden, !e.noPreNorm, bias)
		unit := e.unitNorm && c.LayerRope(i).Dim > 0
		norm("Q norm", l.QNorm, headNorm(c.Heads, s.HeadDim), e.qkNorm && !c.IsRecurrent(i) || unit, false)
		norm("K norm", l.KNorm, headNorm(s.KVHeads, s.HeadDim), (e.qkNorm || unit) && own, false)
		norm("V norm", l.VNorm, s.ValueDim, e.valueNorm && own, false)
		if e.sinks && len(l.Sinks) != c.Heads || !e.sinks && l.Sinks != nil {
			t.Errorf("%d sinks of heads, want some: %v", len(l.Sinks), e.sinks)
		}
		norm("post-attention norm", l.AttnPostNorm, c.Hidden, e.postNorm, false)
		norm("FFN norm", l.FFNNorm, c.Hidden, !e.noPreNorm && !c.ParallelFFN, bias && !c.ParallelFFN)
		norm("post-FFN norm", l.FFNPostNorm, c.Hidden, e.postNorm, false)
		matrix("gate of the layer's input", l.InputGate, c.LayerInput, c.Hidden*min(c.LayerInput, 1))
		matrix("projection of the layer's input", l.InputProjection, c.Hidden*min(c.LayerInput, 1), c.LayerInput)
		norm("post-norm of the layer's input", l.InputPostNorm, c.Hidden, c.LayerInput > 0, false)
		norm("norm of streams", l.StreamNorm, c.Hidden, e.altUp, false)
		matrix("router of streams", l.StreamRouter, streams, c.Hidden*min(streams, 1))
		if len(l.Predict) != streams*streams*streams || len(l.Correct) != streams*streams || len(l.CorrectScale) != c.Hidden*min(streams, 1) {
			t.Errorf("%d, %d and %d coefficients of streams", len(l.Predict), len(l.Correct), len(l.CorrectScale))
		}
		matrix("LAuReL in", l.LaurelIn, c.LaurelRank, c.Hidden*min(c.LaurelRank, 1))
		matrix("LAuReL out", l.LaurelOut, c.Hidden*min(c.LaurelRank, 1), c.LaurelRank)
		norm("LAuReL post-norm", l.LaurelPostNorm, c.Hidden, e.altUp, false)
		ffn := s.FFN
		branches := e.branches && c.Experts > 0
		norm("router norm", l.RouterNorm, c.Hidden, branches, false)
		norm("expert norm", l.ExpertNorm, c.Hidden, branches, false)
		norm("expert post-norm", l.ExpertPostNorm, c.Hidden, branches, false)
		norm("shared expert's post-norm", l.SharedPostNorm, c.Hidden, branches, false)
		if c.isMixture(i) {
			if !branches {
				ffn = c.SharedFFN
			}
			linear("router", l.Router, c.Experts, c.Hidden, e.allBias)
			if e.routerBias && len(l.RouterBias) != c.Experts || !e.routerBias && l.RouterBias != nil {
				t.Errorf("the router has a bias of %d, want one: %v", len(l.RouterBias), e.routerBias)
			}
			if e.sharedGate {
				matrix("gate of the shared expert", l.SharedGate, 1, c.Hidden)
			}
			if len(l.Experts) != c.Experts {
				t.Errorf("%d experts, want %d", len(l.Experts), c.Experts)
			}
			for _, x := range l.Experts {
				linear("expert gate", x.Gate, c.ExpertFFN, c.Hidden, e.allBias)
				linear("expert up", x.Up, c.ExpertFFN, c.Hidden, e.allBias)
				linear("expert down", x.Down, c.Hidden, c.ExpertFFN, e.allBias)
			}
		} else if l.Router.W.Rows > 0 || l.Experts != nil {
			t.Error("a router or experts in a dense layer")
		}
		if ffn == 0 {
			continue
		}
		if c.Gated {
			linear("gate", l.Gate, ffn, c.Hidden, e.allBias)
		}
		linear("up", l.Up, ffn, c.Hidden, e.allBias)
		linear("down", l.Down, c.Hidden, ffn, e.allBias)
		if (l.Gate.W.Rows > 0) != c.Gated {
			t.Error("a gate where there should be none")
		}
	}
}

// TestFusedExperts loads the gates and ups of experts from one tensor, in which an expert's gate comes first.
func TestFusedExperts(t *testing.T) {
	spec := tiny.New("qwen35moe", 1)
	for l := range tiny.Layers {
		p := fmt.Sprintf("blk.%d.ffn_", l)
		spec.Drop(p + "gate_exps.weight")
		spec.Drop(p + "up_exps.weight")
		spec.Add(p+"gate_up_exps.weight", tiny.Hidden, 2*tiny.FFN, tiny.Experts)
	}
	f := spec.File()
	m, err := Load(f)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := f.Tensor("blk.1.ffn_gate_up_exps.weight")
	const half = 4 * tiny.Hidden * tiny.FFN
	for e, expert := range m.Weights.Layers[1].Experts {
		if want := x.Data[2*e*half:]; !bytes.Equal(expert.Gate.W.Data, want[:half]) || !bytes.Equal(expert.Up.W.Data, want[half:2*half]) {
			t.Errorf("expert %d has other rows", e)
		}
	}
}
