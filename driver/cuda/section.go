package cuda

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

// maxParams is how many bytes of parameters a kernel may have: the PTX ISA's limit.
const maxParams = 4352

// scratch is the memory of one locked section that the driver reads and writes. It
// is on the heap and points into itself, so that a call needs no allocation and no
// address can move under it.
type scratch struct {
	previous uintptr // the context that was current before
	size     uintptr // of params
	extra    [5]uintptr
	params   [maxParams / 8]uint64
}

// Tags of cuLaunchKernel's extra array.
const (
	launchParamEnd           = 0
	launchParamBufferPointer = 1
	launchParamBufferSize    = 2
)

var scratches = sync.Pool{New: func() any {
	s := new(scratch)
	s.extra = [5]uintptr{
		launchParamBufferPointer, uintptr(unsafe.Pointer(&s.params)),
		launchParamBufferSize, uintptr(unsafe.Pointer(&s.size)),
		launchParamEnd,
	}
	return s
}}

// enter begins a locked section: the goroutine stays on its OS thread and the
// device's context is current there, until leave puts back what was.
func (d *Device) enter() (*scratch, error) {
	if d.closed.Load() {
		return nil, invalid("Device", "use of a closed device")
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	return d.enterAnyway()
}

// enterAnyway is enter for what must also be done to a lost or closing device.
func (d *Device) enterAnyway() (*scratch, error) {
	runtime.LockOSThread()
	s := scratches.Get().(*scratch)
	s.previous = 0
	e, c := cuCtxGetCurrent, d.lib.call(cuCtxGetCurrent, uintptr(unsafe.Pointer(&s.previous)))
	if c == success && s.previous != d.context {
		e, c = cuCtxSetCurrent, d.lib.call(cuCtxSetCurrent, d.context)
	}
	if c != success {
		scratches.Put(s)
		runtime.UnlockOSThread()
		return nil, d.check(e, c, "")
	}
	return s, nil
}

func (d *Device) leave(s *scratch) {
	if s.previous != d.context {
		d.lib.call(cuCtxSetCurrent, s.previous)
	}
	scratches.Put(s)
	runtime.UnlockOSThread()
}

// once makes one call in a locked section of its own.
//
//go:uintptrescapes
func (d *Device) once(e entry, args ...uintptr) error {
	s, err := d.enter()
	if err != nil {
		return err
	}
	defer d.leave(s)
	return d.check(e, d.lib.call(e, args...), "")
}

// call makes one call within a locked section.
//
//go:uintptrescapes
func (d *Device) call(e entry, args ...uintptr) error {
	return d.check(e, d.lib.call(e, args...), "")
}

// check turns a result into an error, and remembers one that took the context.
func (d *Device) check(e entry, c code, detail string) error {
	if c == success {
		return nil
	}
	err := d.lib.refusal(e, c, detail)
	if kinds[c].sticky {
		d.lost.CompareAndSwap(nil, err)
	}
	return err
}

// Err is nil, or ErrDeviceLost with the call that found out and its cause.
func (d *Device) Err() error {
	if lost := d.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

var _ driver.Device = (*Device)(nil)
