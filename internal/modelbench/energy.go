package modelbench

import (
	"fmt"
	"time"
)

// Meter is an energy counter of a device.
type Meter interface {
	Joules() (float64, error) // energy since an arbitrary time
	Tick() time.Duration      // longest time between two updates of the counter
	Source() string           // description for reports
}

// Energy describes the energy measurements of a report.
type Energy struct {
	Source  string  `json:"source,omitempty"`
	Tick    float64 `json:"tick_seconds,omitempty"`  // between two updates of the counter
	Least   float64 `json:"least_seconds,omitempty"` // minimum duration of a measurement
	Unknown string  `json:"unknown,omitempty"`       // why there is no measurement
}

// EnergyBy describes a meter.
func EnergyBy(m Meter) *Energy {
	return &Energy{Source: m.Source(), Tick: m.Tick().Seconds(), Least: minDuration(m).Seconds()}
}

// The counter is up to one tick old when it is read. If the device is equally busy before
// and between two readings, the error is at most the energy of one tick: 10% after ten
// ticks. The power sensors sample every 20 to 100 ms; minTime covers several samples.
const (
	minTicks = 10
	minTime  = 500 * time.Millisecond
)

// minDuration returns the minimum duration of a measurement with m.
func minDuration(m Meter) time.Duration { return max(minTicks*m.Tick(), minTime) }

// energyRun is a running energy measurement.
type energyRun struct {
	b      *bench
	begin  time.Time
	before float64 // joules
	err    error   // why the energy is unknown
}

// energyUse is the energy of repeats. It is zero without a meter.
type energyUse struct {
	joules  float64
	seconds float64
	runs    int    // repeats, timed and untimed
	unknown string // why the energy is unknown
}

// startEnergy starts a measurement. Call it after the warm-up repeat, while the device is
// busy.
func (b *bench) startEnergy() energyRun {
	s := energyRun{b: b}
	if b.o.Meter != nil {
		s.before, s.err = b.o.Meter.Joules()
	}
	s.begin = b.o.now()
	return s
}

// needsMore reports whether the measurement is too short and the budget allows more.
func (s *energyRun) needsMore(now time.Time) bool {
	if s.b.o.Meter == nil || s.err != nil {
		return false
	}
	least, elapsed := minDuration(s.b.o.Meter), now.Sub(s.begin)
	return elapsed < least && least <= s.b.o.Budget
}

// stop ends the measurement and returns the energy. runs is the number of repeats since
// startEnergy, timed and untimed.
func (s *energyRun) stop(runs int) energyUse {
	m := s.b.o.Meter
	if m == nil {
		return energyUse{}
	}
	elapsed := s.b.o.now().Sub(s.begin)
	after, err := s.before, s.err
	if err == nil {
		after, err = m.Joules()
	}
	switch {
	case err != nil:
		return energyUse{unknown: err.Error()}
	case elapsed < minDuration(m):
		return energyUse{unknown: fmt.Sprintf("it takes %v of repeats; the budget is %v", minDuration(m), s.b.o.Budget)}
	case after <= s.before:
		return energyUse{unknown: fmt.Sprintf("the counter went from %g J to %g J", s.before, after)}
	}
	return energyUse{joules: after - s.before, seconds: elapsed.Seconds(), runs: runs}
}

// setEnergy sets the energy per token. tokens is the number of tokens per repeat.
func (r *Result) setEnergy(e energyUse, tokens float64) {
	r.EnergyUnknown = e.unknown
	if e.runs == 0 {
		return
	}
	each := e.joules / (tokens * float64(e.runs))
	r.Joules, r.EnergySeconds = &each, e.seconds
}
