package accel

import (
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/sizeclass"
	"github.com/lockstep-go/lockstep/model"
)

// Launch describes one kernel launch of a forward pass.
type Launch struct {
	Layer  int       // -1 outside the layers
	Op     string    // the operation, such as attention
	Kernel string    // the kernel's entry name
	Grid   [3]uint32 // CTAs
	Block  [3]uint32 // threads
	Shared uint32    // bytes of dynamic shared memory
}

func launchOf(c plan.Command) Launch {
	return Launch{Layer: c.Layer, Op: c.Op, Kernel: c.Kernel, Grid: c.Grid, Block: c.Block, Shared: c.Shared}
}

// Timing holds the kernel times of one list of launches.
type Timing struct {
	Tokens    int             // batch slots, tokens of a prompt chunk, rows of logits, or sampling states
	Prompt    bool            // whether the prefill kernels ran
	Launches  []Launch        // in stream order
	Durations []time.Duration // per launch: from the end of the previous launch to its own
}

// launchTimed launches a list with an event after each kernel and calls Options.Timer.
func (e *Engine) launchTimed(l *launchList) error {
	launches := l.graph.Launches()
	for len(e.timing) < len(launches)+1 {
		v, err := e.dev.NewEvent()
		if err != nil {
			return err
		}
		e.opened.add(v)
		e.timing = append(e.timing, v)
	}
	if err := e.stream.Record(e.timing[0]); err != nil {
		return err
	}
	for i, launch := range launches {
		if err := e.stream.Launch(launch); err != nil {
			return err
		}
		if err := e.stream.Record(e.timing[i+1]); err != nil {
			return err
		}
	}
	if err := e.stream.Synchronize(); err != nil {
		return err
	}
	t := Timing{Tokens: l.shape.Tokens, Prompt: l.shape.Prefill()}
	for i, c := range l.commands {
		took, err := e.timing[i+1].Since(e.timing[i])
		if err != nil {
			return err
		}
		t.Launches = append(t.Launches, launchOf(c))
		t.Durations = append(t.Durations, took)
	}
	e.options.Timer(t)
	return nil
}

// LaunchesFor returns the kernel launches of a forward pass on a device with the given
// properties. It needs no device. If prompt is true, the forward pass is a prompt chunk of that many
// tokens. Otherwise it is a decode step of that many sequences, one token each, and the longest
// sequence has the given number of positions.
func LaunchesFor(m *model.Model, props driver.Properties, o Options, tokens, positions int, prompt bool) ([]Launch, error) {
	setup, err := newSetup(m, props, props.Memory, o)
	if err != nil {
		return nil, err
	}
	l := setup.layout
	s, most := plan.Shape{Tokens: sizeclass.Of(tokens), Logits: true, Pages: l.PagesFor(positions)}, l.Slots
	if prompt {
		s, most = plan.Prompt(tokens), setup.options.Chunk
	}
	if tokens < 1 || tokens > most {
		return nil, fmt.Errorf("accel: forward pass of %d tokens; it can have 1 to %d", tokens, most)
	}
	commands, err := l.Commands(s, nil)
	if err != nil {
		return nil, fmt.Errorf("accel: %w", err)
	}
	launches := make([]Launch, len(commands))
	for i, c := range commands {
		launches[i] = launchOf(c)
	}
	return launches, nil
}
