package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/quant"
)

// malformed is a file that Parse must refuse.
type malformed struct {
	name, reason string
	data         []byte
	want         error
}

func malformedFiles() []malformed {
	return slices.Concat(badHeaders(), badCounts(), badKeys(), badKnownKeys(), badAlignments(), badValues(), badArrays(),
		badNames(), badShapes(), badFormats(), badPlaces())
}

// sentinels lists the kinds of errors. A refusal wraps exactly one.
var sentinels = []error{
	ErrTruncated, ErrType, ErrFault, ErrClosed, errNotRegular, errMagic, errVersion, errVersion1, errEndian, errLimit, errKey, errName, errDuplicate,
	errNested, errBool, errUTF8, errAlignment, errShape, errPartialBlock, errOverflow, errOverlap,
	errUnsupportedFormat, errSize, errSplit, errPart,
}

// kinds returns the sentinels that err wraps. errVersion1 hides errVersion.
func kinds(err error) []error {
	var found []error
	for _, s := range sentinels {
		if errors.Is(err, s) && (s != errVersion || !errors.Is(err, errVersion1)) {
			found = append(found, s)
		}
	}
	return found
}

func TestMalformed(t *testing.T) {
	cases := malformedFiles()
	if len(cases) < 150 {
		t.Errorf("only %d malformed files", len(cases))
	}
	seen := map[string]bool{}
	path := filepath.Join(t.TempDir(), "bad.gguf")
	for _, c := range cases {
		if seen[c.name] || c.reason == "" {
			t.Errorf("case %q is there twice or has no reason", c.name)
		}
		seen[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			bounded(t, len(c.data), func() {
				_, err := Parse(c.data)
				checkRefused(t, err, "gguf: ", c)
			})
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			bounded(t, len(c.data), func() {
				_, err := Open(path)
				checkRefused(t, err, fmt.Sprintf("gguf: %s: ", path), c)
			})
		})
	}
}

func checkRefused(t *testing.T, err error, prefix string, c malformed) {
	t.Helper()
	if err == nil {
		t.Fatalf("loaded, though: %s", c.reason)
	}
	if got := kinds(err); len(got) != 1 || got[0] != c.want {
		t.Errorf("%v: wraps %q, want only %q: %s", err, got, c.want, c.reason)
	}
	if errors.Is(err, ErrMalformed) == errors.Is(err, ErrUnsupported) {
		t.Errorf("%v: wraps not exactly one of ErrMalformed and ErrUnsupported", err)
	}
	msg, ok := strings.CutPrefix(err.Error(), prefix)
	if !ok || msg == "" || strings.Contains(msg, "gguf: ") {
		t.Errorf("message %q, want %q and what is wrong", err, prefix)
	}
	if strings.ContainsAny(msg, "\n") || len(msg) > 500 {
		t.Errorf("message of %d bytes is no short line: %.600q", len(msg), msg)
	}
}

// Bounds on parsing a file of any content.
const (
	memoryFloor = 64 << 20
	timeLimit   = 2 * time.Second
)

// bounded fails the test if fn, which loads a file of size bytes, allocates too much or
// takes too long.
func bounded(t *testing.T, size int, fn func()) {
	t.Helper()
	floor := uint64(memoryFloor)
	if size < 1<<20 {
		floor = 1 << 20
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	fn()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, floor+4*uint64(size); got > most {
		t.Errorf("%d bytes allocated for a file of %d, more than %d", got, size, most)
	}
	if took > timeLimit {
		t.Errorf("a file of %d bytes took %v", size, took)
	}
}

func TestRefusalMessages(t *testing.T) {
	tests := []struct {
		name, reason string
		data         []byte
		want         string
	}{
		{"shape", "the tensor and the dimension are named",
			with(func(f *rawFile) { f.tensors[0] = ten("blk.0.attn_q.weight", idF32, 0, 4, 2, 0) }),
			`gguf: tensor "blk.0.attn_q.weight": dimension 2 is zero`},
		{"removed format", "number and name are given",
			with(func(f *rawFile) { f.tensors[0] = ten("a", 31, 0, 32) }),
			`gguf: tensor "a": format 31 (Q4_0_4_4) was removed from ggml and is not supported`},
		{"unsupported format", "ggml knows it, this module does not",
			with(func(f *rawFile) { f.tensors[0] = ten("a", 16, 0, 256) }),
			`gguf: tensor "a": format 16 (IQ2_XXS) is not supported`},
		{"unknown format", "no format of ggml",
			with(func(f *rawFile) { f.tensors[0] = ten("a", 77, 0, 32) }),
			`gguf: tensor "a": format 77 is unknown`},
		{"version 1", "says what to do", []byte("GGUF\x01\x00\x00\x00"),
			"gguf: GGUF version 1 is not supported: convert the file to version 3"},
		{"big-endian", "says which version it would be", []byte("GGUF\x00\x00\x00\x03"),
			"gguf: big-endian GGUF (version 3) is not supported: convert the file to little-endian"},
		{"known key", "have and want", with(func(f *rawFile) { f.keys[0] = kv("general.architecture", typeUint8, u8(1)) }),
			`gguf: key "general.architecture": have uint8, want string`},
		{"truncated", "where, how much and how much is left", []byte("GGUF\x03\x00"),
			"gguf: version at byte 4 takes 4 bytes, and 2 are left"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.data)
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s: %s", err, tt.want, tt.reason)
			}
		})
	}
}

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
		{"zeros", "a sparse download", make([]byte, 4096), errMagic},
		{"large-file pointer", "a checkout without the large files",
			[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), errMagic},
		{"whole file big-endian", "every field is the other way round", bigEndian(), errEndian},
	}
	for _, m := range []string{"gguf", "GGUf", "FUGG", "GGML", "lmgg", "tjgg", "PK\x03\x04", "\x7fELF"} {
		cases = append(cases, malformed{fmt.Sprintf("magic %q", m), "only GGUF is GGUF",
			with(func(f *rawFile) { f.magic = m }), errMagic})
	}
	for v, want := range map[uint32]error{
		0: errVersion, 1: errVersion1, 4: errVersion, 5: errVersion, 0xffff: errVersion, 0x10003: errVersion, math.MaxUint32: errVersion,
		bits.ReverseBytes32(1): errEndian, bits.ReverseBytes32(2): errEndian, bits.ReverseBytes32(4): errEndian,
	} {
		cases = append(cases, malformed{fmt.Sprintf("version %#x", v), "only 2 and 3 are read",
			with(func(f *rawFile) { f.version = v }), want})
	}
	return cases
}

// bigEndian is a version 3 file in big-endian order.
func bigEndian() []byte {
	be := binary.BigEndian
	b := be.AppendUint32([]byte("GGUF"), 3)
	b = be.AppendUint64(b, 0)
	b = be.AppendUint64(b, 1)
	b = be.AppendUint64(b, uint64(len("general.architecture")))
	b = append(b, "general.architecture"...)
	b = be.AppendUint32(b, uint32(typeString))
	b = be.AppendUint64(b, 5)
	return append(b, "llama"...)
}

func badCounts() []malformed {
	cases := []malformed{
		{"a key too few announced", "the last key is read as a tensor, whose dimensions are the key's type",
			with(func(f *rawFile) { f.nKeys = count(len(f.keys) - 1) }), errShape},
		{"a key too many announced", "the first tensor is read as a key, its number of dimensions as the type",
			with(func(f *rawFile) {
				f.nKeys = count(len(f.keys) + 1)
				f.tensors[0] = ten("a.weight", idF32, 0, make([]uint64, 99)...)
			}), ErrType},
		{"a tensor too many announced", "the padding is read as a tensor without a name",
			with(func(f *rawFile) {
				f.nTensors = count(len(f.tensors) + 1)
				f.data = make([]byte, 512)
			}), errName},
		{"too many keys", "enough bytes for them are there",
			(&rawFile{magic: magic, version: 3, nKeys: count(maxKeys + 1), data: make([]byte, (maxKeys+1)*minKeyBytes)}).bytes(), errLimit},
		{"too many tensors", "enough bytes for them are there",
			(&rawFile{magic: magic, version: 3, nTensors: count(maxTensors + 1), data: make([]byte, (maxTensors+1)*minTensorBytes)}).bytes(), errLimit},
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

// withKey returns good with one more key.
func withKey(entry []byte) []byte {
	return with(func(f *rawFile) { f.keys = append(f.keys, entry) })
}

// endingIn returns a file that ends after its only key.
func endingIn(entry []byte) []byte {
	return (&rawFile{magic: magic, version: 3, keys: [][]byte{entry}}).bytes()
}

// notUTF8 lists invalid UTF-8 with the reason.
var notUTF8 = []struct{ name, text string }{
	{"0xff", "a\xffb"},
	{"lone continuation", "\x80"},
	{"overlong NUL", "\xc0\x80"},
	{"surrogate", "\xed\xa0\x80"},
	{"cut character", "a\xe2\x82"},
	{"above U+10FFFF", "\xf4\x90\x80\x80"},
}

// hugeLengths lists lengths beyond the end of every test file.
var hugeLengths = []uint64{1 << 20, 1<<31 - 1, 1 << 31, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64 - 7, math.MaxUint64}

func badKeys() []malformed {
	one := u8(1)
	cases := []malformed{
		{"empty key", "a key needs a name", withKey(kv("", typeUint8, one)), errKey},
		{"key too long", "65,535 bytes are the specification's limit", withKey(kv(strings.Repeat("k", maxKeyLen+1), typeUint8, one)), errKey},
		{"duplicate key, neighbors", "which one counts?", withKey(kv("t.empty", typeString, str(""))), errDuplicate},
		{"duplicate key, first and last", "which one counts?", withKey(kv("general.architecture", typeString, str("gpt2"))), errDuplicate},
		{"duplicate key of another type", "which one counts?", withKey(kv("t.u8", typeUint16, u16(1))), errDuplicate},
		{"duplicate alignment", "where is the data?", withKey(kv(keyAlignment, typeUint32, u32(32))), errDuplicate},
		{"key a byte longer than the file", "one too many", endingIn(cat(u64(8), []byte("sevenby"))), ErrTruncated},
		{"key ends the file", "no type follows", endingIn(append(str("abcdef"), make([]byte, 3)...)), ErrTruncated},
	}
	for _, n := range hugeLengths {
		cases = append(cases, malformed{fmt.Sprintf("key length %#x", n), "beyond the file",
			withKey(cat(u64(n), []byte("key"))), ErrTruncated})
	}
	for _, bad := range notUTF8 {
		cases = append(cases, malformed{"key with " + bad.name, "no UTF-8", withKey(kv(bad.text, typeUint8, one)), errUTF8})
	}
	return cases
}

// badKnownKeys sets each well-known key to a value of another type.
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
			malformed{key + " is a float", "no well-known key is one", withOnly(kv(key, typeFloat32, f32(1))), ErrType},
			malformed{key + " is an array of bool", "no well-known key is one", withOnly(arr(key, typeBool, 1, u8(1))), ErrType})
	}
	for name, entry := range map[string][]byte{
		"architecture is uint32":           kv("general.architecture", typeUint32, u32(1)),
		"architecture is array of string":  arr("general.architecture", typeString, 1, strs("llama")),
		"alignment is uint64":              kv(keyAlignment, typeUint64, u64(32)),
		"alignment is int32":               kv(keyAlignment, typeInt32, u32(32)),
		"alignment is uint16":              kv(keyAlignment, typeUint16, u16(32)),
		"alignment is string":              kv(keyAlignment, typeString, str("32")),
		"alignment is array of uint32":     arr(keyAlignment, typeUint32, 1, u32(32)),
		"tokens are a string":              kv("tokenizer.ggml.tokens", typeString, str("a")),
		"tokens are integers":              arr("tokenizer.ggml.tokens", typeInt32, 1, u32(1)),
		"scores are integers":              arr("tokenizer.ggml.scores", typeInt32, 1, u32(1)),
		"token types are floats":           arr("tokenizer.ggml.token_type", typeFloat32, 1, f32(1)),
		"end of text is a string":          kv("tokenizer.ggml.eos_token_id", typeString, str("</s>")),
		"add_bos_token is an integer":      kv("tokenizer.ggml.add_bos_token", typeUint8, u8(1)),
		"chat template is array of string": arr("tokenizer.chat_template", typeString, 1, strs("x")),
		"tool template is array of string": arr("tokenizer.chat_template.tool_use", typeString, 1, strs("x")),
		"template names are a string":      kv("tokenizer.chat_templates", typeString, str("tool_use")),
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
			with(func(f *rawFile) { f.keys[1] = kv(keyAlignment, typeUint32, u32(n)) }), errAlignment})
	}
	return cases
}

// withTensor returns good with another second tensor.
func withTensor(entry []byte) []byte {
	return with(func(f *rawFile) { f.tensors[1] = entry })
}

func badNames() []malformed {
	cases := []malformed{
		{"empty name", "a tensor needs a name", withTensor(ten("", idF32, 32, 4)), errName},
		{"name too long", "64 bytes are the specification's limit", withTensor(ten(strings.Repeat("n", maxNameLen+1), idF32, 32, 4)), errName},
		{"duplicate name, neighbors", "which one counts?", withTensor(ten("a.weight", idF32, 32, 4)), errDuplicate},
		{"duplicate name, first and last", "which one counts?",
			with(func(f *rawFile) { f.tensors[2] = ten("a.weight", idF16, 128, 3) }), errDuplicate},
		{"duplicate tensor", "the same entry twice", with(func(f *rawFile) { f.tensors = append(f.tensors, f.tensors[0]) }), errDuplicate},
	}
	for _, n := range hugeLengths {
		cases = append(cases, malformed{fmt.Sprintf("name length %#x", n), "beyond the file",
			withTensor(cat(u64(n), make([]byte, 64))), ErrTruncated})
	}
	for _, bad := range notUTF8 {
		cases = append(cases, malformed{"name with " + bad.name, "no UTF-8", withTensor(ten(bad.text, idF32, 32, 4)), errUTF8})
	}
	return cases
}

func badShapes() []malformed {
	const big = 1 << 32
	cases := []malformed{
		{"no dimensions", "a scalar has one dimension of 1", withTensor(ten("x", idF32, 32)), errShape},
		{"5 dimensions", "4 are the most", withTensor(ten("x", idF32, 32, 1, 1, 1, 1, 1)), errShape},
		{"99 dimensions", "4 are the most", withTensor(ten("x", idF32, 32, make([]uint64, 99)...)), errShape},
		{"2³¹ dimensions", "negative as an int32", withTensor(cat(str("x"), u32(1<<31), make([]byte, 64))), errShape},
		{"2³²−1 dimensions", "−1 as an int32", withTensor(cat(str("x"), u32(math.MaxUint32), make([]byte, 64))), errShape},
		{"rows of zero", "dimension 0", withTensor(ten("x", idF32, 32, 0, 2)), errShape},
		{"no rows", "dimension 1", withTensor(ten("x", idF32, 32, 4, 0)), errShape},
		{"no matrices", "dimension 2", withTensor(ten("x", idF32, 32, 4, 1, 0)), errShape},
		{"no stacks", "dimension 3", withTensor(ten("x", idF32, 32, 4, 1, 1, 0)), errShape},
		{"all dimensions zero", "nothing", withTensor(ten("x", idF32, 32, 0, 0, 0, 0)), errShape},
		{"zero times huge", "0 elements however they are counted", withTensor(ten("x", idF32, 32, math.MaxInt64, math.MaxInt64, 0)), errShape},
		{"dimension 2⁶³", "negative as an int", withTensor(ten("x", idF32, 32, 1<<63)), errOverflow},
		{"dimension 2⁶⁴−1", "−1 as an int", withTensor(ten("x", idF32, 32, 4, math.MaxUint64)), errOverflow},
		{"two negative dimensions", "whose product is positive", withTensor(ten("x", idF32, 32, 1<<63+4, 1<<63+1)), errOverflow},
		{"2⁶³ elements", "one more than an int64 has", withTensor(ten("x", idF16, 32, 1<<31, big)), errOverflow},
		{"2⁶⁴ elements", "none, when they wrap", withTensor(ten("x", idF32, 32, big, big)), errOverflow},
		{"2⁶⁴+2³² elements", "2³², when they wrap", withTensor(ten("x", idF32, 32, big, big+1)), errOverflow},
		{"2⁸⁰ elements", "in four dimensions", withTensor(ten("x", idF32, 32, 1<<20, 1<<20, 1<<20, 1<<20)), errOverflow},
		{"2¹²⁸ elements", "beyond even 128 bits", withTensor(ten("x", idF32, 32, big, big, big, big)), errOverflow},
		{"elements wrap to few", "2·(2⁶²+2)·2 = 2⁶⁴+8, which is 8 when it wraps", withTensor(ten("x", idF32, 32, 2, 1<<62+2, 2)), errOverflow},
		{"2⁶⁴ bytes of F32", "none, when they wrap", withTensor(ten("x", idF32, 32, 1<<62)), errOverflow},
		{"2⁶³ bytes of F32", "negative as an int64", withTensor(ten("x", idF32, 32, 1<<61)), errOverflow},
		{"2⁶³ bytes of F16", "negative as an int64", withTensor(ten("x", idF16, 32, 1<<31, 1<<31)), errOverflow},
		{"2⁶² elements of Q8_0", "fit, but not in the file", withTensor(ten("x", idQ8_0, 32, 1<<62, 1)), ErrTruncated},
		{"2⁶³−32 elements of Q8_0", "34 bytes for 32 are too many for an int64", withTensor(ten("x", idQ8_0, 32, math.MaxInt64-31)), errOverflow},
	}
	for _, f := range quant.Formats() {
		n := uint64(f.BlockLen())
		if n == 1 {
			continue
		}
		for _, row := range []uint64{1, n / 2, n - 1, n + 1} {
			cases = append(cases, malformed{fmt.Sprintf("%v rows of %d", f, row), "no whole blocks, though the rows together are",
				withTensor(ten("x", uint32(f), 32, row, n)), errPartialBlock})
		}
	}
	return cases
}

func badFormats() []malformed {
	var cases []malformed
	for id := range uint32(64) {
		if slices.Contains(quant.Formats(), quant.Format(id)) {
			continue
		}
		cases = append(cases, malformed{fmt.Sprintf("format %d", id), "removed, unknown or not supported",
			withTensor(ten("x", id, 32, 256)), errUnsupportedFormat})
	}
	for _, id := range []uint32{100, 255, 1 << 8, 1 << 16, 1 << 31, math.MaxUint32} {
		cases = append(cases, malformed{fmt.Sprintf("format %d", id), "unknown", withTensor(ten("x", id, 32, 256)), errUnsupportedFormat})
	}
	return cases
}

// badPlaces has tensors that are misaligned, overlap, or exceed the file. In good, the
// data section has 160 bytes: a is 0–31, b is 32–99 and c is 128–133.
func badPlaces() []malformed {
	place := func(offsets ...uint64) []byte {
		return with(func(f *rawFile) {
			f.tensors = [][]byte{
				ten("a.weight", idF32, offsets[0], 4, 2), ten("b.weight", idQ8_0, offsets[1], 32, 2), ten("c.bias", idF16, offsets[2], 3),
			}
		})
	}
	aligned64 := with(func(f *rawFile) {
		f.align, f.keys[1] = 64, kv(keyAlignment, typeUint32, u32(64))
		f.data = make([]byte, 256)
	})
	unaligned := func(offset uint64) []byte {
		f := &rawFile{magic: magic, version: 3, align: 1, keys: [][]byte{kv(keyAlignment, typeUint32, u32(1))}, data: make([]byte, 12)}
		f.tensors = [][]byte{ten("first", idF32, 0, 2), ten("second", idF16, offset, 2)}
		return f.bytes()
	}
	cases := []malformed{
		{"overlap of one byte", "first ends at 8", unaligned(7), errOverlap},
		{"overlap within the first byte", "two bytes of each at least, but for one", unaligned(0), errOverlap},
		{"offset aligned to 32 of 64", "the file's own alignment counts", aligned64, errAlignment},
		{"two tensors in one place", "a and b at 0", place(0, 0, 128), errOverlap},
		{"tensor starts inside the one before", "a is 32 bytes inside b", place(64, 32, 128), errOverlap},
		{"tensor starts in the last bytes of another", "c at 96, b ends at 100", place(0, 32, 96), errOverlap},
		{"overlap against the file's order", "the later entry lies before", place(96, 32, 0), errOverlap},
		{"overlap of first and last", "the neighbors in the list do not", place(0, 32, 0), errOverlap},
		{"three in one place", "all at 32", place(32, 32, 32), errOverlap},
		{"tensor right behind the file", "c at 160", place(0, 32, 160), ErrTruncated},
		{"tensor across the end", "b at 96 ends at 164", place(0, 96, 64), ErrTruncated},
		{"tensor far behind the file", "c at 2⁴⁰", place(0, 32, 1<<40), ErrTruncated},
		{"last byte missing", "c ends at 134", with(func(f *rawFile) { f.data = f.data[:133] }), ErrTruncated},
		{"no data", "the header is whole", with(func(f *rawFile) { f.data = nil }), ErrTruncated},
		{"no padding", "the file ends with the header", good().header(), ErrTruncated},
		{"tensor larger than the file", "2⁴⁰ weights", withTensor(ten("x", idF32, 32, 1<<20, 1<<20)), ErrTruncated},
		{"offset 2⁶³", "negative as an int64", place(0, 32, 1<<63), errOverflow},
		{"offset 2⁶³−32", "plus the size it is negative", place(0, 1<<63-32, 128), errOverflow},
		{"offset 2⁶³−64", "plus the header it is negative", place(0, 32, 1<<63-64), errOverflow},
		{"offset 2⁶⁴−32", "plus the size it is 0", place(1<<64-32, 32, 128), errOverflow},
		{"offset and size are 2⁶⁴+32", "inside the file, when they wrap", with(func(f *rawFile) {
			f.tensors[1] = ten("x", idF32, 1<<64-32, 16)
		}), errOverflow},
	}
	for _, offset := range []uint64{1, 2, 4, 8, 16, 31, 33, 127, 1<<63 + 1, math.MaxUint64} {
		cases = append(cases, malformed{fmt.Sprintf("offset %#x", offset), "no multiple of 32", place(0, 32, offset), errAlignment})
	}
	return cases
}

// valueTypes lists all types but array.
var valueTypes = []valueType{
	typeUint8, typeInt8, typeUint16, typeInt16, typeUint32, typeInt32, typeFloat32, typeBool, typeString, typeUint64, typeInt64, typeFloat64,
}

func badValues() []malformed {
	var cases []malformed
	for _, id := range []uint32{13, 14, 255, 1 << 16, 1 << 31, math.MaxUint32} {
		cases = append(cases,
			malformed{fmt.Sprintf("value type %d", id), "unknown", withKey(kv("k", valueType(id), u64(0))), ErrType},
			malformed{fmt.Sprintf("element type %d", id), "unknown", withKey(arr("k", valueType(id), 1, u64(0))), ErrType})
	}
	for _, b := range []uint8{2, 3, 0x80, 0xff} {
		cases = append(cases, malformed{fmt.Sprintf("bool %d", b), "neither 0 nor 1", withKey(kv("k", typeBool, u8(b))), errBool})
	}
	for i := range 3 {
		bools := []byte{1, 0, 1}
		bools[i] = 2
		cases = append(cases, malformed{fmt.Sprintf("bool %d of an array", i), "neither 0 nor 1", withKey(arr("k", typeBool, 3, bools)), errBool})
	}
	for _, typ := range valueTypes {
		val := str("text")
		if typ != typeString {
			val = make([]byte, types[typ].size)
		}
		// The file starts with a minimal key, so that its size does not refute the key count.
		whole := (&rawFile{magic: magic, version: 3, keys: [][]byte{kv("first.of.two", typeUint64, u64(1)), kv("k", typ, val)}}).bytes()
		cases = append(cases, malformed{typ.String() + " without its last byte", "the file ends in it", whole[:len(whole)-1], ErrTruncated})
	}
	for _, n := range hugeLengths {
		cases = append(cases, malformed{fmt.Sprintf("string length %#x", n), "beyond the file",
			withKey(kv("k", typeString, cat(u64(n), []byte("text")))), ErrTruncated})
	}
	for _, bad := range notUTF8 {
		cases = append(cases,
			malformed{"string with " + bad.name, "no UTF-8", withKey(kv("k", typeString, str(bad.text))), errUTF8},
			malformed{"string in an array with " + bad.name, "no UTF-8", withKey(arr("k", typeString, 3, strs("a", bad.text, "b"))), errUTF8})
	}
	return cases
}

func badArrays() []malformed {
	inner := cat(u32(uint32(typeUint8)), u64(1), u8(1))
	deep := inner
	for range 10000 {
		deep = cat(u32(uint32(typeArray)), u64(1), deep)
	}
	cases := []malformed{
		{"nested array", "one in another", withKey(arr("k", typeArray, 1, inner)), errNested},
		{"nested array, empty", "no element, but the type is array", withKey(arr("k", typeArray, 0, nil)), errNested},
		{"nested array, 10,000 deep", "a recursive reader's stack", withKey(kv("k", typeArray, deep)), errNested},
		{"array without a length", "the file ends", endingIn(kv("key.long.enough", typeArray, u32(uint32(typeUint8)))), ErrTruncated},
		{"array without an element type", "the file ends", endingIn(kv("key.long.enough", typeArray, nil)), ErrTruncated},
		{"string array cut in a length", "the file ends", endingIn(arr("k", typeString, 2, cat(str("abcdefgh"), u64(1)[:7]))), ErrTruncated},
		{"string array cut in a string", "the file ends", endingIn(arr("k", typeString, 2, cat(str("a"), u64(3), []byte("ab")))), ErrTruncated},
		{"string array with a huge string", "the last one", withKey(arr("k", typeString, 2, cat(str("a"), u64(1<<63)))), ErrTruncated},
		{"string array whose lengths wrap", "two lengths that add up to 8", withKey(arr("k", typeString, 2, cat(u64(math.MaxUint64-7), u64(16)))), ErrTruncated},
	}
	for _, typ := range valueTypes {
		size := uint64(max(types[typ].size, 1))
		val := make([]byte, 64)
		wrap := uint64(math.MaxUint64) // one byte per element cannot wrap
		if size > 1 {
			wrap = wrap/size + 1 // 2⁶⁴ bytes wrap to 0
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
