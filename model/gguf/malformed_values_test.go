package gguf

import (
	"fmt"
	"math"
)

// valueTypes are all types but array.
var valueTypes = []Type{
	TypeUint8, TypeInt8, TypeUint16, TypeInt16, TypeUint32, TypeInt32, TypeFloat32, TypeBool, TypeString, TypeUint64, TypeInt64, TypeFloat64,
}

func badValues() []malformed {
	var cases []malformed
	for _, id := range []uint32{13, 14, 255, 1 << 16, 1 << 31, math.MaxUint32} {
		cases = append(cases,
			malformed{fmt.Sprintf("value type %d", id), "unknown", withKey(kv("k", Type(id), u64(0))), ErrType},
			malformed{fmt.Sprintf("element type %d", id), "unknown", withKey(arr("k", Type(id), 1, u64(0))), ErrType})
	}
	for _, b := range []uint8{2, 3, 0x80, 0xff} {
		cases = append(cases, malformed{fmt.Sprintf("bool %d", b), "neither 0 nor 1", withKey(kv("k", TypeBool, u8(b))), ErrBool})
	}
	for i := range 3 {
		bools := []byte{1, 0, 1}
		bools[i] = 2
		cases = append(cases, malformed{fmt.Sprintf("bool %d of an array", i), "neither 0 nor 1", withKey(arr("k", TypeBool, 3, bools)), ErrBool})
	}
	for _, typ := range valueTypes {
		val := str("text")
		if typ != TypeString {
			val = make([]byte, types[typ].size)
		}
		// A key of its least size comes before, so that the count alone does not give the file away.
		whole := (&rawFile{magic: magic, version: 3, keys: [][]byte{kv("first.of.two", TypeUint64, u64(1)), kv("k", typ, val)}}).bytes()
		cases = append(cases, malformed{typ.String() + " without its last byte", "the file ends in it", whole[:len(whole)-1], ErrTruncated})
	}
	for _, n := range hugeLengths {
		cases = append(cases, malformed{fmt.Sprintf("string length %#x", n), "beyond the file",
			withKey(kv("k", TypeString, cat(u64(n), []byte("text")))), ErrTruncated})
	}
	for _, bad := range notUTF8 {
		cases = append(cases,
			malformed{"string with " + bad.name, "no UTF-8", withKey(kv("k", TypeString, str(bad.text))), ErrUTF8},
			malformed{"string in an array with " + bad.name, "no UTF-8", withKey(arr("k", TypeString, 3, strs("a", bad.text, "b"))), ErrUTF8})
	}
	return cases
}

func badArrays() []malformed {
	inner := cat(u32(uint32(TypeUint8)), u64(1), u8(1))
	deep := inner
	for range 10000 {
		deep = cat(u32(uint32(TypeArray)), u64(1), deep)
	}
	cases := []malformed{
		{"nested array", "one in another", withKey(arr("k", TypeArray, 1, inner)), ErrNested},
		{"nested array, empty", "no element, but the type is array", withKey(arr("k", TypeArray, 0, nil)), ErrNested},
		{"nested array, 10,000 deep", "a recursive reader's stack", withKey(kv("k", TypeArray, deep)), ErrNested},
		{"array without a length", "the file ends", endingIn(kv("key.long.enough", TypeArray, u32(uint32(TypeUint8)))), ErrTruncated},
		{"array without an element type", "the file ends", endingIn(kv("key.long.enough", TypeArray, nil)), ErrTruncated},
		{"string array cut in a length", "the file ends", endingIn(arr("k", TypeString, 2, cat(str("abcdefgh"), u64(1)[:7]))), ErrTruncated},
		{"string array cut in a string", "the file ends", endingIn(arr("k", TypeString, 2, cat(str("a"), u64(3), []byte("ab")))), ErrTruncated},
		{"string array with a huge string", "the last one", withKey(arr("k", TypeString, 2, cat(str("a"), u64(1<<63)))), ErrTruncated},
		{"string array whose lengths wrap", "two lengths that add up to 8", withKey(arr("k", TypeString, 2, cat(u64(math.MaxUint64-7), u64(16)))), ErrTruncated},
	}
	for _, typ := range valueTypes {
		size := uint64(max(types[typ].size, 1))
		val := make([]byte, 64)
		wrap := uint64(math.MaxUint64) // with one byte each, nothing can wrap
		if size > 1 {
			wrap = wrap/size + 1 // 2⁶⁴ bytes: none, when they wrap
		}
		cases = append(cases,
			malformed{typ.String() + " array one longer than the file", "the last element is missing",
				endingIn(arr("k", typ, 64/size+1, val)), ErrTruncated},
			malformed{typ.String() + " array whose bytes wrap", "2⁶⁴ bytes look like none",
				withKey(arr("k", typ, wrap, val)), ErrTruncated},
			malformed{typ.String() + " array of 2⁶³", "negative as an int", withKey(arr("k", typ, 1<<63, val)), ErrTruncated})
	}
	return cases
}
