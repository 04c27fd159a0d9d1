package layering

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// TestReferenceIsStatic links a program of model and ref alone: it must be a static file
// that runs without a C library. Only driver/cuda needs the dynamic loader.
func TestReferenceIsStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ELF files are linked on Linux")
	}
	if testing.Short() {
		t.Skip("links a whole program")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is not on the path")
	}
	bin := filepath.Join(t.TempDir(), "reference")
	cmd := exec.Command(goTool, "build", "-o", bin, "./testdata/reference")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	file, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program is dynamically linked: it has a %v segment", p.Type)
		}
	}
}
