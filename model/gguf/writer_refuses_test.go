package gguf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/quant"
)

// The Writer refuses what the reader refuses, and says so before writing.
func TestWriterRefusesKeys(t *testing.T) {
	tests := []struct {
		name, reason string
		key          string
		value        any
		want         error
	}{
		{"empty key", "a key needs a name", "", uint32(1), ErrKey},
		{"key too long", "the specification's limit", strings.Repeat("k", MaxKeyLen+1), uint32(1), ErrKey},
		{"key is no UTF-8", "a reader would refuse it", "a\xff", uint32(1), ErrUTF8},
		{"string is no UTF-8", "a reader would refuse it", "k", "a\xff", ErrUTF8},
		{"string of an array is no UTF-8", "a reader would refuse it", "k", []string{"a", "\xc0\x80"}, ErrUTF8},
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
		{"nested slice", "no nested arrays", "k", [][]int32{{1}}, ErrNested},
		{"architecture is a number", "wrong type for a known key", KeyArchitecture, uint32(1), ErrType},
		{"alignment is uint64", "wrong type for a known key", KeyAlignment, uint64(32), ErrType},
		{"alignment 24", "no power of two", KeyAlignment, uint32(24), ErrAlignment},
		{"alignment 0", "no power of two", KeyAlignment, uint32(0), ErrAlignment},
		{"alignment 2 MiB", "too large", KeyAlignment, uint32(1 << 21), ErrAlignment},
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
		{"empty name", "a tensor needs a name", TensorInfo{"", quant.F32, []int{4}, nil}, ErrName},
		{"name too long", "the specification's limit", TensorInfo{strings.Repeat("n", MaxNameLen+1), quant.F32, []int{4}, nil}, ErrName},
		{"name is no UTF-8", "a reader would refuse it", TensorInfo{"\xff", quant.F32, []int{4}, nil}, ErrUTF8},
		{"duplicate", "there is one of that name", TensorInfo{"first", quant.F32, []int{4}, nil}, ErrDuplicate},
		{"no dimensions", "1 to 4", TensorInfo{"t", quant.F32, nil, nil}, ErrShape},
		{"5 dimensions", "1 to 4", TensorInfo{"t", quant.F32, []int{1, 1, 1, 1, 1}, nil}, ErrShape},
		{"zero dimension", "no weights", TensorInfo{"t", quant.F32, []int{4, 0}, nil}, ErrShape},
		{"negative dimension", "no shape", TensorInfo{"t", quant.F32, []int{4, -1}, nil}, ErrShape},
		{"two negative dimensions", "whose product is positive", TensorInfo{"t", quant.F32, []int{-4, -1}, nil}, ErrShape},
		{"too many elements", "2⁶⁴", TensorInfo{"t", quant.F32, []int{math.MaxInt, 4}, nil}, ErrOverflow},
		{"too many bytes", "2⁶³", TensorInfo{"t", quant.F32, []int{math.MaxInt/4 + 1}, nil}, ErrOverflow},
		{"too many bytes with the others", "2⁶³", TensorInfo{"t", quant.F32, []int{huge}, nil}, ErrOverflow},
		{"partial block", "rows of whole blocks", TensorInfo{"t", quant.Q4_K, []int{255, 256}, nil}, ErrPartialBlock},
		{"removed format", "nobody reads it", TensorInfo{"t", quant.Format(4), []int{256}, nil}, ErrUnsupportedFormat},
		{"unknown format", "nobody knows it", TensorInfo{"t", quant.Format(1000), []int{256}, nil}, ErrUnsupportedFormat},
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
	if err := NewWriter().Add(info); !errors.Is(err, quant.ErrPartialBlock) {
		t.Errorf("%v is no quant.ErrPartialBlock", err)
	}
	if _, err := Parse([]byte("GGUF\x01\x00\x00\x00")); !errors.Is(err, ErrVersion) || !errors.Is(err, ErrVersion1) {
		t.Errorf("%v is no ErrVersion", err)
	}
}

func TestWriterCountLimits(t *testing.T) {
	w := NewWriter()
	for i := range MaxKeys {
		mustSet(t, w, fmt.Sprint(i), true)
	}
	if err := w.Set("more", true); !errors.Is(err, ErrLimit) {
		t.Errorf("key: %v", err)
	}
	mustSet(t, w, "0", false) // replacing is no more
	for i := range MaxTensors {
		mustAdd(t, w, TensorInfo{fmt.Sprint(i), quant.F16, []int{1}, writes(make([]byte, 2))})
	}
	if err := w.Add(TensorInfo{"more", quant.F16, []int{1}, writes()}); !errors.Is(err, ErrLimit) {
		t.Errorf("tensor: %v", err)
	}
}

func TestAddWithoutWritePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_ = NewWriter().Add(TensorInfo{"t", quant.F32, []int{1}, nil})
}

// headKeeper keeps the first bytes and counts the rest.
type headKeeper struct {
	head []byte
	n    int64
}

func (h *headKeeper) Write(p []byte) (int, error) {
	h.head = append(h.head, p[:min(len(p), 4096-len(h.head))]...)
	h.n += int64(len(p))
	return len(p), nil
}

// Tensors of gigabytes pass through; offsets go beyond 32 bits.
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
	// A reader of the head alone says where the first tensor would end.
	_, err := Parse(dst.head)
	if want := `tensor "a": its data ends at byte 3221225632, and the file at 4096`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
