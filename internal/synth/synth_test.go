package synth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

func plan(t testing.TB, preset, recipe string, layers int) Plan {
	t.Helper()
	p, err := Find(preset)
	if err != nil {
		t.Fatal(err)
	}
	r, err := requant.ParseRecipe(recipe)
	if err != nil {
		t.Fatal(err)
	}
	made, err := NewPlan(p, r, layers)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Bytes per token of published models.
func TestBytesPerToken(t *testing.T) {
	tests := []struct {
		preset, recipe string
		reason         string
		want           float64
	}{
		{"llama-3.1-8b", "q4_k_m", "the mix, untied", 4.617e9},
		{"llama-3.1-8b", "q8_0", "one format, untied", 7.975e9},
		{"llama-3.2-1b", "bf16", "halves, tied", 2.472e9},
		{"llama-3.2-1b", "q4_k_m", "the mix, tied: the embedding in Q6_K", 0.800e9},
		{"gpt-oss-20b", "f32", "3.61 billion parameters: four experts per layer", 4 * 3.61e9},
		{"qwen2.5-1.5b", "q4_k_m", "28 layers: the eighths are rounded", 0.980e9},
	}
	for _, tt := range tests {
		t.Run(tt.preset+" "+tt.recipe, func(t *testing.T) {
			got := float64(plan(t, tt.preset, tt.recipe, 0).BytesPerToken())
			if e := math.Abs(got/tt.want - 1); !(e <= 0.001) {
				t.Errorf("%s: %.0f bytes a token, want %.0f within 0.1%%", tt.reason, got, tt.want)
			}
		})
	}
}

// Published numbers of parameters, in billions.
func TestParameters(t *testing.T) {
	want := map[string]float64{
		"llama-3.2-1b": 1.236, "llama-3.1-8b": 8.030, "qwen2.5-1.5b": 1.544, "qwen2.5-7b": 7.616,
		"qwen3-8b": 8.191, "gemma3-1b": 1.000, "phi-2": 2.780, "gpt2": 0.124,
		"gpt-oss-20b": 20.915, "gemma4-26b-a4b": 25.23, "qwen3.5-35b-a3b": 34.66, "gemma3n-e4b": 6.866,
	}
	for _, name := range Presets() {
		n := 0.0
		for _, tensor := range plan(t, name, "f32", 0).Tensors {
			size := 1.0
			for _, d := range tensor.Dims {
				size *= float64(d)
			}
			if tensor.exact == nil {
				n += size
			}
		}
		within := 0.0006
		if want[name] > 25 { // published in fewer digits
			within = 0.005
		}
		if e := math.Abs(n/1e9 - want[name]); !(e <= within) {
			t.Errorf("%s has %.4f billion parameters, want %.3f", name, n/1e9, want[name])
		}
	}
}

func TestFindNamesTheChoices(t *testing.T) {
	_, err := Find("llama-9")
	if !errors.Is(err, ErrPreset) {
		t.Fatalf("error %v", err)
	}
	for _, name := range Presets() {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

// small shrinks a preset for tests. Rows still fill the blocks of all formats.
func small(p Preset) Preset {
	p.FFN, p.SharedFFN = min(p.FFN, 512), min(p.SharedFFN, 256)
	p.Hidden, p.Heads, p.HeadDim, p.Vocab, p.Context = 256, 4, 64, 1024, 256
	p.KVHeads = min(p.KVHeads, 2)
	if p.FusedQKV {
		p.KVHeads = 4
	}
	if p.RopeDim > 0 {
		p.RopeDim = 64
	}
	p.Experts, p.ExpertsUsed, p.ExpertFFN = min(p.Experts, 4), min(p.ExpertsUsed, 2), min(p.ExpertFFN, 256)
	if p.Local != nil {
		local := *p.Local
		local.every, local.KVHeads, local.HeadDim = 2, 4, 128
		p.Local = &local
	}
	if p.DeltaNet != nil {
		p.DeltaNet = &deltaNetLayers{every: 2, KeyHeads: 2, ValueHeads: 4, Dim: 64, Taps: p.DeltaNet.Taps}
	}
	p.BOS, p.EOS = min(p.BOS, 1022), min(p.EOS, 1023)
	return p
}

func write(t testing.TB, p Plan, seed uint64) []byte {
	t.Helper()
	w, err := p.Writer(t.Context(), seed, nil)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if _, err := w.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	if int64(buf.Len()) != w.Size() {
		t.Errorf("%d bytes written, Size says %d", buf.Len(), w.Size())
	}
	return buf.Bytes()
}

// Every preset loads, and its vocabulary encodes any text.
func TestPresetsLoad(t *testing.T) {
	for i, p := range presets {
		t.Run(p.Name, func(t *testing.T) {
			recipe := []string{"q8_0", "q4_k_m", "mxfp4"}[i%3]
			r, err := requant.ParseRecipe(recipe)
			if err != nil {
				t.Fatal(err)
			}
			made, err := NewPlan(small(p), r, 2)
			if err != nil {
				t.Fatal(err)
			}
			f, err := gguf.Parse(write(t, made, 1))
			if err != nil {
				t.Fatal(err)
			}
			m, err := model.Load(f)
			if err != nil {
				t.Fatal(err)
			}
			checkConfig(t, made.Preset, m.Config)
			text := "naïve\n\x00 🙂 text\t"
			if got := m.Tokenizer.Decode(m.Tokenizer.Encode(text, false)); got != text {
				t.Errorf("text %q became %q", text, got)
			}
			eos, _ := m.File.Value("tokenizer.ggml.eos_token_id")
			if id, err := eos.Uint(); err != nil || !m.Tokenizer.Stops(int(id)) {
				t.Errorf("end token %v does not stop", eos)
			}
		})
	}
}

func checkConfig(t *testing.T, p Preset, c model.Config) {
	t.Helper()
	got := []int{c.Layers, c.Hidden, c.FFN, c.Heads, c.KVHeads, c.HeadDim, c.Vocab, c.Context, c.Rope.Dim}
	want := []int{p.Layers, p.Hidden, p.FFN, p.Heads, p.KVHeads, p.HeadDim, p.Vocab, p.Context, p.RopeDim}
	if p.Local != nil { // the largest of all layers
		want[4], want[5] = max(p.KVHeads, p.Local.KVHeads), max(p.HeadDim, p.Local.HeadDim)
	}
	if p.Experts > 0 {
		got, want = append(got, c.Experts, c.ExpertsUsed, c.ExpertFFN), append(want, p.Experts, p.ExpertsUsed, p.ExpertFFN)
	}
	if d := p.DeltaNet; d != nil {
		s := c.DeltaNet
		got, want = append(got, s.KeyHeads, s.ValueHeads, s.Dim, s.Taps, c.SharedFFN), append(want, d.KeyHeads, d.ValueHeads, d.Dim, d.Taps, p.SharedFFN)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("shape (-want +got):\n%s", d)
	}
	if c.NormEps != p.NormEps || c.Rope.Theta != float64(p.RopeTheta) && p.RopeDim > 0 {
		t.Errorf("eps %v, theta %v; want %v, %v", c.NormEps, c.Rope.Theta, p.NormEps, p.RopeTheta)
	}
}

// Equal seeds give equal bytes on any number of cores; other seeds give other bytes.
func TestSeed(t *testing.T) {
	r, err := requant.ParseRecipe("q4_k_m")
	if err != nil {
		t.Fatal(err)
	}
	p := small(presets[0])
	p.Vocab = 20000 // more than one chunk
	p.BOS, p.EOS = 1, 2
	made, err := NewPlan(p, r, 1)
	if err != nil {
		t.Fatal(err)
	}
	first := write(t, made, 7)
	before := runtime.GOMAXPROCS(1)
	second := write(t, made, 7)
	runtime.GOMAXPROCS(before)
	if !bytes.Equal(first, second) {
		t.Error("one core gives other bytes than several")
	}
	if bytes.Equal(first, write(t, made, 8)) {
		t.Error("two seeds give the same bytes")
	}
}

func TestWriterIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w, err := plan(t, "llama-3.1-8b", "q8_0", 0).Writer(ctx, 1, func(int) { cancel() })
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.WriteTo(io.Discard); !errors.Is(err, context.Canceled) || n > 1<<28 {
		t.Errorf("%d bytes, error %v", n, err)
	}
}

func TestNewPlanRefusesNegativeLayers(t *testing.T) {
	if _, err := NewPlan(presets[0], requant.Recipe{}, -1); err == nil {
		t.Error("no error")
	}
}

// TestFillStatistics checks that the random blocks of each format decode to finite
// weights with mean 0 and the requested standard deviation, and that blocks differ.
func TestFillStatistics(t *testing.T) {
	const n, std = 1 << 18, 0.0125
	for _, f := range quant.Formats() {
		t.Run(f.String(), func(t *testing.T) {
			fill, err := newFiller(f, 3, "w", 0, std)
			if !slices.Contains(Recipes(), strings.ToLower(f.String())) {
				checkRefusal(t, f, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, n/f.BlockLen()*f.BlockBytes())
			r := stream(3, "w", 0)
			fill.fill(buf, &r)
			w := make([]float64, n)
			quant.Decode(f, w, buf)
			sum, squares := 0.0, 0.0
			for _, x := range w {
				sum += x
				squares += x * x
			}
			got, mean := math.Sqrt(squares/n), sum/n
			if !(math.Abs(got/std-1) <= 0.03) {
				t.Errorf("deviation %v, want %v", got, std)
			}
			if !(math.Abs(mean) <= 0.02*std) {
				t.Errorf("mean %v is not small beside the deviation %v", mean, std)
			}
			if size := 256 / f.BlockLen() * f.BlockBytes(); bytes.Equal(buf[:size], buf[size:2*size]) {
				t.Error("the blocks repeat")
			}
		})
	}
}

// checkRefusal checks the errors for a format without a generator: err of newFiller, and
// that of NewPlan, which names the recipes that it accepts.
func checkRefusal(t *testing.T, f quant.Format, err error) {
	t.Helper()
	recipe, parseErr := requant.ParseRecipe(f.String())
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	_, planErr := NewPlan(presets[0], recipe, 1)
	if !errors.Is(err, quant.ErrUnsupported) || !errors.Is(planErr, quant.ErrUnsupported) {
		t.Errorf("errors %v and %v, want %v", err, planErr, quant.ErrUnsupported)
	}
	if names := strings.Join(Recipes(), ", "); !strings.HasSuffix(fmt.Sprint(planErr), names) {
		t.Errorf("the error does not list %s: %v", names, planErr)
	}
}

// The generator writes no values that encoders do not write.
func TestTidyBlocks(t *testing.T) {
	r := stream(1, "tidy", 0)
	block := make([]byte, 210)
	for range 1000 {
		r.fill(block)
		q8 := bytes.Clone(block[:34])
		tidyQ8(q8)
		q6 := bytes.Clone(block)
		tidyQ6(q6)
		for i := range 32 {
			was := int8(block[2+i])
			if got := int8(q8[2+i]); got != max(was, -127) {
				t.Fatalf("Q8_0 code %d became %d", was, got)
			}
		}
		for i, b := range q6 {
			scale := int8(b)
			switch {
			case (i < 192 || i >= 208) && b != block[i]:
				t.Fatalf("Q6_K byte %d is not a scale and was changed", i)
			case i >= 192 && i < 208 && (scale >= -64 && scale < 64 || (scale < 0) != (int8(block[i]) < 0)):
				t.Fatalf("Q6_K scale %d became %d", int8(block[i]), scale)
			}
		}
	}
}

func TestRopeFactors(t *testing.T) {
	f := llama3Scale{8, 1, 4, 8192}.factors(128, 500000)
	if len(f) != 64 || f[0] != 1 || f[63] != 8 {
		t.Fatalf("%d factors from %v to %v", len(f), f[0], f[len(f)-1])
	}
	for i := 1; i < len(f); i++ {
		if f[i] < f[i-1] {
			t.Errorf("factor %d is %v after %v", i, f[i], f[i-1])
		}
	}
	// Wave 32 is 4445 long: 1.84 turns in 8192 positions, between 1 and 4.
	if want := 1 / ((1-0.2811)/8 + 0.2811); math.Abs(float64(f[32])-want) > 0.01 {
		t.Errorf("factor 32 is %v, want %v", f[32], want)
	}
}

// NewPlan and package model have the same limit on layers.
func TestMaxLayers(t *testing.T) {
	r, err := requant.ParseRecipe("q8_0")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{MaxLayers, MaxLayers + 1} {
		spec := tiny.New("llama", 1)
		spec.Set(".block_count", uint32(n))
		_, err := model.Load(spec.File()) // always an error, because layers are missing
		refused := strings.Contains(fmt.Sprint(err), "block_count")
		if want := n > MaxLayers; refused != want {
			t.Errorf("%d layers: package model's error is %v", n, err)
		}
		if _, err := NewPlan(small(presets[0]), r, n); (err != nil) != refused {
			t.Errorf("%d layers: error %v, and package model refuses: %v", n, err, refused)
		}
	}
}

// The factors have the same bits on every machine.
func TestRopeFactorBits(t *testing.T) {
	h := fnv.New64a()
	for _, f := range (llama3Scale{8, 1, 4, 8192}).factors(128, 500000) {
		fmt.Fprintf(h, "%08x", math.Float32bits(f))
	}
	if got, want := h.Sum64(), uint64(0x8717e022b7ae0add); got != want {
		t.Errorf("sum %#x, want %#x", got, want)
	}
}

// Gemma 3 has rows of 1152, which do not fill blocks of 256.
func TestSubstitutes(t *testing.T) {
	preset, err := Find("gemma3-1b")
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := requant.ParseRecipe("q4_k_m")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(preset, recipe, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]quant.Format{
		"token_embd.weight":     quant.Q8_0, // in place of Q6_K: it is the output matrix, too
		"blk.3.attn_q.weight":   quant.Q5_0, // in place of Q4_K
		"blk.0.attn_v.weight":   quant.Q8_0, // in place of Q6_K
		"blk.3.ffn_down.weight": quant.Q4_K, // rows of 6912
	}
	for _, tensor := range plan.Tensors {
		if f, ok := want[tensor.Name]; ok && tensor.Format != f {
			t.Errorf("%s is %v, want %v", tensor.Name, tensor.Format, f)
		}
		delete(want, tensor.Name)
	}
	if len(want) > 0 {
		t.Errorf("not in the plan: %v", want)
	}
}

func BenchmarkFill(b *testing.B) {
	for _, f := range []quant.Format{quant.Q4_K, quant.Q6_K, quant.Q8_0, quant.BF16, quant.F32} {
		b.Run(f.String(), func(b *testing.B) {
			fill, err := newFiller(f, 1, "w", 0, 0.02)
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, chunkBytes/f.BlockBytes()*f.BlockBytes())
			b.SetBytes(int64(len(buf)))
			r := stream(1, "w", 0)
			for b.Loop() {
				fill.fill(buf, &r)
			}
		})
	}
}

// BenchmarkWriter generates a whole model without writing to disk.
func BenchmarkWriter(b *testing.B) {
	for _, recipe := range []string{"q4_k_m", "bf16"} {
		b.Run(recipe, func(b *testing.B) {
			w, err := plan(b, "llama-3.2-1b", recipe, 0).Writer(context.Background(), 1, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(w.Size())
			for b.Loop() {
				if _, err := w.WriteTo(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
