package gguf

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

// rawFile builds a file byte by byte, valid or not, without the Writer. Keys and tensors
// are encoded.
type rawFile struct {
	magic    string
	version  uint32
	keys     [][]byte
	tensors  [][]byte
	nKeys    *uint64 // if not nil, replaces the number of keys
	nTensors *uint64
	align    int
	data     []byte
}

func (f *rawFile) header() []byte {
	b := append([]byte(f.magic), u32(f.version)...)
	b = append(b, u64(override(f.nTensors, len(f.tensors)))...)
	b = append(b, u64(override(f.nKeys, len(f.keys)))...)
	b = append(b, bytes.Join(f.keys, nil)...)
	return append(b, bytes.Join(f.tensors, nil)...)
}

func (f *rawFile) bytes() []byte {
	b := f.header()
	if len(f.tensors) > 0 {
		b = append(b, make([]byte, (f.align-len(b)%f.align)%f.align)...)
	}
	return append(b, f.data...)
}

func override(n *uint64, usual int) uint64 {
	if n != nil {
		return *n
	}
	return uint64(usual)
}

func cat(parts ...[]byte) []byte { return slices.Concat(parts...) }

func u8(x uint8) []byte    { return []byte{x} }
func u16(x uint16) []byte  { return binary.LittleEndian.AppendUint16(nil, x) }
func u32(x uint32) []byte  { return binary.LittleEndian.AppendUint32(nil, x) }
func u64(x uint64) []byte  { return binary.LittleEndian.AppendUint64(nil, x) }
func f32(x float32) []byte { return u32(math.Float32bits(x)) }
func f64(x float64) []byte { return u64(math.Float64bits(x)) }
func str(s string) []byte  { return append(u64(uint64(len(s))), s...) }

// strs encodes the elements of an array of strings.
func strs(ss ...string) []byte {
	var b []byte
	for _, s := range ss {
		b = append(b, str(s)...)
	}
	return b
}

// kv encodes a key with a value of type t.
func kv(key string, t valueType, val []byte) []byte { return cat(str(key), u32(uint32(t)), val) }

// arr encodes a key with an array of declared length n.
func arr(key string, elem valueType, n uint64, elems []byte) []byte {
	return kv(key, typeArray, cat(u32(uint32(elem)), u64(n), elems))
}

// ten encodes a tensor entry.
func ten(name string, format uint32, offset uint64, dims ...uint64) []byte {
	b := append(str(name), u32(uint32(len(dims)))...)
	for _, d := range dims {
		b = append(b, u64(d)...)
	}
	return cat(b, u32(format), u64(offset))
}

const (
	idF32  = 0
	idF16  = 1
	idQ8_0 = 8
)

// good is a well-formed file with every type of value and a few tensors.
func good() *rawFile {
	f := &rawFile{magic: "GGUF", version: 3, align: 32}
	f.keys = [][]byte{
		kv("general.architecture", typeString, str("llama")),
		kv("general.alignment", typeUint32, u32(32)),
		kv("t.u8", typeUint8, u8(200)),
		kv("t.i8", typeInt8, u8(0xfe)),
		kv("t.u16", typeUint16, u16(60000)),
		kv("t.i16", typeInt16, u16(0xfffd)),
		kv("t.u32", typeUint32, u32(4000000000)),
		kv("t.i32", typeInt32, u32(0xfffffffc)),
		kv("t.f32", typeFloat32, f32(1.5)),
		kv("t.bool", typeBool, u8(1)),
		kv("t.str", typeString, str("zażółć\x00\n")),
		kv("t.u64", typeUint64, u64(math.MaxUint64)),
		kv("t.i64", typeInt64, u64(1<<63)),
		kv("t.f64", typeFloat64, f64(-math.Pi)),
		arr("t.u8s", typeUint8, 3, []byte{1, 2, 255}),
		arr("t.i8s", typeInt8, 2, []byte{1, 0xff}),
		arr("t.u16s", typeUint16, 2, cat(u16(1), u16(65535))),
		arr("t.i16s", typeInt16, 2, cat(u16(1), u16(0x8000))),
		arr("t.u32s", typeUint32, 1, u32(7)),
		arr("t.i32s", typeInt32, 2, cat(u32(7), u32(0xffffffff))),
		arr("t.f32s", typeFloat32, 2, cat(f32(0.5), f32(float32(math.Inf(1))))),
		arr("t.bools", typeBool, 3, []byte{1, 0, 1}),
		arr("tokenizer.ggml.tokens", typeString, 3, strs("<unk>", "", "▁ż")),
		arr("t.u64s", typeUint64, 2, cat(u64(1), u64(1<<40))),
		arr("t.i64s", typeInt64, 2, cat(u64(1), u64(math.MaxUint64))),
		arr("t.f64s", typeFloat64, 1, f64(0.1)),
		arr("t.none", typeString, 0, nil),
		kv("t.empty", typeString, str("")),
	}
	f.tensors = [][]byte{
		ten("a.weight", idF32, 0, 4, 2),
		ten("b.weight", idQ8_0, 32, 32, 2, 1),
		ten("c.bias", idF16, 128, 3),
	}
	f.data = make([]byte, 160)
	for i := range 134 {
		if i < 100 || i >= 128 { // the rest is padding
			f.data[i] = byte(i*7 + 1)
		}
	}
	return f
}

// with returns the bytes of good after a change.
func with(change func(*rawFile)) []byte {
	f := good()
	change(f)
	return f.bytes()
}

// goodValues lists Value.Any of the keys of good, in order.
var goodValues = []struct {
	key  string
	want any
}{
	{"general.architecture", "llama"},
	{"general.alignment", uint32(32)},
	{"t.u8", uint8(200)},
	{"t.i8", int8(-2)},
	{"t.u16", uint16(60000)},
	{"t.i16", int16(-3)},
	{"t.u32", uint32(4000000000)},
	{"t.i32", int32(-4)},
	{"t.f32", float32(1.5)},
	{"t.bool", true},
	{"t.str", "zażółć\x00\n"},
	{"t.u64", uint64(math.MaxUint64)},
	{"t.i64", int64(math.MinInt64)},
	{"t.f64", -math.Pi},
	{"t.u8s", []uint8{1, 2, 255}},
	{"t.i8s", []int8{1, -1}},
	{"t.u16s", []uint16{1, 65535}},
	{"t.i16s", []int16{1, -32768}},
	{"t.u32s", []uint32{7}},
	{"t.i32s", []int32{7, -1}},
	{"t.f32s", []float32{0.5, float32(math.Inf(1))}},
	{"t.bools", []bool{true, false, true}},
	{"tokenizer.ggml.tokens", []string{"<unk>", "", "▁ż"}},
	{"t.u64s", []uint64{1, 1 << 40}},
	{"t.i64s", []int64{1, -1}},
	{"t.f64s", []float64{0.1}},
	{"t.none", []string{}},
	{"t.empty", ""},
}
