package ptxas

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// program makes an executable file that is never run.
func program(t *testing.T, path string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir()) // as the working directory is spelled
	if err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(root, "module", "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "module", "go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	named := program(t, filepath.Join(root, "named", "assembler"))
	inModule := program(t, filepath.Join(root, "module", fetched, "ptxas"))
	onPath := program(t, filepath.Join(root, "path", "ptxas"))
	outside := filepath.Join(root, "path")
	tests := []struct {
		name, reason   string
		env, path, dir string
		want           string
	}{
		{"named", "the variable comes first", named, outside, deep, named},
		{"fetched", "the module's own comes before PATH", "", outside, deep, inModule},
		{"on the path", "outside of the module", "", outside, outside, onPath},
		{"nowhere", "neither", "", root, outside, ""},
		{"named wrongly", "no other is taken instead", filepath.Join(root, "none"), outside, deep, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(envPath, tt.env)
			t.Setenv("PATH", tt.path)
			t.Chdir(tt.dir)
			got, err := Find()
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%s: %q, %v; want %q", tt.reason, got, err, tt.want)
			}
			if err != nil && errors.Is(err, ErrNotFound) != (tt.env == "") {
				t.Errorf("error %v: what is named and is not there is no reason to skip", err)
			}
		})
	}
}

// recorder keeps what a test would be told.
type recorder struct {
	testing.TB
	told string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Skipf(f string, args ...any)  { r.told = "skip: " + fmt.Sprintf(f, args...) }
func (r *recorder) Fatalf(f string, args ...any) { r.told = "fatal: " + fmt.Sprintf(f, args...) }

func TestNeed(t *testing.T) {
	tests := []struct {
		name, reason, require string
		err                   error
		want                  []string
	}{
		{"found", "nothing to tell", "1", nil, nil},
		{"absent", "most machines have none", "", ErrNotFound, []string{"skip: ", "tools/get-ptxas", envPath}},
		{"absent but required", "a check that must not be skipped", "1", ErrNotFound, []string{"fatal: ", envRequire}},
		{"broken", "a broken one hides if it skips", "", errors.New("exec format error"), []string{"fatal: ", "exec format"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(envRequire, tt.require)
			var r recorder
			need(&r, tt.err)
			if (r.told == "") != (tt.want == nil) {
				t.Errorf("%s: %q", tt.reason, r.told)
			}
			for _, part := range tt.want {
				if !strings.Contains(r.told, part) {
					t.Errorf("%s: %q lacks %q", tt.reason, r.told, part)
				}
			}
		})
	}
}

func TestNewRefusesWhatDoesNotRun(t *testing.T) {
	path := program(t, filepath.Join(t.TempDir(), "ptxas"))
	if _, err := New(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names %s", err, path)
	}
}
