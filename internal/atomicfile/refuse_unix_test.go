//go:build unix

package atomicfile

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Write refuses a target that is not a regular file, and leaves it as it is.
func TestNotRegular(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, err := range []error{
		syscall.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("dir"), 0o700),
		os.Symlink("pipe", at("pipe link")), os.Symlink("dir", at("dir link")), os.Symlink(os.DevNull, at("device link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ path, want string }{
		{at("pipe"), "is a pipe"}, {at("socket"), "is a socket"}, {at("dir"), "is a directory"},
		{at("pipe link"), "is a pipe"}, {at("dir link"), "is a directory"},
		{at("device link"), "is a device"}, {os.DevNull, "is a device"},
	} {
		before, err := os.Lstat(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{"Write": Write(tt.path, text("text")), "Check": Check(tt.path)} {
			if !errors.Is(err, ErrNotRegular) || err.Error() != "write "+tt.path+": "+tt.want+": want a regular file" {
				t.Errorf("%s: error %v", what, err)
			}
		}
		if after, err := os.Lstat(tt.path); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s was %v and is %v (%v)", tt.path, before.Mode(), after.Mode(), err)
		}
	}
}

// A target that became a pipe during a long write is refused too.
func TestNotRegularAfterwards(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	err := Write(path, func(io.Writer) error { return syscall.Mkfifo(path, 0o600) })
	if info, statErr := os.Lstat(path); !errors.Is(err, ErrNotRegular) || statErr != nil || info.Mode().IsRegular() {
		t.Errorf("error %v; the pipe is now %v (%v)", err, info.Mode(), statErr)
	}
}

// A link that gets another target during a long write is refused, and both targets stay.
func TestRetargetedLink(t *testing.T) {
	dir := t.TempDir()
	link, old, other := filepath.Join(dir, "link"), filepath.Join(dir, "old"), filepath.Join(dir, "other")
	for _, path := range []string{old, other} {
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(old, link); err != nil {
		t.Fatal(err)
	}
	err := Write(link, func(io.Writer) error { return errors.Join(os.Remove(link), os.Symlink(other, link)) })
	if !errors.Is(err, errRetargeted) || content(t, old) != old || content(t, other) != other {
		t.Errorf("error %v; the files hold %q and %q", err, content(t, old), content(t, other))
	}
}

// A failure of the file system names the path, keeps the old file and leaves no other.
func TestFileSystemFailures(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  error
	}{
		{"full", func(t *testing.T, _ string) { // a limit on the size of files fails like a full disk
			signal.Ignore(syscall.SIGXFSZ)
			var old syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
				t.Fatal(err)
			}
			limit := old
			limit.Cur = 4096
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				signal.Reset(syscall.SIGXFSZ)
				if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
					t.Error(err)
				}
			})
		}, syscall.EFBIG},
		{"read-only directory", func(t *testing.T, dir string) {
			if os.Geteuid() == 0 {
				t.Skip("root may write everywhere")
			}
			if err := os.Chmod(dir, 0o500); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Chmod(dir, 0o700) })
		}, os.ErrPermission},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			tt.spoil(t, dir)
			err := Write(path, func(w io.Writer) error { _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); return err })
			if !errors.Is(err, tt.want) || !strings.HasPrefix(err.Error(), "write "+path+": ") {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if got := content(t, path); got != "precious" {
				t.Errorf("the file now holds %.20q", got)
			}
			if left := leftovers(t, dir, "out"); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
