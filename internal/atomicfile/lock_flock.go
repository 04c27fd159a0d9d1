//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lock locks a new temporary file. The system releases the lock when the process ends, so a
// temporary file without a lock is stale. lock returns false if removeIfStale of another
// process was faster. Where locking fails, stale files stay.
func lock(f *os.File) bool {
	if errors.Is(flock(f), syscall.EWOULDBLOCK) {
		return false
	}
	_, err := os.Lstat(f.Name())
	return !errors.Is(err, fs.ErrNotExist)
}

func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

func removeIfStale(name string, _ fs.FileInfo) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if flock(f) == nil {
		os.Remove(name)
	}
}

// rename renames an open file, so that the lock is held until the file has its new name.
func rename(f *os.File, path string) error {
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	f.Close() // the data is synced
	return nil
}
