package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-go/lockstep/quant"
)

// writes returns a TensorInfo.Write that writes the chunks.
func writes(chunks ...[]byte) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, p := range chunks {
			if _, err := w.Write(p); err != nil {
				return err
			}
		}
		return nil
	}
}

func mustSet(t *testing.T, w *Writer, key string, value any) {
	t.Helper()
	if err := w.Set(key, value); err != nil {
		t.Fatal(err)
	}
}

func mustAdd(t *testing.T, w *Writer, info TensorInfo) {
	t.Helper()
	if err := w.Add(info); err != nil {
		t.Fatal(err)
	}
}

func mustWrite(t *testing.T, w *Writer) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := w.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) || n != w.Size() {
		t.Errorf("%d bytes, WriteTo says %d, Size %d", b.Len(), n, w.Size())
	}
	return b.Bytes()
}

// The Writer writes the bytes that rawFile builds.
func TestWriterBytes(t *testing.T) {
	w := NewWriter()
	for _, kv := range goodValues {
		mustSet(t, w, kv.key, kv.want)
	}
	data := good().data
	mustAdd(t, w, TensorInfo{"a.weight", quant.F32, []int{4, 2}, writes(data[:32])})
	mustAdd(t, w, TensorInfo{"b.weight", quant.Q8_0, []int{32, 2, 1}, writes(data[32:33], data[33:33], data[33:100])})
	mustAdd(t, w, TensorInfo{"c.bias", quant.F16, []int{3}, writes(data[128:134])})
	got := mustWrite(t, w)
	if diff := cmp.Diff(good().bytes(), got); diff != "" {
		t.Fatalf("bytes: %s", diff)
	}
	if again := mustWrite(t, w); !bytes.Equal(got, again) {
		t.Error("written twice, the files differ")
	}
	f := mustParse(t, got)
	checkGood(t, f, int64(len(got)-len(data)))
}

type (
	myID    int32
	myName  string
	myFlag  bool
	myRatio float32
)

func TestWriterValues(t *testing.T) {
	tests := []struct {
		name, reason string
		value, want  any
	}{
		{"named integer", "stored as what it is made of", myID(-3), int32(-3)},
		{"named string", "stored as what it is made of", myName("n"), "n"},
		{"named bool", "stored as what it is made of", myFlag(true), true},
		{"named float", "stored as what it is made of", myRatio(0.5), float32(0.5)},
		{"slice of named integers", "token types", []myID{1, -1}, []int32{1, -1}},
		{"slice of named strings", "stored as what it is made of", []myName{"a", ""}, []string{"a", ""}},
		{"slice of named bools", "stored as what it is made of", []myFlag{true, false}, []bool{true, false}},
		{"nil slice", "an empty array", []int32(nil), []int32{}},
		{"nil strings", "an empty array", []string(nil), []string{}},
		{"value of another file", "as it is", mustEncode(t, []string{"x"}), []string{"x"}},
		{"smallest float", "bits kept", float32(math.SmallestNonzeroFloat32), float32(math.SmallestNonzeroFloat32)},
		{"negative zero", "bits kept", math.Copysign(0, -1), math.Copysign(0, -1)},
		{"long string", "beyond a buffer", strings.Repeat("ż", 1<<20), strings.Repeat("ż", 1<<20)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := NewWriter()
			mustSet(t, w, "k", tt.value)
			v, ok := mustParse(t, mustWrite(t, w)).Value("k")
			if !ok || !cmp.Equal(v.Any(), tt.want) {
				t.Errorf("got %v, want %v: %s", v, tt.want, tt.reason)
			}
		})
	}
}

func TestWriterKeepsNothing(t *testing.T) {
	w := NewWriter()
	values, dims := []int32{1, 2}, []int{4}
	mustSet(t, w, "k", values)
	mustAdd(t, w, TensorInfo{"t", quant.F32, dims, writes(make([]byte, 16))})
	values[0], dims[0] = 99, 0
	f := mustParse(t, mustWrite(t, w))
	if v, _ := f.Value("k"); !cmp.Equal(v.Any(), []int32{1, 2}) {
		t.Errorf("value %v", v)
	}
}

func strOf(f *File, key string) (string, error) {
	v, _ := f.Value(key)
	return v.Str()
}

func TestWriterReplaces(t *testing.T) {
	w := NewWriter()
	mustSet(t, w, "a", uint32(1))
	mustSet(t, w, "b", uint32(2))
	mustSet(t, w, "a", "one")
	f := mustParse(t, mustWrite(t, w))
	if diff := cmp.Diff([]string{"a", "b"}, f.Keys()); diff != "" {
		t.Errorf("keys: %s", diff)
	}
	if s, err := strOf(f, "a"); s != "one" || err != nil {
		t.Errorf("a is %q, %v", s, err)
	}
	if err := w.Set("a", 1); err == nil {
		t.Fatal("an int was stored")
	}
	if s, err := strOf(mustParse(t, mustWrite(t, w)), "a"); s != "one" || err != nil {
		t.Errorf("after a refusal a is %q, %v", s, err)
	}
}

// The alignment may be set after adding tensors.
func TestWriterAlignment(t *testing.T) {
	for _, align := range []uint32{1, 2, 64, 4096, 1 << 20} {
		w := NewWriter()
		mustAdd(t, w, TensorInfo{"a", quant.F16, []int{3}, writes([]byte("abcdef"))})
		mustAdd(t, w, TensorInfo{"b", quant.F16, []int{1}, writes([]byte("gh"))})
		mustSet(t, w, keyAlignment, align)
		data := mustWrite(t, w)
		f := mustParse(t, data)
		a, _ := f.Tensor("a")
		b, _ := f.Tensor("b")
		if string(a.Data) != "abcdef" || string(b.Data) != "gh" {
			t.Errorf("alignment %d: data %q and %q", align, a.Data, b.Data)
		}
		if n := int64(align); a.Offset%n != 0 || b.Offset-a.Offset != alignUp(6, n) || int64(len(data))%n != 0 {
			t.Errorf("alignment %d: offsets %d and %d of %d", align, a.Offset, b.Offset, len(data))
		}
	}
}

func TestWriterTensorSize(t *testing.T) {
	broken := errors.New("broken source")
	tests := []struct {
		name, reason string
		write        func(io.Writer) error
		want         error
	}{
		{"nothing", "16 bytes were announced", writes(), errSize},
		{"one byte short", "16 bytes were announced", writes(make([]byte, 15)), errSize},
		{"one byte long", "16 bytes were announced", writes(make([]byte, 17)), errSize},
		{"one byte long, in chunks", "the last chunk is too much", writes(make([]byte, 16), make([]byte, 1)), errSize},
		{"error dropped", "the writer noticed all the same", func(w io.Writer) error {
			w.Write(make([]byte, 17))
			w.Write(make([]byte, 16))
			return nil
		}, errSize},
		{"error of its own", "passed on", func(io.Writer) error { return broken }, broken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := NewWriter()
			mustAdd(t, w, TensorInfo{"t", quant.F32, []int{4}, tt.write})
			_, err := w.WriteTo(io.Discard)
			if !errors.Is(err, tt.want) || !strings.HasPrefix(err.Error(), `gguf: tensor "t": `) {
				t.Errorf("error %v, want %v: %s", err, tt.want, tt.reason)
			}
		})
	}
}

// failAfter fails after some bytes, like a full disk.
type failAfter struct{ left int }

func (f *failAfter) Write(p []byte) (int, error) {
	if len(p) > f.left {
		n := f.left
		f.left = 0
		return n, io.ErrShortWrite
	}
	f.left -= len(p)
	return len(p), nil
}

func TestWriterReportsBytesWritten(t *testing.T) {
	w := NewWriter()
	mustAdd(t, w, TensorInfo{"t", quant.F32, []int{1 << 20}, writes(make([]byte, 4<<20))})
	n, err := w.WriteTo(&failAfter{3 << 20})
	if n != 3<<20 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// The Writer refuses what the reader refuses, before it writes.
func TestWriterRefusesKeys(t *testing.T) {
	tests := []struct {
		name, reason string
		key          string
		value        any
		want         error
	}{
		{"empty key", "a key needs a name", "", uint32(1), errKey},
		{"key too long", "the specification's limit", strings.Repeat("k", maxKeyLen+1), uint32(1), errKey},
		{"key is no UTF-8", "a reader would refuse it", "a\xff", uint32(1), errUTF8},
		{"string is no UTF-8", "a reader would refuse it", "k", "a\xff", errUTF8},
		{"string of an array is no UTF-8", "a reader would refuse it", "k", []string{"a", "\xc0\x80"}, errUTF8},
		{"int", "of no fixed width", "k", 1, ErrType},
		{"uint", "of no fixed width", "k", uint(1), ErrType},
		{"ints", "of no fixed width", "k", []int{1}, ErrType},
		{"nil", "of no type", "k", nil, ErrType},
		{"zero Value", "of no type", "k", Value{}, ErrType},
		{"struct", "no such type", "k", struct{}{}, ErrType},
		{"pointer", "no such type", "k", new(int32), ErrType},
		{"array", "only slices", "k", [2]int32{1, 2}, ErrType},
		{"complex", "no such type", "k", complex64(1), ErrType},
		{"slice of any", "no one type", "k", []any{"a"}, ErrType},
		{"nested slice", "no nested arrays", "k", [][]int32{{1}}, errNested},
		{"architecture is a number", "wrong type for a known key", "general.architecture", uint32(1), ErrType},
		{"alignment is uint64", "wrong type for a known key", keyAlignment, uint64(32), ErrType},
		{"alignment 24", "no power of two", keyAlignment, uint32(24), errAlignment},
		{"alignment 0", "no power of two", keyAlignment, uint32(0), errAlignment},
		{"alignment 2 MiB", "too large", keyAlignment, uint32(1 << 21), errAlignment},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := NewWriter()
			err := w.Set(tt.key, tt.value)
			if got := kinds(err); len(got) != 1 || got[0] != tt.want {
				t.Errorf("error %v wraps %q, want %q: %s", err, got, tt.want, tt.reason)
			}
			if want := fmt.Sprintf("gguf: key %q: ", clip(tt.key)); err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("message %q, want %q …", err, want)
			}
			if w.Size() != NewWriter().Size() {
				t.Error("the key was kept")
			}
		})
	}
}

func TestWriterRefusesTensors(t *testing.T) {
	const huge = math.MaxInt / 4
	tests := []struct {
		name, reason string
		info         TensorInfo
		want         error
	}{
		{"empty name", "a tensor needs a name", TensorInfo{"", quant.F32, []int{4}, nil}, errName},
		{"name too long", "the specification's limit", TensorInfo{strings.Repeat("n", maxNameLen+1), quant.F32, []int{4}, nil}, errName},
		{"name is no UTF-8", "a reader would refuse it", TensorInfo{"\xff", quant.F32, []int{4}, nil}, errUTF8},
		{"duplicate", "there is one of that name", TensorInfo{"first", quant.F32, []int{4}, nil}, errDuplicate},
		{"no dimensions", "1 to 4", TensorInfo{"t", quant.F32, nil, nil}, errShape},
		{"5 dimensions", "1 to 4", TensorInfo{"t", quant.F32, []int{1, 1, 1, 1, 1}, nil}, errShape},
		{"zero dimension", "no weights", TensorInfo{"t", quant.F32, []int{4, 0}, nil}, errShape},
		{"negative dimension", "no shape", TensorInfo{"t", quant.F32, []int{4, -1}, nil}, errShape},
		{"two negative dimensions", "whose product is positive", TensorInfo{"t", quant.F32, []int{-4, -1}, nil}, errShape},
		{"too many elements", "2⁶⁴", TensorInfo{"t", quant.F32, []int{math.MaxInt, 4}, nil}, errOverflow},
		{"too many bytes", "2⁶³", TensorInfo{"t", quant.F32, []int{math.MaxInt/4 + 1}, nil}, errOverflow},
		{"too many bytes with the others", "2⁶³", TensorInfo{"t", quant.F32, []int{huge}, nil}, errOverflow},
		{"partial block", "rows of whole blocks", TensorInfo{"t", quant.Q4_K, []int{255, 256}, nil}, errPartialBlock},
		{"removed format", "not in ggml any more", TensorInfo{"t", quant.Format(4), []int{256}, nil}, errUnsupportedFormat},
		{"unknown format", "no format of ggml", TensorInfo{"t", quant.Format(1000), []int{256}, nil}, errUnsupportedFormat},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := NewWriter()
			mustAdd(t, w, TensorInfo{"first", quant.F32, []int{1}, writes(make([]byte, 4))})
			size := w.Size()
			tt.info.Write = writes()
			err := w.Add(tt.info)
			if got := kinds(err); len(got) != 1 || got[0] != tt.want {
				t.Errorf("error %v wraps %q, want %q: %s", err, got, tt.want, tt.reason)
			}
			if want := fmt.Sprintf("gguf: tensor %q: ", clip(tt.info.Name)); err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("message %q, want %q …", err, want)
			}
			if w.Size() != size {
				t.Error("the tensor was kept")
			}
		})
	}
}

func TestWrappedErrors(t *testing.T) {
	info := TensorInfo{"t", quant.Format(4), []int{256}, writes()}
	if err := NewWriter().Add(info); !errors.Is(err, quant.ErrUnsupported) {
		t.Errorf("%v is no quant.ErrUnsupported", err)
	}
	info.Format, info.Dims = quant.Q8_0, []int{31}
	if err := NewWriter().Add(info); !errors.Is(err, errPartialBlock) {
		t.Errorf("%v is no errPartialBlock", err)
	}
	if _, err := Parse([]byte("GGUF\x01\x00\x00\x00")); !errors.Is(err, errVersion) || !errors.Is(err, errVersion1) {
		t.Errorf("%v is no errVersion", err)
	}
}

func TestWriterCountLimits(t *testing.T) {
	w := NewWriter()
	for i := range maxKeys {
		mustSet(t, w, fmt.Sprint(i), true)
	}
	if err := w.Set("more", true); !errors.Is(err, errLimit) {
		t.Errorf("key: %v", err)
	}
	mustSet(t, w, "0", false) // replaces a key
	for i := range maxTensors {
		mustAdd(t, w, TensorInfo{fmt.Sprint(i), quant.F16, []int{1}, writes(make([]byte, 2))})
	}
	if err := w.Add(TensorInfo{"more", quant.F16, []int{1}, writes()}); !errors.Is(err, errLimit) {
		t.Errorf("tensor: %v", err)
	}
}

// TestWriterByteLimits sets values that Open would refuse.
func TestWriterByteLimits(t *testing.T) {
	zeros := make([]byte, maxStringBytes+1)
	text := func(n int) Value { return Value{typ: typeString, n: 1, raw: zeros[:n]} } // shares its bytes
	tooLong := unsafe.String(&zeros[0], len(zeros))
	w := NewWriter()
	mustSet(t, w, "list", []uint32{1, 2})
	mustSet(t, w, "text", "x")
	if n := len(w.header()); w.head != n {
		t.Fatalf("a header of %d bytes counts as %d", n, w.head)
	}
	mustSet(t, w, "text", text(maxStringBytes))
	mustSet(t, w, "text", text(maxStringBytes)) // replaces it, and counts once
	head := w.head
	for _, c := range []struct {
		name  string
		value any
		want  string
	}{
		{"elements", make([]uint8, maxElements+1), "4194305 elements of array"},
		{"string", tooLong, "67108865 bytes of string"},
		{"string in an array", []string{tooLong}, "67108865 bytes of string"},
		{"two strings", text(maxStringBytes), "134217836 bytes of header"},
	} {
		err := w.Set("more", c.value)
		if !errors.Is(err, errLimit) || !strings.Contains(err.Error(), `key "more": `+c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	if w.head != head {
		t.Errorf("the header counts %d bytes, want %d: a refused value was kept", w.head, head)
	}
	tensor := TensorInfo{"t", quant.F16, []int{1}, writes(make([]byte, 2))}
	rest := maxHeaderBytes - head - (lengthBytes + len("rest") + 4 + lengthBytes) - (lengthBytes + 1 + 4 + 8 + 4 + 8)
	mustSet(t, w, "rest", text(rest+1))
	if err := w.Add(tensor); !errors.Is(err, errLimit) || !strings.Contains(err.Error(), "134217729 bytes of header") {
		t.Errorf("tensor: %v", err)
	}
	mustSet(t, w, "rest", text(rest))
	mustAdd(t, w, tensor)
}

func TestAddWithoutWritePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_ = NewWriter().Add(TensorInfo{"t", quant.F32, []int{1}, nil})
}

// headKeeper keeps the first bytes and counts all.
type headKeeper struct {
	head []byte
	n    int64
}

func (h *headKeeper) Write(p []byte) (int, error) {
	h.head = append(h.head, p[:min(len(p), 4096-len(h.head))]...)
	h.n += int64(len(p))
	return len(p), nil
}

// Tensors of gigabytes are streamed. Offsets exceed 32 bits.
func TestWriterStreams(t *testing.T) {
	const rows = 3 << 10
	chunk := make([]byte, 1<<20)
	stream := func(w io.Writer) error {
		for range rows {
			if _, err := w.Write(chunk); err != nil {
				return err
			}
		}
		return nil
	}
	w := NewWriter()
	for _, name := range []string{"a", "b", "c"} {
		mustAdd(t, w, TensorInfo{name, quant.F32, []int{len(chunk) / 4, rows}, stream})
	}
	var dst headKeeper
	bounded(t, 0, func() {
		n, err := w.WriteTo(&dst)
		if err != nil || n != dst.n || n != w.Size() || n < 9<<30 {
			t.Errorf("%d bytes of %d: %v", n, w.Size(), err)
		}
	})
	// Parsing the header alone reports where the first tensor would end.
	_, err := Parse(dst.head)
	if want := `tensor "a": its data ends at byte 3221225632, the file at byte 4096`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// checkDir compares the file names in a directory.
func checkDir(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files left: %s", diff)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.gguf")
	w := NewWriter()
	mustAdd(t, w, TensorInfo{"t", quant.F32, []int{2}, writes([]byte("12345678"))})
	for range 2 { // a new file, then an existing one
		if err := w.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, mustWrite(t, w)) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		checkDir(t, dir, "x.gguf")
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o644 && runtime.GOOS != "windows" {
		t.Errorf("permission %o", mode)
	}
}

// A file may be rewritten while it is mapped: the mapping keeps the old contents.
func TestWriteFileOverItsSource(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not replace a mapped file")
	}
	path := writeTemp(t, good().bytes())
	f := mustOpen(t, path)
	if err := copyOf(t, f).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, good().bytes()) {
		t.Errorf("the rewritten file differs: %v", err)
	}
	if err := f.Check(); err != nil {
		t.Error(err)
	}
}

func TestWriteFileFailures(t *testing.T) {
	broken := errors.New("broken source")
	ok := writes([]byte("12345678"))
	tests := []struct {
		name, reason string
		write        func(io.Writer) error
		want         error
	}{
		{"source fails", "half is written", func(w io.Writer) error { return errors.Join(ok(w), broken) }, broken},
		{"too short", "the size is known at the end", writes([]byte("123")), errSize},
		{"too long", "the size is exceeded", writes([]byte("123456789")), errSize},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x.gguf")
			w := NewWriter()
			mustAdd(t, w, TensorInfo{"t", quant.F32, []int{2}, tt.write})
			checkFailed(t, w.WriteFile(path), path, tt.want)
			checkDir(t, dir)

			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			checkFailed(t, w.WriteFile(path), path, tt.want)
			checkDir(t, dir, "x.gguf")
			if old, err := os.ReadFile(path); string(old) != "old" {
				t.Errorf("the old file is %q, %v: %s", old, err, tt.reason)
			}
		})
	}
}

func checkFailed(t *testing.T, err error, path string, want error) {
	t.Helper()
	if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "gguf: "+path+": ") {
		t.Errorf("error %v, want %v with the path", err, want)
	}
}

func TestWriteFilePanic(t *testing.T) {
	dir := t.TempDir()
	w := NewWriter()
	mustAdd(t, w, TensorInfo{"t", quant.F32, []int{2}, func(io.Writer) error { panic("source") }})
	func() {
		defer func() {
			if r := recover(); r != "source" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = w.WriteFile(filepath.Join(dir, "x.gguf"))
	}()
	checkDir(t, dir)
}

func TestWriteFileBadPlace(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "none", "x.gguf")
	checkFailed(t, NewWriter().WriteFile(missing), missing, fs.ErrNotExist)
	// A directory that is not empty makes the rename fail.
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := NewWriter().WriteFile(taken); err == nil {
		t.Error("a directory was replaced")
	}
	checkDir(t, dir, "taken")
}
