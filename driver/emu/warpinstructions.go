package emu

import "maps"

// Counters holds what each kernel executed since the last reset, by the name of the kernel.
type Counters map[string]Work

// Work sums over all launches of one kernel.
type Work struct {
	Launches         uint64
	WarpInstructions uint64 // executed instructions; diverged lanes of a warp count separately
	LoadBytes        uint64 // bytes that loads and copies read from global memory, without atomics
}

// Counters returns a copy of the counters since the last reset.
func (d *Device) Counters() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counters)
}

// ResetCounters clears the counters.
func (d *Device) ResetCounters() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counters = Counters{}
}
