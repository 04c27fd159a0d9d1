package cuda

import (
	"cmp"
	"slices"
	"sync/atomic"
	"unsafe"
)

// class says what a resource is, in the order in which a device frees its
// children: what uses before what is used.
type class int

const (
	graphs class = iota
	streams
	events
	modules
	buffers
	pinneds
)

var classes = [...]struct {
	name string
	free entry
}{
	graphs:  {"graph", cuGraphExecDestroy},
	streams: {"stream", cuStreamDestroy},
	events:  {"event", cuEventDestroy},
	modules: {"module", cuModuleUnload},
	buffers: {"buffer", cuMemFree},
	pinneds: {"pinned memory", cuMemFreeHost},
}

// resource is a handle of the driver's that is freed exactly once: by its Close or
// by its device's. Every child of a device embeds one.
type resource struct {
	dev    *Device
	class  class
	handle uintptr
	closed atomic.Bool
}

// create calls a function whose first argument receives the handle, in a locked
// section of its own.
//
//go:uintptrescapes
func (r *resource) create(d *Device, is class, e entry, args ...uintptr) error {
	s, err := d.enter()
	if err != nil {
		return err
	}
	defer d.leave(s)
	all := append([]uintptr{uintptr(unsafe.Pointer(&r.handle))}, args...)
	if err := d.check(e, d.lib.call(e, all...), ""); err != nil {
		return err
	}
	return r.adopt(d, is)
}

// adopt makes the device responsible for the handle. If the device was closed
// meanwhile, the handle is freed at once.
func (r *resource) adopt(d *Device, is class) error {
	r.dev, r.class = d, is
	d.mu.Lock()
	gone := d.children == nil
	if !gone {
		d.children[r] = struct{}{}
	}
	d.mu.Unlock()
	if gone {
		r.closed.Store(true)
		d.lib.call(classes[is].free, r.handle)
		return invalid("Device", "closed while a "+classes[is].name+" was being made")
	}
	return nil
}

// use refuses a resource that was closed.
func (r *resource) use(op string) error {
	if r.closed.Load() {
		return invalid(op, "use of a closed "+classes[r.class].name)
	}
	return nil
}

// Close frees it; a second time does nothing. On a lost device, whose context is
// past complaining, it is not an error.
func (r *resource) Close() error {
	if !r.closed.CompareAndSwap(false, true) {
		return nil
	}
	d := r.dev
	d.mu.Lock()
	delete(d.children, r)
	d.mu.Unlock()
	wasLost := d.Err() != nil
	s, err := d.enterAnyway()
	if err == nil {
		err = d.call(classes[r.class].free, r.handle)
		d.leave(s)
	}
	if wasLost {
		return nil
	}
	return err
}

// freeChildren frees what is left, in a locked section. It returns the first refusal.
func (d *Device) freeChildren() error {
	d.mu.Lock()
	left := make([]*resource, 0, len(d.children))
	for r := range d.children {
		left = append(left, r)
	}
	d.children = nil
	d.mu.Unlock()
	slices.SortFunc(left, func(a, b *resource) int { return cmp.Compare(a.class, b.class) })
	var first error
	for _, r := range left {
		if !r.closed.CompareAndSwap(false, true) {
			continue
		}
		if err := d.call(classes[r.class].free, r.handle); first == nil {
			first = err
		}
	}
	return first
}
