package emu

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// object is what all things made of a device share.
type object struct {
	d      *Device
	closed bool
	count  *int // in Device.live
}

func (d *Device) object(count *int) object {
	*count++
	return object{d: d, count: count}
}

// close closes once; it reports whether this was the time. The device's lock is held.
func (o *object) close() bool {
	if o.closed {
		return false
	}
	o.closed = true
	if !o.d.closed {
		*o.count--
	}
	return true
}

// usable is nil, or why the object takes no more calls. The device's lock is held.
func (o *object) usable(op string) error {
	if err := o.d.usable(op); err != nil {
		return err
	}
	if o.closed {
		return invalid(op, "the object is closed")
	}
	return nil
}

type buffer struct {
	object
	seg *segment
}

// Alloc takes device memory: undefined, far from any other buffer.
func (d *Device) Alloc(bytes int64) (driver.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("Alloc"); err != nil {
		return nil, err
	}
	if bytes <= 0 {
		return nil, invalid("Alloc", "%d bytes", bytes)
	}
	s := d.memory.alloc(bytes)
	if s == nil {
		return nil, &driver.Error{Op: "emu.Alloc", Kind: driver.ErrOutOfMemory,
			Detail: fmt.Sprintf("%d bytes, %d of %d are free", bytes, d.memory.limit-d.memory.used, d.memory.limit)}
	}
	return &buffer{d.object(&d.live.Buffers), s}, nil
}

func (b *buffer) Address() driver.Address { return driver.Address(b.seg.base) }

// Close waits for the device's work, as freeing memory does on a GPU.
func (b *buffer) Close() error {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	var err error
	if !b.closed && b.d.usable("Close") == nil {
		err = b.d.drain()
	}
	if b.close() && !b.d.closed {
		b.d.memory.free(b.seg)
	}
	return err
}

type pinned struct {
	object
	seg   *segment
	bytes []byte // of the segment
}

// AllocPinned takes host memory: undefined, and at an address far from any other.
func (d *Device) AllocPinned(bytes int) (driver.Pinned, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("AllocPinned"); err != nil {
		return nil, err
	}
	if bytes <= 0 {
		return nil, invalid("AllocPinned", "%d bytes", bytes)
	}
	s := d.memory.pin(int64(bytes))
	return &pinned{d.object(&d.live.Pinned), s, s.data}, nil
}

func (p *pinned) Bytes() []byte           { return p.bytes }
func (p *pinned) Address() driver.Address { return driver.Address(p.seg.base) }

// Close waits for nothing: work that still uses the memory traps.
func (p *pinned) Close() error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if p.close() && !p.d.closed {
		p.d.memory.free(p.seg)
	}
	return nil
}

type ptxModule struct {
	object
	functions map[string]*function
}

type function struct {
	module *ptxModule
	prog   *program
}

// targets are the least .version of each .target.
var targets = map[int]int{
	50: 40, 52: 41, 53: 42, 60: 50, 61: 50, 62: 50, 70: 60, 72: 61, 75: 63, 80: 70, 86: 71, 87: 74, 89: 78, 90: 78,
}

// Load parses and decodes PTX text.
func (d *Device) Load(text []byte) (driver.Module, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("Load"); err != nil {
		return nil, err
	}
	programs, err := d.compile(text)
	if err != nil {
		return nil, &driver.Error{Op: "emu.Load", Kind: driver.ErrPTXRejected, Detail: err.Error()}
	}
	m := &ptxModule{object: d.object(&d.live.Modules), functions: map[string]*function{}}
	for _, p := range programs {
		m.functions[p.name] = &function{m, p}
	}
	return m, nil
}

func (d *Device) compile(text []byte) ([]*program, error) {
	if seen, ok := d.opts.Cache.get(text); ok {
		return seen.programs, d.accepts(seen.mod)
	}
	mod, err := syntax.Parse(text)
	if err == nil {
		err = d.accepts(mod)
	}
	if err != nil {
		return nil, err
	}
	var programs []*program
	var errs []error
	for _, e := range mod.Entries {
		p, err := decode(mod, e)
		programs, errs = append(programs, p), append(errs, err)
	}
	err = errors.Join(errs...)
	if err == nil {
		d.opts.Cache.put(text, compiled{mod, programs})
	}
	return programs, err
}

// accepts says what of a module's head a device does not.
func (d *Device) accepts(mod *syntax.Module) error {
	least, ok := targets[mod.SM]
	if mod.Target == "sm_90a" {
		least = 80
	}
	switch {
	case mod.Version > d.props.PTXVersion:
		return fmt.Errorf(".version %d.%d is newer than the device's %d.%d",
			mod.Version/10, mod.Version%10, d.props.PTXVersion/10, d.props.PTXVersion%10)
	case !ok:
		return fmt.Errorf("unknown .target %s", mod.Target)
	case mod.Version < least:
		return fmt.Errorf(".target %s needs .version %d.%d, the text declares %d.%d",
			mod.Target, least/10, least%10, mod.Version/10, mod.Version%10)
	case mod.SM > d.props.ComputeCapability, mod.Target == "sm_90a" && d.props.ComputeCapability != 90:
		return fmt.Errorf(".target %s on a device of sm_%d", mod.Target, d.props.ComputeCapability)
	}
	return nil
}

func (m *ptxModule) Function(name string) (driver.Function, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if err := m.usable("Function"); err != nil {
		return nil, err
	}
	f, ok := m.functions[name]
	if !ok {
		return nil, invalid("Function", "no entry %q", name)
	}
	return f, nil
}

func (m *ptxModule) Close() error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.close()
	return nil
}

func (f *function) Name() string { return f.prog.name }

// PreferShared does nothing: shared memory and cache are separate here.
func (f *function) PreferShared(int) {}

type event struct {
	object
	stream *stream
	at     int   // the stream's work up to here; 0 before the first Record
	ticks  int64 // when it happened
	done   bool
}

// NewEvent makes an event.
func (d *Device) NewEvent() (driver.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("NewEvent"); err != nil {
		return nil, err
	}
	return &event{object: d.object(&d.live.Events)}, nil
}

func (e *event) Synchronize() error {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	if err := e.usable("Event.Synchronize"); err != nil || e.stream == nil {
		return err
	}
	return e.stream.runUntil(e.at)
}

// Since gives a nanosecond a warp instruction: there is no clock to compare with.
func (e *event) Since(earlier driver.Event) (time.Duration, error) {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	from, ok := earlier.(*event)
	if err := e.usable("Event.Since"); err != nil {
		return 0, err
	}
	if !ok || !e.done || !from.done {
		return 0, invalid("Event.Since", "an event that has not happened")
	}
	return time.Duration(e.ticks - from.ticks), nil
}

func (e *event) Close() error {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.close()
	return nil
}
