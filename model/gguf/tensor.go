package gguf

import (
	"cmp"
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/lockstep-go/lockstep/quant"
)

// Tensor is a named tensor in a File.
type Tensor struct {
	Name   string
	Format quant.Format
	// Dims holds 1 to 4 dimensions in ggml's order, the fastest first: a matrix
	// [rows, cols] has Dims {cols, rows}. Read-only.
	Dims []int
	// Part is the index in File.Paths of the file that Data is in.
	Part int
	// Offset is the position of Data in that file, in bytes.
	Offset int64
	// Data holds the blocks, row after row. It is a read-only view of the file. If the
	// file is mapped, read Data inside Guard, and not after File.Close.
	Data []byte
}

// Elements returns the number of weights.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// Info returns a description of t for Writer.Add. The Writer copies the data when it
// writes, and fails with ErrTruncated if the source file was cut short.
func (t Tensor) Info() TensorInfo {
	return TensorInfo{Name: t.Name, Format: t.Format, Dims: t.Dims, Write: t.write}
}

// write copies the data through a buffer, so that this process reads the mapping inside
// Guard. If the operating system read a mapping of a file that was cut short, it would
// return an error that does not tell the cause.
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
	return checkMapped(t.Data)
}

func checkShape(dims []int) error {
	if len(dims) == 0 || len(dims) > maxDims {
		return refuse(errShape, "%d dimensions, not 1 to %d", len(dims), maxDims)
	}
	for i, d := range dims {
		if d == 0 {
			return refuse(errShape, "dimension %d is zero", i)
		}
		if d < 0 {
			return refuse(errShape, "dimension %d is %d", i, d)
		}
	}
	return nil
}

// sizeOf returns the size of a tensor in bytes:
//
//	Π dims / block length · block bytes
//
// A row must consist of whole blocks. Elements and bytes must fit an int.
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
			return 0, refuse(errOverflow, "shape %v has too many elements", dims)
		}
		elements = lo
	}
	if n := format.BlockLen(); dims[0]%n != 0 {
		return 0, refuse(errPartialBlock, "rows of %d do not fill whole blocks of %d (%v)", dims[0], n, format)
	}
	hi, size := bits.Mul64(elements/uint64(format.BlockLen()), uint64(format.BlockBytes()))
	if hi != 0 || size > math.MaxInt {
		return 0, refuse(errOverflow, "shape %v of %v has too many bytes", dims, format)
	}
	return int64(size), nil
}

// alignUp rounds n up to a multiple of align, a power of two. n + align must not
// overflow.
func alignUp(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }

// tensor checks the position of e's data and returns the tensor. start is the position of
// the data section in the file. dims is the shape of e as ints.
func (e entry) tensor(data []byte, start, align int64, dims []int) (Tensor, error) {
	t := Tensor{Name: string(e.name), Format: quant.Format(e.format), Dims: dims}
	size, err := sizeOf(t.Format, dims)
	if err != nil {
		return t, err
	}
	if e.offset%uint64(align) != 0 {
		return t, refuse(errAlignment, "offset %d is not a multiple of the alignment %d", e.offset, align)
	}
	if e.offset > uint64(math.MaxInt64-size) || e.offset+uint64(size) > uint64(math.MaxInt64-start) {
		return t, refuse(errOverflow, "offset %d with %d bytes of data is too large", e.offset, size)
	}
	t.Offset = start + int64(e.offset)
	end := t.Offset + size
	if end > int64(len(data)) {
		return t, refuse(ErrTruncated, "its data ends at byte %d, the file at byte %d", end, len(data))
	}
	t.Data = data[t.Offset:end:end]
	return t, nil
}

// ints appends e's dimensions to dst.
func (e entry) ints(dst []int) ([]int, error) {
	for i, d := range e.dims[:e.n] {
		if d > math.MaxInt {
			return nil, refuse(errOverflow, "dimension %d is %d", i, d)
		}
		dst = append(dst, int(d))
	}
	return dst, nil
}

// checkOverlap refuses tensors that share bytes. It allows gaps and any order.
func checkOverlap(tensors []Tensor) error {
	order := make([]int32, len(tensors))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(tensors[a].Offset, tensors[b].Offset) })
	for i := 1; i < len(order); i++ {
		a, b := tensors[order[i-1]], tensors[order[i]]
		if end := a.Offset + int64(len(a.Data)); b.Offset < end {
			return inTensor(b.Name, refuse(errOverlap, "starts at byte %d, inside tensor %q, which ends at %d", b.Offset, clip(a.Name), end))
		}
	}
	return nil
}

// otherFormats names the ids of ggml's enum ggml_type that package quant does not
// have, for error messages.
var otherFormats = map[quant.Format]struct {
	name    string
	removed bool // from ggml
}{
	4:  {"Q4_2", true},
	5:  {"Q4_3", true},
	9:  {"Q8_1", false},
	15: {"Q8_K", false},
	16: {"IQ2_XXS", false},
	17: {"IQ2_XS", false},
	18: {"IQ3_XXS", false},
	19: {"IQ1_S", false},
	21: {"IQ3_S", false},
	22: {"IQ2_S", false},
	24: {"I8", false},
	25: {"I16", false},
	26: {"I32", false},
	27: {"I64", false},
	28: {"F64", false},
	29: {"IQ1_M", false},
	31: {"Q4_0_4_4", true},
	32: {"Q4_0_4_8", true},
	33: {"Q4_0_8_8", true},
	34: {"TQ1_0", false},
	35: {"TQ2_0", false},
	36: {"IQ4_NL_4_4", true},
	37: {"IQ4_NL_4_8", true},
	38: {"IQ4_NL_8_8", true},
	40: {"NVFP4", false},
	41: {"Q1_0", false},
	42: {"Q2_0", false},
}

func checkFormat(f quant.Format) error {
	if _, err := f.RowBytes(0); err == nil {
		return nil
	}
	switch o, known := otherFormats[f]; {
	case !known:
		return refuse(errUnsupportedFormat, "format %d is unknown", uint32(f))
	case o.removed:
		return refuse(errUnsupportedFormat, "format %d (%s) was removed from ggml and is not supported", uint32(f), o.name)
	default:
		return refuse(errUnsupportedFormat, "format %d (%s) is not supported", uint32(f), o.name)
	}
}
