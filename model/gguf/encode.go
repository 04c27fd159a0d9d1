package gguf

import (
	"encoding/binary"
	"reflect"
	"unicode/utf8"
)

var le = binary.LittleEndian

// typeOf maps the Go kinds that have a fixed width to value types.
var typeOf = map[reflect.Kind]Type{
	reflect.Bool:    TypeBool,
	reflect.Uint8:   TypeUint8,
	reflect.Int8:    TypeInt8,
	reflect.Uint16:  TypeUint16,
	reflect.Int16:   TypeInt16,
	reflect.Uint32:  TypeUint32,
	reflect.Int32:   TypeInt32,
	reflect.Uint64:  TypeUint64,
	reflect.Int64:   TypeInt64,
	reflect.Float32: TypeFloat32,
	reflect.Float64: TypeFloat64,
	reflect.String:  TypeString,
}

// encode turns a Go value into a Value, which keeps nothing of x.
func encode(x any) (Value, error) {
	if v, ok := x.(Value); ok {
		if v.none() {
			return v, refuse(ErrType, "the value is of no type")
		}
		return v, nil
	}
	r := reflect.ValueOf(x)
	if r.Kind() == reflect.Slice {
		return encodeSlice(r)
	}
	t, ok := typeOf[r.Kind()]
	if !ok {
		return Value{}, refuse(ErrType, "%T cannot be stored: bool, string, and numbers of a fixed width can, and slices of them", x)
	}
	v := Value{typ: t, n: 1}
	if t == TypeString {
		v.raw = append([]byte{}, r.String()...)
		return v, checkUTF8(r.String())
	}
	v.raw = fixedBytes(x)
	return v, nil
}

func encodeSlice(r reflect.Value) (Value, error) {
	elem := r.Type().Elem().Kind()
	t, ok := typeOf[elem]
	switch {
	case elem == reflect.Slice:
		return Value{}, refuse(ErrNested, "%v cannot be stored: arrays of arrays are not supported", r.Type())
	case !ok:
		return Value{}, refuse(ErrType, "%v cannot be stored: slices of bool, string, and numbers of a fixed width can", r.Type())
	}
	v := Value{typ: TypeArray, elem: t, n: r.Len(), raw: []byte{}}
	if t != TypeString {
		v.raw = fixedBytes(r.Interface())
		return v, nil
	}
	for i := range r.Len() {
		s := r.Index(i).String()
		if err := checkUTF8(s); err != nil {
			return v, err
		}
		v.raw = appendString(v.raw, s)
	}
	return v, nil
}

// fixedBytes encodes numbers and bools of a fixed width.
func fixedBytes(x any) []byte {
	raw, err := binary.Append([]byte{}, le, x)
	if err != nil {
		panic("gguf: " + err.Error()) // typeOf admits only what has a fixed size
	}
	return raw
}

func checkUTF8(s string) error {
	if !utf8.ValidString(s) {
		return refuse(ErrUTF8, "string is not valid UTF-8: %q", clip(s))
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
}

// append appends v as a file stores it, its type first.
func (v Value) append(b []byte) []byte {
	b = le.AppendUint32(b, uint32(v.typ))
	switch v.typ {
	case TypeArray:
		b = le.AppendUint32(b, uint32(v.elem))
		b = le.AppendUint64(b, uint64(v.n))
	case TypeString:
		b = le.AppendUint64(b, uint64(len(v.raw)))
	}
	return append(b, v.raw...)
}
