// Package atomicfile writes files that are there whole or not at all.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Write lets write fill a temporary file beside path and renames it to path when
// all of it is on the disk. On an error nothing is left behind, and a file that
// was at path before stays as it was. The permissions are those of that file, or
// else what the process gives to a new one. A symbolic link stays, and what it points
// to is written. The error names path.
func Write(path string, write func(io.Writer) error) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return rename(err, path)
		}
		path = target
	}
	tmp, err := create(path)
	if err != nil {
		return rename(err, path)
	}
	done := false
	defer func() { // also when write panics
		if !done {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if err := finish(tmp, path, write); err != nil {
		return rename(err, path)
	}
	done = true
	return nil
}

// create makes a temporary file beside path, with the permissions that path is to
// have. os.CreateTemp would ignore the process's umask.
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
		if err := tmp.Chmod(perm); err != nil { // what the umask took from it
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

// rename puts path in place of the temporary name, which tells a reader nothing.
func rename(err error, path string) error {
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
