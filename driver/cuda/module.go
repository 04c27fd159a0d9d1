package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/ptxlog"
)

type module struct {
	res     *resource                // a CUlibrary
	handle  uintptr                  // its CUmodule in the device's context
	reports map[string]ptxlog.Report // what the compiler's log says, by kernel
}

// Load compiles PTX text, or loads its machine code from the cache on disk. It does not fail if the
// compiler makes a kernel slow; see [Device.SlowKernels].
func (d *Device) Load(ptx []byte) (driver.Module, error) {
	if err := checkSource(ptx, d.props.PTXVersion); err != nil {
		return nil, err
	}
	s, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer d.leave(s)
	l, log, err := d.load(ptx)
	if err != nil {
		return nil, err
	}
	res := &resource{dev: d, class: libraries, handle: l.library}
	if err := d.adopt(res); err != nil {
		return nil, err
	}
	return &module{res, l.module, parseLog(ptx, log)}, nil
}

// load returns the library from the cache or the compiler, with the compiler's log, in a locked section.
// The driver's linker returns machine code for the cache. If it makes a kernel slow, load compiles the text without it.
func (d *Device) load(ptx []byte) (l loaded, log string, err error) {
	if !d.cache.enabled() {
		return d.compile(ptx)
	}
	key := d.cacheKey(ptx)
	if stored, ok := d.cache.read(key); ok {
		image := decodeImage(stored)
		if len(image.cubin) == 0 {
			l, _, err := d.compile(ptx) // its log may be empty if the driver has cached the machine code
			return l, image.log, err
		}
		l, err := d.loadCubin(image.cubin)
		if err == nil {
			d.cache.hits.Add(1)
			return l, image.log, nil
		}
		if d.Err() != nil || errors.Is(err, driver.ErrOutOfMemory) {
			return loaded{}, "", err
		}
		d.cache.rejected.Add(1)
	}
	d.cache.misses.Add(1)
	var linked image
	if slowIfLinked(ptx) {
		err = driver.ErrUnsupported
	} else {
		linked, err = d.link(ptx)
	}
	switch noLinker := errors.Is(err, driver.ErrUnsupported); {
	case err != nil && !noLinker:
		return loaded{}, "", err
	case noLinker || slow(parseLog(ptx, linked.log)):
		l, log, err := d.compile(ptx)
		if err == nil {
			d.cache.write(key, image{log: log}.encode())
		}
		return l, log, err
	}
	l, err = d.loadCubin(linked.cubin)
	if err == nil {
		d.cache.write(key, linked.encode())
	}
	return l, linked.log, err
}

func (m *module) Close() error { return m.res.close() }

// Function returns a kernel, with the properties that launches are checked against.
func (m *module) Function(name string) (driver.Function, error) {
	if err := m.res.use("Function"); err != nil {
		return nil, err
	}
	d := m.res.dev
	s, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer d.leave(s)
	var handle uintptr
	cName := append([]byte(name), 0)
	c := d.lib.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&handle)), m.handle, uintptr(unsafe.Pointer(&cName[0])))
	if c != success {
		return nil, d.check(cuModuleGetFunction, c, fmt.Sprintf("function %q", name))
	}
	maxThreads, err := d.functionAttribute(handle, attributeMaxThreads)
	if err != nil {
		return nil, err
	}
	shared, err := d.functionAttribute(handle, attributeMaxDynamicShared)
	if err != nil {
		return nil, err
	}
	report := m.reports[name]
	if report.Stack, err = d.functionAttribute(handle, attributeLocal); err != nil {
		return nil, err
	}
	d.judge(name, report)
	// All kernels get the same carve-out. An SM must be idle to change it, so different values would
	// delay kernels. The driver may refuse the hint.
	d.lib.call(cuFuncSetAttribute, handle, attributeCarveout, maxCarveout)
	f := &function{module: m, handle: handle, name: name, maxThreads: maxThreads, params: d.paramBytes(handle)}
	f.shared.Store(uint32(shared))
	return f, nil
}

type function struct {
	module     *module
	handle     uintptr
	name       string
	maxThreads int           // per CTA
	params     int           // bytes of parameters; -1 if the driver does not report it
	shared     atomic.Uint32 // limit of dynamic shared memory per launch, in bytes; allowShared raises it
	raising    sync.Mutex    // held while shared is raised
}

// Numbers of CUfunction_attribute.
const (
	attributeMaxThreads       = 0
	attributeLocal            = 3 // bytes of local memory per thread
	attributeMaxDynamicShared = 8
	attributeCarveout         = 9 // in percent of the maximum shared memory
)

const maxCarveout = 100 // percent

func (f *function) Name() string { return f.name }

// functionAttribute reads an attribute of a CUfunction, in a locked section.
func (d *Device) functionAttribute(handle uintptr, attribute int) (int, error) {
	var v int32
	err := d.call(cuFuncGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(attribute), handle)
	return int(v), err
}

// paramBytes returns the size of a kernel's parameters, or -1 if the driver is older than CUDA 12.4.
func (d *Device) paramBytes(handle uintptr) int {
	bytes := 0
	for i := 0; ; i++ {
		var offset, size uintptr
		c := d.lib.call(cuFuncGetParamInfo, handle, uintptr(i), uintptr(unsafe.Pointer(&offset)), uintptr(unsafe.Pointer(&size)))
		switch c {
		case success:
			bytes = int(offset + size)
		case invalidValue: // i is past the last parameter
			return bytes
		default:
			return -1
		}
	}
}

// allowShared lets launches use this much dynamic shared memory, in a locked section. Without it, a
// kernel may use 48 KiB less its static shared memory.
func (f *function) allowShared(bytes uint32) error {
	if bytes <= f.shared.Load() {
		return nil
	}
	f.raising.Lock()
	defer f.raising.Unlock()
	if bytes <= f.shared.Load() {
		return nil
	}
	d := f.module.res.dev
	if c := d.lib.call(cuFuncSetAttribute, f.handle, attributeMaxDynamicShared, uintptr(bytes)); c != success {
		return d.check(cuFuncSetAttribute, c, fmt.Sprintf(
			"%s: %d bytes of dynamic shared memory, the device has %d per CTA", f.name, bytes, d.props.SharedPerCTA))
	}
	f.shared.Store(bytes)
	return nil
}
