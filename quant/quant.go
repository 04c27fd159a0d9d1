// Package quant defines the block formats of GGUF tensors: their layout, exact decoding,
// and encoding for some of them.
//
// A format packs BlockLen consecutive weights of a row into BlockBytes bytes. A row is a
// whole number of blocks. Layouts follow ggml's ggml-common.h and the GGUF specification.
// Every decoder is bit-exact against that definition in float32. Numbers wider than a
// byte are little-endian.
//
// All functions are safe for concurrent use.
package quant

import (
	"errors"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/internal/portable"
)

// Format is a block format, identified by its ggml type id as in GGUF files.
type Format uint32

// The formats, with their ggml type ids.
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
	MXFP4  Format = 39
)

// Errors for errors.Is.
var (
	// ErrUnsupported reports an unknown format, or a format that Encode cannot write.
	ErrUnsupported = errors.New("unsupported format")
	// ErrRange reports a weight that the format cannot represent: NaN, an infinity, or
	// a magnitude whose scale would overflow float16.
	ErrRange = errors.New("weight is out of range")

	errPartialBlock = errors.New("row does not fill whole blocks")
	errOverflow     = errors.New("row is too large")
)

// Formats returns all formats in order of their ids.
func Formats() []Format {
	var all []Format
	for id, l := range layouts {
		if l.name != "" {
			all = append(all, Format(id))
		}
	}
	return all
}

func (f Format) valid() bool { return uint64(f) < uint64(len(layouts)) && layouts[f].name != "" }

// layout returns the row of f in the table. It panics on an invalid format.
func (f Format) layout() *layout {
	if !f.valid() {
		panic(fmt.Sprintf("quant: %v", f))
	}
	return &layouts[f]
}

// String returns the name of the format, such as "Q4_K".
func (f Format) String() string {
	if f.valid() {
		return layouts[f].name
	}
	return fmt.Sprintf("format(%d)", uint32(f))
}

// BlockLen returns the number of weights per block. It panics on an invalid format.
func (f Format) BlockLen() int { return f.layout().blockLen }

// BlockBytes returns the number of bytes per block. It panics on an invalid format.
func (f Format) BlockBytes() int { return f.layout().blockBytes }

// FileType returns the value of the key general.file_type for a model in this format. It
// panics on an invalid format.
func (f Format) FileType() uint32 { return f.layout().fileType }

// CanEncode reports whether Encode can write this format. It panics on an invalid format.
func (f Format) CanEncode() bool { return f.layout().encode != nil }

// RowBytes returns the number of bytes of a row of n weights. The error wraps
// ErrUnsupported if f is invalid. It is another error if n is negative, is not a multiple
// of BlockLen, or if the result does not fit an int.
func (f Format) RowBytes(n int) (int, error) {
	if !f.valid() {
		return 0, fmt.Errorf("quant: %w %v", ErrUnsupported, f)
	}
	l := f.layout()
	if n < 0 || n%l.blockLen != 0 {
		return 0, fmt.Errorf("quant: %w: %d weights in %v blocks of %d", errPartialBlock, n, f, l.blockLen)
	}
	blocks := n / l.blockLen
	if blocks > math.MaxInt/l.blockBytes {
		return 0, fmt.Errorf("quant: %w: %d weights of %v", errOverflow, n, f)
	}
	return blocks * l.blockBytes, nil
}

type float interface{ float32 | float64 }

// Decode writes the len(dst) weights of the blocks in src to dst. Each weight is rounded
// to float32, as the formats define, also if dst is float64. Blocks of any content
// decode; a block may contain NaN or infinite scales. Decode panics unless f is valid,
// len(dst) fills whole blocks, and src has the length that RowBytes returns.
func Decode[T float](f Format, dst []T, src []byte) {
	f.checkLengths(len(dst), len(src))
	switch f {
	case F32:
		decodeF32(dst, src)
	case F16:
		decodeF16(dst, src)
	case BF16:
		decodeBF16(dst, src)
	default:
		decodeBlocks(f, dst, src)
	}
}

// Dot returns the dot product of x and the len(x) weights in src. The result has the bits of
// portable.Dot on the decoded weights. scratch must be at least as long as x; formats with a
// fused loop do not use it. Dot panics like Decode.
func Dot(f Format, src []byte, x, scratch []float64) float64 {
	f.checkLengths(len(x), len(src))
	if dot := layouts[f].dot; dot != nil {
		return dot(src, x)
	}
	w := scratch[:len(x)]
	Decode(f, w, src)
	return portable.Dot(w, x)
}

// Encode writes the weights src to dst as blocks. F16 and BF16 round each weight to the
// nearest, ties to even. Q8_0 follows ggml; MXFP4 takes the scale of the OCP Microscaling specification. For
// the other formats it searches for the scales and minimums of each block with the least
// squared error. The result is deterministic and the same on every platform.
//
// The error wraps ErrUnsupported if CanEncode is false, and ErrRange if a block format
// cannot represent a weight; dst is then unspecified. F32, F16 and BF16 accept every
// value. Encode panics on wrong lengths as Decode does.
func (f Format) Encode(dst []byte, src []float32) error {
	l := f.layout()
	if l.encode == nil {
		return fmt.Errorf("quant: %w %v: it cannot be encoded", ErrUnsupported, f)
	}
	f.checkLengths(len(src), len(dst))
	if l.maxAbs > 0 {
		for i, x := range src {
			if !(x >= -l.maxAbs && x <= l.maxAbs) { // in this form NaN is refused
				return fmt.Errorf("quant: %v: %w: weight %d is %v", f, ErrRange, i, x)
			}
		}
	}
	l.encode(dst, src)
	return nil
}

// checkLengths panics unless n weights of f take exactly size bytes.
func (f Format) checkLengths(n, size int) {
	l := f.layout()
	if n%l.blockLen != 0 || size%l.blockBytes != 0 || n/l.blockLen != size/l.blockBytes {
		panic(fmt.Sprintf("quant: %d bytes are not %d weights of %v", size, n, f))
	}
}
