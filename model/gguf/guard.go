package gguf

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"github.com/edsrzf/mmap-go"
)

// mapping is a file mapped read-only. The file stays open, so that its size can
// be asked for under the name it had when it was opened.
type mapping struct {
	path string
	file *os.File
	data mmap.MMap
}

// live holds the mappings in which a fault is the file's fault.
var live = struct {
	sync.Mutex
	set map[*mapping]struct{}
}{set: map[*mapping]struct{}{}}

func newMapping(path string, file *os.File) (*mapping, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 { // which cannot be mapped
		return nil, refuse(ErrTruncated, "the file is empty")
	}
	if info.Size() != int64(int(info.Size())) {
		return nil, refuse(ErrOverflow, "%d bytes are too many to map", info.Size())
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

// mappingAt finds the live mapping that has addr, and the offset in it.
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

// Guard runs fn and returns nil, or an error if fn touched a part of a mapped file
// that cannot be read: ErrTruncated when the file was cut short, which would end
// the process otherwise, else ErrFault. Any other panic goes on.
//
// It covers only the goroutine that calls it: goroutines started by fn need their
// own. It costs some nanoseconds.
func Guard(fn func()) error {
	path, err := guard(fn)
	if err != nil {
		return inFile(path, err)
	}
	return nil
}

// guard is Guard with the path beside the error.
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

// explain says why the byte at an offset cannot be read.
func (m *mapping) explain(at int64) error {
	if info, err := m.file.Stat(); err == nil && info.Size() < int64(len(m.data)) {
		return cutShort(info.Size(), int64(len(m.data)))
	}
	return refuse(ErrFault, "byte %d of the mapped file cannot be accessed: a failed read, or a write to read-only data", at)
}
