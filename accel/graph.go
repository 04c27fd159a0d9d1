package accel

import (
	"encoding/binary"
	"errors"

	"github.com/lockstep-go/lockstep/driver"
)

// program is the steps of a pass, ready to run: with what the host tells the device
// before them and what it reads after them, if it is one of the kernels of decoding.
type program struct {
	pass
	steps    []step
	launches []driver.Launch
	tries    bool              // whether a graph is to be made of it
	graph    driver.Executable // nil: it runs eagerly
}

func newProgram(p pass, steps []step) *program {
	made := &program{pass: p, steps: steps}
	for _, s := range steps {
		made.launches = append(made.launches, s.launch)
	}
	return made
}

// queue queues a program of the kernels of decoding: as a graph, captured when it is first
// wanted and kept for the life of the engine. Where that fails it stays eager, which
// Stats tells.
func (e *Engine) queue(p *program) error {
	if err := e.graphOf(p); err != nil {
		return err
	}
	if p.graph != nil {
		e.stats.GraphLaunches++
		return p.graph.Launch(e.stream)
	}
	e.stats.EagerPasses++
	return e.record(p)
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
	g, err := e.stream.Capture(func() error { return e.record(p) })
	if err != nil {
		return err
	}
	x, err := g.Instantiate()
	if err == nil {
		e.graphs = append(e.graphs, x)
	}
	if err := errors.Join(err, g.Close()); err != nil {
		return err
	}
	p.graph = x
	e.stats.Captures++
	return nil
}

// record queues a program call by call: the rows, the launches, the tokens.
func (e *Engine) record(p *program) error {
	if err := e.stream.WriteAsync(driver.Address(e.buffers.stepInput), e.rowsHost, 0, e.inputBytes()); err != nil {
		return err
	}
	if err := e.launch(p); err != nil {
		return err
	}
	if !p.head {
		return nil
	}
	return e.readTokens(p.rows)
}

// inputBytes is the size of what a step is told of its rows.
func (s *shape) inputBytes() int { return 4 * 3 * s.stepRows }

// readTokens queues reading the tokens chosen for the first n rows of logits.
func (e *Engine) readTokens(n int) error {
	return e.stream.ReadAsync(e.rowsHost, e.inputBytes(), driver.Address(e.buffers.token), 4*n)
}

// chosen are the tokens that were read, once the stream has come so far; -1 where there is none.
func (e *Engine) chosen(n int) []int {
	list := make([]int, n)
	data := e.rowsHost.Bytes()[e.inputBytes():]
	for i := range list {
		list[i] = int(int32(binary.LittleEndian.Uint32(data[4*i:]))) // NoIndex is -1
	}
	return list
}
