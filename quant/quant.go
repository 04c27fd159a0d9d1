// Package quant describes the block formats that GGUF tensors are stored in:
// their layout, exact decoding, and encoding for the formats worth writing.
//
// A format packs BlockLen consecutive weights of one row into BlockBytes bytes;
// a row is a whole number of blocks. Layouts follow ggml's ggml-common.h and
// the GGUF specification; every decoder is bit-exact against that definition in
// float32. Numbers wider than a byte are little-endian.
//
// All functions may be called from any number of goroutines.
package quant

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Format identifies a block format by its ggml type id, as GGUF stores it.
type Format uint32

// The formats, with the ids that GGUF files carry.
const (
	F32    Format = 0
	F16    Format = 1
	Q4_0   Format = 2
	Q4_1   Format = 3
	Q5_0   Format = 6
	Q5_1   Format = 7
	Q8_0   Format = 8
	Q2_K   Format = 10
	Q3_K   Format = 11
	Q4_K   Format = 12
	Q5_K   Format = 13
	Q6_K   Format = 14
	IQ4_NL Format = 20
	IQ4_XS Format = 23
	BF16   Format = 30
)

// Errors for errors.Is.
var (
	// ErrUnsupported means a format that this package does not know.
	ErrUnsupported = errors.New("unsupported format")
	// ErrNoEncoder means a format that can be decoded but not written.
	ErrNoEncoder = errors.New("format cannot be encoded")
	// ErrPartialBlock means a row that does not fill whole blocks.
	ErrPartialBlock = errors.New("row does not fill whole blocks")
	// ErrOverflow means a row whose size in bytes does not fit an int.
	ErrOverflow = errors.New("row is too large")
	// ErrRange means a weight that the format cannot express: NaN, an infinity,
	// or a magnitude whose scale would overflow float16.
	ErrRange = errors.New("weight is out of range")
)

// Float is what a block decodes to. Decoding to float64 gives the same values
// as decoding to float32: each weight is rounded to float32 first, because that
// is what the formats define.
type Float interface{ float32 | float64 }

// Formats lists every format in order of id.
func Formats() []Format {
	var all []Format
	for id, c := range codecs {
		if c.name != "" {
			all = append(all, Format(id))
		}
	}
	return all
}

// Parse finds a format by its name, in upper or lower case: "Q4_K", "q4_k". The
// error for any other name wraps ErrUnsupported and lists the names.
func Parse(name string) (Format, error) {
	var names []string
	for _, f := range Formats() {
		if strings.EqualFold(name, f.String()) {
			return f, nil
		}
		names = append(names, f.String())
	}
	return 0, fmt.Errorf("quant: %w %q, want one of %s", ErrUnsupported, name, strings.Join(names, ", "))
}

// Valid reports whether f is a format of this package.
func (f Format) Valid() bool { return uint64(f) < uint64(len(codecs)) && codecs[f].name != "" }

// String gives the format's usual name, such as "Q4_K".
func (f Format) String() string {
	if f.Valid() {
		return codecs[f].name
	}
	return fmt.Sprintf("format(%d)", uint32(f))
}

// BlockLen is the number of weights in a block. It panics on an invalid format.
func (f Format) BlockLen() int { return f.codec().blockLen }

// BlockBytes is the size of a block in bytes. It panics on an invalid format.
func (f Format) BlockBytes() int { return f.codec().blockBytes }

// CanEncode reports whether Encode writes this format. It panics on an invalid
// format.
func (f Format) CanEncode() bool { return f.codec().encode != nil }

// RowBytes is the size in bytes of a row of n weights. The error wraps
// ErrPartialBlock when n is negative or no multiple of BlockLen, ErrOverflow
// when the size does not fit an int, and ErrUnsupported on an invalid format.
func (f Format) RowBytes(n int) (int, error) {
	if !f.Valid() {
		return 0, fmt.Errorf("quant: %w %v", ErrUnsupported, f)
	}
	c := f.codec()
	if n < 0 || n%c.blockLen != 0 {
		return 0, fmt.Errorf("quant: %w: %d weights in %v blocks of %d", ErrPartialBlock, n, f, c.blockLen)
	}
	blocks := n / c.blockLen
	if blocks > math.MaxInt/c.blockBytes {
		return 0, fmt.Errorf("quant: %w: %d weights of %v", ErrOverflow, n, f)
	}
	return blocks * c.blockBytes, nil
}

// Decode writes the len(dst) weights of the blocks in src to dst. It panics
// unless f is valid, len(dst) fills whole blocks, and src is exactly as long as
// RowBytes says. Any bytes decode: a block may hold NaN or infinite scales, but
// never makes Decode fail.
func Decode[T Float](f Format, dst []T, src []byte) {
	f.checkLengths(len(dst), len(src))
	switch dst := any(dst).(type) {
	case []float32:
		codecs[f].decode32(dst, src)
	case []float64:
		codecs[f].decode64(dst, src)
	}
}

// Encode writes the weights src to dst as blocks. The half formats round each
// weight to the nearest, ties to even; Q8_0 follows ggml's rule; the others search
// each block's scales, and minimums, for the least squared error. Encoding is
// deterministic, the same bytes on every platform.
//
// What a round trip loses, ‖x − decode(encode(x))‖/‖x‖, of Gaussian weights and of
// the same with one in a hundred 30 times larger:
//
//	          Gaussian  outliers
//	F16       2.1e-4    2.1e-4
//	BF16      1.7e-3    1.7e-3
//	Q8_0      5.3e-3    1.2e-2
//	Q6_K      1.7e-2    3.3e-2
//	Q4_K      7.0e-2    9.2e-2
//	Q4_0      8.1e-2    1.2e-1
//
// The error wraps ErrNoEncoder when f cannot be written and ErrRange when a block
// format meets a weight that it cannot express (F32, F16 and BF16 take every
// value); dst is then unspecified. Encode panics when lengths disagree, as Decode
// does.
func (f Format) Encode(dst []byte, src []float32) error {
	c := f.codec()
	if c.encode == nil {
		return fmt.Errorf("quant: %v: %w", f, ErrNoEncoder)
	}
	f.checkLengths(len(src), len(dst))
	if c.largest > 0 {
		for i, x := range src {
			if !(x >= -c.largest && x <= c.largest) { // so written, NaN is refused
				return fmt.Errorf("quant: %v: %w: weight %d is %v", f, ErrRange, i, x)
			}
		}
	}
	c.encode(dst, src)
	return nil
}

// checkLengths panics unless n weights of f take exactly size bytes.
func (f Format) checkLengths(n, size int) {
	c := f.codec()
	if n%c.blockLen != 0 || size%c.blockBytes != 0 || n/c.blockLen != size/c.blockBytes {
		panic(fmt.Sprintf("quant: %d bytes are not %d weights of %v", size, n, f))
	}
}

func (f Format) codec() *codec {
	if !f.Valid() {
		panic(fmt.Sprintf("quant: %v", f))
	}
	return &codecs[f]
}
