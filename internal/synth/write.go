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

// pieceBytes is about how much is made at a time. The pieces, not the cores,
// decide the random numbers, so it is part of what a seed means.
const pieceBytes = 1 << 20

// Writer returns a writer of the planned file. The weights are made while it is
// written, on all cores; the same plan and seed give the same bytes. progress,
// when not nil, is told of every written byte count.
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
	piece := pieceBytes / block * block
	return requant.Ordered(ctx, dst, int((t.Bytes+piece-1)/piece), func(i int, buf []byte) ([]byte, error) {
		n := int(min(piece, t.Bytes-int64(i)*piece))
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

// File is the file of a model of this shape, converted by a recipe, in memory: for shapes that
// are small.
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

// File is the model's file in memory, for models that are small.
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
