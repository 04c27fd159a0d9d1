package gguf

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Value is a metadata value: a view of the file's bytes, checked when the file was
// parsed and decoded when it is asked for. The zero Value is of no type and every
// accessor refuses it.
type Value struct {
	typ  Type
	elem Type   // of an array
	n    int    // of an array, its length; else 1; 0 in the zero Value
	raw  []byte // of a string and of an array, without the lengths and types before it
}

// none reports whether v is the zero Value. An empty array is not.
func (v Value) none() bool { return v.raw == nil }

// Type is the type of the value.
func (v Value) Type() Type { return v.typ }

// Elem is the type of an array's elements, and of any other value its own type.
func (v Value) Elem() Type {
	if v.typ == TypeArray {
		return v.elem
	}
	return v.typ
}

// Len is the length of an array, and 1 for any other value.
func (v Value) Len() int { return v.n }

// describe names the type for a message.
func (v Value) describe() string {
	switch {
	case v.none():
		return "nothing"
	case v.typ == TypeArray:
		return "array of " + v.elem.String()
	}
	return v.typ.String()
}

func typeError(v Value, want string) error {
	return refuse(ErrType, "have %s, want %s", v.describe(), want)
}

// Any is the value as the Go type of the same width: bool, uint8 … float64,
// string, or a slice of one of them; nil for the zero Value.
func (v Value) Any() any {
	switch {
	case v.none():
		return nil
	case v.typ == TypeArray:
		return types[v.elem].many(v.raw, v.n)
	}
	return types[v.typ].one(v.raw)
}

// Uint is an integer of any type that is not negative. The error is ErrType for
// another type and ErrOverflow for a negative number.
func (v Value) Uint() (uint64, error) {
	r := reflect.ValueOf(v.Any())
	switch {
	case r.CanUint():
		return r.Uint(), nil
	case r.CanInt() && r.Int() < 0:
		return 0, refuse(ErrOverflow, "%d is negative", r.Int())
	case r.CanInt():
		return uint64(r.Int()), nil
	}
	return 0, typeError(v, "integer")
}

// Int is an integer of any type. The error is ErrType for another type and
// ErrOverflow for a number that does not fit.
func (v Value) Int() (int64, error) {
	r := reflect.ValueOf(v.Any())
	switch {
	case r.CanInt():
		return r.Int(), nil
	case r.CanUint() && r.Uint() > math.MaxInt64:
		return 0, refuse(ErrOverflow, "%d does not fit an int64", r.Uint())
	case r.CanUint():
		return int64(r.Uint()), nil
	}
	return 0, typeError(v, "integer")
}

// Float is a float32 or a float64, else an ErrType.
func (v Value) Float() (float64, error) {
	if r := reflect.ValueOf(v.Any()); r.CanFloat() {
		return r.Float(), nil
	}
	return 0, typeError(v, "float")
}

// Bool is a bool, else an ErrType.
func (v Value) Bool() (bool, error) { return as[bool](v, "bool") }

// Str is a string, else an ErrType.
func (v Value) Str() (string, error) { return as[string](v, "string") }

// Strings is an array of strings, else an ErrType.
func (v Value) Strings() ([]string, error) { return as[[]string](v, "array of string") }

// Bools is an array of bools, else an ErrType.
func (v Value) Bools() ([]bool, error) { return as[[]bool](v, "array of bool") }

func as[T any](v Value, want string) (T, error) {
	x, ok := v.Any().(T)
	if !ok {
		return x, typeError(v, want)
	}
	return x, nil
}

// Floats is an array of float32 or of float64, else an ErrType.
func (v Value) Floats() ([]float64, error) {
	switch x := v.Any().(type) {
	case []float32:
		return widen[float64](x), nil
	case []float64:
		return x, nil
	}
	return nil, typeError(v, "array of float")
}

// Ints is an array of integers of any type. The error is ErrType for another type
// and ErrOverflow for a number that does not fit.
func (v Value) Ints() ([]int64, error) {
	switch x := v.Any().(type) {
	case []uint8:
		return widen[int64](x), nil
	case []int8:
		return widen[int64](x), nil
	case []uint16:
		return widen[int64](x), nil
	case []int16:
		return widen[int64](x), nil
	case []uint32:
		return widen[int64](x), nil
	case []int32:
		return widen[int64](x), nil
	case []int64:
		return x, nil
	case []uint64:
		for i, u := range x {
			if u > math.MaxInt64 {
				return nil, refuse(ErrOverflow, "element %d is %d, which does not fit an int64", i, u)
			}
		}
		return widen[int64](x), nil
	}
	return nil, typeError(v, "array of integer")
}

type number interface {
	~uint8 | ~int8 | ~uint16 | ~int16 | ~uint32 | ~int32 | ~uint64 | ~int64 | ~float32 | ~float64
}

func widen[To, From number](x []From) []To {
	out := make([]To, len(x))
	for i, e := range x {
		out[i] = To(e)
	}
	return out
}

// String is the value for people: strings quoted, long strings and arrays cut short.
func (v Value) String() string {
	switch {
	case v.none():
		return "nothing"
	case v.typ == TypeArray:
		return v.list()
	case v.typ == TypeString:
		return strconv.Quote(clip(string(v.raw)))
	}
	return fmt.Sprint(v.Any())
}

// list prints the first elements of an array.
func (v Value) list() string {
	const most = 8
	shown := v.first(most)
	var parts []string
	for x, i := reflect.ValueOf(shown.Any()), 0; i < x.Len(); i++ {
		if v.elem == TypeString {
			parts = append(parts, strconv.Quote(clip(x.Index(i).String())))
		} else {
			parts = append(parts, fmt.Sprint(x.Index(i)))
		}
	}
	if more := v.n - shown.n; more > 0 {
		parts = append(parts, fmt.Sprintf("… %d more", more))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// first is the array of v's first elements, at most n.
func (v Value) first(n int) Value {
	v.n = min(v.n, n)
	end := v.n * types[v.elem].size
	if v.elem == TypeString {
		for range v.n {
			_, end = nextString(v.raw, end)
		}
	}
	v.raw = v.raw[:end]
	return v
}
