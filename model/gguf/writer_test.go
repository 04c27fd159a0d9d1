package gguf

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-go/lockstep/quant"
)

// writes returns a TensorInfo.Write of fixed pieces.
func writes(pieces ...[]byte) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, p := range pieces {
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

// The Writer's bytes are those that the test's own builder puts together.
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

func TestWriterReplaces(t *testing.T) {
	w := NewWriter()
	mustSet(t, w, "a", uint32(1))
	mustSet(t, w, "b", uint32(2))
	mustSet(t, w, "a", "one")
	f := mustParse(t, mustWrite(t, w))
	if diff := cmp.Diff([]string{"a", "b"}, f.Keys()); diff != "" {
		t.Errorf("keys: %s", diff)
	}
	if s, _, err := f.Str("a"); s != "one" || err != nil {
		t.Errorf("a is %q, %v", s, err)
	}
	if err := w.Set("a", 1); err == nil {
		t.Fatal("an int was stored")
	}
	if s, _, err := mustParse(t, mustWrite(t, w)).Str("a"); s != "one" || err != nil {
		t.Errorf("after a refusal a is %q, %v", s, err)
	}
}

// The alignment may be set after the tensors were added.
func TestWriterAlignment(t *testing.T) {
	for _, align := range []uint32{1, 2, 64, 4096, 1 << 20} {
		w := NewWriter()
		mustAdd(t, w, TensorInfo{"a", quant.F16, []int{3}, writes([]byte("abcdef"))})
		mustAdd(t, w, TensorInfo{"b", quant.F16, []int{1}, writes([]byte("gh"))})
		mustSet(t, w, KeyAlignment, align)
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
		{"nothing", "16 bytes were announced", writes(), ErrSize},
		{"one byte short", "16 bytes were announced", writes(make([]byte, 15)), ErrSize},
		{"one byte long", "16 bytes were announced", writes(make([]byte, 17)), ErrSize},
		{"one byte long, in pieces", "the last piece is too much", writes(make([]byte, 16), make([]byte, 1)), ErrSize},
		{"error dropped", "the writer noticed all the same", func(w io.Writer) error {
			w.Write(make([]byte, 17))
			w.Write(make([]byte, 16))
			return nil
		}, ErrSize},
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

// failAfter is a full disk.
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
