package nvml

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

// Meter reads the energy counter and the condition of a GPU. The counter includes everything that runs
// on the GPU. A Meter is safe for concurrent use.
type Meter struct {
	library *Library
	handle  uintptr
	tick    time.Duration

	mu     sync.Mutex // held during calls of the library, so that none follows Shutdown
	closed bool
}

// Open opens a meter for the device with a UUID of 32 hexadecimal digits. It takes about half a second
// to measure how often the counter is updated. The error is driver.ErrUnsupported for a device without
// a counter, else a *driver.Error.
func (l *Library) Open(uuid string) (*Meter, error) {
	if len(uuid) != 32 {
		return nil, &driver.Error{Op: "Meter", Kind: driver.ErrUnsupported, Detail: "the driver does not report the device's UUID"}
	}
	if err := l.error(Init, l.Init()); err != nil {
		return nil, err
	}
	m := &Meter{library: l}
	name := fmt.Sprintf("GPU-%s-%s-%s-%s-%s", uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])
	err := l.error(HandleByUUID, l.HandleByUUID(name, &m.handle))
	if err == nil {
		m.tick, err = m.measureTick()
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

const (
	measuredUpdates = 4                // the longest interval counts
	pollInterval    = time.Millisecond // GPUs update the counter every 20 to 100 ms
	updateTimeout   = time.Second
)

// measureTick returns the longest of a few intervals between updates of the counter.
func (m *Meter) measureTick() (time.Duration, error) {
	last, err := m.Joules()
	if err != nil {
		return 0, err
	}
	var longest time.Duration
	since := time.Now()
	for updates := 0; updates <= measuredUpdates; {
		if time.Since(since) >= updateTimeout {
			return 0, &driver.Error{Op: TotalEnergy, Kind: driver.ErrUnsupported, Detail: fmt.Sprintf("the counter did not change within %v", updateTimeout)}
		}
		time.Sleep(pollInterval)
		now, err := m.Joules()
		if err != nil {
			return 0, err
		}
		if now == last {
			continue
		}
		if updates > 0 { // the first interval began before the measurement
			longest = max(longest, time.Since(since))
		}
		last, since = now, time.Now()
		updates++
	}
	return longest, nil
}

// Joules returns the energy since the driver was loaded, as of the last update of the counter.
func (m *Meter) Joules() (float64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, &driver.Error{Op: "Joules", Kind: driver.ErrInvalid, Detail: "the meter is closed"}
	}
	var millijoules uint64
	if err := m.library.error(TotalEnergy, m.library.TotalEnergy(m.handle, &millijoules)); err != nil {
		return 0, err
	}
	return float64(millijoules) / 1e3, nil
}

// Tick returns the longest interval between updates of the counter that Open measured.
func (m *Meter) Tick() time.Duration { return m.tick }

// Source describes the counter.
func (m *Meter) Source() string { return "NVML, " + TotalEnergy + " of the whole GPU" }

// Close shuts the library down.
func (m *Meter) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	return m.library.error(Shutdown, m.library.Shutdown())
}
