// Package npy reads and writes NumPy's .npy files of float32 arrays: format
// version 1.0, little-endian, C order. Nothing else of the format is supported,
// and everything else is refused by name.
//
// The format is documented in numpy.lib.format.
package npy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Errors for errors.Is. Every error of Read that is not the reader's own wraps one.
var (
	// ErrFormat means bytes that are not a well-formed .npy file.
	ErrFormat = errors.New("not a valid .npy file")
	// ErrUnsupported means a valid .npy file of a kind that this package does not read.
	ErrUnsupported = errors.New("unsupported .npy file")
	// ErrShape means a shape that is negative, too large or not that of the data.
	ErrShape = errors.New("bad shape")
	// ErrTruncated means a file that ends before its header says.
	ErrTruncated = errors.New("truncated .npy file")
)

const (
	magic = "\x93NUMPY"
	// prefixLen is the magic, two version bytes and the header's length.
	prefixLen = len(magic) + 2 + 2
	// align is what NumPy pads the header to, so that a mapped array is aligned.
	align = 64
)

// Write writes data as an array of the given shape, C order. An empty shape is a
// scalar, one number. len(data) must be the product of the shape, else ErrShape.
func Write(w io.Writer, shape []int, data []float32) error {
	if n, err := elements(shape); err != nil {
		return err
	} else if n != len(data) {
		return fmt.Errorf("npy: %w: %v holds %d numbers, not %d", ErrShape, shape, n, len(data))
	}
	head, err := header(shape)
	if err != nil {
		return err
	}
	buf := bufio.NewWriterSize(w, 1<<16)
	buf.Write(head)
	var word [4]byte
	for _, v := range data {
		binary.LittleEndian.PutUint32(word[:], math.Float32bits(v))
		buf.Write(word[:])
	}
	return buf.Flush() // a bufio.Writer keeps the first error for its Flush
}

// header is everything before the numbers.
func header(shape []int) ([]byte, error) {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = strconv.Itoa(d)
	}
	tuple := strings.Join(dims, ", ")
	if len(dims) == 1 {
		tuple += "," // Python's one-element tuple
	}
	dict := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", tuple)
	total := (prefixLen + len(dict) + 1 + align - 1) / align * align
	if total-prefixLen > math.MaxUint16 {
		return nil, fmt.Errorf("npy: %w: %d dimensions do not fit the header", ErrShape, len(shape))
	}
	head := make([]byte, 0, total)
	head = append(head, magic...)
	head = append(head, 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(total-prefixLen))
	head = append(head, dict...)
	head = append(head, strings.Repeat(" ", total-len(head)-1)...)
	return append(head, '\n'), nil
}

// elements is the product of a shape, refused when the array's bytes would
// overflow an int.
func elements(shape []int) (int, error) {
	n, empty := 1, false
	for _, d := range shape {
		switch {
		case d < 0:
			return 0, fmt.Errorf("npy: %w: negative dimension %d", ErrShape, d)
		case d == 0:
			empty = true
		case n > math.MaxInt/4/d:
			return 0, fmt.Errorf("npy: %w: %v is too large", ErrShape, shape)
		default:
			n *= d
		}
	}
	if empty {
		return 0, nil
	}
	return n, nil
}
