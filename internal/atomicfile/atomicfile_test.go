package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// leftovers returns the files of a directory other than the named ones.
func leftovers(t *testing.T, dir string, known ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			left = append(left, e.Name())
		}
	}
	return left
}

// text returns a function for Write that writes s.
func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	for _, want := range []string{"first", "second, longer", ""} {
		if err := Write(path, text(want)); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != want {
			t.Errorf("file holds %q, want %q", got, want)
		}
	}
	if left := leftovers(t, dir, "out"); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

func TestWriteLosesNothing(t *testing.T) {
	broken := errors.New("disk on fire")
	tests := []struct {
		name, reason string
		write        func(io.Writer) error
	}{
		{"error at once", "nothing was written", func(io.Writer) error { return broken }},
		{"error half way", "something was", func(w io.Writer) error {
			io.WriteString(w, "half")
			return broken
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := Write(path, tt.write); !errors.Is(err, broken) {
				t.Errorf("error %v, want %v", err, broken)
			}
			if got := content(t, path); got != "precious" {
				t.Errorf("the file now holds %q", got)
			}
			if left := leftovers(t, dir, "out"); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestWriteCleansUpAfterAPanic(t *testing.T) {
	dir := t.TempDir()
	defer func() {
		if recover() == nil {
			t.Error("the panic was swallowed")
		}
		if left := leftovers(t, dir); left != nil {
			t.Errorf("left behind: %v", left)
		}
	}()
	Write(filepath.Join(dir, "out"), func(io.Writer) error { panic("programmer error") })
}

func TestErrorsNameThePath(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name, reason, path string
	}{
		{"no directory", "the temporary file cannot be made", filepath.Join(dir, "absent", "out")},
		{"a directory", "the rename fails", dir},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Write(tt.path, func(io.Writer) error { return nil })
			if err == nil || !strings.Contains(err.Error(), tt.path+":") || strings.Contains(err.Error(), ".tmp") {
				t.Errorf("error %v", err)
			}
		})
	}
}
