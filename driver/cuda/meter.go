package cuda

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

// Meter counts the energy of a whole GPU, that of whatever else runs on it and of its
// idle parts included. It is safe for concurrent use.
type Meter struct {
	library *nvml
	handle  uintptr
	tick    time.Duration

	mu     sync.Mutex // guards closed: no function is called after shutdown
	closed bool
}

// Meter opens the count of the device's energy, which takes about half a second: it
// waits for the count to move, to learn how often it does. The library is looked for
// now, and nothing else needs it. Errors: ErrNoNVML; driver.ErrUnsupported for a device
// that does not count; what the library says, as a *driver.Error.
func (d *Device) Meter() (*Meter, error) {
	library, err := nvmlFinder().findNVML()
	if err != nil {
		return nil, err
	}
	return library.meter(d.uuid)
}

// meter opens the count of the device with a UUID of 32 hexadecimal digits.
func (n *nvml) meter(uuid string) (*Meter, error) {
	if len(uuid) != 32 {
		return nil, &driver.Error{Op: "Meter", Kind: driver.ErrUnsupported, Detail: "the driver does not tell the device's UUID"}
	}
	if err := n.refusal(nvmlInit, n.init()); err != nil {
		return nil, err
	}
	m := &Meter{library: n}
	name := fmt.Sprintf("GPU-%s-%s-%s-%s-%s", uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])
	err := n.refusal(nvmlByUUID, n.byUUID(name, &m.handle))
	if err == nil {
		err = m.timeTick()
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// How the time between two counts is found.
const (
	ticksTimed   = 4                // of which the longest counts
	tickPoll     = time.Millisecond // short beside those of some GPUs, 20 to 100 ms
	tickPatience = time.Second      // for one
)

// timeTick waits for the count to move, and then for how long it stands.
func (m *Meter) timeTick() error {
	last, err := m.Joules()
	if err != nil {
		return err
	}
	since := time.Now()
	for moves := 0; moves <= ticksTimed; {
		if time.Since(since) >= tickPatience {
			return &driver.Error{Op: nvmlEnergy, Kind: driver.ErrUnsupported, Detail: fmt.Sprintf("the count did not move within %v", tickPatience)}
		}
		time.Sleep(tickPoll)
		now, err := m.Joules()
		if err != nil {
			return err
		}
		if now == last {
			continue
		}
		if moves > 0 { // the first move began before
			m.tick = max(m.tick, time.Since(since))
		}
		last, since = now, time.Now()
		moves++
	}
	return nil
}

// Joules is the energy since the driver was loaded, as last counted: up to a Tick ago.
func (m *Meter) Joules() (float64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, invalid("Joules", "the meter is closed")
	}
	var millijoules uint64
	if err := m.library.refusal(nvmlEnergy, m.library.energy(m.handle, &millijoules)); err != nil {
		return 0, err
	}
	return float64(millijoules) / 1e3, nil
}

// Tick is the longest time that the count stood still while the meter was opened.
func (m *Meter) Tick() time.Duration { return m.tick }

// Source says what counts.
func (m *Meter) Source() string { return "NVML, " + nvmlEnergy + " of the whole GPU" }

// Close lets go of the library.
func (m *Meter) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	return m.library.refusal(nvmlShutdown, m.library.shutdown())
}
