package gguf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// malformed is a file that must be refused.
type malformed struct {
	name, reason string
	data         []byte
	want         error
}

// malformedFiles is the whole table.
func malformedFiles() []malformed {
	return slices.Concat(badHeaders(), badCounts(), badKeys(), badKnownKeys(), badAlignments(), badValues(), badArrays(),
		badNames(), badShapes(), badFormats(), badPlaces())
}

// sentinels are the errors of which a refusal of a file wraps exactly one.
var sentinels = []error{
	ErrNotRegular, ErrMagic, ErrVersion, ErrVersion1, ErrEndian, ErrTruncated, ErrLimit, ErrKey, ErrName, ErrDuplicate,
	ErrType, ErrNested, ErrBool, ErrUTF8, ErrAlignment, ErrShape, ErrPartialBlock, ErrOverflow, ErrOverlap,
	ErrUnsupportedFormat, ErrFault, ErrSize, ErrClosed,
}

// kinds lists the sentinels that err wraps. Version 1 is an unknown version too.
func kinds(err error) []error {
	var found []error
	for _, s := range sentinels {
		if errors.Is(err, s) && (s != ErrVersion || !errors.Is(err, ErrVersion1)) {
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
	msg, ok := strings.CutPrefix(err.Error(), prefix)
	if !ok || msg == "" || strings.Contains(msg, "gguf: ") {
		t.Errorf("message %q, want %q and what is wrong", err, prefix)
	}
	if strings.ContainsAny(msg, "\n") || len(msg) > 500 {
		t.Errorf("message of %d bytes is no short line: %.600q", len(msg), msg)
	}
}

// Bounds for a file of any content.
const (
	memoryFloor = 64 << 20
	timeLimit   = 2 * time.Second
)

// bounded fails the test when fn, which loads a file of size bytes, allocates too
// much in all or takes too long. Small files are held to a floor of 1 MiB.
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
		{"unknown format", "nobody knows it",
			with(func(f *rawFile) { f.tensors[0] = ten("a", 77, 0, 32) }),
			`gguf: tensor "a": format 77 is unknown`},
		{"version 1", "says what to do", []byte("GGUF\x01\x00\x00\x00"),
			"gguf: GGUF version 1 is not supported: convert the file to version 3"},
		{"big-endian", "says which version it would be", []byte("GGUF\x00\x00\x00\x03"),
			"gguf: big-endian GGUF (version 3) is not supported: convert the file to little-endian"},
		{"known key", "have and want", with(func(f *rawFile) { f.keys[0] = kv(KeyArchitecture, TypeUint8, u8(1)) }),
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
