package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// valueType is the type of a metadata value, by its GGUF id.
type valueType uint32

// The value types, with the ids of the GGUF specification.
const (
	typeUint8 valueType = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// typeInfo describes a value type. String and array have size 0.
type typeInfo struct {
	name string
	size int                         // bytes of one value
	one  func(raw []byte) any        // decodes a T
	many func(raw []byte, n int) any // decodes a []T of length n
}

var types = [...]typeInfo{
	typeUint8:   fixedSize[uint8]("uint8"),
	typeInt8:    fixedSize[int8]("int8"),
	typeUint16:  fixedSize[uint16]("uint16"),
	typeInt16:   fixedSize[int16]("int16"),
	typeUint32:  fixedSize[uint32]("uint32"),
	typeInt32:   fixedSize[int32]("int32"),
	typeFloat32: fixedSize[float32]("float32"),
	typeBool:    fixedSize[bool]("bool"),
	typeString:  {name: "string", one: decodeString, many: decodeStrings},
	typeArray:   {name: "array"},
	typeUint64:  fixedSize[uint64]("uint64"),
	typeInt64:   fixedSize[int64]("int64"),
	typeFloat64: fixedSize[float64]("float64"),
}

func fixedSize[T any](name string) typeInfo {
	many := func(raw []byte, n int) []T {
		out := make([]T, n)
		if _, err := binary.Decode(raw, binary.LittleEndian, out); err != nil {
			panic(fmt.Sprintf("gguf: %d bytes for %d of %s", len(raw), n, name)) // the parser checked the length
		}
		return out
	}
	return typeInfo{
		name: name,
		size: binary.Size(*new(T)),
		one:  func(raw []byte) any { return many(raw, 1)[0] },
		many: func(raw []byte, n int) any { return many(raw, n) },
	}
}

func decodeString(raw []byte) any { return string(raw) }

// decodeStrings copies the array once and slices the copy, because a vocabulary has
// hundreds of thousands of strings.
func decodeStrings(raw []byte, n int) any {
	all := string(raw)
	out := make([]string, n)
	pos := 0
	for i := range out {
		start, end := nextString(raw, pos)
		out[i] = all[start:end]
		pos = end
	}
	return out
}

// lengthBytes is the size of the length that precedes the bytes of a string.
const lengthBytes = 8

// nextString returns the bounds of the string whose length is at raw[pos:]. The
// parser has checked that they are within raw.
func nextString(raw []byte, pos int) (start, end int) {
	start = pos + lengthBytes
	return start, start + int(binary.LittleEndian.Uint64(raw[pos:]))
}

func (t valueType) valid() bool { return int64(t) < int64(len(types)) }

// String returns the name in the GGUF specification, such as "uint32".
func (t valueType) String() string {
	if t.valid() {
		return types[t].name
	}
	return fmt.Sprintf("type(%d)", uint32(t))
}

func (t valueType) integer() bool {
	switch t {
	case typeUint8, typeInt8, typeUint16, typeInt16, typeUint32, typeInt32, typeUint64, typeInt64:
		return true
	}
	return false
}

func (t valueType) float() bool { return t == typeFloat32 || t == typeFloat64 }

// Value is a metadata value. The parser checks it; an accessor decodes it on each
// call. The zero Value has no type, and every accessor refuses it. Errors of the
// accessors wrap ErrType, or ErrMalformed if a number does not fit.
type Value struct {
	typ  valueType
	elem valueType // of an array
	n    int       // length of an array; 1 for a scalar; 0 in the zero Value
	raw  []byte    // without the leading types and lengths of a string or an array
}

func (v Value) isZero() bool { return v.raw == nil }

// IsArray reports whether v is an array.
func (v Value) IsArray() bool { return v.typ == typeArray }

// Len returns the length of an array, and 1 for a scalar.
func (v Value) Len() int { return v.n }

// TypeName returns the name of the type in the GGUF specification, such as "uint32" or
// "array of string".
func (v Value) TypeName() string {
	switch {
	case v.isZero():
		return "nothing"
	case v.IsArray():
		return "array of " + v.elem.String()
	}
	return v.typ.String()
}

func typeError(v Value, want string) error {
	return refuse(ErrType, "have %s, want %s", v.TypeName(), want)
}

// Any returns the value as the Go type of the same width: bool, uint8 … float64,
// string, or a slice of one of them. It returns nil for the zero Value.
func (v Value) Any() any {
	switch {
	case v.isZero():
		return nil
	case v.IsArray():
		return types[v.elem].many(v.raw, v.n)
	}
	return types[v.typ].one(v.raw)
}

// The accessors compare the type before they decode, because a value of another type may
// be large.

// Uint returns an integer of any width that is not negative.
func (v Value) Uint() (uint64, error) {
	if !v.is(anInteger) {
		return 0, typeError(v, anInteger.want)
	}
	r := reflect.ValueOf(v.Any())
	switch {
	case r.CanUint():
		return r.Uint(), nil
	case r.Int() < 0:
		return 0, refuse(errOverflow, "%d is negative", r.Int())
	}
	return uint64(r.Int()), nil
}

// Float returns a float32 or a float64. It does not convert integers.
func (v Value) Float() (float64, error) {
	if !v.is(aFloat) {
		return 0, typeError(v, aFloat.want)
	}
	return reflect.ValueOf(v.Any()).Float(), nil
}

// Bool returns a bool.
func (v Value) Bool() (bool, error) { return as[bool](v, aBool) }

// Str returns a string.
func (v Value) Str() (string, error) { return as[string](v, aString) }

// Strings returns an array of strings.
func (v Value) Strings() ([]string, error) { return as[[]string](v, manyStrings) }

func as[T any](v Value, k kind) (x T, err error) {
	if !v.is(k) {
		return x, typeError(v, k.want)
	}
	return v.Any().(T), nil
}

func (v Value) is(k kind) bool { return !v.isZero() && k.ok(v) }

// Floats returns an array of float32 or of float64.
func (v Value) Floats() ([]float64, error) {
	if !v.is(manyFloats) {
		return nil, typeError(v, manyFloats.want)
	}
	if x, ok := v.Any().([]float32); ok {
		return convertAll[float64](x), nil
	}
	return v.Any().([]float64), nil
}

// Ints returns an array of integers of any width.
func (v Value) Ints() ([]int64, error) {
	if !v.is(manyInts) {
		return nil, typeError(v, manyInts.want)
	}
	switch x := v.Any().(type) {
	case []uint8:
		return convertAll[int64](x), nil
	case []int8:
		return convertAll[int64](x), nil
	case []uint16:
		return convertAll[int64](x), nil
	case []int16:
		return convertAll[int64](x), nil
	case []uint32:
		return convertAll[int64](x), nil
	case []int32:
		return convertAll[int64](x), nil
	case []int64:
		return x, nil
	case []uint64:
		for i, u := range x {
			if u > math.MaxInt64 {
				return nil, refuse(errOverflow, "element %d is %d, which does not fit an int64", i, u)
			}
		}
		return convertAll[int64](x), nil
	}
	panic("gguf: array of " + v.elem.String()) // manyInts lists the types
}

type number interface {
	~uint8 | ~int8 | ~uint16 | ~int16 | ~uint32 | ~int32 | ~uint64 | ~int64 | ~float32 | ~float64
}

func convertAll[To, From number](x []From) []To {
	out := make([]To, len(x))
	for i, e := range x {
		out[i] = To(e)
	}
	return out
}

// String formats the value for people: it quotes strings, and shortens long strings
// and arrays.
func (v Value) String() string {
	switch {
	case v.isZero():
		return "nothing"
	case v.IsArray():
		return v.formatArray()
	case v.typ == typeString:
		return quote(v.raw)
	}
	return fmt.Sprint(v.Any())
}

func (v Value) formatArray() string {
	const maxElements = 8
	shown := v.prefix(maxElements)
	var parts []string
	if v.elem == typeString {
		for start, end := 0, 0; len(parts) < shown.n; {
			start, end = nextString(v.raw, end)
			parts = append(parts, quote(v.raw[start:end]))
		}
	} else {
		for x, i := reflect.ValueOf(shown.Any()), 0; i < x.Len(); i++ {
			parts = append(parts, fmt.Sprint(x.Index(i)))
		}
	}
	if more := v.n - shown.n; more > 0 {
		parts = append(parts, fmt.Sprintf("… %d more", more))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// quote quotes text from a file. It copies no more than it shows.
func quote(text []byte) string { return strconv.Quote(clip(string(text[:min(len(text), 2*maxClip)]))) }

// prefix returns the array of the first n elements of v, or all if v has fewer.
func (v Value) prefix(n int) Value {
	v.n = min(v.n, n)
	end := v.n * types[v.elem].size
	if v.elem == typeString {
		for range v.n {
			_, end = nextString(v.raw, end)
		}
	}
	v.raw = v.raw[:end]
	return v
}

var le = binary.LittleEndian

// typeOf maps Go kinds of a fixed width to value types.
var typeOf = map[reflect.Kind]valueType{
	reflect.Bool:    typeBool,
	reflect.Uint8:   typeUint8,
	reflect.Int8:    typeInt8,
	reflect.Uint16:  typeUint16,
	reflect.Int16:   typeInt16,
	reflect.Uint32:  typeUint32,
	reflect.Int32:   typeInt32,
	reflect.Uint64:  typeUint64,
	reflect.Int64:   typeInt64,
	reflect.Float32: typeFloat32,
	reflect.Float64: typeFloat64,
	reflect.String:  typeString,
}

// encode converts a Go value to a Value that shares no memory with x.
func encode(x any) (Value, error) {
	if v, ok := x.(Value); ok {
		if v.isZero() {
			return v, refuse(ErrType, "the value has no type")
		}
		return v, nil
	}
	r := reflect.ValueOf(x)
	if r.Kind() == reflect.Slice {
		return encodeSlice(r)
	}
	t, ok := typeOf[r.Kind()]
	if !ok {
		return Value{}, refuse(ErrType, "%T cannot be stored: want a bool, a string, a number of a fixed width, or a slice of them", x)
	}
	v := Value{typ: t, n: 1}
	if t == typeString {
		v.raw = append([]byte{}, r.String()...)
		return v, checkString(r.String())
	}
	v.raw = encodeFixed(x)
	return v, nil
}

func encodeSlice(r reflect.Value) (Value, error) {
	elem := r.Type().Elem().Kind()
	t, ok := typeOf[elem]
	switch {
	case elem == reflect.Slice:
		return Value{}, refuse(errNested, "%v cannot be stored: arrays of arrays are not supported", r.Type())
	case !ok:
		return Value{}, refuse(ErrType, "%v cannot be stored: want a slice of bool, string, or numbers of a fixed width", r.Type())
	}
	if err := checkElements(r.Len()); err != nil {
		return Value{}, err
	}
	v := Value{typ: typeArray, elem: t, n: r.Len(), raw: []byte{}}
	if t != typeString {
		v.raw = encodeFixed(r.Interface())
		return v, nil
	}
	for i := range r.Len() {
		s := r.Index(i).String()
		if err := checkString(s); err != nil {
			return v, err
		}
		v.raw = appendString(v.raw, s)
	}
	return v, nil
}

func encodeFixed(x any) []byte {
	raw, err := binary.Append([]byte{}, le, x)
	if err != nil {
		panic("gguf: " + err.Error()) // typeOf admits only types of a fixed size
	}
	return raw
}

func checkString(s string) error {
	if err := checkStringBytes(len(s)); err != nil {
		return err
	}
	if !utf8.ValidString(s) {
		return refuse(errUTF8, "string is not valid UTF-8: %q", clip(s))
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
}

// encodedLen returns the number of bytes that appendTo appends.
func (v Value) encodedLen() int {
	n := 4 + len(v.raw)
	switch v.typ {
	case typeArray:
		n += 4 + 8
	case typeString:
		n += lengthBytes
	}
	return n
}

// appendTo appends the type and the value in their file encoding.
func (v Value) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, uint32(v.typ))
	switch v.typ {
	case typeArray:
		b = le.AppendUint32(b, uint32(v.elem))
		b = le.AppendUint64(b, uint64(v.n))
	case typeString:
		b = le.AppendUint64(b, uint64(len(v.raw)))
	}
	return append(b, v.raw...)
}
