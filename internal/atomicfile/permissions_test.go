//go:build unix

package atomicfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestPermissions(t *testing.T) {
	tests := []struct {
		name, reason string
		umask        int
		before       os.FileMode // 0: no file
		want         os.FileMode
	}{
		{"new", "as any program's", 0o022, 0, 0o644},
		{"new, strict umask", "the user wants it private", 0o077, 0, 0o600},
		{"new, shared umask", "the user wants the group to write", 0o002, 0, 0o664},
		{"private before", "it is not opened to others", 0o022, 0o600, 0o600},
		{"shared before", "the umask is for new files", 0o077, 0o664, 0o664},
		{"read-only before", "replaced, as rename does, and as protected as before", 0o022, 0o444, 0o444},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			if tt.before != 0 {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, tt.before); err != nil {
					t.Fatal(err)
				}
			}
			defer syscall.Umask(syscall.Umask(tt.umask))
			if err := Write(path, text("text")); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode() != tt.want || content(t, path) != "text" {
				t.Errorf("%s: mode %v, want %v (%v)", tt.reason, info.Mode(), tt.want, err)
			}
		})
	}
}

// Write keeps a symbolic link and replaces its target.
func TestSymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	target, link, dangling := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	for _, err := range []error{
		os.WriteFile(target, []byte("before"), 0o600), os.Symlink("target", link), os.Symlink("nowhere", dangling),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(link, text("text")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is now %v (%v)", info.Mode(), err)
	}
	if got := content(t, target); got != "text" {
		t.Errorf("the target holds %q", got)
	}
	if err := Write(dangling, text("text")); err == nil {
		t.Error("a link to nothing was written to")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".lockstep-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
