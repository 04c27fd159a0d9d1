package gguf

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// withKey is good with one more key.
func withKey(entry []byte) []byte {
	return with(func(f *rawFile) { f.keys = append(f.keys, entry) })
}

// endingIn is a file that ends after its only key.
func endingIn(entry []byte) []byte {
	return (&rawFile{magic: magic, version: 3, keys: [][]byte{entry}}).bytes()
}

// notUTF8 are bytes that are no text, and why.
var notUTF8 = []struct{ name, text string }{
	{"0xff", "a\xffb"},
	{"lone continuation", "\x80"},
	{"overlong NUL", "\xc0\x80"},
	{"surrogate", "\xed\xa0\x80"},
	{"cut character", "a\xe2\x82"},
	{"above U+10FFFF", "\xf4\x90\x80\x80"},
}

// hugeLengths are lengths that no file here has.
var hugeLengths = []uint64{1 << 20, 1<<31 - 1, 1 << 31, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64 - 7, math.MaxUint64}

func badKeys() []malformed {
	one := u8(1)
	cases := []malformed{
		{"empty key", "a key needs a name", withKey(kv("", TypeUint8, one)), ErrKey},
		{"key too long", "65,535 bytes are the specification's limit", withKey(kv(strings.Repeat("k", MaxKeyLen+1), TypeUint8, one)), ErrKey},
		{"duplicate key, neighbors", "which one counts?", withKey(kv("t.empty", TypeString, str(""))), ErrDuplicate},
		{"duplicate key, first and last", "which one counts?", withKey(kv(KeyArchitecture, TypeString, str("gpt2"))), ErrDuplicate},
		{"duplicate key of another type", "which one counts?", withKey(kv("t.u8", TypeUint16, u16(1))), ErrDuplicate},
		{"duplicate alignment", "where is the data?", withKey(kv(KeyAlignment, TypeUint32, u32(32))), ErrDuplicate},
		{"key a byte longer than the file", "one too many", endingIn(cat(u64(8), []byte("sevenby"))), ErrTruncated},
		{"key ends the file", "no type follows", endingIn(append(str("abcdef"), make([]byte, 3)...)), ErrTruncated},
	}
	for _, n := range hugeLengths {
		cases = append(cases, malformed{fmt.Sprintf("key length %#x", n), "beyond the file",
			withKey(cat(u64(n), []byte("key"))), ErrTruncated})
	}
	for _, bad := range notUTF8 {
		cases = append(cases, malformed{"key with " + bad.name, "no UTF-8", withKey(kv(bad.text, TypeUint8, one)), ErrUTF8})
	}
	return cases
}

// badKnownKeys gives every well-known key a value of another type.
func badKnownKeys() []malformed {
	f := good()
	f.keys = f.keys[2:] // without the well-known ones
	f.keys = slices.DeleteFunc(f.keys, func(e []byte) bool { return strings.Contains(string(e), "tokenizer.ggml.tokens") })
	withOnly := func(entry []byte) []byte {
		g := *f
		g.keys = append(slices.Clone(f.keys), entry)
		return g.bytes()
	}
	var cases []malformed
	for _, key := range slices.Sorted(maps.Keys(known)) {
		cases = append(cases,
			malformed{key + " is a float", "no well-known key is one", withOnly(kv(key, TypeFloat32, f32(1))), ErrType},
			malformed{key + " is an array of bool", "no well-known key is one", withOnly(arr(key, TypeBool, 1, u8(1))), ErrType})
	}
	for name, entry := range map[string][]byte{
		"architecture is uint32":           kv(KeyArchitecture, TypeUint32, u32(1)),
		"architecture is array of string":  arr(KeyArchitecture, TypeString, 1, strs("llama")),
		"alignment is uint64":              kv(KeyAlignment, TypeUint64, u64(32)),
		"alignment is int32":               kv(KeyAlignment, TypeInt32, u32(32)),
		"alignment is uint16":              kv(KeyAlignment, TypeUint16, u16(32)),
		"alignment is string":              kv(KeyAlignment, TypeString, str("32")),
		"alignment is array of uint32":     arr(KeyAlignment, TypeUint32, 1, u32(32)),
		"tokens are a string":              kv("tokenizer.ggml.tokens", TypeString, str("a")),
		"tokens are integers":              arr("tokenizer.ggml.tokens", TypeInt32, 1, u32(1)),
		"scores are integers":              arr("tokenizer.ggml.scores", TypeInt32, 1, u32(1)),
		"token types are floats":           arr("tokenizer.ggml.token_type", TypeFloat32, 1, f32(1)),
		"end of text is a string":          kv("tokenizer.ggml.eos_token_id", TypeString, str("</s>")),
		"add_bos_token is an integer":      kv("tokenizer.ggml.add_bos_token", TypeUint8, u8(1)),
		"chat template is array of string": arr("tokenizer.chat_template", TypeString, 1, strs("x")),
	} {
		cases = append(cases, malformed{name, "wrong type for a known key", withOnly(entry), ErrType})
	}
	return cases
}

func badAlignments() []malformed {
	var cases []malformed
	for n, reason := range map[uint32]string{
		0: "zero", 3: "odd", 7: "one below a power", 12: "two bits", 24: "a multiple of 8, no power", 31: "one below", 33: "one above",
		96: "two bits", 1<<20 + 1: "just above the limit", 1<<20 + 32: "above the limit", 1 << 21: "a power above the limit",
		1 << 31: "the largest power", math.MaxUint32: "all bits",
	} {
		cases = append(cases, malformed{fmt.Sprintf("alignment %d", n), reason,
			with(func(f *rawFile) { f.keys[1] = kv(KeyAlignment, TypeUint32, u32(n)) }), ErrAlignment})
	}
	return cases
}
