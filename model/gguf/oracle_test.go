package gguf

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// foreign lists the files of other programs: models in golden, and vocabularies of
// published models, which may be missing.
var foreign = []struct {
	pattern string
	least   int
}{
	{"../../golden/arch/*.gguf", 10},
	{"../../golden/quant/*.gguf", 14},
	{"../../../shared/vocab/*.gguf", 0},
}

// eachForeign runs a test for each file of another program.
func eachForeign(t *testing.T, fn func(t *testing.T, path string)) {
	for _, f := range foreign {
		paths, err := filepath.Glob(f.pattern)
		if err != nil || len(paths) < f.least {
			t.Fatalf("%d files match %s, want %d or more (%v)", len(paths), f.pattern, f.least, err)
		}
		for _, path := range paths {
			dir, name := filepath.Split(filepath.ToSlash(path))
			t.Run(filepath.Base(dir)+"/"+name, func(t *testing.T) { fn(t, path) })
		}
	}
}

func TestForeignFiles(t *testing.T) {
	eachForeign(t, func(t *testing.T, path string) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		bounded(t, int(info.Size()), func() {
			f := mustOpen(t, path)
			v, _ := f.Value("general.architecture")
			if arch, err := v.Str(); err != nil || arch == "" {
				t.Errorf("architecture %q, %v", arch, err)
			}
			if vocab := strings.Contains(path, "vocab"); vocab == (len(f.Tensors()) > 0) {
				t.Errorf("%d tensors", len(f.Tensors()))
			}
		})
		if err := readAll(mustOpen(t, path)); err != nil {
			t.Error(err)
		}
	})
}

// A foreign file, read and written again, has the same keys, values, tensors and bytes.
func TestRewriteForeignFiles(t *testing.T) {
	eachForeign(t, func(t *testing.T, path string) {
		f := mustOpen(t, path)
		out := filepath.Join(t.TempDir(), "copy.gguf")
		if err := copyOf(t, f).WriteFile(out); err != nil {
			t.Fatal(err)
		}
		checkSame(t, f, mustOpen(t, out))
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Tensors()) == 0 { // some writers pad a file without tensors
			before, after = bytes.TrimRight(before, "\x00"), bytes.TrimRight(after, "\x00")
		}
		if !bytes.Equal(before, after) {
			t.Errorf("%d bytes became %d others", len(before), len(after))
		}
	})
}

// copyOf returns a Writer with the contents of f.
func copyOf(t testing.TB, f *File) *Writer {
	t.Helper()
	w := NewWriter()
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		if err := w.Set(key, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, tensor := range f.Tensors() {
		if err := w.Add(tensor.Info()); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// checkSame compares the contents of two files, except for offsets.
func checkSame(t testing.TB, a, b *File) {
	t.Helper()
	if diff := cmp.Diff(a.Keys(), b.Keys()); diff != "" {
		t.Errorf("keys: %s", diff)
	}
	for _, key := range a.Keys() {
		x, _ := a.Value(key)
		y, _ := b.Value(key)
		if x.TypeName() != y.TypeName() || x.Len() != y.Len() || !bytes.Equal(x.raw, y.raw) {
			t.Errorf("key %q: %v became %v", key, x, y)
		}
	}
	if diff := cmp.Diff(placeless(a), placeless(b), cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("tensors: %s", diff)
	}
}

// placeless returns the tensors with offset 0.
func placeless(f *File) []Tensor {
	tensors := f.Tensors()
	for i := range tensors {
		tensors[i].Offset = 0
	}
	return tensors
}
