package house

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// The command is one static file: it runs on a machine that has no C library.
// A GPU device needs the dynamic loader, so a command that holds one is exempt.
func TestCommandIsStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ELF files are linked on Linux")
	}
	if testing.Short() {
		t.Skip("links the whole command")
	}
	g, err := ReadGraph(root)
	if err != nil {
		t.Fatal(err)
	}
	if way := route(g, "tools/lockstep", "driver/cuda"); way != nil {
		t.Skipf("the command holds a GPU device: %v", way)
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is not on the path")
	}
	bin := filepath.Join(t.TempDir(), "lockstep")
	cmd := exec.Command(goTool, "build", "-o", bin, "./tools/lockstep")
	cmd.Dir = filepath.Join("..", "..")
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
			t.Errorf("the command is dynamically linked: it has a %v segment", p.Type)
		}
	}
}
