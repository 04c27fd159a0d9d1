package accel

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// Step is one launch of a pass.
type Step struct {
	Layer  int    // -1 outside the layers
	Op     string // what it computes
	Kernel string
	Grid   [3]uint32
	Block  [3]uint32
	Shared uint32 // bytes of dynamic shared memory
}

// Timing is what the kernels of a pass took.
type Timing struct {
	Rows   int  // of the pass; with the kernels of decoding a power of two
	Prompt bool // with the kernels of prefill
	Steps  []Step
	Took   []time.Duration // by step, from the end of the one before to its own
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
	t := Timing{Rows: p.rows, Prompt: p.fast, Took: make([]time.Duration, len(p.steps))}
	for i, s := range p.steps {
		var err error
		if t.Took[i], err = e.events[i+1].Since(e.events[i]); err != nil {
			return err
		}
		t.Steps = append(t.Steps, s.Step)
	}
	e.o.Timer(t)
	return nil
}

// StepsOf lists the launches of a pass of so many rows, of a prompt or of decoding, as an
// engine would make them on such a device, without one. The sequences are of so many
// positions.
func StepsOf(m *model.Model, props driver.Properties, o Options, rows, positions int, prompt bool) ([]Step, error) {
	l, err := newLayout(m, props, props.Memory, o)
	if err != nil {
		return nil, err
	}
	if prompt && l.o.Prefill == Stepwise {
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
	steps := make([]Step, len(list))
	for i, s := range list {
		steps[i] = s.Step
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

// Table is a list of steps for people.
func Table(steps []Step) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "layer\toperation\tkernel\tCTAs\tthreads\tshared")
	for _, s := range steps {
		layer := "-"
		if s.Layer >= 0 {
			layer = fmt.Sprint(s.Layer)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d × %d × %d\t%d\t%d\n", layer, s.Op, s.Kernel, s.Grid[0], s.Grid[1], s.Grid[2], s.Block[0], s.Shared)
	}
	w.Flush()
	return out.String()
}
