package accel

import (
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// Launch describes one kernel launch of a forward pass.
type Launch struct {
	Layer  int    // -1 outside the layers
	Op     string // the operation, such as attention
	Kernel string // the kernel's entry name
	Grid   [3]uint32
	Block  [3]uint32
	Shared uint32 // bytes of dynamic shared memory
}

// Timing holds the kernel times of one forward pass.
type Timing struct {
	Slots     int             // batch slots; a power of two unless Prompt is set
	Prompt    bool            // whether the prefill kernels ran
	Launches  []Launch        // in stream order
	Durations []time.Duration // per launch: from the end of the previous launch to its own
}

// timed runs a program with an event behind each step, and tells what each took.
func (e *Engine) timed(p *program) error {
	for len(e.events) < len(p.launches)+1 {
		v, err := e.dev.NewEvent()
		if err != nil {
			return err
		}
		e.events = append(e.events, v)
	}
	if err := e.stream.Record(e.events[0]); err != nil {
		return err
	}
	for i, l := range p.launches {
		if err := e.stream.Launch(l); err != nil {
			return err
		}
		if err := e.stream.Record(e.events[i+1]); err != nil {
			return err
		}
	}
	if err := e.stream.Synchronize(); err != nil {
		return err
	}
	t := Timing{Slots: p.rows, Prompt: p.fast, Durations: make([]time.Duration, len(p.steps))}
	for i, s := range p.steps {
		var err error
		if t.Durations[i], err = e.events[i+1].Since(e.events[i]); err != nil {
			return err
		}
		t.Launches = append(t.Launches, s.Launch)
	}
	e.o.Timer(t)
	return nil
}

// LaunchesFor lists the launches of a pass of so many rows, of a prompt or of decoding, as an
// engine would make them on such a device, without one. The sequences are of so many
// positions.
func LaunchesFor(m *model.Model, props driver.Properties, o Options, rows, positions int, prompt bool) ([]Launch, error) {
	l, err := newLayout(m, props, props.Memory, o)
	if err != nil {
		return nil, err
	}
	if prompt && l.o.Prefill == PrefillExact {
		prompt, rows = false, min(rows, l.stepRows)
	}
	most := l.maxRows
	if !prompt {
		most = l.stepRows
	}
	if rows < 1 || rows > most {
		return nil, fmt.Errorf("accel: a pass of %d rows; there can be 1 to %d", rows, most)
	}
	l.placeTokens(l.pretend())
	p := pass{rows: rowsOf(rows), head: true, pages: l.grid(positions)}
	if prompt {
		p = pass{rows: rows, fast: true}
	}
	list, err := l.planner(p, nil).plan()
	steps := make([]Launch, len(list))
	for i, s := range list {
		steps[i] = s.Launch
	}
	return steps, err
}

// pretend gives every region an address, so that steps can be planned of which none runs. It
// returns one that is behind all.
func (v *inventory) pretend() ptxgen.Address {
	at := ptxgen.Address(allocAlign)
	for _, r := range v.regions {
		*r.at = at
		at += ptxgen.Address(r.size())
	}
	return at
}
