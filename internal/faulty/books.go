package faulty

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Object is something that was made of a device.
type Object struct {
	By     Call  // what made it: a buffer is by DeviceAlloc
	Number int   // of that call, among all, from 1
	Bytes  int64 // of a buffer or of pinned memory
	made   [8]uintptr
}

// String names the call and the source lines that made it.
func (o Object) String() string {
	s := o.By.String()
	if o.Number > 0 {
		s += fmt.Sprintf(", call %d", o.Number)
	}
	if o.Bytes > 0 {
		s += fmt.Sprintf(", %d bytes", o.Bytes)
	}
	if lines := o.lines(); len(lines) > 0 {
		s += ", at " + strings.Join(lines, " < ")
	}
	return s
}

// lines are where it was made: the innermost lines outside of this package, such as
// "upload.go:55".
func (o Object) lines() []string {
	var list []string
	frames := runtime.CallersFrames(o.made[:])
	for len(list) < 3 {
		f, more := frames.Next()
		if f.File != "" && !strings.Contains(f.Function, "internal/faulty.") && !strings.HasPrefix(f.Function, "runtime.") {
			list = append(list, fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line))
		}
		if !more {
			break
		}
	}
	return list
}

// Memory are bytes in buffers and in pinned memory.
type Memory struct{ Device, Pinned int64 }

// books list what is open. The device's lock guards them.
type books struct {
	open  map[*Object]struct{}
	twice []Object
	now   Memory
	peak  Memory
}

func newBooks() books { return books{open: map[*Object]struct{}{}} }

func (b *books) add(o *Object) {
	b.open[o] = struct{}{}
	b.count(o, o.Bytes)
	b.peak = Memory{max(b.peak.Device, b.now.Device), max(b.peak.Pinned, b.now.Pinned)}
}

func (b *books) remove(o *Object) {
	if _, ok := b.open[o]; !ok {
		b.twice = append(b.twice, *o)
		return
	}
	delete(b.open, o)
	b.count(o, -o.Bytes)
}

func (b *books) count(o *Object, bytes int64) {
	switch o.By {
	case DeviceAlloc:
		b.now.Device += bytes
	case DeviceAllocPinned:
		b.now.Pinned += bytes
	}
}

// Open lists what was made and not closed, in the order of the calls. What the
// device's own Close frees stays in the list: nobody closed it.
func (d *Device) Open() []Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Object
	for o := range maps.Keys(d.books.open) {
		list = append(list, *o)
	}
	slices.SortFunc(list, func(a, b Object) int { return a.Number - b.Number })
	return list
}

// ClosedTwice lists what was closed again, once for each time too many.
func (d *Device) ClosedTwice() []Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.books.twice)
}

// InUse says how much memory is open.
func (d *Device) InUse() Memory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.books.now
}

// Peak says how much memory was open at most, since New or ResetPeak. The two may not
// have been at their most at the same time.
func (d *Device) Peak() Memory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.books.peak
}

// ResetPeak lets the peak begin anew with what is open.
func (d *Device) ResetPeak() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.books.peak = d.books.now
}

// object is something made of the inner device.
type object[T interface{ Close() error }] struct {
	d      *Device
	inner  T
	made   *Object
	closed Call // the call that its Close is
}

// wrap enters what a call made into the books.
func wrap[T interface{ Close() error }](d *Device, by, closed Call, number int, bytes int64, inner T) object[T] {
	made := &Object{By: by, Number: number, Bytes: bytes}
	runtime.Callers(3, made.made[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	d.books.add(made)
	return object[T]{d, inner, made, closed}
}

// makeObject makes a call that makes something, unless it fails.
func makeObject[T interface{ Close() error }](d *Device, by, closed Call, bytes int64, inner func() (T, error)) (object[T], error) {
	number, err := d.begin(by)
	if err != nil {
		return object[T]{}, err
	}
	x, err := inner()
	if err != nil {
		return object[T]{}, err
	}
	return wrap(d, by, closed, number, bytes, x), nil
}

func (o *object[T]) unwrap() T { return o.inner }

// Close closes the inner object, whether it is to fail or not.
func (o *object[T]) Close() error {
	_, err := o.d.begin(o.closed)
	o.d.mu.Lock()
	o.d.books.remove(o.made)
	o.d.mu.Unlock()
	if innerErr := o.inner.Close(); err == nil {
		err = innerErr
	}
	return err
}
