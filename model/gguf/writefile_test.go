package gguf

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-go/lockstep/quant"
)

// checkDir compares the names in a directory.
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
	for range 2 { // anew, and over itself
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

// A file may be rewritten while it is mapped: the map keeps the old one.
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
		{"too short", "the size is known at the end", writes([]byte("123")), ErrSize},
		{"too long", "the size is exceeded", writes([]byte("123456789")), ErrSize},
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
	// A directory that is not empty is in the way of the rename.
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := NewWriter().WriteFile(taken); err == nil {
		t.Error("a directory was replaced")
	}
	checkDir(t, dir, "taken")
}
