//go:build unix

package cuda

import (
	"io/fs"
	"os"
	"syscall"
)

// writableByOthers reports whether a user other than this one and root may write to a directory.
func writableByOthers(dir fs.FileInfo) bool {
	owner, ok := dir.Sys().(*syscall.Stat_t)
	return dir.Mode().Perm()&0o022 != 0 || ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid()
}
