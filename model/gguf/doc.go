// Package gguf reads and writes GGUF, the file format of llama.cpp models: typed
// key-value metadata, and named tensors at aligned offsets, so that an engine can map
// the file and compute in place.
//
// The layout is that of the GGUF specification (docs/gguf.md in the ggml
// repository), versions 2 and 3, little-endian:
//
//	┌──────────────────────────────────────────────────────────────────────┐ 0
//	│ "GGUF" │ version u32 │ tensor count u64 │ key count u64              │
//	├──────────────────────────────────────────────────────────────────────┤ 24
//	│ keys, key count times:                                               │
//	│   key string │ type u32 │ value                                      │
//	│     string:  length u64 │ that many bytes of UTF-8, not terminated   │
//	│     array:   element type u32 │ element count u64 │ the elements     │
//	│     bool:    one byte, 0 or 1                                        │
//	│     others:  little-endian, 1, 2, 4 or 8 bytes                       │
//	├──────────────────────────────────────────────────────────────────────┤
//	│ tensors, tensor count times:                                         │
//	│   name string │ n u32 │ n dimensions u64 │ format u32 │ offset u64   │
//	├──────────────────────────────────────────────────────────────────────┤
//	│ zeros up to a multiple of the alignment (general.alignment, else 32) │
//	├──────────────────────────────────────────────────────────────────────┤ data
//	│ each tensor's blocks at data + offset, offset a multiple of the      │
//	│ alignment; zeros between                                             │
//	└──────────────────────────────────────────────────────────────────────┘
//
// There is no other padding. A version 3 file may be big-endian; this package refuses
// that, and version 1, whose lengths have 32 bits.
//
// A split model is several such files, its parts. Each has its own data section; the keys
// split.no, split.count and split.tensors.count say which part it is (gguf-split in the
// llama.cpp repository).
//
// Files are not trusted. Every length is compared with the bytes left before it is
// used. Reading takes time linear in the header (n·log n in the number of tensors), and
// memory is bounded by the size of the header, which has a limit, and by limits on its
// keys, tensors, strings and arrays. The number of parts has a limit, and that on tensors
// holds for all parts together.
package gguf
