package gguf

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-go/lockstep/quant"
)

// writeTemp writes data to a new file.
func writeTemp(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mustOpen opens a file until the end of the test.
func mustOpen(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestOpen(t *testing.T) {
	raw := good()
	data := raw.bytes()
	path := writeTemp(t, data)
	f := mustOpen(t, path)
	if f.path != path || f.Size() != int64(len(data)) || f.Version() != 3 {
		t.Errorf("path %q, size %d, version %d", f.path, f.Size(), f.Version())
	}
	checkGood(t, f, int64(len(data)-len(raw.data)))
	if err := readAll(f); err != nil {
		t.Error(err)
	}
	if err := f.Check(); err != nil {
		t.Errorf("Check of an unchanged file: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name, reason string
		path         string
		want         error
		text         string
	}{
		{"missing", "the operating system says so", filepath.Join(dir, "none.gguf"), fs.ErrNotExist, ""},
		{"missing directory", "the operating system says so", filepath.Join(dir, "none", "x.gguf"), fs.ErrNotExist, ""},
		{"directory", "not to be mapped", dir, errNotRegular, "is a directory"},
		{"empty", "cannot be mapped", writeTemp(t, nil), ErrTruncated, "the file is empty"},
		{"one byte", "no magic", writeTemp(t, []byte("G")), ErrTruncated, "magic at byte 0 takes 4 bytes, and 1 are left"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(tt.path)
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v: %s", err, tt.want, tt.reason)
			}
			if !strings.HasPrefix(err.Error(), "gguf: "+tt.path+": "+tt.text) || strings.Count(err.Error(), tt.path) != 1 {
				t.Errorf("message %q", err)
			}
		})
	}
}

// Open unmaps and closes a file that it refuses.
func TestOpenReleases(t *testing.T) {
	path := writeTemp(t, good().bytes()[:100])
	before := mappings()
	if _, err := Open(path); !errors.Is(err, ErrTruncated) {
		t.Fatal(err)
	}
	if n := mappings(); n != before {
		t.Errorf("%d mappings, %d before", n, before)
	}
	if err := os.Remove(path); err != nil { // fails on Windows while the file is open
		t.Error(err)
	}
}

func mappings() int {
	live.Lock()
	defer live.Unlock()
	return len(live.set)
}

func TestClose(t *testing.T) {
	mapped, err := Open(writeTemp(t, good().bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*File{"mapped": mapped, "in memory": mustParse(t, good().bytes())} {
		before := mappings()
		for range 2 {
			if err := f.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if name == "mapped" && mappings() != before-1 {
			t.Errorf("%s: %d mappings, %d before", name, mappings(), before)
		}
		for _, kv := range goodValues {
			if v, ok := f.Value(kv.key); !ok || !cmp.Equal(v.Any(), kv.want) {
				t.Errorf("%s: key %q after Close: %v", name, kv.key, v)
			}
		}
		for _, tensor := range f.Tensors() {
			if again, ok := f.Tensor(tensor.Name); !ok || again.Data != nil || tensor.Data != nil || tensor.Dims[0] == 0 {
				t.Errorf("%s: tensor %s after Close: %v", name, tensor.Name, again)
			}
		}
		if err := f.Check(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: Check after Close: %v", name, err)
		}
	}
}

// Metadata does not change with the file.
func TestMetadataIsCopied(t *testing.T) {
	raw := good()
	path := writeTemp(t, raw.bytes())
	f := mustOpen(t, path)
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	garbage := make([]byte, len(raw.header()))
	for i := range garbage {
		garbage[i] = 0xff
	}
	if _, err := w.WriteAt(garbage, 0); err != nil {
		t.Fatal(err)
	}
	checkGood(t, f, int64(len(raw.bytes())-len(raw.data)))
}

// pages is the size of the tensor and of the vocabulary in memory pages.
const pages = 8

// bigFile writes a file with a vocabulary and a tensor of several memory pages each.
func bigFile(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows refuses to cut a mapped file short")
	}
	w := NewWriter()
	size := pages * os.Getpagesize()
	mustSet(t, w, "tokens", strings.Split(strings.Repeat("token ", size/6), " "))
	data := bytes.Repeat([]byte{1, 2, 3, 4}, size/4)
	mustAdd(t, w, TensorInfo{"big", quant.F32, []int{size / 4 / pages, pages}, writes(data)})
	path := filepath.Join(t.TempDir(), "big.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGuardTruncated(t *testing.T) {
	path := bigFile(t)
	f := mustOpen(t, path)
	big, _ := f.Tensor("big")
	if err := Guard(func() { sum(big.Data) }); err != nil {
		t.Fatalf("before: %v", err)
	}
	// Truncate in the middle of the tensor.
	if err := os.Truncate(path, big.Offset+int64(len(big.Data)/2)); err != nil {
		t.Fatal(err)
	}
	checkFaults(t, path, big)
	if err := Guard(func() { sum(big.Data[:os.Getpagesize()]) }); err != nil {
		t.Errorf("what is still there: %v", err)
	}
	v, _ := f.Value("tokens")
	if tokens, err := v.Strings(); err != nil || tokens[0] != "token" {
		t.Errorf("metadata: %v", err)
	}
}

// checkFaults reads, in several ways, a tensor whose second half was truncated.
func checkFaults(t *testing.T, path string, big Tensor) {
	tests := []struct {
		name, reason string
		read         func()
	}{
		{"loop", "plain loads", func() { sum(big.Data) }},
		{"last byte", "only what is gone", func() { sum(big.Data[len(big.Data)-1:]) }},
		{"copy", "assembly of the runtime", func() { copy(make([]byte, len(big.Data)), big.Data) }},
		{"search", "assembly of a package", func() { bytes.IndexByte(big.Data, 99) }},
		{"decode", "what engines do", func() { quant.Decode(quant.F32, make([]float32, big.Elements()), big.Data) }},
		{"nested", "the inner one ends it, the outer goes on", func() {
			if err := Guard(func() { sum(big.Data) }); !errors.Is(err, ErrTruncated) {
				t.Errorf("inner: %v", err)
			}
			sum(big.Data)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Guard(tt.read)
			if !errors.Is(err, ErrTruncated) || len(kinds(err)) != 1 {
				t.Fatalf("error %v: %s", err, tt.reason)
			}
			if want := "gguf: " + path + ": the file was cut short from "; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("message %q, want %q …", err, want)
			}
		})
	}
}

// Reading the last page past the end returns zeros without a fault. Check finds it.
func TestCheckTruncated(t *testing.T) {
	path := bigFile(t)
	f := mustOpen(t, path)
	if err := os.Truncate(path, f.Size()-1); err != nil {
		t.Fatal(err)
	}
	if err := f.Check(); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
	if err := mustParse(t, good().bytes()).Check(); err != nil {
		t.Errorf("in memory: %v", err)
	}
}

// mapped maps a file.
func mapped(t *testing.T, path string) *mapping {
	t.Helper()
	h, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMapping(path, h)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The file is truncated after it is mapped and before it is parsed.
func TestOpenTruncatedMeanwhile(t *testing.T) {
	path := bigFile(t)
	m := mapped(t, path)
	defer m.close()
	if err := os.Truncate(path, int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	if _, err := m.parse(); !errors.Is(err, ErrTruncated) {
		t.Errorf("error %v", err)
	}
}

// The source file is truncated while a tensor is copied: pages fault, or the rest of the
// last page reads as zeros.
func TestWriteTruncatedTensor(t *testing.T) {
	for name, left := range map[string]func(f *File, big Tensor) int64{
		"first byte":     func(_ *File, big Tensor) int64 { return big.Offset + 1 },
		"all but a byte": func(f *File, _ Tensor) int64 { return f.Size() - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			path := bigFile(t)
			f := mustOpen(t, path)
			big, _ := f.Tensor("big")
			w := NewWriter()
			if err := w.Add(big.Info()); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, left(f, big)); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := w.WriteFile(filepath.Join(dir, "copy.gguf")); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want an ErrTruncated with %s", err, path)
			}
			checkDir(t, dir)
		})
	}
}

// Guard returns errors for faults in mapped files only.
func TestGuardPassesPanics(t *testing.T) {
	var nilSlice []byte
	var nilPointer *File
	tests := []struct {
		name, reason string
		fn           func()
		want         string
	}{
		{"error", "somebody's own", func() { panic(io.ErrUnexpectedEOF) }, "unexpected EOF"},
		{"string", "somebody's own", func() { panic("oops") }, "oops"},
		{"index", "a programmer's error", func() { nilSlice[len(nilSlice)]++ }, "index out of range"},
		{"nil", "a programmer's error", func() { nilPointer.version++ }, "nil pointer dereference"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := recovered(t, tt.fn); !strings.Contains(got, tt.want) {
				t.Errorf("panic %q, want %q: %s", got, tt.want, tt.reason)
			}
		})
	}
	t.Run("fault elsewhere", func(t *testing.T) { // in a mapping of another package
		path := bigFile(t)
		m := mapped(t, path)
		delete(live.set, m)
		defer m.close()
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		if got := recovered(t, func() { sum(m.data) }); !strings.Contains(got, "fault") && !strings.Contains(got, "invalid memory address") {
			t.Errorf("panic %q", got)
		}
	})
}

// recovered runs fn in Guard and returns the panic that passes through.
func recovered(t *testing.T, fn func()) (text string) {
	t.Helper()
	defer func() {
		switch r := recover().(type) {
		case error:
			text = r.Error()
		case string:
			text = r
		}
		if debug.SetPanicOnFault(false) {
			t.Error("panic on fault is still set after a panic")
		}
	}()
	err := Guard(fn)
	t.Errorf("no panic, error %v", err)
	return ""
}

func TestGuardRestoresSetting(t *testing.T) {
	for _, before := range []bool{false, true} {
		was := debug.SetPanicOnFault(before)
		if err := Guard(func() {}); err != nil {
			t.Error(err)
		}
		if after := debug.SetPanicOnFault(was); after != before {
			t.Errorf("panic on fault was %v, is %v", before, after)
		}
	}
}

// A write to the mapping is an ErrFault, not an ErrTruncated.
func TestGuardWrite(t *testing.T) {
	f := mustOpen(t, writeTemp(t, good().bytes()))
	a, _ := f.Tensor("a.weight")
	if err := Guard(func() { a.Data[0]++ }); !errors.Is(err, ErrFault) || errors.Is(err, ErrTruncated) {
		t.Errorf("error %v", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	path := writeTemp(t, good().bytes())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				f, err := Open(path)
				if err != nil {
					t.Error(err)
					return
				}
				if err := Guard(func() { err = readAll(f) }); err != nil {
					t.Error(err)
				}
				if err != nil {
					t.Error(err)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkGuard(b *testing.B) {
	for b.Loop() {
		if err := Guard(func() {}); err != nil {
			b.Fatal(err)
		}
	}
}
