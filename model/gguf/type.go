package gguf

import (
	"encoding/binary"
	"fmt"
)

// Type is the type of a metadata value, by its GGUF id.
type Type uint32

// The value types, with the ids that files carry.
const (
	TypeUint8 Type = iota
	TypeInt8
	TypeUint16
	TypeInt16
	TypeUint32
	TypeInt32
	TypeFloat32
	TypeBool
	TypeString
	TypeArray
	TypeUint64
	TypeInt64
	TypeFloat64
)

// typeInfo is a row of the table of types. String and array have no size.
type typeInfo struct {
	name string
	size int // bytes of one value
	// one decodes a value and many n of them: a T and a []T.
	one  func(raw []byte) any
	many func(raw []byte, n int) any
}

// types is indexed by Type.
var types = [...]typeInfo{
	TypeUint8:   fixed[uint8]("uint8"),
	TypeInt8:    fixed[int8]("int8"),
	TypeUint16:  fixed[uint16]("uint16"),
	TypeInt16:   fixed[int16]("int16"),
	TypeUint32:  fixed[uint32]("uint32"),
	TypeInt32:   fixed[int32]("int32"),
	TypeFloat32: fixed[float32]("float32"),
	TypeBool:    fixed[bool]("bool"),
	TypeString:  {name: "string", one: decodeString, many: decodeStrings},
	TypeArray:   {name: "array"},
	TypeUint64:  fixed[uint64]("uint64"),
	TypeInt64:   fixed[int64]("int64"),
	TypeFloat64: fixed[float64]("float64"),
}

func fixed[T any](name string) typeInfo {
	many := func(raw []byte, n int) []T {
		out := make([]T, n)
		if _, err := binary.Decode(raw, binary.LittleEndian, out); err != nil {
			panic(fmt.Sprintf("gguf: %d bytes for %d of %s", len(raw), n, name)) // lengths were checked on parsing
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

// decodeStrings cuts n strings out of one copy of the array: a vocabulary has
// hundreds of thousands.
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

// nextString is where the bytes of the string at pos are, its length before them.
// It is for arrays that were checked on parsing.
func nextString(raw []byte, pos int) (start, end int) {
	start = pos + stringHead
	return start, start + int(binary.LittleEndian.Uint64(raw[pos:]))
}

// stringHead is the size of the length before a string's bytes.
const stringHead = 8

// Valid reports whether t is a type of the specification.
func (t Type) Valid() bool { return int64(t) < int64(len(types)) }

// String is the type's name in the specification, such as "uint32".
func (t Type) String() string {
	if t.Valid() {
		return types[t].name
	}
	return fmt.Sprintf("type(%d)", uint32(t))
}

func (t Type) integer() bool {
	switch t {
	case TypeUint8, TypeInt8, TypeUint16, TypeInt16, TypeUint32, TypeInt32, TypeUint64, TypeInt64:
		return true
	}
	return false
}

func (t Type) float() bool { return t == TypeFloat32 || t == TypeFloat64 }
