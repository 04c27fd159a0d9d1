package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"github.com/edsrzf/mmap-go"
)

// Open maps the file at path into memory and parses it. It copies the header, so that
// neither a change of the file nor Close affects the metadata. Tensor data stays in the
// mapping: read it inside Guard.
//
// If the file is the first part of a split model, as llama.cpp's gguf-split writes them, Open
// also opens the other parts, beside it: NAME-00001-of-00003.gguf, NAME-00002-of-00003.gguf
// and so on.
//
// Errors wrap ErrMalformed, ErrUnsupported, or an error of the operating system such as
// fs.ErrNotExist.
func Open(path string) (*File, error) {
	f, err := open(path)
	if err != nil {
		return nil, inFile(path, err)
	}
	if err := f.openParts(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// open opens one file, which may be a part of a split model.
func open(path string) (*File, error) {
	// Opening a pipe would block until it has a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	if info.IsDir() {
		return nil, refuse(errNotRegular, "is a directory")
	}
	if !info.Mode().IsRegular() {
		return nil, refuse(errNotRegular, "is not a regular file")
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
	f.path, f.mapped = path, []*mapping{m}
	return f, nil
}

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

// withoutPath removes the path from an error of package os. inFile adds it.
func withoutPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}

// Check returns an ErrTruncated if a mapped file is shorter than when it was opened,
// and an ErrClosed after Close. It costs one system call per part. Guard alone cannot detect
// every truncation: the rest of the last page reads as zeros without a fault.
func (f *File) Check() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return inFile(f.path, refuse(ErrClosed, "the file is closed"))
	}
	for _, m := range f.mapped {
		if err := m.check(); err != nil {
			return inFile(m.path, err)
		}
	}
	return nil
}

// checkMapped is File.Check for the file that data is a view of, if it is mapped.
func checkMapped(data []byte) error {
	m, _ := mappingAt(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
	if m == nil {
		return nil
	}
	if err := m.check(); err != nil {
		return inFile(m.path, err)
	}
	return nil
}

// check returns an ErrTruncated if the file is shorter than when it was mapped.
func (m *mapping) check() error {
	info, err := m.file.Stat()
	if err != nil {
		return withoutPath(err)
	}
	if info.Size() < int64(len(m.data)) {
		return cutShort(info.Size(), int64(len(m.data)))
	}
	return nil
}

func cutShort(now, before int64) error {
	return refuse(ErrTruncated, "the file was cut short from %d to %d bytes while in use", before, now)
}

// mapping is a file mapped read-only. The file stays open so that its size can be
// checked even if it was renamed.
type mapping struct {
	path string
	file *os.File
	data mmap.MMap
}

// live holds all open mappings. Guard converts only faults inside them to errors.
var live = struct {
	sync.Mutex
	set map[*mapping]struct{}
}{set: map[*mapping]struct{}{}}

func newMapping(path string, file *os.File) (*mapping, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 { // mmap would fail
		return nil, refuse(ErrTruncated, "the file is empty")
	}
	if info.Size() != int64(int(info.Size())) {
		return nil, refuse(errOverflow, "%d bytes are too many to map", info.Size())
	}
	data, err := mmap.MapRegion(file, int(info.Size()), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, err
	}
	m := &mapping{path, file, data}
	live.Lock()
	defer live.Unlock()
	live.set[m] = struct{}{}
	return m, nil
}

func (m *mapping) close() error {
	live.Lock()
	delete(live.set, m)
	live.Unlock()
	return errors.Join(m.data.Unmap(), m.file.Close())
}

// mappingAt returns the mapping that contains addr and the offset of addr in it.
func mappingAt(addr uintptr) (*mapping, int64) {
	live.Lock()
	defer live.Unlock()
	for m := range live.set {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
		if addr >= base && addr-base < uintptr(len(m.data)) {
			return m, int64(addr - base)
		}
	}
	return nil, 0
}

// Guard runs fn. If fn reads a part of a mapped file that is not readable, which would
// otherwise crash the process, Guard returns an error: ErrTruncated if the file was cut
// short, else ErrFault. Other panics pass through.
//
// Guard covers only the calling goroutine: goroutines that fn starts need their own.
func Guard(fn func()) error {
	path, err := guard(fn)
	if err != nil {
		return inFile(path, err)
	}
	return nil
}

// guard is Guard, but returns the path of the file separately from the error.
func guard(fn func()) (path string, err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(interface {
			runtime.Error
			Addr() uintptr // see debug.SetPanicOnFault
		})
		if !ok {
			panic(r)
		}
		m, at := mappingAt(fault.Addr())
		if m == nil {
			panic(r)
		}
		path, err = m.path, m.explain(at)
	}()
	fn()
	return "", nil
}

// explain returns the reason why the byte at an offset is not readable.
func (m *mapping) explain(at int64) error {
	if err := m.check(); errors.Is(err, ErrTruncated) {
		return err
	}
	return refuse(ErrFault, "byte %d of the mapped file cannot be accessed: a failed read, or a write to read-only data", at)
}
