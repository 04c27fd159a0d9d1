package modelbench

import (
	"fmt"
	"time"
)

// Meter counts the energy that a device has taken since some moment. The count moves
// now and then.
type Meter interface {
	Joules() (float64, error)
	Tick() time.Duration // the longest between two moves of the count
	Source() string      // what counts, for people
}

// Energy says of a report where its figures of energy are from.
type Energy struct {
	Source  string  `json:"source,omitempty"`
	Tick    float64 `json:"tick_seconds,omitempty"`  // between two moves of the count
	Least   float64 `json:"least_seconds,omitempty"` // over which a figure is counted
	Unknown string  `json:"unknown,omitempty"`       // why there are none
}

// EnergyBy describes a meter.
func EnergyBy(m Meter) *Energy {
	return &Energy{Source: m.Source(), Tick: m.Tick().Seconds(), Least: leastOf(m).Seconds()}
}

// A count is up to a tick old when it is read. Between two readings, with the device as
// busy before as between them, that is at most the energy of a tick more or less: a tenth
// of it after ten. However often a count moves, the sensors behind it look at the power
// every 20 to 100 ms only; over the least time they have looked a few times.
const (
	leastTicks = 10
	leastTime  = 500 * time.Millisecond
)

// leastOf is the shortest time that energy is stated of.
func leastOf(m Meter) time.Duration { return max(leastTicks*m.Tick(), leastTime) }

// spending is the energy of repeats while they run.
type spending struct {
	b      *bench
	begin  time.Time
	before float64 // joules
	err    error   // why energy is unknown
}

// spent is the energy of repeats, or why it is unknown. Without a meter it is neither.
type spent struct {
	joules  float64
	seconds float64
	runs    int // repeats, timed or not
	unknown string
}

// spend begins to count: behind a repeat that warmed up, so that the device is busy.
func (b *bench) spend() spending {
	s := spending{b: b}
	if b.o.Meter != nil {
		s.before, s.err = b.o.Meter.Joules()
	}
	s.begin = b.o.now()
	return s
}

// wants reports whether more repeats would make energy known, and may take place.
func (s *spending) wants(now time.Time) bool {
	if s.b.o.Meter == nil || s.err != nil {
		return false
	}
	least, gone := leastOf(s.b.o.Meter), now.Sub(s.begin)
	return gone < least && least <= s.b.o.Budget
}

// end is the energy of so many repeats.
func (s *spending) end(runs int) spent {
	m := s.b.o.Meter
	if m == nil {
		return spent{}
	}
	gone := s.b.o.now().Sub(s.begin)
	after, err := s.before, s.err
	if err == nil {
		after, err = m.Joules()
	}
	switch {
	case err != nil:
		return spent{unknown: err.Error()}
	case gone < leastOf(m):
		return spent{unknown: fmt.Sprintf("it takes %v of repeats; the budget is %v", leastOf(m), s.b.o.Budget)}
	case after <= s.before:
		return spent{unknown: fmt.Sprintf("the count went from %g J to %g J", s.before, after)}
	}
	return spent{joules: after - s.before, seconds: gone.Seconds(), runs: runs}
}

// energy takes over what repeats of so many tokens each have spent.
func (r *Result) energy(e spent, tokens float64) {
	r.EnergyUnknown = e.unknown
	if e.runs == 0 {
		return
	}
	each := e.joules / (tokens * float64(e.runs))
	r.Joules, r.EnergySeconds = &each, e.seconds
}
