package gguf

import (
	"cmp"
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/lockstep-go/lockstep/quant"
)

// Tensor is a tensor of a file.
type Tensor struct {
	Name   string
	Format quant.Format
	// Dims has 1 to 4 dimensions, Dims[0] the length of a row (ggml's order: the
	// fastest first, so a matrix of Rows × Cols has Dims [Cols, Rows]). Read-only.
	Dims []int
	// Offset is where the data starts, in bytes from the start of the file.
	Offset int64
	// Data is the blocks, row after row: a view into the file, read-only. If the
	// file is mapped, read it inside Guard, and not after File.Close.
	Data []byte
}

// Elements is the number of weights.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// Info describes t for Writer.Add: the same tensor, with the data copied when it
// is written. It may fail then with ErrTruncated.
func (t Tensor) Info() TensorInfo {
	return TensorInfo{Name: t.Name, Format: t.Format, Dims: t.Dims, Write: t.write}
}

// write copies the data through a buffer: the kernel, reading a mapping that was
// cut short, would answer with an errno and not with a fault that Guard explains.
func (t Tensor) write(w io.Writer) error {
	buf := make([]byte, min(len(t.Data), 1<<18))
	for rest := t.Data; len(rest) > 0; {
		var n int
		if err := Guard(func() { n = copy(buf, rest) }); err != nil {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// checkShape refuses what is no shape.
func checkShape(dims []int) error {
	if len(dims) == 0 || len(dims) > MaxDims {
		return refuse(ErrShape, "%d dimensions, not 1 to %d", len(dims), MaxDims)
	}
	for i, d := range dims {
		if d == 0 {
			return refuse(ErrShape, "dimension %d is zero", i)
		}
		if d < 0 {
			return refuse(ErrShape, "dimension %d is %d", i, d)
		}
	}
	return nil
}

// sizeOf is the number of bytes of a tensor:
//
//	Π dims / block length · block bytes
//
// where each row is whole blocks. The elements and the bytes must fit an int.
func sizeOf(format quant.Format, dims []int) (int64, error) {
	if err := checkShape(dims); err != nil {
		return 0, err
	}
	if err := checkFormat(format); err != nil {
		return 0, err
	}
	elements := uint64(1)
	for _, d := range dims {
		hi, lo := bits.Mul64(elements, uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, refuse(ErrOverflow, "shape %v has too many elements", dims)
		}
		elements = lo
	}
	if n := format.BlockLen(); dims[0]%n != 0 {
		return 0, refuse(ErrPartialBlock, "rows of %d do not fill whole blocks of %d (%v)", dims[0], n, format)
	}
	hi, size := bits.Mul64(elements/uint64(format.BlockLen()), uint64(format.BlockBytes()))
	if hi != 0 || size > math.MaxInt {
		return 0, refuse(ErrOverflow, "shape %v of %v has too many bytes", dims, format)
	}
	return int64(size), nil
}

// alignUp is the smallest multiple of the power of two align that is at least n.
// The caller keeps n + align from overflowing.
func alignUp(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }

// place checks where e's data lies and returns the tensor. start is where the
// data of the file starts, dims a shape already known to fit ints.
func (e entry) place(data []byte, start, align int64, dims []int) (Tensor, error) {
	t := Tensor{Name: string(e.name), Format: quant.Format(e.format), Dims: dims}
	size, err := sizeOf(t.Format, dims)
	if err != nil {
		return t, err
	}
	if e.offset%uint64(align) != 0 {
		return t, refuse(ErrAlignment, "offset %d is no multiple of the alignment %d", e.offset, align)
	}
	if e.offset > uint64(math.MaxInt64-size) || e.offset+uint64(size) > uint64(math.MaxInt64-start) {
		return t, refuse(ErrOverflow, "offset %d with %d bytes of data is too large", e.offset, size)
	}
	t.Offset = start + int64(e.offset)
	end := t.Offset + size
	if end > int64(len(data)) {
		return t, refuse(ErrTruncated, "its data ends at byte %d, and the file at %d", end, len(data))
	}
	t.Data = data[t.Offset:end:end]
	return t, nil
}

// ints returns e's dimensions in dst, which has room for them.
func (e entry) ints(dst []int) ([]int, error) {
	for i, d := range e.dims[:e.n] {
		if d > math.MaxInt {
			return nil, refuse(ErrOverflow, "dimension %d is %d", i, d)
		}
		dst = append(dst, int(d))
	}
	return dst, nil
}

// checkOverlap refuses tensors that share bytes. Gaps, and any order, are allowed.
func checkOverlap(tensors []Tensor) error {
	order := make([]int32, len(tensors)) // MaxTensors fits
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(tensors[a].Offset, tensors[b].Offset) })
	for i := 1; i < len(order); i++ {
		a, b := tensors[order[i-1]], tensors[order[i]]
		if end := a.Offset + int64(len(a.Data)); b.Offset < end {
			return inTensor(b.Name, refuse(ErrOverlap, "starts at byte %d, inside tensor %q, which ends at %d", b.Offset, clip(a.Name), end))
		}
	}
	return nil
}
