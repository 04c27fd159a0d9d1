package faultinject

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Object is an object that was made from a device.
type Object struct {
	By     Call  // the call that made it
	Number int   // of that call among all calls of the device, from 1
	Bytes  int64 // size of a buffer or of pinned memory
	stack  [8]uintptr
}

// String returns the call and the source lines that made the object.
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

// lines returns up to three source lines outside this package, innermost first, such as
// "upload.go:55".
func (o Object) lines() []string {
	var list []string
	frames := runtime.CallersFrames(o.stack[:])
	for len(list) < 3 {
		f, more := frames.Next()
		if f.File != "" && !strings.Contains(f.Function, "internal/faultinject.") && !strings.HasPrefix(f.Function, "runtime.") {
			list = append(list, fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line))
		}
		if !more {
			break
		}
	}
	return list
}

// OpenObjects returns the objects that were made and not closed, in the order of their
// calls. It includes objects that the device's own Close has freed.
func (d *Device) OpenObjects() []Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Object
	for o := range d.open {
		list = append(list, *o)
	}
	slices.SortFunc(list, func(a, b Object) int { return a.Number - b.Number })
	return list
}

type closer interface{ Close() error }

// object wraps an object of the inner device and its entry in the ledger.
type object[T closer] struct {
	d      *Device
	inner  T
	entry  *Object
	closed Call // the Call of its Close
}

// create makes a call that creates an object, unless the call is to fail.
func create[T closer](d *Device, by, closed Call, bytes int64, inner func() (T, error)) (object[T], error) {
	number, err := d.begin(by)
	if err != nil {
		return object[T]{}, err
	}
	x, err := inner()
	if err != nil {
		return object[T]{}, err
	}
	entry := &Object{By: by, Number: number, Bytes: bytes}
	runtime.Callers(2, entry.stack[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[entry] = struct{}{}
	return object[T]{d, x, entry, closed}, nil
}

func (o *object[T]) unwrap() T { return o.inner }

// Close closes the inner object, even if the call is to fail.
func (o *object[T]) Close() error {
	_, err := o.d.begin(o.closed)
	o.d.mu.Lock()
	delete(o.d.open, o.entry)
	o.d.mu.Unlock()
	if innerErr := o.inner.Close(); err == nil {
		err = innerErr
	}
	return err
}
