package synth

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// chunkBytes is the approximate size of a chunk. Random numbers depend on the chunk, so
// another size would give other weights for the same seed.
const chunkBytes = 1 << 20

// Writer returns a writer of the planned file. It generates the weights while it writes,
// on all cores. Equal plans and seeds give equal bytes. progress, if not nil, is called
// with the size of each chunk written, in bytes.
func (p Plan) Writer(ctx context.Context, seed uint64, progress func(bytes int)) (*gguf.Writer, error) {
	w := gguf.NewWriter()
	if err := p.metadata(w); err != nil {
		return nil, fmt.Errorf("synth: %w", err)
	}
	for _, t := range p.Tensors {
		write := func(dst io.Writer) error { return t.write(ctx, dst, seed, progress) }
		if err := w.Add(gguf.TensorInfo{Name: t.Name, Format: t.Format, Dims: t.Dims, Write: write}); err != nil {
			return nil, fmt.Errorf("synth: %w", err)
		}
	}
	return w, nil
}

func (t Tensor) write(ctx context.Context, dst io.Writer, seed uint64, progress func(int)) error {
	if t.exact != nil {
		return t.writeExact(dst, progress)
	}
	fill, err := newFiller(t.Format, seed, t.Name, t.mean, t.std)
	if err != nil {
		return err
	}
	block := int64(t.Format.BlockBytes())
	chunk := chunkBytes / block * block
	return requant.Ordered(ctx, dst, int((t.Bytes+chunk-1)/chunk), func(i int, buf []byte) ([]byte, error) {
		n := int(min(chunk, t.Bytes-int64(i)*chunk))
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		r := stream(seed, t.Name, i)
		fill.fill(buf, &r)
		return buf, nil
	}, progress)
}

func (t Tensor) writeExact(dst io.Writer, progress func(int)) error {
	buf := make([]byte, 0, 4*len(t.exact))
	for _, v := range t.exact {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
	}
	n, err := dst.Write(buf)
	if progress != nil {
		progress(n)
	}
	return err
}

// File returns a model of this shape in memory, with the formats of a recipe.
func (p Preset) File(ctx context.Context, recipe string, seed uint64) (*gguf.File, error) {
	r, err := requant.ParseRecipe(recipe)
	if err != nil {
		return nil, err
	}
	plan, err := NewPlan(p, r, 0)
	if err != nil {
		return nil, err
	}
	return plan.File(ctx, seed)
}

// File returns the planned model in memory.
func (p Plan) File(ctx context.Context, seed uint64) (*gguf.File, error) {
	w, err := p.Writer(ctx, seed, nil)
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	if _, err := w.WriteTo(&file); err != nil {
		return nil, err
	}
	return gguf.Parse(file.Bytes())
}
