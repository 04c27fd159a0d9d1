package cuda

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-go/lockstep/driver"
)

// maxParams is how many bytes of parameters a kernel may have: the PTX ISA's limit.
const maxParams = 4352

// scratch is the memory of one locked section that the driver reads and writes. It
// is on the heap and points into itself, so that a call needs no allocation and no
// address can move under it.
type scratch struct {
	previous uintptr // the context that was current before
	args     [11]uintptr
	size     uintptr // of params
	extra    [5]uintptr
	params   [maxParams / 8]uint64
	config   launchConfig
	overlap  launchAttribute // config's only one
}

// launchConfig is the driver's CUlaunchConfig.
type launchConfig struct {
	grid, block driver.Dim3
	shared      uint32
	stream      uintptr
	attributes  *launchAttribute
	count       uint32
}

// launchAttribute is the driver's CUlaunchAttribute: a value of 64 bytes.
type launchAttribute struct {
	id    uint32
	value [8]uint64
}

// overlapAttribute is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, whose value
// is a boolean.
const overlapAttribute = 6

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
	s.overlap = launchAttribute{overlapAttribute, [8]uint64{1}}
	s.config.attributes, s.config.count = &s.overlap, 1
	return s
}}

// call calls without allocating: the arguments of a variadic function that lets
// pointers pass as uintptr are always put on the heap, and here they are already.
// So this one lets none pass, apart from those into the scratch itself.
func (s *scratch) call(l *library, e entry, args ...uintptr) code {
	if l.at[e] == 0 {
		return entryMissing
	}
	n := copy(s.args[:], args)
	r, _, _ := purego.SyscallN(l.at[e], s.args[:n]...)
	return code(int32(r))
}

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

// order makes one call in a locked section of its own, without allocating; see
// scratch.call for what it may not be given.
func (d *Device) order(e entry, args ...uintptr) error {
	s, err := d.enter()
	if err != nil {
		return err
	}
	err = d.check(e, s.call(d.lib, e, args...), "")
	d.leave(s)
	return err
}

// ask makes one call in a locked section of its own. The driver may answer through
// pointers among the arguments.
//
//go:uintptrescapes
func (d *Device) ask(e entry, args ...uintptr) error {
	s, err := d.enter()
	if err != nil {
		return err
	}
	defer d.leave(s)
	return d.check(e, d.lib.call(e, args...), "")
}

// call is ask within a locked section.
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
