package accel

import (
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

// program is the steps of a pass, ready to run.
type program struct {
	pass
	steps    []step
	launches []driver.Launch
	tries    bool         // whether a graph is to be made of it
	graph    driver.Graph // nil: it runs eagerly
}

func newProgram(p pass, steps []step) *program {
	made := &program{pass: p, steps: steps, launches: make([]driver.Launch, 0, len(steps))}
	for _, s := range steps {
		made.launches = append(made.launches, s.launch)
	}
	return made
}

// queue queues a program of the kernels of decoding, for which the host has told the device
// what its rows are: as a graph, captured when it is first wanted and kept for the life of
// the engine. Where that fails it stays eager, which Stats tells.
func (e *Engine) queue(p *program) error {
	if err := e.graphOf(p); err != nil {
		return err
	}
	e.ahead.since = time.Now() // behind the capture, which may take as long as many steps
	if err := e.writeRows(); err != nil {
		return err
	}
	if p.graph != nil {
		e.stats.GraphLaunches++
		return p.graph.Launch(e.stream)
	}
	e.stats.EagerPasses++
	return e.launch(p)
}

// graphOf captures the graph of a program that is to have one. Only a lost device is an
// error.
func (e *Engine) graphOf(p *program) error {
	if !p.tries {
		return nil
	}
	p.tries = false
	err := e.capture(p)
	if err == nil || e.dev.Err() != nil {
		return err
	}
	e.stats.CaptureFailures++
	e.stats.CaptureError = err
	return nil
}

// capture makes the graph of a program.
func (e *Engine) capture(p *program) error {
	g, err := e.stream.Capture(func() error { return e.launch(p) })
	if err != nil {
		return err
	}
	e.graphs = append(e.graphs, g)
	p.graph = g
	e.stats.Captures++
	return nil
}
