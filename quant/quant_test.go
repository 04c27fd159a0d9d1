package quant

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// The ids and block sizes of the GGUF specification.
var formatTable = []struct {
	name              string
	format            Format
	id, weights, size int
	encode            bool
}{
	{"F32", F32, 0, 1, 4, true},
	{"F16", F16, 1, 1, 2, true},
	{"Q4_0", Q4_0, 2, 32, 18, true},
	{"Q4_1", Q4_1, 3, 32, 20, false},
	{"Q5_0", Q5_0, 6, 32, 22, false},
	{"Q5_1", Q5_1, 7, 32, 24, false},
	{"Q8_0", Q8_0, 8, 32, 34, true},
	{"Q2_K", Q2_K, 10, 256, 84, false},
	{"Q3_K", Q3_K, 11, 256, 110, false},
	{"Q4_K", Q4_K, 12, 256, 144, true},
	{"Q5_K", Q5_K, 13, 256, 176, false},
	{"Q6_K", Q6_K, 14, 256, 210, true},
	{"IQ4_NL", IQ4_NL, 20, 32, 18, false},
	{"IQ4_XS", IQ4_XS, 23, 256, 136, false},
	{"BF16", BF16, 30, 1, 2, true},
	{"MXFP4", MXFP4, 39, 32, 17, true},
}

func TestFormatTable(t *testing.T) {
	var all []Format
	for _, tt := range formatTable {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.format
			all = append(all, f)
			if int(f) != tt.id || !f.valid() || f.String() != tt.name ||
				f.BlockLen() != tt.weights || f.BlockBytes() != tt.size || f.CanEncode() != tt.encode {
				t.Errorf("id %d, valid %v, %v, %d weights in %d bytes, encode %v",
					f, f.valid(), f, f.BlockLen(), f.BlockBytes(), f.CanEncode())
			}
			if _, ok := specs[f]; !ok {
				t.Error("no definition to test against")
			}
		})
	}
	if !slices.Equal(Formats(), all) {
		t.Errorf("Formats() = %v", Formats())
	}
}

func TestInvalidFormat(t *testing.T) {
	for _, f := range []Format{4, 5, 9, 15, 31, 1 << 31, math.MaxUint32} {
		if f.valid() || !strings.HasPrefix(f.String(), "format(") {
			t.Errorf("%d: valid %v, %v", uint32(f), f.valid(), f)
		}
		if _, err := f.RowBytes(256); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%v: RowBytes error %v", f, err)
		}
		mustPanic(t, func() { f.BlockLen() })
		mustPanic(t, func() { f.BlockBytes() })
		mustPanic(t, func() { f.CanEncode() })
		mustPanic(t, func() { Decode(f, []float32{}, nil) })
		mustPanic(t, func() { _ = f.Encode(nil, nil) })
	}
}

func TestRowBytes(t *testing.T) {
	tests := []struct {
		name, reason string
		format       Format
		n, want      int
		err          error
	}{
		{"empty", "no weights are no blocks", Q4_K, 0, 0, nil},
		{"one block", "the smallest row", Q4_K, 256, 144, nil},
		{"many", "a row of a real model", Q8_0, 4096, 4352, nil},
		{"single weights", "any length fills blocks of one", F16, 7, 14, nil},
		{"partial", "one weight short", Q4_K, 255, 0, errPartialBlock},
		{"part of a K block", "fills blocks of 32 but not of 256", Q6_K, 288, 0, errPartialBlock},
		{"negative", "a whole number of blocks, but of no row", Q8_0, -32, 0, errPartialBlock},
		{"largest", "the last size that fits", F32, math.MaxInt / 4, math.MaxInt / 4 * 4, nil},
		{"overflow", "one weight more", F32, math.MaxInt/4 + 1, 0, errOverflow},
		{"blocks overflow", "more bytes than weights", Q8_0, math.MaxInt &^ 31, 0, errOverflow},
		{"fewer bytes than weights", "cannot overflow", Q4_K, math.MaxInt &^ 255, math.MaxInt >> 8 * 144, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.format.RowBytes(tt.n)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%s: %d, %v, want %d, %v", tt.reason, got, err, tt.want, tt.err)
			}
		})
	}
}

func TestLengthsMustAgree(t *testing.T) {
	for _, f := range Formats() {
		n, size := f.BlockLen(), f.BlockBytes()
		tests := []struct {
			name, reason  string
			weights, size int
		}{
			{"short source", "would read past the end", n, size - 1},
			{"long source", "a row of another width", n, size + 1},
			{"two blocks for one", "whole blocks, but not these", n, 2 * size},
			{"one block for two", "whole blocks, but not these", 2 * n, size},
			{"nothing to read", "a row without its bytes", n, 0},
			{"nowhere to write", "bytes without their row", 0, size},
		}
		if n > 1 {
			tests = append(tests, tests[0], tests[0])
			tests[6].name, tests[6].weights, tests[6].size = "short row", n-1, size
			tests[7].name, tests[7].weights, tests[7].size = "long row", n+1, size
		}
		for _, tt := range tests {
			t.Run(f.String()+"/"+tt.name, func(t *testing.T) {
				mustPanic(t, func() { Decode(f, make([]float32, tt.weights), make([]byte, tt.size)) })
				mustPanic(t, func() { Decode(f, make([]float64, tt.weights), make([]byte, tt.size)) })
				if f.CanEncode() {
					mustPanic(t, func() { _ = f.Encode(make([]byte, tt.size), make([]float32, tt.weights)) })
				}
			})
		}
		Decode(f, []float32{}, nil) // an empty row is valid
	}
}
