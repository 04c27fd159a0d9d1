package cuda

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

type event struct{ resource }

// NewEvent makes an event that keeps time.
func (d *Device) NewEvent() (driver.Event, error) {
	e := new(event)
	if err := e.create(d, events, cuEventCreate, 0); err != nil {
		return nil, err
	}
	return e, nil
}

// Synchronize waits until the event, as last recorded, has happened.
func (e *event) Synchronize() error {
	if err := e.use("Synchronize"); err != nil {
		return err
	}
	return e.dev.order(cuEventSynchronize, e.handle)
}

// Since is the time from an earlier event; the driver's clock ticks about every
// half microsecond.
func (e *event) Since(earlier driver.Event) (time.Duration, error) {
	from, err := asEvent("Since", earlier)
	if err == nil {
		err = e.use("Since")
	}
	if err != nil {
		return 0, err
	}
	var ms float32
	err = e.dev.ask(cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), from.handle, e.handle)
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// asEvent is the event of this driver behind the interface, if it is usable.
func asEvent(op string, e driver.Event) (*event, error) {
	own, ok := e.(*event)
	if !ok || own == nil {
		return nil, invalid(op, fmt.Sprintf("the event is a %T", e))
	}
	return own, own.use(op)
}
