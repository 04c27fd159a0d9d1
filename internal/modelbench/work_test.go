package modelbench

import (
	"math"
	"testing"

	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// matrixOf returns a matrix with rows of rowBytes bytes.
func matrixOf(rows, cols, rowBytes int) model.Matrix {
	return model.Matrix{Format: quant.Q8_0, Rows: rows, Cols: cols, Data: make([]byte, rows*rowBytes)}
}

func TestWork(t *testing.T) {
	embedding, output := matrixOf(1000, 32, 34), matrixOf(1000, 32, 36)
	layer := model.Layer{
		AttnNorm: model.Norm{Weight: make([]float32, 32), Bias: make([]float32, 32)},
		Q:        model.Linear{W: matrixOf(32, 32, 34), Bias: make([]float32, 32)},
		K:        model.Linear{W: matrixOf(16, 32, 34)}, V: model.Linear{W: matrixOf(16, 32, 34)},
		O: model.Linear{W: matrixOf(32, 32, 34)},
	}
	dense := layer
	dense.Up, dense.Down = model.Linear{W: matrixOf(64, 32, 34)}, model.Linear{W: matrixOf(32, 64, 68)}
	mixture := layer
	mixture.Router.W, mixture.RouterBias, mixture.SharedGate = matrixOf(4, 32, 128), make([]float32, 4), matrixOf(1, 32, 128)
	for range 4 {
		mixture.Experts = append(mixture.Experts, model.Expert{Gate: model.Linear{W: matrixOf(8, 32, 34)}, Up: model.Linear{W: matrixOf(8, 32, 34)}, Down: model.Linear{W: matrixOf(32, 8, 10)}})
	}
	const (
		common    = 2*4*32 + 4*32 + 34*(32+16+16+32)
		params    = 32 * (32 + 16 + 16 + 32)
		denseFFN  = 64*34 + 32*68
		router    = 4*128 + 4*4 + 128
		oneExpert = 2*8*34 + 32*10
	)
	for _, c := range []struct {
		name, reason   string
		layers         []model.Layer
		tied           bool
		tokens, logits int
		bytes, flop    float64
	}{
		{"dense", "the embedding is looked up", []model.Layer{dense}, false, 1, 1, common + denseFFN + 36000, 2 * (params + 2*64*32 + 32000)},
		{"tied", "the embedding is the output", []model.Layer{dense}, true, 1, 1, common + denseFFN + 34000, 2 * (params + 2*64*32 + 32000)},
		{"batch", "weights are read once", []model.Layer{dense, dense}, false, 8, 8, 2*(common+denseFFN) + 36000, 2 * 8 * (2*(params+2*64*32) + 32000)},
		{"prompt", "logits after the last token only", []model.Layer{dense}, false, 100, 1, common + denseFFN + 36000, 2 * (100*(params+2*64*32) + 32000)},
		{"experts", "two of four", []model.Layer{mixture}, false, 1, 1, common + router + 2*oneExpert + 36000, 2 * (params + 5*32 + 2*3*8*32 + 32000)},
		{"experts of two tokens", "three of four on average", []model.Layer{mixture}, false, 2, 2, common + router + 3*oneExpert + 36000, 2 * 2 * (params + 5*32 + 2*3*8*32 + 32000)},
		{"experts of many", "all of them", []model.Layer{mixture}, false, 200, 1, common + router + 4*oneExpert + 36000, 2 * (200*(params+5*32+2*3*8*32) + 32000)},
	} {
		m := &model.Model{Weights: model.Weights{Embedding: embedding, Layers: c.layers, Output: model.Linear{W: output}}}
		if c.tied {
			m.Weights.Output.W = embedding
		}
		if len(c.layers[0].Experts) > 0 {
			m.Config.Experts, m.Config.ExpertsUsed = 4, 2
		}
		w := WorkOf(m)
		if got := w.Bytes(c.tokens); math.Abs(got-c.bytes) > 1e-6 {
			t.Errorf("%s: %v bytes, want %v: %s", c.name, got, c.bytes, c.reason)
		}
		if got := w.FLOP(c.tokens, c.logits); got != c.flop {
			t.Errorf("%s: %v FLOP, want %v: %s", c.name, got, c.flop, c.reason)
		}
	}
}

// Bytes equals the count of package synth, which is independent.
func TestWorkOfPreset(t *testing.T) {
	recipe, err := requant.ParseRecipe("q4_0")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gpt2", "gpt-oss-20b"} { // QKV is split into views; experts
		preset, err := synth.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		preset.Vocab, preset.BOS, preset.EOS = 300, 298, 299
		preset.Experts, preset.ExpertFFN = min(preset.Experts, 8), min(preset.ExpertFFN, 64)
		for _, tied := range []bool{true, false} {
			preset.Tied = tied
			plan, err := synth.NewPlan(preset, recipe, 2)
			if err != nil {
				t.Fatal(err)
			}
			f, err := plan.File(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			m, err := model.Load(f)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := WorkOf(m).Bytes(1), float64(plan.BytesPerToken()); got != want {
				t.Errorf("%s, tied %v: %v bytes per token, synth counts %v", name, tied, got, want)
			}
		}
	}
}

func TestCacheBytes(t *testing.T) {
	for _, c := range []struct {
		name, reason    string
		window, pattern int // every n-th layer is global
		positions, read int // read is the sum over all layers
		format          quant.Format
	}{
		{"empty", "nothing is cached", 0, 0, 0, 0, quant.F16},
		{"global", "six layers", 0, 0, 100, 600, quant.F16},
		{"f32", "twice the bytes", 0, 0, 100, 600, quant.F32},
		{"short", "the window is wider", 10, 3, 7, 42, quant.F16},
		{"windows", "nine positions before the current one in four of six layers", 10, 3, 100, 4*9 + 2*100, quant.F16},
		{"windows only", "in every layer", 10, 1, 100, 6 * 9, quant.F16},
	} {
		windowed := make([]bool, 6)
		for l := range windowed {
			windowed[l] = c.window > 0 && (c.pattern == 1 || (l+1)%c.pattern != 0)
		}
		w := WorkOf(&model.Model{Config: model.Config{Layers: 6, KVHeads: 2, HeadDim: 8, ValueDim: 24, Window: c.window, Windowed: windowed}})
		if got, want := w.CacheBytes(c.positions, c.format), float64(c.read*2*(8+24)*c.format.BlockBytes()); got != want {
			t.Errorf("%s: %v bytes, want %v: %s", c.name, got, want, c.reason)
		}
	}
}

// A pass reads the weights once, and what each of its sequences has cached.
func TestWorkOfPasses(t *testing.T) {
	e := newFake(t, "llama", 200)
	w := WorkOf(e.model)
	o := Options{Prompts: []int{50}, Depths: []int{30}, Batches: []int{4}, BatchDepths: []int{30}, Steps: 5, Repeats: 1, KV: quant.F16}
	cached := w.CacheBytes(34, quant.F16) // 30, two untimed steps, and on average two timed ones
	if cached == 0 {
		t.Fatal("the model caches nothing")
	}
	for i, r := range measured(t, e, o) {
		want := w.Bytes([]int{50, 1, 4}[i]) + []float64{0, 1, 4}[i]*cached
		if math.Abs(r.Bytes-want) > 1e-6 || r.FLOP != w.FLOP(r.tokens(), r.logits()) {
			t.Errorf("%v: %v bytes, %v FLOP, want %v bytes", r.Case, r.Bytes, r.FLOP, want)
		}
	}
}

func TestJudge(t *testing.T) {
	limits := &kernelbench.Limits{ReadPlain: 3e12, ReadBulk: 4e12, MMA: 4e14, WGMMA: 6e14}
	for _, c := range []struct {
		name  string
		r     Result
		limit string
		share float64
	}{
		{"decoding reads", Result{Case: Case{Kind: Decode, Sequences: 1}, Bytes: 4e9, FLOP: 1.6e10, Rate: 500}, "read", 0.5},
		{"a batch reads once", Result{Case: Case{Kind: Batch, Sequences: 16}, Bytes: 4e9, FLOP: 2.56e11, Rate: 4000}, "read", 0.25},
		{"prompts compute", Result{Case: Case{Kind: Prefill, Prompt: 2000, Sequences: 1}, Bytes: 4e9, FLOP: 3e13, Rate: 10000}, "matrix", 0.25},
	} {
		c.r.judge(limits)
		if c.r.Limit != c.limit || math.Abs(c.r.Share-c.share) > 1e-9 {
			t.Errorf("%s: %v of %s, want %v of %s", c.name, c.r.Share, c.r.Limit, c.share, c.limit)
		}
	}
	r := Result{Case: Case{Kind: Decode, Sequences: 1}, Bytes: 4e9, FLOP: 1.6e10, Rate: 500}
	for name, lim := range map[string]*kernelbench.Limits{"none": nil, "not measured": {}} {
		if r.judge(lim); r.Limit != "" || r.Share != 0 {
			t.Errorf("limits %s: %v of %q", name, r.Share, r.Limit)
		}
	}
}
