//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import (
	"io/fs"
	"os"
	"time"
)

// staleAge is how long nothing was written to a stale file. A file is closed only for the
// time of its renaming, and Windows removes no open file.
const staleAge = time.Hour

func lock(*os.File) bool { return true }

func removeIfStale(name string, info fs.FileInfo) {
	if time.Since(info.ModTime()) > staleAge {
		os.Remove(name)
	}
}

// rename closes the file first: Windows renames no open file.
func rename(f *os.File, path string) error {
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
