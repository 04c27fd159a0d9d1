//go:build unix

package gguf

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Open must not block on a pipe.
func TestOpenPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.gguf")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no pipe can be made: %v", err)
	}
	if _, err := Open(path); !errors.Is(err, errNotRegular) {
		t.Errorf("error %v", err)
	}
}

func TestOpenWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	path := writeTemp(t, good().bytes())
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, os.ErrPermission) {
		t.Errorf("error %v", err)
	}
}
