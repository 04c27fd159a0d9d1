package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Open maps the file at path into memory and parses it. The header is copied out
// of the mapping before it is trusted, so that neither a change of the file nor
// Close can touch the metadata. Tensor data stays in the mapping: read it inside
// Guard.
//
// Errors wrap one of this package's Err values or, where the operating system
// refused, its error, such as fs.ErrNotExist.
func Open(path string) (*File, error) {
	f, err := open(path)
	if err != nil {
		return nil, inFile(path, err)
	}
	return f, nil
}

func open(path string) (*File, error) {
	// Opening a pipe would wait for a writer, so ask first.
	info, err := os.Stat(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	if info.IsDir() {
		return nil, refuse(ErrNotRegular, "is a directory")
	}
	if !info.Mode().IsRegular() {
		return nil, refuse(ErrNotRegular, "is not a regular file")
	}
	h, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	m, err := newMapping(path, h)
	if err != nil {
		return nil, errors.Join(withoutPath(err), h.Close())
	}
	f, err := m.parse()
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	f.path, f.mapped = path, m
	return f, nil
}

// parse parses the mapped file.
func (m *mapping) parse() (*File, error) {
	var header []byte
	var err error
	if _, fault := guard(func() { header, err = copyHeader(m.data) }); fault != nil {
		return nil, fault
	}
	if err != nil {
		return nil, err
	}
	return parse(header, m.data)
}

// withoutPath drops the path from an error of package os: the caller puts it
// before every error.
func withoutPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}

// Check reports, as an ErrTruncated, that a mapped file is shorter now than when
// it was opened. It costs one system call and finds what Guard cannot: behind the
// new end, what is left of the last page reads as zeros without a fault. The
// error is ErrClosed after Close; a file parsed from memory is always in order.
func (f *File) Check() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return inFile(f.path, refuse(ErrClosed, "the file is closed"))
	}
	if f.mapped == nil {
		return nil
	}
	info, err := f.mapped.file.Stat()
	if err != nil {
		return inFile(f.path, withoutPath(err))
	}
	if info.Size() < f.size {
		return inFile(f.path, cutShort(info.Size(), f.size))
	}
	return nil
}

func cutShort(now, before int64) error {
	return refuse(ErrTruncated, "the file was cut short from %d to %d bytes while in use", before, now)
}
