// Package atomicfile writes files that are there whole or not at all.
package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Write lets write fill a temporary file beside path and renames it to path when
// all of it is on the disk. On an error nothing is left behind, and a file that
// was at path before stays as it was. The error names path.
func Write(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".lockstep-*.tmp")
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

func finish(tmp *os.File, path string, write func(io.Writer) error) error {
	if err := write(tmp); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
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
