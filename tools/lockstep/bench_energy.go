package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/internal/modelbench"
)

// meter is an open count of a GPU's energy, which tells of the GPU's condition, too.
type meter interface {
	modelbench.Meter
	Condition() cuda.Condition
	Close() error
}

// openMeter opens the count of a GPU's energy. Tests put another in its place.
var openMeter = func(dev driver.Device) (meter, error) {
	gpu, ok := dev.(*cuda.Device)
	if !ok {
		return nil, fmt.Errorf("%w: %s does not count it", driver.ErrUnsupported, dev.Properties().Name)
	}
	m, err := gpu.Meter()
	if err != nil {
		return nil, err // not a *cuda.Meter that is nil
	}
	return m, nil
}

// count begins to count energy, or says once why not: all else is measured without.
func (s *benchSubject) count(e *env) {
	m, err := openMeter(s.device)
	if err != nil {
		e.note("energy is unknown: %s%s", oneLine(err), e.hint(err))
		e.places(err)
		s.report.Energy = &modelbench.Energy{Unknown: err.Error()}
		return
	}
	s.meter, s.options.Meter, s.report.Energy = m, m, modelbench.EnergyBy(m)
	s.options.Condition = func() *modelbench.Condition { return conditionOf(m) }
}

// conditionOf is what a meter tells of its GPU; nil if that is nothing.
func conditionOf(m meter) *modelbench.Condition {
	c := modelbench.Condition(m.Condition())
	if reflect.ValueOf(c).IsZero() {
		return nil
	}
	return &c
}

// showEnergy says below a table where its energy is from, and of which figures it is
// unknown, each reason once.
func (e *env) showEnergy(rep modelbench.Report) error {
	if rep.Energy == nil || rep.Energy.Source == "" {
		return nil
	}
	var reasons []string
	of := map[string][]string{}
	for _, r := range rep.Results {
		if r.EnergyUnknown == "" {
			continue
		}
		if of[r.EnergyUnknown] == nil {
			reasons = append(reasons, r.EnergyUnknown)
		}
		of[r.EnergyUnknown] = append(of[r.EnergyUnknown], r.String())
	}
	if err := e.stdout("\nenergy: %s, over %.2g s or more\n", rep.Energy.Source, rep.Energy.Least); err != nil {
		return err
	}
	for _, why := range reasons {
		if err := e.stdout("energy of %s is unknown: %s\n", strings.Join(of[why], ", "), why); err != nil {
			return err
		}
	}
	return nil
}
