package requant

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

// chunkWeights is the number of weights per chunk: whole blocks of every format, however
// long the rows are.
const chunkWeights = 1 << 18

// Unconverted is a tensor that keeps its format, because the recipe does not apply to it.
type Unconverted struct {
	Name   string
	Format quant.Format
	Reason string
}

// Convert returns a writer of src in the formats of a recipe, with the metadata of src
// and its tensors in the same order. The writer converts when it writes, and stops if ctx
// is done. progress, if not nil, is called with the size of each chunk written, in bytes.
// The error wraps quant.ErrUnsupported if the recipe cannot be encoded.
func Convert(ctx context.Context, src *gguf.File, r Recipe, progress func(bytes int)) (*gguf.Writer, []Unconverted, error) {
	if !r.CanEncode() {
		return nil, nil, fmt.Errorf("%w: %s cannot be encoded", quant.ErrUnsupported, r)
	}
	info, err := modelOf(src)
	if err != nil {
		return nil, nil, err
	}
	w := gguf.NewWriter()
	for _, key := range src.Keys() {
		v, _ := src.Value(key)
		if err := w.Set(key, v); err != nil {
			return nil, nil, err
		}
	}
	if err := r.Mark(w); err != nil {
		return nil, nil, err
	}
	var unconverted []Unconverted
	for _, t := range src.Tensors() {
		to, reason := r.Choose(t.Name, t.Dims, info)
		if reason != "" {
			unconverted = append(unconverted, Unconverted{t.Name, t.Format, reason})
			to = t.Format
		}
		write := func(dst io.Writer) error {
			if err := convert(ctx, dst, t, to, progress); err != nil {
				return err
			}
			return src.Check() // the rest of the last page of a shortened file reads as zeros
		}
		if err := w.Add(gguf.TensorInfo{Name: t.Name, Format: to, Dims: t.Dims, Write: write}); err != nil {
			return nil, nil, err
		}
	}
	return w, unconverted, nil
}

const versionKey = "general.quantization_version"

// Mark sets the keys general.quantization_version and general.file_type.
func (r Recipe) Mark(w *gguf.Writer) error {
	if err := w.Set(versionKey, QuantizationVersion); err != nil {
		return err
	}
	return w.Set("general.file_type", r.FileType())
}

// modelOf reads what Recipe.Choose needs.
func modelOf(f *gguf.File) (Model, error) {
	arch, err := lookup(f, "general.architecture", gguf.Value.Str)
	if err != nil {
		return Model{}, err
	}
	layers, err := lookup(f, arch+".block_count", gguf.Value.Uint)
	if err != nil {
		return Model{}, err
	}
	if len(f.Tensors()) == 0 {
		return Model{}, fmt.Errorf("the file has no tensors")
	}
	if v, ok := f.Value(versionKey); ok { // blocks of other versions have another layout
		if n, err := v.Uint(); err != nil || n != uint64(QuantizationVersion) {
			return Model{}, fmt.Errorf("key %q: %w: %v, want %d", versionKey, quant.ErrUnsupported, v, QuantizationVersion)
		}
	}
	_, untied := f.Tensor("output.weight")
	experts := slices.ContainsFunc(f.Tensors(), func(t gguf.Tensor) bool { return len(t.Dims) == 3 && strings.Contains(t.Name, "_exps.") })
	return Model{Layers: int(min(layers, 1<<20)), Tied: !untied, Experts: experts}, nil
}

func lookup[T any](f *gguf.File, key string, get func(gguf.Value) (T, error)) (T, error) {
	v, ok := f.Value(key)
	x, err := get(v)
	switch {
	case !ok:
		return x, fmt.Errorf("metadata %q is missing: not a model", key)
	case err != nil:
		return x, fmt.Errorf("key %q: %w", key, err)
	}
	return x, nil
}

// scratch pools the float32 weights between decoding and encoding.
var scratch = sync.Pool{New: func() any { return new([]float32) }}

// convert writes t in format to, chunk by chunk.
func convert(ctx context.Context, dst io.Writer, t gguf.Tensor, to quant.Format, progress func(int)) error {
	n := t.Elements()
	size := func(f quant.Format, weights int) int { return weights / f.BlockLen() * f.BlockBytes() }
	chunk := func(i int, buf []byte) ([]byte, error) {
		lo, hi := i*chunkWeights, min((i+1)*chunkWeights, n)
		src := t.Data[size(t.Format, lo):size(t.Format, hi)]
		if to == t.Format {
			err := gguf.Guard(func() { buf = append(buf, src...) })
			return buf, err
		}
		buf = resize(buf, size(to, hi-lo))
		if err := recode(buf, to, src, t.Format, hi-lo); err != nil {
			return nil, fmt.Errorf("from weight %d on: %w", lo, err) // err counts weights from there
		}
		return buf, nil
	}
	return Ordered(ctx, dst, (n+chunkWeights-1)/chunkWeights, chunk, progress)
}

// recode converts n weights.
func recode(dst []byte, to quant.Format, src []byte, from quant.Format, n int) error {
	tmp := scratch.Get().(*[]float32)
	defer scratch.Put(tmp)
	*tmp = resize(*tmp, n)
	if err := gguf.Guard(func() { quant.Decode(from, *tmp, src) }); err != nil {
		return err
	}
	return to.Encode(dst, *tmp)
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
