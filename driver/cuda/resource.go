package cuda

import (
	"cmp"
	"slices"
	"sync/atomic"
	"unsafe"
)

// class is the type of a resource. A device frees its resources in the order of the constants: a
// graph before the modules that it launches, for example.
type class int

const (
	graphs class = iota
	streams
	events
	libraries
	buffers
	pinneds
)

var classes = [...]struct {
	name string
	free entry
}{
	graphs:    {"graph", cuGraphExecDestroy},
	streams:   {"stream", cuStreamDestroy},
	events:    {"event", cuEventDestroy},
	libraries: {"module", cuLibraryUnload},
	buffers:   {"buffer", cuMemFree},
	pinneds:   {"pinned memory", cuMemFreeHost},
}

// resource is a handle of the driver. It is freed once, by close or by its device.
type resource struct {
	dev    *Device
	class  class
	handle uintptr
	closed atomic.Bool
}

// create calls a function whose first argument receives the handle, in a locked section.
//
//go:uintptrescapes
func (d *Device) create(of class, e entry, args ...uintptr) (*resource, error) {
	s, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer d.leave(s)
	r := &resource{dev: d, class: of} // on the heap, so &r.handle does not move
	all := append([]uintptr{uintptr(unsafe.Pointer(&r.handle))}, args...)
	if err := d.check(e, d.lib.call(e, all...), ""); err != nil {
		return nil, err
	}
	return r, d.adopt(r)
}

// adopt makes the device own the resource. If the device was closed meanwhile, it frees the resource
// and returns an error.
func (d *Device) adopt(r *resource) error {
	d.mu.Lock()
	closed := d.children == nil
	if !closed {
		d.children[r] = struct{}{}
	}
	d.mu.Unlock()
	if closed {
		r.closed.Store(true)
		d.lib.call(classes[r.class].free, r.handle)
		return invalid("Device", "closed while a "+classes[r.class].name+" was being made")
	}
	return nil
}

// use returns an error if the resource is closed.
func (r *resource) use(op string) error {
	if r.closed.Load() {
		return invalid(op, "use of a closed "+classes[r.class].name)
	}
	return nil
}

// close frees the resource. A second call does nothing. On a lost device it ignores errors.
func (r *resource) close() error {
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

// freeChildren frees all resources, in a locked section. It returns the first error.
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
