package cuda

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

type event struct{ res *resource }

// Flags of cuEventCreate.
const (
	eventTiming   = 0
	eventNoTiming = 2 // cheaper to record
)

// NewEvent creates an event that records time.
func (d *Device) NewEvent() (driver.Event, error) {
	e, err := d.newEvent(eventTiming)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (d *Device) newEvent(flags uintptr) (*event, error) {
	res, err := d.create(events, cuEventCreate, flags)
	if err != nil {
		return nil, err
	}
	return &event{res}, nil
}

func (e *event) Close() error { return e.res.close() }

// Synchronize waits until the event has completed.
func (e *event) Synchronize() error {
	if err := e.res.use("Synchronize"); err != nil {
		return err
	}
	return e.res.dev.command(cuEventSynchronize, e.res.handle)
}

// Since returns the time from an earlier event. The driver's clock has a resolution of about half a
// microsecond.
func (e *event) Since(earlier driver.Event) (time.Duration, error) {
	from, err := asEvent("Since", earlier)
	if err == nil {
		err = e.res.use("Since")
	}
	if err != nil {
		return 0, err
	}
	var ms float32
	err = e.res.dev.query(cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), from.res.handle, e.res.handle)
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// asEvent returns e as an event of this package. If it is another type or closed, it returns
// an error for the call op.
func asEvent(op string, e driver.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own == nil {
		return nil, invalid(op, fmt.Sprintf("the event is a %T", e))
	}
	return own, own.res.use(op)
}
