//go:build unix

package cuda

import (
	"io/fs"
	"os"
	"syscall"
)

// writableByOthers reports whether a user other than this one and root may create files in a
// directory.
func writableByOthers(dir fs.FileInfo) bool {
	return dir.Mode().Perm()&0o022 != 0 || ownedByOther(dir)
}

// replaceableByOthers reports whether a user other than this one and root may rename entries of a
// directory that are not their own. In a sticky directory such as /tmp they may not.
func replaceableByOthers(dir fs.FileInfo) bool {
	return dir.Mode().Perm()&0o022 != 0 && dir.Mode()&fs.ModeSticky == 0 || ownedByOther(dir)
}

func ownedByOther(file fs.FileInfo) bool {
	owner, ok := file.Sys().(*syscall.Stat_t)
	return ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid()
}
