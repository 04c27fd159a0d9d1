package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

type module struct{ resource }

// Load compiles a module of PTX text, or loads what an earlier Load of the same
// text for the same driver and kind of device left in the cache.
func (d *Device) Load(ptx []byte) (driver.Module, error) {
	if err := checkSource(ptx, d.props.PTXVersion); err != nil {
		return nil, err
	}
	s, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer d.leave(s)
	built, err := d.build(ptx)
	if err != nil {
		return nil, err
	}
	m := new(module)
	m.handle = built.module
	if err := m.adopt(d, modules); err != nil {
		return nil, err
	}
	return m, nil
}

// build finds the module in the cache or compiles it, in a locked section.
func (d *Device) build(ptx []byte) (compiled, error) {
	if !d.cache.enabled() {
		return d.compile(ptx)
	}
	key := d.cacheKey(ptx)
	if hit, ok := d.cache.read(key); ok {
		loaded, err := d.loadCubin(hit.cubin)
		if err == nil {
			d.cache.hits.Add(1)
			return compiled{module: loaded, log: hit.log}, nil
		}
		if d.Err() != nil || errors.Is(err, driver.ErrOutOfMemory) {
			return compiled{}, err
		}
		d.cache.rejected.Add(1)
	}
	d.cache.misses.Add(1)
	built, err := d.compileCached(ptx)
	if err == nil && built.cubin != nil {
		d.cache.write(key, cached{built.log, built.cubin})
	}
	return built, err
}

// Function finds an entry and reads what a launch must be checked against.
func (m *module) Function(name string) (driver.Function, error) {
	if err := m.use("Function"); err != nil {
		return nil, err
	}
	d := m.dev
	s, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer d.leave(s)
	f := &function{module: m, name: name, params: -1}
	cName := append([]byte(name), 0)
	c := d.lib.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f.handle)), m.handle, uintptr(unsafe.Pointer(&cName[0])))
	if c != success {
		return nil, d.check(cuModuleGetFunction, c, fmt.Sprintf("function %q", name))
	}
	if f.maxThreads, err = f.attribute(attributeMaxThreads); err != nil {
		return nil, err
	}
	shared, err := f.attribute(attributeMaxDynamicShared)
	if err != nil {
		return nil, err
	}
	f.shared.Store(uint32(shared))
	// All kernels alike want the most of an SM's fast memory as shared memory: where the next
	// kernel wants another share of it, an SM must be idle before it can begin. It is a wish,
	// which the driver may refuse.
	f.module.dev.lib.call(cuFuncSetAttribute, f.handle, attributeCarveout, maxShared)
	f.readParams()
	return f, nil
}

type function struct {
	module     *module
	handle     uintptr
	name       string
	maxThreads int
	params     int           // bytes that the kernel's parameters take, -1 if the driver does not tell
	shared     atomic.Uint32 // bytes of dynamic shared memory that a launch may ask for now
	raising    sync.Mutex
}

// Numbers of CUfunction_attribute.
const (
	attributeMaxThreads       = 0
	attributeMaxDynamicShared = 8
	attributeCarveout         = 9 // in percent of the most that there is
)

const maxShared = 100

// PreferShared sets the preferred shared-memory carve-out, which is 100% after loading.
func (f *function) PreferShared(percent int) {
	d := f.module.dev
	if s, err := d.enter(); err == nil {
		defer d.leave(s)
		d.lib.call(cuFuncSetAttribute, f.handle, attributeCarveout, uintptr(percent))
	}
}

func (f *function) Name() string { return f.name }

// attribute reads one attribute, in a locked section.
func (f *function) attribute(number int) (int, error) {
	var v int32
	err := f.module.dev.call(cuFuncGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(number), f.handle)
	return int(v), err
}

// readParams finds the size of the parameters, from drivers that tell (12.4).
func (f *function) readParams() {
	lib := f.module.dev.lib
	if lib.at[cuFuncGetParamInfo] == 0 {
		return
	}
	f.params = 0
	for i := 0; ; i++ {
		var offset, size uintptr
		c := lib.call(cuFuncGetParamInfo, f.handle, uintptr(i), uintptr(unsafe.Pointer(&offset)), uintptr(unsafe.Pointer(&size)))
		switch c {
		case success:
			f.params = int(offset + size)
		case invalidValue: // there is no further one
			return
		default:
			f.params = -1
			return
		}
	}
}

// allowShared lets launches ask for so much dynamic shared memory, in a locked
// section. A kernel may have 48 KiB, less what it declares, without being asked for.
func (f *function) allowShared(bytes uint32) error {
	if bytes <= f.shared.Load() {
		return nil
	}
	f.raising.Lock()
	defer f.raising.Unlock()
	if bytes <= f.shared.Load() {
		return nil
	}
	d := f.module.dev
	if c := d.lib.call(cuFuncSetAttribute, f.handle, attributeMaxDynamicShared, uintptr(bytes)); c != success {
		return d.check(cuFuncSetAttribute, c, fmt.Sprintf(
			"%s: %d bytes of dynamic shared memory, the device has %d a CTA", f.name, bytes, d.props.SharedPerCTA))
	}
	f.shared.Store(bytes)
	return nil
}
