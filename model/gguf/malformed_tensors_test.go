package gguf

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/quant"
)

// withTensor is good with its second tensor replaced.
func withTensor(entry []byte) []byte {
	return with(func(f *rawFile) { f.tensors[1] = entry })
}

func badNames() []malformed {
	cases := []malformed{
		{"empty name", "a tensor needs a name", withTensor(ten("", idF32, 32, 4)), ErrName},
		{"name too long", "64 bytes are the specification's limit", withTensor(ten(strings.Repeat("n", MaxNameLen+1), idF32, 32, 4)), ErrName},
		{"duplicate name, neighbors", "which one counts?", withTensor(ten("a.weight", idF32, 32, 4)), ErrDuplicate},
		{"duplicate name, first and last", "which one counts?",
			with(func(f *rawFile) { f.tensors[2] = ten("a.weight", idF16, 128, 3) }), ErrDuplicate},
		{"duplicate tensor", "the same entry twice", with(func(f *rawFile) { f.tensors = append(f.tensors, f.tensors[0]) }), ErrDuplicate},
	}
	for _, n := range hugeLengths {
		cases = append(cases, malformed{fmt.Sprintf("name length %#x", n), "beyond the file",
			withTensor(cat(u64(n), make([]byte, 64))), ErrTruncated})
	}
	for _, bad := range notUTF8 {
		cases = append(cases, malformed{"name with " + bad.name, "no UTF-8", withTensor(ten(bad.text, idF32, 32, 4)), ErrUTF8})
	}
	return cases
}

func badShapes() []malformed {
	const big = 1 << 32
	cases := []malformed{
		{"no dimensions", "a scalar has one dimension of 1", withTensor(ten("x", idF32, 32)), ErrShape},
		{"5 dimensions", "4 are the most", withTensor(ten("x", idF32, 32, 1, 1, 1, 1, 1)), ErrShape},
		{"99 dimensions", "4 are the most", withTensor(ten("x", idF32, 32, make([]uint64, 99)...)), ErrShape},
		{"2³¹ dimensions", "negative as an int32", withTensor(cat(str("x"), u32(1<<31), make([]byte, 64))), ErrShape},
		{"2³²−1 dimensions", "−1 as an int32", withTensor(cat(str("x"), u32(math.MaxUint32), make([]byte, 64))), ErrShape},
		{"rows of zero", "dimension 0", withTensor(ten("x", idF32, 32, 0, 2)), ErrShape},
		{"no rows", "dimension 1", withTensor(ten("x", idF32, 32, 4, 0)), ErrShape},
		{"no matrices", "dimension 2", withTensor(ten("x", idF32, 32, 4, 1, 0)), ErrShape},
		{"no stacks", "dimension 3", withTensor(ten("x", idF32, 32, 4, 1, 1, 0)), ErrShape},
		{"all dimensions zero", "nothing", withTensor(ten("x", idF32, 32, 0, 0, 0, 0)), ErrShape},
		{"zero times huge", "0 elements however they are counted", withTensor(ten("x", idF32, 32, math.MaxInt64, math.MaxInt64, 0)), ErrShape},
		{"dimension 2⁶³", "negative as an int", withTensor(ten("x", idF32, 32, 1<<63)), ErrOverflow},
		{"dimension 2⁶⁴−1", "−1 as an int", withTensor(ten("x", idF32, 32, 4, math.MaxUint64)), ErrOverflow},
		{"two negative dimensions", "whose product is positive", withTensor(ten("x", idF32, 32, 1<<63+4, 1<<63+1)), ErrOverflow},
		{"2⁶³ elements", "one more than an int64 has", withTensor(ten("x", idF16, 32, 1<<31, big)), ErrOverflow},
		{"2⁶⁴ elements", "none, when they wrap", withTensor(ten("x", idF32, 32, big, big)), ErrOverflow},
		{"2⁶⁴+2³² elements", "2³², when they wrap", withTensor(ten("x", idF32, 32, big, big+1)), ErrOverflow},
		{"2⁸⁰ elements", "in four dimensions", withTensor(ten("x", idF32, 32, 1<<20, 1<<20, 1<<20, 1<<20)), ErrOverflow},
		{"2¹²⁸ elements", "beyond even 128 bits", withTensor(ten("x", idF32, 32, big, big, big, big)), ErrOverflow},
		{"elements wrap to few", "2·(2⁶²+2)·2 = 2⁶⁴+8, which is 8 when it wraps", withTensor(ten("x", idF32, 32, 2, 1<<62+2, 2)), ErrOverflow},
		{"2⁶⁴ bytes of F32", "none, when they wrap", withTensor(ten("x", idF32, 32, 1<<62)), ErrOverflow},
		{"2⁶³ bytes of F32", "negative as an int64", withTensor(ten("x", idF32, 32, 1<<61)), ErrOverflow},
		{"2⁶³ bytes of F16", "negative as an int64", withTensor(ten("x", idF16, 32, 1<<31, 1<<31)), ErrOverflow},
		{"2⁶² elements of Q8_0", "fit, but not in the file", withTensor(ten("x", idQ8_0, 32, 1<<62, 1)), ErrTruncated},
		{"2⁶³−32 elements of Q8_0", "34 bytes for 32 are too many for an int64", withTensor(ten("x", idQ8_0, 32, math.MaxInt64-31)), ErrOverflow},
	}
	for _, f := range quant.Formats() {
		n := uint64(f.BlockLen())
		if n == 1 {
			continue
		}
		for _, row := range []uint64{1, n / 2, n - 1, n + 1} {
			cases = append(cases, malformed{fmt.Sprintf("%v rows of %d", f, row), "no whole blocks, though the rows together are",
				withTensor(ten("x", uint32(f), 32, row, n)), ErrPartialBlock})
		}
	}
	return cases
}

func badFormats() []malformed {
	var cases []malformed
	for id := range uint32(64) {
		if slices.Contains(quant.Formats(), quant.Format(id)) {
			continue
		}
		cases = append(cases, malformed{fmt.Sprintf("format %d", id), "removed, unknown or not supported",
			withTensor(ten("x", id, 32, 256)), ErrUnsupportedFormat})
	}
	for _, id := range []uint32{100, 255, 1 << 8, 1 << 16, 1 << 31, math.MaxUint32} {
		cases = append(cases, malformed{fmt.Sprintf("format %d", id), "unknown", withTensor(ten("x", id, 32, 256)), ErrUnsupportedFormat})
	}
	return cases
}

// badPlaces has tensors that are misaligned, that overlap, or that are not in the
// file. In good, a has the data's bytes 0–31, b 32–99 and c 128–133, of 160.
func badPlaces() []malformed {
	place := func(offsets ...uint64) []byte {
		return with(func(f *rawFile) {
			f.tensors = [][]byte{
				ten("a.weight", idF32, offsets[0], 4, 2), ten("b.weight", idQ8_0, offsets[1], 32, 2), ten("c.bias", idF16, offsets[2], 3),
			}
		})
	}
	aligned64 := with(func(f *rawFile) {
		f.align, f.keys[1] = 64, kv(KeyAlignment, TypeUint32, u32(64))
		f.data = make([]byte, 256)
	})
	cases := []malformed{
		{"offset aligned to 32 of 64", "the file's own alignment counts", aligned64, ErrAlignment},
		{"two tensors in one place", "a and b at 0", place(0, 0, 128), ErrOverlap},
		{"tensor starts inside the one before", "a is 32 bytes inside b", place(64, 32, 128), ErrOverlap},
		{"tensor starts in the last bytes of another", "c at 96, b ends at 100", place(0, 32, 96), ErrOverlap},
		{"overlap against the file's order", "the later entry lies before", place(96, 32, 0), ErrOverlap},
		{"overlap of first and last", "the neighbors in the list do not", place(0, 32, 0), ErrOverlap},
		{"three in one place", "all at 32", place(32, 32, 32), ErrOverlap},
		{"tensor right behind the file", "c at 160", place(0, 32, 160), ErrTruncated},
		{"tensor across the end", "b at 96 ends at 164", place(0, 96, 64), ErrTruncated},
		{"tensor far behind the file", "c at 2⁴⁰", place(0, 32, 1<<40), ErrTruncated},
		{"last byte missing", "c ends at 134", with(func(f *rawFile) { f.data = f.data[:133] }), ErrTruncated},
		{"no data", "the header is whole", with(func(f *rawFile) { f.data = nil }), ErrTruncated},
		{"no padding", "the file ends with the header", good().header(), ErrTruncated},
		{"tensor larger than the file", "2⁴⁰ weights", withTensor(ten("x", idF32, 32, 1<<20, 1<<20)), ErrTruncated},
		{"offset 2⁶³", "negative as an int64", place(0, 32, 1<<63), ErrOverflow},
		{"offset 2⁶³−32", "plus the size it is negative", place(0, 1<<63-32, 128), ErrOverflow},
		{"offset 2⁶³−64", "plus the header it is negative", place(0, 32, 1<<63-64), ErrOverflow},
		{"offset 2⁶⁴−32", "plus the size it is 0", place(1<<64-32, 32, 128), ErrOverflow},
		{"offset and size are 2⁶⁴+32", "inside the file, when they wrap", with(func(f *rawFile) {
			f.tensors[1] = ten("x", idF32, 1<<64-32, 16)
		}), ErrOverflow},
	}
	for _, offset := range []uint64{1, 2, 4, 8, 16, 31, 33, 127, 1<<63 + 1, math.MaxUint64} {
		cases = append(cases, malformed{fmt.Sprintf("offset %#x", offset), "no multiple of 32", place(0, 32, offset), ErrAlignment})
	}
	return cases
}
