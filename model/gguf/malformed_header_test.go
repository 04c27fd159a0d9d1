package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

func badHeaders() []malformed {
	cases := []malformed{
		{"empty", "no bytes at all", nil, ErrTruncated},
		{"header cut in the magic", "3 bytes", []byte("GGU"), ErrTruncated},
		{"header cut after the magic", "no version", []byte("GGUF"), ErrTruncated},
		{"header cut in the version", "2 of 4 bytes", []byte("GGUF\x03\x00"), ErrTruncated},
		{"header cut after the version", "no counts", good().bytes()[:8], ErrTruncated},
		{"header cut in the tensor count", "7 of 8 bytes", good().bytes()[:15], ErrTruncated},
		{"header cut in the key count", "7 of 8 bytes", good().bytes()[:23], ErrTruncated},
		{"header only", "28 keys announced, none there", good().bytes()[:24], ErrTruncated},
		{"zeros", "a sparse download", make([]byte, 4096), ErrMagic},
		{"large-file pointer", "a checkout without the large files",
			[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), ErrMagic},
		{"whole file big-endian", "every field is the other way round", bigEndian(), ErrEndian},
	}
	for _, m := range []string{"gguf", "GGUf", "FUGG", "GGML", "lmgg", "tjgg", "PK\x03\x04", "\x7fELF"} {
		cases = append(cases, malformed{fmt.Sprintf("magic %q", m), "only GGUF is GGUF",
			with(func(f *rawFile) { f.magic = m }), ErrMagic})
	}
	for v, want := range map[uint32]error{
		0: ErrVersion, 1: ErrVersion1, 4: ErrVersion, 5: ErrVersion, 0xffff: ErrVersion, 0x10003: ErrVersion, math.MaxUint32: ErrVersion,
		bits.ReverseBytes32(1): ErrEndian, bits.ReverseBytes32(2): ErrEndian, bits.ReverseBytes32(4): ErrEndian,
	} {
		cases = append(cases, malformed{fmt.Sprintf("version %#x", v), "only 2 and 3 are read",
			with(func(f *rawFile) { f.version = v }), want})
	}
	return cases
}

// bigEndian is a whole version 3 file for a big-endian machine.
func bigEndian() []byte {
	be := binary.BigEndian
	b := be.AppendUint32([]byte("GGUF"), 3)
	b = be.AppendUint64(b, 0)
	b = be.AppendUint64(b, 1)
	b = be.AppendUint64(b, uint64(len(KeyArchitecture)))
	b = append(b, KeyArchitecture...)
	b = be.AppendUint32(b, uint32(TypeString))
	b = be.AppendUint64(b, 5)
	return append(b, "llama"...)
}

func badCounts() []malformed {
	cases := []malformed{
		{"a key too few announced", "the last key is read as a tensor, whose dimensions are the key's type",
			with(func(f *rawFile) { f.nKeys = count(len(f.keys) - 1) }), ErrShape},
		{"a key too many announced", "the first tensor is read as a key, its number of dimensions as the type",
			with(func(f *rawFile) {
				f.nKeys = count(len(f.keys) + 1)
				f.tensors[0] = ten("a.weight", idF32, 0, make([]uint64, 99)...)
			}), ErrType},
		{"a tensor too many announced", "the padding is read as a tensor without a name",
			with(func(f *rawFile) {
				f.nTensors = count(len(f.tensors) + 1)
				f.data = make([]byte, 512)
			}), ErrName},
		{"too many keys", "enough bytes for them are there",
			(&rawFile{magic: magic, version: 3, nKeys: count(MaxKeys + 1), data: make([]byte, (MaxKeys+1)*minKeyBytes)}).bytes(), ErrLimit},
		{"too many tensors", "enough bytes for them are there",
			(&rawFile{magic: magic, version: 3, nTensors: count(MaxTensors + 1), data: make([]byte, (MaxTensors+1)*minTensorBytes)}).bytes(), ErrLimit},
	}
	for _, n := range []uint64{1 << 16, 1 << 20, 1<<31 - 1, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64} {
		cases = append(cases,
			malformed{fmt.Sprintf("key count %#x", n), "more than the bytes that are there could hold",
				with(func(f *rawFile) { f.nKeys = &n }), ErrTruncated},
			malformed{fmt.Sprintf("tensor count %#x", n), "more than the bytes that are there could hold",
				with(func(f *rawFile) { f.nTensors = &n }), ErrTruncated})
	}
	return cases
}

func count(n int) *uint64 {
	u := uint64(n)
	return &u
}
