package gguf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// mustOpen opens a file and closes it at the end of the test.
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
	if f.Path() != path || f.Size() != int64(len(data)) || f.Version() != 3 {
		t.Errorf("path %q, size %d, version %d", f.Path(), f.Size(), f.Version())
	}
	checkGood(t, f, int64(len(data)-len(raw.data)))
	if err := readAll(f); err != nil {
		t.Error(err)
	}
	if err := f.Check(); err != nil {
		t.Errorf("Check of an unchanged file: %v", err)
	}
	_, _, err := f.Bool("t.str")
	if want := "gguf: " + path + `: key "t.str": have string, want bool`; err == nil || err.Error() != want {
		t.Errorf("lookup error %v, want %s", err, want)
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
		{"directory", "not to be mapped", dir, ErrNotRegular, "is a directory"},
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

// A refused file must not stay mapped or open.
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

// Metadata is what was checked, whatever becomes of the file.
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
