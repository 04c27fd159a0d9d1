package emu

// object is the common part of buffers, modules, streams, events and graphs: the device that made
// them, and whether they are open.
type object struct {
	dev    *Device
	closed bool
	count  *int // field of Device.live
}

func (d *Device) newObject(count *int) object {
	*count++
	return object{dev: d, count: count}
}

// do locks the device and runs f. If the object or the device is closed, or if the device is lost,
// it returns an error instead.
func (o *object) do(op string, f func() error) error {
	o.dev.mu.Lock()
	defer o.dev.mu.Unlock()
	if err := o.usable(op); err != nil {
		return err
	}
	return f()
}

// usable returns an error if the object or the device is closed, or the device lost. The lock is
// held.
func (o *object) usable(op string) error {
	if err := o.dev.usable(op); err != nil {
		return err
	}
	if o.closed {
		return invalid(op, "the object is closed")
	}
	return nil
}

// closeLocked closes the object. It reports whether the object was open and the device is still open.
// The caller holds the device's lock.
func (o *object) closeLocked() bool {
	if o.closed || o.dev.closed {
		o.closed = true
		return false
	}
	o.closed = true
	*o.count--
	return true
}

// Close closes an object that has nothing else to release.
func (o *object) Close() error {
	o.dev.mu.Lock()
	defer o.dev.mu.Unlock()
	o.closeLocked()
	return nil
}
