package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A GGUF file is replaced by another one and by nothing else.
func TestModelsAreNotReplaced(t *testing.T) {
	tests := []struct {
		name, reason string
		old, new     string
		want         error
	}{
		{"report over a model", "a model takes hours to download", "GGUF and weights", "{}", ErrModel},
		{"nothing over a model", "too short for the magic", "GGUF", "", ErrModel},
		{"model over a model", "a conversion is repeated", "GGUF old", "GGUF new", nil},
		{"report over a report", "no model", "{}", "[]", nil},
		{"report over a text", "the magic is not at the start", " GGUF", "{}", nil},
		{"report over the start of the magic", "an interrupted download is no model", "GGU", "{}", nil},
		{"model over a report", "no model is lost", "{}", "GGUF", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			if err := os.WriteFile(path, []byte(tt.old), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := Check(path); errors.Is(err, ErrModel) != strings.HasPrefix(tt.old, "GGUF") {
				t.Errorf("Check: %v", err)
			}
			err := Write(path, text(tt.new))
			want := tt.new
			if tt.want != nil {
				want = tt.old
			}
			if !errors.Is(err, tt.want) || content(t, path) != want {
				t.Errorf("%s: error %v, want %v; the file holds %q", tt.reason, err, tt.want, content(t, path))
			}
			if err != nil && err.Error() != "write "+path+": is a GGUF model, and only a GGUF model may replace it" {
				t.Errorf("error %q", err)
			}
			if left := leftovers(t, dir, "file"); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// An error about a file that write reads keeps the name of that file.
func TestErrorsOfTheSource(t *testing.T) {
	dir := t.TempDir()
	path, source := filepath.Join(dir, "out"), filepath.Join(dir, "source")
	err := Write(path, func(io.Writer) error { _, err := os.Open(source); return err })
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), source) || strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one about %s", err, source)
	}
}

// Check creates nothing and finds what Write would find.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if err := Check(filepath.Join(dir, "out")); err != nil {
		t.Error(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "absent", "out")} {
		if err := Check(path); err == nil || !strings.HasPrefix(err.Error(), "write "+path+": ") {
			t.Errorf("Check(%s): %v", path, err)
		}
	}
	if left := leftovers(t, dir); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
