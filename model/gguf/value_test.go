package gguf

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustEncode(t *testing.T, x any) Value {
	t.Helper()
	v, err := encode(x)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// result is the result of an accessor, with its error replaced by the sentinel.
type result struct {
	Got any
	Err error
}

func resultOf[T any](x T, err error) result {
	for _, s := range []error{ErrType, errOverflow} {
		if errors.Is(err, s) {
			return result{nil, s}
		}
	}
	return result{x, err}
}

func TestAccessors(t *testing.T) {
	uintOf := func(v Value) result { return resultOf(v.Uint()) }
	floatOf := func(v Value) result { return resultOf(v.Float()) }
	boolOf := func(v Value) result { return resultOf(v.Bool()) }
	strOf := func(v Value) result { return resultOf(v.Str()) }
	stringsOf := func(v Value) result { return resultOf(v.Strings()) }
	intsOf := func(v Value) result { return resultOf(v.Ints()) }
	floatsOf := func(v Value) result { return resultOf(v.Floats()) }
	wrong, tooLarge := result{nil, ErrType}, result{nil, errOverflow}
	tests := []struct {
		name, reason string
		value        any
		get          func(Value) result
		want         result
	}{
		{"uint of uint8", "widened", uint8(255), uintOf, result{uint64(255), nil}},
		{"uint of int8", "not negative", int8(127), uintOf, result{uint64(127), nil}},
		{"uint of negative int32", "does not fit", int32(-1), uintOf, tooLarge},
		{"uint of uint64", "all bits", uint64(math.MaxUint64), uintOf, result{uint64(math.MaxUint64), nil}},
		{"uint of float", "no integer", float32(1), uintOf, wrong},
		{"uint of bool", "no integer", true, uintOf, wrong},
		{"uint of array", "no integer", []uint32{1}, uintOf, wrong},
		{"float of float32", "exact", float32(0.1), floatOf, result{float64(float32(0.1)), nil}},
		{"float of float64", "as it is", 0.1, floatOf, result{0.1, nil}},
		{"float of integer", "not converted", uint32(1), floatOf, wrong},
		{"bool", "as it is", true, boolOf, result{true, nil}},
		{"bool of uint8", "not converted", uint8(1), boolOf, wrong},
		{"string", "as it is", "a\x00ż", strOf, result{"a\x00ż", nil}},
		{"string of array of string", "not joined", []string{"a"}, strOf, wrong},
		{"string of array of uint8", "no text", []uint8("a"), strOf, wrong},
		{"strings", "empty ones too", []string{"", "a", ""}, stringsOf, result{[]string{"", "a", ""}, nil}},
		{"no strings", "an array of none", []string{}, stringsOf, result{[]string{}, nil}},
		{"strings of string", "not wrapped", "a", stringsOf, wrong},
		{"strings of ints", "not printed", []int32{1}, stringsOf, wrong},
		{"ints of uint8", "widened", []uint8{0, 255}, intsOf, result{[]int64{0, 255}, nil}},
		{"ints of int8", "sign kept", []int8{-128, 127}, intsOf, result{[]int64{-128, 127}, nil}},
		{"ints of uint16", "widened", []uint16{65535}, intsOf, result{[]int64{65535}, nil}},
		{"ints of int16", "sign kept", []int16{-32768}, intsOf, result{[]int64{-32768}, nil}},
		{"ints of uint32", "widened", []uint32{math.MaxUint32}, intsOf, result{[]int64{math.MaxUint32}, nil}},
		{"ints of int32", "sign kept", []int32{-1}, intsOf, result{[]int64{-1}, nil}},
		{"ints of int64", "as they are", []int64{math.MinInt64}, intsOf, result{[]int64{math.MinInt64}, nil}},
		{"ints of uint64", "fit", []uint64{math.MaxInt64}, intsOf, result{[]int64{math.MaxInt64}, nil}},
		{"ints of large uint64", "do not fit", []uint64{1, 1 << 63}, intsOf, tooLarge},
		{"ints of floats", "not rounded", []float32{1}, intsOf, wrong},
		{"ints of integer", "not wrapped", int32(1), intsOf, wrong},
		{"floats of float32", "exact", []float32{0.1}, floatsOf, result{[]float64{float64(float32(0.1))}, nil}},
		{"floats of float64", "as they are", []float64{0.1}, floatsOf, result{[]float64{0.1}, nil}},
		{"floats of ints", "not converted", []int32{1}, floatsOf, wrong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.get(mustEncode(t, tt.value))
			if got.Err != tt.want.Err || !cmp.Equal(got.Got, tt.want.Got) {
				t.Errorf("got %v, want %v: %s", got, tt.want, tt.reason)
			}
		})
	}
}

// TestAccessorsOfAnotherType reads large values as other types, and formats them. Neither may
// decode them.
func TestAccessorsOfAnotherType(t *testing.T) {
	long := make([]byte, 8<<20)
	copy(long, u64(4<<20)) // an array of two strings of 4 MiB
	copy(long[8+4<<20:], u64(4<<20-16))
	for _, v := range []Value{
		{typ: typeString, n: 1, raw: long},
		{typ: typeArray, elem: typeString, n: 2, raw: long},
		{typ: typeArray, elem: typeBool, n: len(long), raw: long},
		{typ: typeArray, elem: typeUint8, n: len(long), raw: long},
		{typ: typeArray, elem: typeFloat64, n: len(long) / 8, raw: long},
	} {
		bounded(t, 0, func() {
			_, errUint := v.Uint()
			_, errFloat := v.Float()
			_, errBool := v.Bool()
			errs := []error{errUint, errFloat, errBool}
			if v.typ != typeString {
				_, err := v.Str()
				errs = append(errs, err)
			}
			if v.elem != typeString {
				_, err := v.Strings()
				errs = append(errs, err)
			}
			if !v.elem.integer() || !v.IsArray() {
				_, err := v.Ints()
				errs = append(errs, err)
			}
			if !v.elem.float() {
				_, err := v.Floats()
				errs = append(errs, err)
			}
			for i, err := range errs {
				if !errors.Is(err, ErrType) {
					t.Errorf("%s: accessor %d: error %v", v.TypeName(), i, err)
				}
			}
			if text := v.String(); len(text) > 1000 {
				t.Errorf("%s: a text of %d bytes", v.TypeName(), len(text))
			}
		})
	}
}

func TestZeroValue(t *testing.T) {
	var v Value
	if v.Any() != nil || v.Len() != 0 || v.String() != "nothing" {
		t.Errorf("Any %v, Len %d, String %q", v.Any(), v.Len(), v)
	}
	if _, err := v.Uint(); !errors.Is(err, ErrType) || !strings.Contains(err.Error(), "have nothing, want integer") {
		t.Errorf("Uint: %v", err)
	}
	if _, err := v.Strings(); !errors.Is(err, ErrType) {
		t.Errorf("Strings: %v", err)
	}
}

func TestValueString(t *testing.T) {
	long := strings.Repeat("ż", 100)
	tests := []struct {
		name, reason string
		value        any
		want         string
	}{
		{"number", "plain", uint32(7), "7"},
		{"negative", "plain", int8(-7), "-7"},
		{"float", "as few digits as tell it apart as a float32", float32(1e-5), "1e-05"},
		{"bool", "plain", true, "true"},
		{"string", "quoted", "a\nb", `"a\nb"`},
		{"long string", "cut at a character", long, `"` + strings.Repeat("ż", 40) + `…"`},
		{"empty array", "no element", []int32{}, "[]"},
		{"short array", "whole", []int32{1, -2}, "[1, -2]"},
		{"array of 8", "still whole", []uint8{1, 2, 3, 4, 5, 6, 7, 8}, "[1, 2, 3, 4, 5, 6, 7, 8]"},
		{"array of 9", "cut short", []uint8{1, 2, 3, 4, 5, 6, 7, 8, 9}, "[1, 2, 3, 4, 5, 6, 7, 8, … 1 more]"},
		{"strings", "quoted, cut short", []string{"a", "", long, "d", "e", "f", "g", "h", "i", "j"},
			`["a", "", "` + strings.Repeat("ż", 40) + `…", "d", "e", "f", "g", "h", … 2 more]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := mustEncode(t, tt.value).String(); got != tt.want {
				t.Errorf("got %s, want %s: %s", got, tt.want, tt.reason)
			}
		})
	}
}

func TestTypeNames(t *testing.T) {
	if typeFloat64 != 12 || typeArray != 9 || typeString != 8 {
		t.Error("type ids are not those of the specification")
	}
	if got := typeUint32.String() + " " + valueType(99).String(); got != "uint32 type(99)" {
		t.Errorf("names %q", got)
	}
	if v := mustEncode(t, []int32{1, 2}); v.TypeName() != "array of int32" || !v.IsArray() || v.Len() != 2 {
		t.Errorf("type %v, len %d", v.TypeName(), v.Len())
	}
	if v := mustEncode(t, "ab"); v.TypeName() != "string" || v.IsArray() || v.Len() != 1 {
		t.Errorf("type %v, len %d", v.TypeName(), v.Len())
	}
}
