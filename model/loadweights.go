package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

// loader takes tensors out of a file, remembering the first error and which
// tensors were taken.
type loader struct {
	f    *gguf.File
	fam  family
	c    *Config
	used map[string]bool
	err  error
}

// loadWeights finds every tensor of the architecture. A tensor that would be left
// over is an error: a model with weights that nobody multiplies is not the model
// in the file. It clears c.LongContext when the file has no factors for it.
func loadWeights(f *gguf.File, fam family, c *Config) (Weights, error) {
	l := &loader{f: f, fam: fam, c: c, used: map[string]bool{}}
	var w Weights
	w.Embedding = l.matrix(embeddingName, c.Vocab, c.Hidden)
	if c.Rope == RopeNone {
		w.Position = l.matrix("position_embd.weight", c.Context, c.Hidden)
	} else {
		l.ropeFactors(&w)
	}
	for i := 0; i < c.Layers && l.err == nil; i++ {
		w.Layers = append(w.Layers, l.layer(fmt.Sprintf("blk.%d.", i)))
	}
	w.OutputNorm = l.norm("output_norm", c.Hidden)
	w.Output = Linear{W: w.Embedding}
	if l.has("output.weight") {
		w.Output.W = l.matrix("output.weight", c.Vocab, c.Hidden)
	}
	w.Output.Bias = l.bias("output.bias", c.Vocab, fam.outputBias)
	l.refuseSurplus()
	return w, l.err
}

// ropeFactors reads the divisors of the rotation frequencies: one list (Llama 3),
// or one for short and one for long contexts (LongRoPE, as in Phi-3).
func (l *loader) ropeFactors(w *Weights) {
	const short, long, freqs = "rope_factors_short.weight", "rope_factors_long.weight", "rope_freqs.weight"
	n := l.c.RopeDim / 2
	switch {
	case l.has(short) || l.has(long):
		w.RopeFactors, w.LongRopeFactors = l.divisors(short, n), l.divisors(long, n)
		return
	case l.has(freqs):
		w.RopeFactors = l.divisors(freqs, n)
	}
	l.c.LongContext = 0
}

func (l *loader) divisors(name string, n int) []float32 {
	v := l.vector(name, n)
	for i, x := range v {
		if !(x > 0) || math.IsInf(float64(x), 1) {
			l.fail(name, ErrBadKey, "factor %d is %v, want a finite number above 0", i, x)
			break
		}
	}
	return v
}

// refuseSurplus finds the tensors that nothing above has taken.
func (l *loader) refuseSurplus() {
	for _, t := range l.f.Tensors() {
		if l.used[t.Name] {
			continue
		}
		if n, ok := blockOf(t.Name); ok && n >= l.c.Layers {
			l.fail(t.Name, ErrSurplusTensor, "%s.block_count is %d", l.c.Arch, l.c.Layers)
			continue
		}
		l.fail(t.Name, ErrSurplusTensor, "%s does not use it", l.c.Arch)
	}
}

// blockOf is the N of a tensor blk.N.….
func blockOf(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "blk.")
	digits, _, dot := strings.Cut(rest, ".")
	n, err := strconv.Atoi(digits)
	return n, ok && dot && err == nil
}

func (l *loader) has(name string) bool {
	_, ok := l.f.Tensor(name)
	return ok
}

func (l *loader) fail(name string, sentinel error, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("tensor %q: %w: %s", name, sentinel, fmt.Sprintf(format, args...))
	}
}

// tensor takes a tensor of the given dimensions, row length first as GGUF has
// them. Trailing dimensions of 1 do not count.
func (l *loader) tensor(name string, dims ...int) gguf.Tensor {
	t, ok := l.f.Tensor(name)
	l.used[name] = true
	if !ok {
		if l.err == nil {
			l.err = fmt.Errorf("tensor %q: %w", name, ErrMissingTensor)
		}
		return gguf.Tensor{}
	}
	if !slices.Equal(trimOnes(t.Dims), trimOnes(dims)) {
		l.fail(name, ErrTensorShape, "have %v, want %v", t.Dims, dims)
		return gguf.Tensor{}
	}
	return t
}

func trimOnes(dims []int) []int {
	for len(dims) > 1 && dims[len(dims)-1] == 1 {
		dims = dims[:len(dims)-1]
	}
	return dims
}

func (l *loader) matrix(name string, rows, cols int) Matrix {
	t := l.tensor(name, cols, rows)
	return Matrix{Name: name, Format: t.Format, Rows: rows, Cols: cols, Data: t.Data}
}

// vector decodes a tensor of n numbers. These are small and used as they are, so
// block formats are refused for them.
func (l *loader) vector(name string, n int) []float32 {
	t := l.tensor(name, n)
	if t.Data == nil {
		return nil
	}
	switch t.Format {
	case quant.F32, quant.F16, quant.BF16:
	default:
		l.fail(name, ErrUnsupportedFormat, "%v for a vector, want F32, F16 or BF16", t.Format)
		return nil
	}
	v := make([]float32, n)
	quant.Decode(t.Format, v, t.Data)
	return v
}

func (l *loader) bias(name string, n int, required bool) []float32 {
	if !required && !l.has(name) {
		return nil
	}
	return l.vector(name, n)
}

func (l *loader) norm(name string, n int) Norm {
	norm := Norm{Weight: l.vector(name+".weight", n)}
	if l.c.LayerNorm {
		norm.Bias = l.vector(name+".bias", n)
	}
	return norm
}

func (l *loader) linear(name string, rows, cols int, bias bool) Linear {
	return Linear{
		W:    l.matrix(name+".weight", rows, cols),
		Bias: l.bias(name+".bias", rows, bias),
	}
}
