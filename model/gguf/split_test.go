package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/quant"
)

// splitKeys returns the keys of a part.
func splitKeys(no, count, tensors int) [][]byte {
	return [][]byte{
		kv(keySplitNo, typeUint16, u16(uint16(no))),
		kv(keySplitCount, typeUint16, u16(uint16(count))),
		kv(keySplitTensors, typeInt32, u32(uint32(tensors))),
	}
}

// part returns a part whose tensors have 8 numbers each.
func part(no, count, tensors int, names ...string) *rawFile {
	f := &rawFile{magic: magic, version: 3, align: 32, keys: splitKeys(no, count, tensors)}
	for i, name := range names {
		f.tensors = append(f.tensors, ten(name, idF32, uint64(32*i), 8))
		f.data = append(f.data, bytes.Repeat([]byte(name[:1]), 32)...)
	}
	return f
}

// goodParts returns a split model.
func goodParts() []*rawFile {
	parts := []*rawFile{part(0, 3, 4, "a"), part(1, 3, 4, "b", "c"), part(2, 3, 4, "d")}
	parts[0].keys = append(parts[0].keys, kv("general.architecture", typeString, str("llama")))
	return parts
}

// writeParts writes the files into the current directory and returns their names.
func writeParts(t *testing.T, parts []*rawFile) (paths []string) {
	t.Helper()
	for i, f := range parts {
		path := "m" + split{no: i, count: len(parts)}.suffix()
		if err := os.WriteFile(path, f.bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func TestOpenSplit(t *testing.T) {
	t.Chdir(t.TempDir())
	parts := goodParts()
	parts[0].keys = append(parts[0].keys, kv(keyAlignment, typeUint32, u32(64))) // each part has its own
	parts[0].align = 64
	parts[1].version = 2
	parts[2].keys = append(parts[2].keys, kv("general.architecture", typeString, str("of a later part"))) // ignored
	paths := writeParts(t, parts)
	before := mappings()
	f, err := Open(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	var size int
	var want []Tensor
	for i, names := range []string{"a", "bc", "d"} {
		start := int64(len(parts[i].bytes()) - 32*len(names))
		size += len(parts[i].bytes())
		for j, name := range strings.Split(names, "") {
			want = append(want, Tensor{name, quant.F32, []int{8}, i, start + int64(32*j), bytes.Repeat([]byte(name), 32)})
		}
	}
	if diff := cmp.Diff(want, f.Tensors()); diff != "" {
		t.Errorf("tensors: %s", diff)
	}
	if diff := cmp.Diff([]string{"general.architecture", keyAlignment}, f.Keys()); diff != "" {
		t.Errorf("keys: %s", diff)
	}
	arch, _ := f.Value("general.architecture")
	if _, ok := f.Value(keySplitNo); ok || arch.String() != `"llama"` {
		t.Errorf("architecture %v; has %s: %v", arch, keySplitNo, ok)
	}
	if f.Size() != int64(size) || f.Version() != 3 || !slices.Equal(f.Paths(), paths) {
		t.Errorf("size %d, want %d; version %d; paths %v", f.Size(), size, f.Version(), f.Paths())
	}
	if err := f.Check(); err != nil || mappings() != before+3 {
		t.Errorf("Check: %v; %d mappings, %d before", err, mappings(), before)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if d, ok := f.Tensor("d"); !ok || d.Data != nil || mappings() != before {
		t.Errorf("after Close: tensor %v, %d mappings, %d before", d, mappings(), before)
	}
	if err := f.Check(); !errors.Is(err, ErrClosed) || !slices.Equal(f.Paths(), paths) {
		t.Errorf("after Close: Check: %v; paths %v", err, f.Paths())
	}
}

// Unusual parts that are allowed.
func TestOpenSplitAccepts(t *testing.T) {
	tests := []struct {
		name, reason string
		parts        []*rawFile
		tensors      int
	}{
		{"no tensors first", "gguf-split --no-tensor-first-split", []*rawFile{part(0, 2, 1), part(1, 2, 1, "a")}, 1},
		{"no tensors last", "harmless", []*rawFile{part(0, 2, 1, "a"), part(1, 2, 1)}, 1},
		{"no tensors at all", "a vocabulary", []*rawFile{part(0, 2, 0), part(1, 2, 0)}, 0},
		{"other integers", "any will do", []*rawFile{
			part(0, 2, 2, "a"), {magic: magic, version: 3, align: 32, tensors: part(1, 2, 2, "b").tensors, data: make([]byte, 32), keys: [][]byte{
				kv(keySplitNo, typeInt64, u64(1)), kv(keySplitCount, typeUint8, u8(2)), kv(keySplitTensors, typeUint32, u32(2)),
			}},
		}, 2},
		{"one part", "a whole model", []*rawFile{part(0, 1, 1, "a")}, 1},
		{"zero parts", "gguf-split --merge writes it", []*rawFile{part(0, 0, 1, "a")}, 1},
		{"whole model of other counts", "nothing reads them", []*rawFile{part(7, 1, 9, "a")}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			paths := writeParts(t, tt.parts)
			f, err := Open(paths[0])
			if err != nil {
				t.Fatalf("%v: %s", err, tt.reason)
			}
			defer f.Close()
			if len(f.Tensors()) != tt.tensors || len(f.Paths()) != len(tt.parts) {
				t.Errorf("%d tensors in %v", len(f.Tensors()), f.Paths())
			}
			if _, ok := f.Value(keySplitCount); ok != (len(tt.parts) == 1) {
				t.Errorf("has %s: %v", keySplitCount, ok)
			}
			if err := readAll(f); err != nil {
				t.Error(err)
			}
		})
	}
}

// In the cache of a download, parts are links to files of other names.
func TestOpenSplitLinks(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, path := range writeParts(t, goodParts()) {
		if err := os.Rename(path, "blob of "+path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("blob of "+path, path); err != nil {
			t.Skipf("no link can be made: %v", err)
		}
	}
	if f := mustOpen(t, "m-00001-of-00003.gguf"); len(f.Tensors()) != 4 {
		t.Errorf("%d tensors", len(f.Tensors()))
	}
}

func TestMalformedSplit(t *testing.T) {
	const first, second, third = "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"
	tests := []struct {
		name, reason string
		change       func(p []*rawFile)
		disk         func(paths []string) error // changes the files that change left
		open         string                     // "": the first part
		want         error
		text         string // the start of the message
	}{
		{name: "second part", reason: "the metadata is in the first", open: second,
			want: errPart, text: second + `: key "split.no": this is part 2 of 3: open the first, ` + first},
		{name: "renamed", reason: "the other names are unknown", disk: func(p []string) error { return os.Rename(p[0], "m.gguf") }, open: "m.gguf",
			want: errSplit, text: `m.gguf: key "split.count": the name of part 1 of 3 must end in -00001-of-00003.gguf`},
		{name: "number of another name", reason: "part 1 says that it is part 3", change: func(p []*rawFile) { p[0].keys[0] = p[2].keys[0] },
			want: errSplit, text: first + `: key "split.count": the name of part 3 of 3 must end in -00003-of-00003.gguf`},
		{name: "count of another name", reason: "part 1 says that there are 2", change: func(p []*rawFile) { p[0].keys[1] = splitKeys(0, 2, 4)[1] },
			want: errSplit, text: first + `: key "split.count": the name of part 1 of 2 must end in -00001-of-00002.gguf`},

		{name: "second part missing", reason: "its tensors are", disk: func(p []string) error { return os.Remove(p[1]) },
			want: fs.ErrNotExist, text: second + ": part 2 of 3: "},
		{name: "last part missing", reason: "its tensors are", disk: func(p []string) error { return os.Remove(p[2]) },
			want: fs.ErrNotExist, text: third + ": part 3 of 3: "},
		{name: "directory", reason: "is not read", disk: func(p []string) error { return errors.Join(os.Remove(p[1]), os.Mkdir(p[1], 0o700)) },
			want: errNotRegular, text: second + ": part 2 of 3: is a directory"},
		{name: "empty part", reason: "a failed download", disk: func(p []string) error { return os.Truncate(p[1], 0) },
			want: ErrTruncated, text: second + ": part 2 of 3: the file is empty"},
		{name: "truncated part", reason: "a failed download", change: func(p []*rawFile) { p[2].data = p[2].data[:31] },
			want: ErrTruncated, text: third + `: part 3 of 3: tensor "d": its data ends at byte `},
		{name: "part of version 1", reason: "each part has a version", change: func(p []*rawFile) { p[1].version = 1 },
			want: errVersion1, text: second + ": part 2 of 3: GGUF version 1 is not supported"},
		{name: "big-endian part", reason: "each part has a byte order", change: func(p []*rawFile) { p[1].version = 3 << 24 },
			want: errEndian, text: second + ": part 2 of 3: big-endian GGUF (version 3) is not supported"},
		{name: "part of another format", reason: "no GGUF file", change: func(p []*rawFile) { p[1].magic = "ggml" },
			want: errMagic, text: second + `: part 2 of 3: not a GGUF file`},
		{name: "parts swapped", reason: "renamed by hand", change: func(p []*rawFile) { p[1], p[2] = p[2], p[1] },
			want: errSplit, text: second + `: part 2 of 3: key "split.no": 2, want 1`},
		{name: "part twice", reason: "a copy", change: func(p []*rawFile) { p[2] = p[1] },
			want: errSplit, text: third + `: part 3 of 3: key "split.no": 1, want 2`},
		{name: "part of more", reason: "of another model", change: func(p []*rawFile) { p[1] = part(1, 4, 4, "b", "c") },
			want: errSplit, text: second + `: part 2 of 3: key "split.count": 4, want 3`},
		{name: "whole model as a part", reason: "it has the keys", change: func(p []*rawFile) { p[1] = part(0, 1, 4, "b", "c") },
			want: errSplit, text: second + `: part 2 of 3: key "split.count": 1, want 3`},
		{name: "whole model without keys", reason: "it is no part", change: func(p []*rawFile) { p[1].keys = nil },
			want: errSplit, text: second + `: part 2 of 3: key "split.count": the key of a split model is missing`},
		{name: "part of more tensors", reason: "of another model", change: func(p []*rawFile) { p[2] = part(2, 3, 5, "d") },
			want: errSplit, text: third + `: part 3 of 3: key "split.tensors.count": 5, want 4`},
		{name: "tensor missing", reason: "from the second part", change: func(p []*rawFile) { p[1] = part(1, 3, 4, "b") },
			want: errSplit, text: first + `: key "split.tensors.count": 4, and all parts have 3 tensors`},
		{name: "tensor too many", reason: "in the last part", change: func(p []*rawFile) { p[2] = part(2, 3, 4, "d", "e") },
			want: errSplit, text: first + `: key "split.tensors.count": 4, and all parts have 5 tensors`},
		{name: "tensor in two parts", reason: "one is ignored", change: func(p []*rawFile) { p[2] = part(2, 3, 4, "a") },
			want: errDuplicate, text: third + `: part 3 of 3: tensor "a": the tensor is also in ` + first},
		{name: "tensor in later parts", reason: "one is ignored", change: func(p []*rawFile) { p[2] = part(2, 3, 4, "c") },
			want: errDuplicate, text: third + `: part 3 of 3: tensor "c": the tensor is also in ` + second},

		{name: "no number", reason: "is it the first?", change: func(p []*rawFile) { p[0].keys = p[0].keys[1:] },
			want: errSplit, text: first + `: key "split.no": the key of a split model is missing`},
		{name: "no number of tensors", reason: "are all there?", change: func(p []*rawFile) { p[0].keys = p[0].keys[:2] },
			want: errSplit, text: first + `: key "split.tensors.count": the key of a split model is missing`},
		{name: "number above the count", reason: "part 4 of 3", change: func(p []*rawFile) { p[0].keys[0] = splitKeys(3, 3, 4)[0] },
			want: errLimit, text: first + `: key "split.no": 3 is above 2`},
		{name: "negative number", reason: "an int16", change: func(p []*rawFile) { p[0].keys[0] = kv(keySplitNo, typeInt16, u16(0xffff)) },
			want: errOverflow, text: first + `: key "split.no": -1 is negative`},
		{name: "negative count", reason: "an int16", change: func(p []*rawFile) { p[0].keys[1] = kv(keySplitCount, typeInt16, u16(0xffff)) },
			want: errOverflow, text: first + `: key "split.count": -1 is negative`},
		{name: "negative number of tensors", reason: "an int32", change: func(p []*rawFile) { p[0].keys[2] = splitKeys(0, 3, -1)[2] },
			want: errOverflow, text: first + `: key "split.tensors.count": -1 is negative`},
		{name: "count as text", reason: "no integer", change: func(p []*rawFile) { p[0].keys[1] = kv(keySplitCount, typeString, str("3")) },
			want: ErrType, text: first + `: key "split.count": have string, want integer`},
		{name: "number of a later part as text", reason: "no integer", change: func(p []*rawFile) { p[1].keys[0] = kv(keySplitNo, typeString, str("1")) },
			want: ErrType, text: second + `: part 2 of 3: key "split.no": have string, want integer`},
		{name: "too many parts", reason: "the most a uint16 can say", change: func(p []*rawFile) { p[0].keys[1] = splitKeys(0, 65535, 4)[1] },
			want: errLimit, text: first + `: key "split.count": 65535 is above 4096`},
		{name: "2⁶³ parts", reason: "negative as an int", change: func(p []*rawFile) { p[0].keys[1] = kv(keySplitCount, typeUint64, u64(1<<63)) },
			want: errLimit, text: first + `: key "split.count": 9223372036854775808 is above 4096`},
		{name: "too many tensors", reason: "above the limit of one file", change: func(p []*rawFile) { p[0].keys[2] = splitKeys(0, 3, maxTensors+1)[2] },
			want: errLimit, text: first + `: key "split.tensors.count": 262145 is above 262144`},
		{name: "number of 2⁶³ in a later part", reason: "negative as an int", change: func(p []*rawFile) { p[1].keys[0] = kv(keySplitNo, typeUint64, u64(1<<63)) },
			want: errLimit, text: second + `: part 2 of 3: key "split.no": 9223372036854775808 is above 9223372036854775807`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			parts := goodParts()
			if tt.change != nil {
				tt.change(parts)
			}
			paths := writeParts(t, parts)
			if tt.disk != nil {
				if err := tt.disk(paths); err != nil {
					t.Fatal(err)
				}
			}
			open := paths[0]
			if tt.open != "" {
				open = tt.open
			}
			before := mappings()
			bounded(t, 1<<10, func() {
				_, err := Open(open)
				checkSplitRefused(t, err, tt.want, "gguf: "+tt.text, tt.reason)
			})
			if n := mappings(); n != before {
				t.Errorf("%d mappings, %d before", n, before)
			}
		})
	}
}

func checkSplitRefused(t *testing.T, err, want error, text, reason string) {
	t.Helper()
	switch {
	case !errors.Is(err, want):
		t.Fatalf("error %v, want %v: %s", err, want, reason)
	case !strings.HasPrefix(err.Error(), text) || strings.Contains(err.Error(), "\n"):
		t.Errorf("message %q, want %q: %s", err, text, reason)
	case want != fs.ErrNotExist && len(kinds(err)) != 1:
		t.Errorf("%v: wraps %q", err, kinds(err))
	}
}

// Open stops at the first part that is missing, however many there should be.
func TestOpenSplitStops(t *testing.T) {
	t.Chdir(t.TempDir())
	path := "m" + split{count: maxParts}.suffix()
	if err := os.WriteFile(path, part(0, maxParts, maxTensors).bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	bounded(t, 1<<10, func() {
		if _, err := Open(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "m-00002-of-04096.gguf: part 2 of 4096: ") {
			t.Errorf("error %v", err)
		}
	})
}

// All parts together have at most as many tensors as one file.
func TestSplitTensorLimit(t *testing.T) {
	t.Chdir(t.TempDir())
	dense := func(no, tensors int) *rawFile {
		f := &rawFile{magic: magic, version: 3, align: 32, keys: splitKeys(no, 2, maxTensors), data: make([]byte, 32*tensors)}
		for i := range tensors {
			f.tensors = append(f.tensors, ten(fmt.Sprintf("%d.%x", no, i), idF32, uint64(32*i), 1))
		}
		return f
	}
	paths := writeParts(t, []*rawFile{dense(0, maxTensors/2), dense(1, maxTensors/2+1)})
	_, err := Open(paths[0])
	checkSplitRefused(t, err, errLimit, "gguf: "+paths[1]+": part 2 of 2: 262145 tensors are more than 262144", "one too many")
}

// A bit flip in the header of a part gives an error that names a part, or a model that can be
// read. To save time only every third bit is flipped.
func TestSplitBitFlips(t *testing.T) {
	t.Chdir(t.TempDir())
	parts := goodParts()
	paths := writeParts(t, parts)
	for i, path := range paths {
		data := parts[i].bytes()
		opened := 0
		for bit := 0; bit < 8*len(parts[i].header()); bit += 3 {
			data[bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			data[bit/8] ^= 1 << (bit % 8)
			f, err := Open(paths[0])
			if err == nil {
				opened++
				err = errors.Join(readAll(f), f.Close())
				if err != nil {
					t.Errorf("part %d, bit %d: %v", i, bit, err)
				}
			} else if !strings.HasPrefix(err.Error(), "gguf: m-0000") {
				t.Errorf("part %d, bit %d: %v names no part", i, bit, err)
			}
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if opened == 0 {
			t.Errorf("part %d: no flip is harmless", i)
		}
	}
}

// A part in memory has no others.
func TestParsePart(t *testing.T) {
	for i, f := range goodParts() {
		_, err := Parse(f.bytes())
		want := fmt.Sprintf(`gguf: key "split.count": this is part %d of 3, and only Open finds the others`, i+1)
		if !errors.Is(err, ErrUnsupported) || err.Error() != want || len(kinds(err)) != 1 {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if f := mustParse(t, part(0, 1, 1, "a").bytes()); len(f.Paths()) != 0 {
		t.Errorf("paths %v of a file in memory", f.Paths())
	}
}

// Any part may be truncated after Open. Errors name it.
func TestSplitTruncated(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows refuses to cut a mapped file short")
	}
	page := os.Getpagesize()
	for i, cut := range []string{"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"} {
		t.Run(cut, func(t *testing.T) {
			t.Chdir(t.TempDir())
			parts := goodParts()
			for _, f := range parts { // longer tensors
				f.tensors = [][]byte{ten("big"+string(f.keys[0][len(f.keys[0])-2]+'0'), idF32, 0, uint64(page))}
				f.data = bytes.Repeat([]byte{1}, 4*page)
				f.keys[2] = splitKeys(0, 3, 3)[2]
			}
			f := mustOpen(t, writeParts(t, parts)[0])
			tensors := f.Tensors()
			check := func(what string, err error, fails bool) {
				t.Helper()
				if fails != errors.Is(err, ErrTruncated) || fails != (err != nil) {
					t.Errorf("%s: error %v", what, err)
				}
				if want := "gguf: " + cut + ": the file was cut short from "; err != nil && !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%s: message %q, want %q", what, err, want)
				}
			}
			check("Check before", f.Check(), false)
			// The rest of the last page reads as zeros without a fault.
			if err := os.Truncate(cut, int64(len(parts[i].bytes())-1)); err != nil {
				t.Fatal(err)
			}
			check("Check", f.Check(), true)
			for j, tensor := range tensors {
				check("copy", tensor.write(io.Discard), i == j)
			}
			if err := os.Truncate(cut, int64(page)); err != nil {
				t.Fatal(err)
			}
			for j, tensor := range tensors {
				check("Guard", Guard(func() { sum(tensor.Data) }), i == j)
			}
		})
	}
}
