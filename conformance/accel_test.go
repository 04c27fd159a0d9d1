package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// smallDevice has few SMs, so that grids are small and emulation is fast. It does not detect
// races, because the kernel cases do.
var smallDevice = emu.Options{SMs: 4, IgnoreRaces: true, Cache: &emulatorCache}

// emulatorCache caches decoded kernels for all emulated devices.
var emulatorCache emu.Cache

// lateDevice runs queued work only when the host waits for it, so steps are pending
// while their sequence is forked, truncated or closed.
var lateDevice = emu.Options{SMs: 4, IgnoreRaces: true, LateStreams: true, Cache: &emulatorCache}

// accelDevice opens an emulated device or, with -gpu, the first CUDA device. At the end of
// the test, all of its resources must be closed.
func accelDevice(t testing.TB, o emu.Options) driver.Device {
	t.Helper()
	if *onGPU {
		dev, err := openGPU(t)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { checkClosed(t, dev) })
		return dev
	}
	dev, err := emu.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if live := dev.Live(); live != (emu.Live{}) {
			t.Errorf("left open on the device: %+v", live)
		}
		checkClosed(t, dev)
	})
	return dev
}

func checkClosed(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}

// accelEngine opens the accelerator on its own device.
func accelEngine(t testing.TB, m *model.Model, device emu.Options, o accel.Options) *accel.Engine {
	t.Helper()
	e, err := accel.New(t.Context(), m, accelDevice(t, device), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkClosed(t, e) })
	return e
}

// tinyModel returns a random model of an architecture with a vocabulary.
func tinyModel(t testing.TB, arch string) *model.Model {
	t.Helper()
	return withText(t, tiny.New(arch, 1))
}

// withText adds a vocabulary of bytes and loads the model.
func withText(t testing.TB, spec *tiny.Model) *model.Model {
	t.Helper()
	spec.AddVocab(spec.Arch != "gpt2")
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// minimalSpec describes a llama of one layer and 16 tokens, the cheapest model for tests of
// scheduling and memory.
func minimalSpec() *tiny.Model {
	spec := fewTokens("llama")
	spec.OneLayer()
	return spec
}

// recurrentSpec is the cheapest model with a recurrent state: a layer with one, and a layer with attention.
func recurrentSpec() *tiny.Model { return fewTokens("qwen35") }

// fewTokens returns a model of an architecture with a vocabulary of 16 tokens.
func fewTokens(arch string) *tiny.Model {
	const vocab = 16
	spec := tiny.New(arch, 1)
	spec.Set(".vocab_size", uint32(vocab))
	spec.Reshape("token_embd.weight", tiny.Hidden, vocab)
	spec.Reshape("output.weight", tiny.Hidden, vocab)
	return spec
}

// minimalModel loads minimalSpec.
func minimalModel(t testing.TB) *model.Model {
	t.Helper()
	m, err := model.Load(minimalSpec().File())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// openText opens a sequence of the whole context.
func openText(t testing.TB, e model.Engine) text {
	t.Helper()
	s, err := e.NewSequence(0)
	if err != nil {
		t.Fatal(err)
	}
	return text{s, e}
}

// fork forks a sequence.
func fork(t testing.TB, s text, n int) text {
	t.Helper()
	f, err := s.Fork(n)
	if err != nil {
		t.Fatal(err)
	}
	return text{f, s.e}
}

// results runs a step of some rows.
func results(t testing.TB, e model.Engine, rows ...model.Row) []model.Result {
	t.Helper()
	p, err := e.Step(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	results, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// greedyContinuation returns a prompt followed by n greedy tokens.
func greedyContinuation(t testing.TB, e model.Engine, prompt []int, n int) []int {
	t.Helper()
	s := openText(t, e)
	defer s.Close()
	tokens := slices.Clone(prompt)
	for len(tokens) < len(prompt)+n {
		out, err := s.Forward(t.Context(), tokens[s.Len():], model.WantToken)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, out.Token)
	}
	return tokens
}

// hashLogits returns the SHA-256 of the bits of logits.
func hashLogits(logits []float32) string {
	h := sha256.New()
	for _, v := range logits {
		h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// promptThenSteps computes a prompt and then tokens one by one. It returns the logits of
// the tokens.
func promptThenSteps(t testing.TB, s text, prompt, tokens []int) []float32 {
	t.Helper()
	if _, err := s.Forward(t.Context(), prompt, model.WantNothing); err != nil {
		t.Fatal(err)
	}
	return stepLogits(t, s, tokens)
}

// stepLogits computes tokens one by one and returns their logits.
func stepLogits(t testing.TB, s text, tokens []int) (all []float32) {
	t.Helper()
	for _, token := range tokens {
		out, err := s.Forward(t.Context(), []int{token}, model.WantLogits)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, out.Logits...)
	}
	return all
}

// freshLogits is promptThenSteps in a new sequence.
func freshLogits(t testing.TB, e model.Engine, prompt, tokens []int) []float32 {
	t.Helper()
	s := openText(t, e)
	defer s.Close()
	return promptThenSteps(t, s, prompt, tokens)
}

// stream is a sequence whose tokens are given: a prompt, then single tokens.
type stream struct {
	s              text
	prompt, tokens []int
	logits         []float32 // of the tokens
}

// done reports whether all tokens are computed.
func (x *stream) done() bool { return len(x.logits) == len(x.tokens)*x.s.e.Model().Config.Vocab }

// row returns the next row of a stream.
func (x *stream) row() model.Row {
	if n := x.s.Len(); n >= len(x.prompt) {
		return model.Row{Sequence: x.s.Sequence, Tokens: x.tokens[n-len(x.prompt):][:1], Want: model.WantLogits}
	}
	return model.Row{Sequence: x.s.Sequence, Tokens: x.prompt[x.s.Len():], Prompt: true}
}

// together computes streams, up to n of them per step. The streams of a step change from step to
// step, and new ones compute their prompts beside others.
func together(t testing.TB, e model.Engine, list []*stream, n int) {
	t.Helper()
	for round := 0; ; round++ {
		var rows []model.Row
		var active []*stream
		for i := range list {
			x := list[(i+round)%len(list)]
			if len(rows) < n && !x.done() && (i < 2 || (i+round)%5 > 0) {
				rows, active = append(rows, x.row()), append(active, x)
			}
		}
		if len(rows) == 0 && !slices.ContainsFunc(list, func(x *stream) bool { return !x.done() }) {
			return
		}
		if len(rows) == 0 {
			continue
		}
		for i, out := range results(t, e, rows...) {
			active[i].logits = append(active[i].logits, out.Logits...)
		}
	}
}

// float32Bound bounds the relative error of operations in models of a few layers. Rounding
// errors of about 2e-8 per operation grow with the square roots of the number of layers and
// of the length of sums.
const float32Bound = 2e-6

// modelFiles returns the golden models in a folder.
func modelFiles(folder string) []string {
	var files []string
	for _, c := range golden.Cases() {
		if filepath.Dir(c.Model) == folder && !slices.Contains(files, c.Model) {
			files = append(files, c.Model)
		}
	}
	return files
}

// checkTrace demands that each operation is within its bound at each position and that the
// predictions agree.
func checkTrace(t *testing.T, want, got *layerdiff.Trace, n layerdiff.Numerics, effects map[layerdiff.Op]float64) {
	t.Helper()
	r, err := layerdiff.Compare(want, got, n, effects)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("followed %v: %s", n.Followed, r.Verdict())
}

// maxWhole limits the rows of an operation, positions times layers, that checkRounded compares as a whole. Among more rows,
// some differ between two runs that round differently by more than the bound, which one pair of runs gave.
const maxWhole = 1000

// checkRounded compares a trace of the accelerator with a reference that rounds the same values: operation
// by operation on the accelerator's own inputs, and as a whole. As a whole, values that float32 errors push
// across a rounding boundary add to the bound, and a trace of more than maxWhole rows per operation is not compared.
func checkRounded(t *testing.T, m *model.Model, rounding ref.Numerics, tokens []int, got *layerdiff.Trace) {
	t.Helper()
	n := layerdiff.Numerics{KV: rounding.KV.Format(quant.F32), Input: quant.F16, Float: float32Bound}
	if len(tokens)*m.Config.Layers <= maxWhole {
		whole := refTrace(t, m, rounding, tokens, nil)
		effects, err := layerdiff.Effects(refTrace(t, m, ref.Numerics{}, tokens, nil), whole)
		if err != nil {
			t.Fatal(err)
		}
		checkTrace(t, whole, got, n, effects)
	}
	n.Followed = true
	followed := refTrace(t, m, rounding, tokens, got)
	checkTrace(t, followed, got, n, nil)
	if err := mostlyWithinFloat32(followed, got); err != nil {
		t.Error(err)
	}
}

// mostlyWithinFloat32 returns an error if more than an eighth of the elements of an operation exceed
// the float32 bound. Rounding to the other side explains fewer: a number lies within
// 2^-23 of the boundary between two float16 values, 2^-11 apart, once in about 4096. It explains more
// elements of "layer" and of AltUp's streams, which are chains of products.
func mostlyWithinFloat32(want, got *layerdiff.Trace) error {
	r, err := layerdiff.Compare(want, got, layerdiff.Numerics{Float: float32Bound}, nil)
	if err != nil {
		return err
	}
	for _, res := range r.Ops {
		chain := res.Op.Name == "layer" || strings.HasPrefix(res.Op.Name, "stream")
		if !chain && res.Elements > 1./8 {
			return fmt.Errorf("%v: %.0f%% of the elements exceed the float32 bound", res.Op, 100*res.Elements)
		}
	}
	return nil
}

// goldenModel opens a model of the golden directory.
func goldenModel(t testing.TB, file string) *model.Model {
	t.Helper()
	m, err := model.Open("../golden/" + file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkClosed(t, m) })
	return m
}

// teacherForced computes tokens in parts of the given sizes, and the rest in one part. It
// returns the logits of all positions.
func teacherForced(t testing.TB, e model.Engine, tokens []int, parts ...int) []float32 {
	t.Helper()
	s := openText(t, e)
	defer s.Close()
	var all []float32
	for len(tokens) > 0 {
		n := len(tokens)
		if len(parts) > 0 {
			n, parts = parts[0], parts[1:]
		}
		out, err := s.Forward(context.Background(), tokens[:n], model.WantAll)
		if err != nil {
			t.Fatalf("%d tokens at position %d: %v", n, s.Len(), err)
		}
		all, tokens = append(all, out.Logits...), tokens[n:]
	}
	return all
}

// testTokens returns n tokens of a vocabulary. Neighbors differ.
func testTokens(vocab, n int) []int {
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = (5 + 37*i + i*i%11) % vocab
	}
	return tokens
}

// refTrace returns the reference's trace of some tokens. With follow, the reference
// computes each operation on the inputs in that trace. Keys and values are rounded as in
// the cache.
func refTrace(t testing.TB, m *model.Model, n ref.Numerics, tokens []int, follow *layerdiff.Trace) *layerdiff.Trace {
	t.Helper()
	trace := layerdiff.NewTrace()
	o := ref.Options{Numerics: n, Tap: trace.Add}
	if follow != nil {
		o.Tap = trace.Follow(follow)
	}
	e, err := ref.New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	teacherForced(t, e, tokens)
	trace.Round(n.KV.Format(quant.F32), "key", "value")
	return trace
}

// accelTrace returns the accelerator's trace of some tokens, computed in parts.
func accelTrace(t testing.TB, m *model.Model, device emu.Options, o accel.Options, tokens []int, parts ...int) *layerdiff.Trace {
	t.Helper()
	trace := layerdiff.NewTrace()
	o.Tap = trace.AddFloats
	teacherForced(t, accelEngine(t, m, device, o), tokens, parts...)
	return trace
}
