// Package atomicfile writes files atomically.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Write calls write with a temporary file in the directory of path, syncs the file and
// renames it to path. On an error it removes the temporary file, and an existing file at
// path stays unchanged. The new file has the permissions of the existing one, or the
// default ones. If path is a symbolic link, Write replaces its target. Errors of package
// os name path.
func Write(path string, write func(io.Writer) error) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return withPath(err, path)
		}
		path = target
	}
	tmp, err := create(path)
	if err != nil {
		return withPath(err, path)
	}
	done := false
	defer func() { // also if write panics
		if !done {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if err := finish(tmp, path, write); err != nil {
		return withPath(err, path)
	}
	done = true
	return nil
}

// create creates a temporary file with the permissions for path. os.CreateTemp ignores
// the umask.
func create(path string) (*os.File, error) {
	old, err := os.Stat(path)
	keep := err == nil && old.Mode().IsRegular()
	perm := os.FileMode(0o666)
	if keep {
		perm = old.Mode().Perm()
	}
	for {
		name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".lockstep-%016x.tmp", rand.Uint64()))
		tmp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil || !keep {
			return tmp, err
		}
		if err := tmp.Chmod(perm); err != nil { // restores bits that the umask cleared
			return nil, errors.Join(err, tmp.Close(), os.Remove(name))
		}
		return tmp, nil
	}
}

func finish(tmp *os.File, path string, write func(io.Writer) error) error {
	if err := write(tmp); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// withPath replaces the temporary name in an error of package os by path.
func withPath(err error, path string) error {
	var p *os.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return &os.PathError{Op: "write", Path: path, Err: p.Err}
	case errors.As(err, &l):
		return &os.PathError{Op: "write", Path: path, Err: l.Err}
	}
	return err
}
