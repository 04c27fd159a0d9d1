package ref_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/npy"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/ref"
)

// oracleTokens returns the first 19 tokens of the logits of other engines: 5, 8, …, 59.
func oracleTokens() []int { return moreOracleTokens(19, 60) }

// moreOracleTokens returns the first n tokens of these logits. They begin again at the end of the vocabulary.
func moreOracleTokens(n, vocab int) []int {
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = (5 + 3*i) % vocab
	}
	return tokens
}

// oracles returns the tiny models that have logits of another engine.
func oracles(t testing.TB) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{"arch", "quant"} {
		found, err := filepath.Glob(filepath.Join("..", "golden", dir, "*.gguf"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no oracle models in golden/%s (%v)", dir, err)
		}
		files = append(files, found...)
	}
	return files
}

func open(t testing.TB, path string) *model.Model {
	t.Helper()
	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func engine(t testing.TB, m *model.Model, o ref.Options) *ref.Engine {
	t.Helper()
	e, err := ref.New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// text is a sequence with its engine.
type text struct {
	model.Sequence
	engine *ref.Engine
}

// Forward computes tokens after the text.
func (x text) Forward(ctx context.Context, tokens []int, want model.Want) (model.Result, error) {
	return model.Forward(ctx, x.engine, model.Row{Sequence: x.Sequence, Tokens: tokens, Prompt: true, Want: want})
}

func newText(t testing.TB, e *ref.Engine) text { return textOf(t, e, 0) }

// textOf returns an empty text of at most capacity positions.
func textOf(t testing.TB, e *ref.Engine, capacity int) text {
	t.Helper()
	s, err := e.NewSequence(capacity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return text{s, e}
}

// forward returns a copy of the wanted logits.
func forward(t testing.TB, s text, tokens []int, want model.Want) []float32 {
	t.Helper()
	out, err := s.Forward(t.Context(), tokens, want)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), out.Logits...)
}

func readNPY(t testing.TB, path string) (shape []int, data []float32) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	shape, data, err = npy.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return shape, data
}

// relativeL2 is ‖got − want‖ / ‖want‖, NaN if either has a NaN.
func relativeL2(got, want []float32) float64 {
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		diff += d * d
		norm += float64(w) * float64(w)
	}
	return math.Sqrt(diff / norm)
}

// logitBound is the largest relative L2 distance to another engine's logits at any
// position. That engine computes in float32.
const logitBound = 2e-6

func TestLogitsAgreeWithAnotherEngine(t *testing.T) {
	compare := func(t *testing.T, file string, bound float64) {
		name := strings.TrimSuffix(file, ".gguf")
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(name), func(t *testing.T) {
			shape, want := readNPY(t, name+".npy")
			m := open(t, file)
			if shape[0] < len(oracleTokens()) || shape[1] != m.Config.Vocab {
				t.Fatalf("the oracle's shape is %v", shape)
			}
			tokens := moreOracleTokens(shape[0], m.Config.Vocab)
			got := forward(t, newText(t, engine(t, m, ref.Options{})), tokens, model.WantAll)
			checkRows(t, got, want, m.Config.Vocab, bound)
		})
	}
	for _, file := range oracles(t) {
		compare(t, file, logitBound)
	}
	t.Run("beside the checkout", func(t *testing.T) { // more models of the same architectures
		files, err := filepath.Glob(filepath.Join("..", "..", "shared", "oracle", "arch2026", "*.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Skip("there is no ../shared/oracle/arch2026 beside the checkout")
		}
		for _, file := range files {
			if supported(t, file) {
				compare(t, file, 1e-5) // one of them has 64 layers
			}
		}
	})
}

// TestLogitsAfterAChunk compares the last positions of a text that is longer than a chunk of attention.
func TestLogitsAfterAChunk(t *testing.T) {
	if testing.Short() {
		t.Skip("computes thousands of positions")
	}
	const tokens = 8240
	dir := filepath.Join("..", "..", "shared", "oracle", "arch2026")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("there is no ../shared/oracle/arch2026 beside the checkout")
	}
	shape, want := readNPY(t, filepath.Join(dir, "long", "llama4-last60.npy"))
	m := open(t, filepath.Join(dir, "llama4.gguf"))
	s := newText(t, engine(t, m, ref.Options{}))
	all := moreOracleTokens(tokens, m.Config.Vocab)
	first := tokens - shape[0]
	forward(t, s, all[:first], model.WantNothing)
	got := forward(t, s, all[first:], model.WantAll)
	checkRows(t, got, want, m.Config.Vocab, 1e-5)
}

// supported reports whether model.Load knows the architecture of a file.
func supported(t *testing.T, path string) bool {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v, _ := f.Value("general.architecture")
	name, err := v.Str()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(model.Architectures(), name)
}

// TestLogitsAgreeWithTransformersInFloat64 compares with tools/oracle. The remaining
// difference is the f32 cache and the rounding of the oracle's logits to float32.
func TestLogitsAgreeWithTransformersInFloat64(t *testing.T) {
	const bound, suffix = 2e-7, ".f64.npy"
	files, err := filepath.Glob(filepath.Join("..", "golden", "arch", "*"+suffix))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d architectures (%v), want at least 10", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, suffix)
		t.Run(filepath.Base(name), func(t *testing.T) {
			_, want := readNPY(t, file)
			m := open(t, name+".gguf")
			got := forward(t, newText(t, engine(t, m, ref.Options{})), oracleTokens(), model.WantAll)
			checkRows(t, got, want, m.Config.Vocab, bound)
		})
	}
}

// checkRows compares rows of a width, one per position.
func checkRows(t *testing.T, got, want []float32, width int, bound float64) {
	t.Helper()
	t.Logf("relative L2 %.2e", relativeL2(got, want))
	for p, d := range byPosition(got, want, width) {
		if !(d <= bound) {
			t.Errorf("relative L2 at position %d %.3e, bound %.0e", p, d, bound)
		}
	}
}

// byPosition returns the relative L2 distance at each position.
func byPosition(got, want []float32, width int) (d []float64) {
	if len(got) != len(want) {
		return []float64{math.NaN()}
	}
	for at := 0; at < len(want); at += width {
		d = append(d, relativeL2(got[at:at+width], want[at:at+width]))
	}
	return d
}

// TestEmbeddedModelAgreesWithItsTrainer compares with the training script, in float64.
func TestEmbeddedModelAgreesWithItsTrainer(t *testing.T) {
	const bound = 1e-6
	m := open(t, filepath.Join("..", "golden", "model", "lockstep-tiny.gguf"))
	o := trainerOracle(t)
	ids, err := m.Prompt(o.Oracle.Text, false, m.Config.Context)
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != len(o.Oracle.Tokens) {
		t.Fatalf("%d tokens, want %d", len(ids), len(o.Oracle.Tokens))
	}
	for i, id := range ids {
		if id != o.Oracle.Tokens[i] {
			t.Fatalf("token %d is %d, want %d", i, id, o.Oracle.Tokens[i])
		}
	}
	_, want := readNPY(t, filepath.Join("..", "golden", "model", o.Oracle.File))
	got := forward(t, newText(t, engine(t, m, ref.Options{})), ids, model.WantAll)
	d := relativeL2(got[o.Oracle.First*m.Config.Vocab:], want)
	t.Logf("relative L2 %.2e", d)
	if !(d <= bound) {
		t.Errorf("relative L2 %.3e, bound %.0e", d, bound)
	}
	for _, c := range o.Tokenizer {
		if got := m.Tokenizer.Encode(c.Text, false); !equal(got, c.Tokens) {
			t.Errorf("%q: tokens %v, want %v", c.Text, got, c.Tokens)
		}
	}
}
