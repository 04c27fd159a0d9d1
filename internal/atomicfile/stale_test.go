//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package atomicfile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// writerFor names, in the environment of a second process of this program, the file that it
// writes. It stays in Write until its standard input ends, and then aborts.
const writerFor = "ATOMICFILE_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerFor); path != "" {
		Write(path, func(w io.Writer) error {
			io.WriteString(w, "half")
			fmt.Println("writing")
			io.Copy(io.Discard, os.Stdin)
			Abort()
			os.Exit(0)
			return nil
		})
	}
	os.Exit(m.Run())
}

// writer is a process in the middle of a Write.
type writer struct {
	cmd   *exec.Cmd
	input io.Closer
}

func startWriter(t *testing.T, path string) writer {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerFor+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "writing\n" {
		t.Fatalf("the writer said %q, %v", line, err)
	}
	return writer{cmd, in}
}

// Write removes what killed writers left, and nothing else.
func TestStaleFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	alive, killed := startWriter(t, path), startWriter(t, path)
	killed.cmd.Process.Kill()
	killed.cmd.Wait()
	if left := leftovers(t, dir); len(left) != 2 {
		t.Fatalf("two writers have the files %v", left)
	}
	foreign := []string{".lockstep-0123456789abcdef.tmpx", "x.lockstep-0123456789abcdef.tmp", ".lockstep-notes.tmp"}
	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".lockstep-0123456789abcdef.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	foreign = append(foreign, ".lockstep-0123456789abcdef.tmp", "out")
	if err := Write(path, text("whole")); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, dir, foreign...); len(left) != 1 {
		t.Errorf("beside the file of the running writer: %v", left)
	}
	alive.input.Close() // it aborts
	if err := alive.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left := leftovers(t, dir, foreign...); left != nil {
		t.Errorf("an aborted writer left %v", left)
	}
	if got := content(t, path); got != "whole" {
		t.Errorf("the file holds %q", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(foreign) {
		t.Errorf("%v, want %v (%v)", entries, foreign, err)
	}
}

// Writers of one file do not take each other's temporary files for stale.
func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 10 {
				if err := Write(path, text(strings.Repeat(fmt.Sprint(i), 1000))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := content(t, path); len(got) != 1000 || strings.Trim(got, got[:1]) != "" {
		t.Errorf("the file holds %q", got)
	}
	if left := leftovers(t, dir, "out"); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// A writer gives up a temporary file that a cleaner has locked or removed.
func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tmp")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cleaner, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := flock(cleaner); err != nil {
		t.Fatal(err)
	}
	if lock(f) {
		t.Error("locked beside a cleaner")
	}
	cleaner.Close()
	if !lock(f) {
		t.Error("not locked without a cleaner")
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if lock(f) {
		t.Error("locked after it was removed")
	}
}
