package cuda

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-go/lockstep/driver"
)

// maxParams is the maximum size of a kernel's parameters in bytes (PTX ISA).
const maxParams = 4352

// scratch is the memory that the driver reads and writes during a locked section. It is on the heap
// and points into itself, so a call allocates nothing and no address changes.
type scratch struct {
	previous uintptr // the context that was current before the section
	args     [11]uintptr
	size     uintptr // of params
	extra    [5]uintptr
	params   [maxParams / 8]uint64
	config   launchConfig
	overlap  launchAttribute // the only attribute of config
}

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	grid, block driver.Dim3
	shared      uint32
	stream      uintptr
	attributes  *launchAttribute
	count       uint32
}

// launchAttribute is CUlaunchAttribute. Its value has 64 bytes.
type launchAttribute struct {
	id    uint32
	value [8]uint64
}

// overlapAttribute is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION. Its value is a boolean.
const overlapAttribute = 6

// Tags of the extra array of cuLaunchKernel.
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
	s.overlap = launchAttribute{overlapAttribute, [8]uint64{1}}
	s.config.attributes, s.config.count = &s.overlap, 1
	return s
}}

// call calls a function without allocating. Go allocates the arguments of a variadic function that
// lets pointers pass as uintptr, so the arguments are copied to the scratch instead. They must not
// contain pointers except into the scratch.
func (s *scratch) call(l *library, e entry, args ...uintptr) code {
	if l.at[e] == 0 {
		return entryMissing
	}
	n := copy(s.args[:], args)
	r, _, _ := purego.SyscallN(l.at[e], s.args[:n]...)
	return code(int32(r))
}

// enter begins a locked section. The goroutine stays on its OS thread, where the device's context is
// current, until leave restores the previous one.
func (d *Device) enter() (*scratch, error) {
	if d.closed.Load() {
		return nil, invalid("Device", "use of a closed device")
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	return d.enterAnyway()
}

// enterAnyway is enter for a lost or closing device.
func (d *Device) enterAnyway() (*scratch, error) {
	runtime.LockOSThread()
	s := scratches.Get().(*scratch)
	s.previous = 0
	e, c := cuCtxGetCurrent, s.call(d.lib, cuCtxGetCurrent, uintptr(unsafe.Pointer(&s.previous)))
	if c == success && s.previous != d.context {
		e, c = cuCtxSetCurrent, s.call(d.lib, cuCtxSetCurrent, d.context)
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
		s.call(d.lib, cuCtxSetCurrent, s.previous)
	}
	scratches.Put(s)
	runtime.UnlockOSThread()
}

// command makes one call in a locked section, without allocating. The arguments must not contain
// pointers, see scratch.call.
func (d *Device) command(e entry, args ...uintptr) error {
	s, err := d.enter()
	if err != nil {
		return err
	}
	err = d.check(e, s.call(d.lib, e, args...), "")
	d.leave(s)
	return err
}

// query makes one call in a locked section. The driver may write through pointers in the arguments.
//
//go:uintptrescapes
func (d *Device) query(e entry, args ...uintptr) error {
	s, err := d.enter()
	if err != nil {
		return err
	}
	defer d.leave(s)
	return d.check(e, d.lib.call(e, args...), "")
}

// call makes a call within a locked section. The driver may write through pointers in the arguments.
//
//go:uintptrescapes
func (d *Device) call(e entry, args ...uintptr) error {
	return d.check(e, d.lib.call(e, args...), "")
}

// check converts a code to an error. It marks the device lost if the code is sticky.
func (d *Device) check(e entry, c code, detail string) error {
	if c == success {
		return nil
	}
	err := d.lib.failure(e, c, detail)
	if kinds[c].sticky {
		d.lost.CompareAndSwap(nil, err)
	}
	return err
}

// Err returns nil, or ErrDeviceLost with the call that failed first.
func (d *Device) Err() error {
	if lost := d.lost.Load(); lost != nil {
		return lost
	}
	return nil
}
