package gguf

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-go/lockstep/quant"
)

// FuzzParse parses arbitrary bytes within bounds on memory and time. An error wraps exactly one
// kind. A file without error can be read to the last byte and written again.
func FuzzParse(f *testing.F) {
	for _, version := range []uint32{2, 3} {
		raw := good()
		raw.version = version
		f.Add(raw.bytes())
	}
	f.Add(denseTwo(1))
	f.Add(bigEndian())
	f.Add(part(1, 3, 4, "b", "c").bytes())
	for i, c := range malformedFiles() {
		if i%5 == 0 && len(c.data) < 1<<12 {
			f.Add(c.data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var file *File
		var err error
		bounded(t, len(data), func() { file, err = Parse(data) })
		if err != nil {
			if got := kinds(err); len(got) != 1 {
				t.Fatalf("%v: wraps %q", err, got)
			}
			return
		}
		if err := readAll(file); err != nil {
			t.Fatal(err)
		}
		rewritten := writeAgain(t, file)
		checkSame(t, file, rewritten)
		if again := writeAgain(t, rewritten); again.Size() != rewritten.Size() {
			t.Errorf("%d bytes, and rewritten %d", rewritten.Size(), again.Size())
		}
		if !bytes.Equal(data, before) {
			t.Error("the file was changed by reading it")
		}
	})
}

// writeAgain writes f and parses the result.
func writeAgain(t *testing.T, f *File) *File {
	t.Helper()
	return mustParse(t, mustWrite(t, copyOf(t, f)))
}

// FuzzRoundTrip writes values and a tensor. The reader returns what the Writer accepted.
// An error of the Writer wraps exactly one kind.
func FuzzRoundTrip(f *testing.F) {
	f.Add("key", "text", int64(-1), uint64(1), 0.5, true, []byte("data"), "name", uint32(0), int64(2), int64(3), uint32(32))
	f.Add("", "\xff", int64(1<<62), uint64(1<<63), math.Copysign(0, -1), false, []byte{}, "", uint32(8), int64(32), int64(1), uint32(64))
	f.Add("general.architecture", "llama", int64(0), uint64(0), 1e300, true, []byte{0xff}, "blk.0.attn_q.weight", uint32(12), int64(256), int64(2), uint32(1<<20))
	f.Add(keyAlignment, "", int64(0), uint64(0), 0.0, false, []byte{1}, "t", uint32(4), int64(-1), int64(0), uint32(0))
	f.Fuzz(func(t *testing.T, key, text string, i int64, u uint64, x float64, b bool, raw []byte, name string, format uint32, rows, cols int64, align uint32) {
		if x != x {
			x = 0 // NaN is not equal to itself
		}
		w := NewWriter()
		want := setAll(t, w, map[string]any{
			key: text, keyAlignment: align,
			key + ".i": i, key + ".u": u, key + ".x": x, key + ".b": b, key + ".f": float32(i),
			key + ".raw": append([]byte{}, raw...), key + ".texts": []string{text, "", key},
			key + ".is": []int64{i, -i}, key + ".us": []uint32{uint32(u), 7}, key + ".xs": []float64{x}, key + ".bs": []bool{b, !b},
		})
		data := addTensor(t, w, name, quant.Format(format), []int{int(cols), int(rows)}, raw)
		file := mustParse(t, mustWrite(t, w))
		got := map[string]any{}
		for _, key := range file.Keys() {
			v, _ := file.Value(key)
			got[key] = v.Any()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("values: %s", diff)
		}
		tensor, ok := file.Tensor(name)
		if ok != (data != nil) || !bytes.Equal(tensor.Data, data) {
			t.Errorf("%d bytes of data became %v, %d", len(data), ok, len(tensor.Data))
		}
	})
}

// setAll sets values and returns those that the Writer accepted.
func setAll(t *testing.T, w *Writer, values map[string]any) map[string]any {
	taken := map[string]any{}
	for key, value := range values {
		if err := w.Set(key, value); err == nil {
			taken[key] = value
		} else if got := kinds(err); len(got) != 1 {
			t.Errorf("%v: wraps %q", err, got)
		}
	}
	return taken
}

// addTensor adds a small tensor with data from raw. It returns the data, or nil if the
// Writer refuses the tensor.
func addTensor(t *testing.T, w *Writer, name string, format quant.Format, dims []int, raw []byte) []byte {
	size, err := sizeOf(format, dims)
	if err == nil && size > 1<<20 {
		return nil // well-formed, but too large for a test
	}
	data := append(raw, make([]byte, max(0, size-int64(len(raw))))...)[:size]
	err = w.Add(TensorInfo{name, format, dims, writes(data)})
	if err == nil {
		return data
	}
	if got := kinds(err); len(got) != 1 || errors.Is(err, errDuplicate) {
		t.Errorf("%v: wraps %q", err, got)
	}
	return nil
}
