package accel

import (
	"cmp"
	"context"

	"github.com/lockstep-go/lockstep/accel/internal/graph"
	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
)

// launchList is the kernel launches of one forward pass. It can run any number of times.
type launchList struct {
	shape    plan.Shape
	commands []plan.Command
	graph    *graph.List // the launches of commands
}

// newLaunchList returns a list. If capture is true, it can be captured as a graph.
func newLaunchList(s plan.Shape, commands []plan.Command, capture bool) *launchList {
	launches := make([]driver.Launch, 0, len(commands))
	for _, c := range commands {
		launches = append(launches, c.Launch)
	}
	return &launchList{shape: s, commands: commands, graph: graph.NewList(launches, capture)}
}

// launches returns the launch list of a shape. It stores the lists of shapes that recur.
func (e *Engine) launches(ctx context.Context, s plan.Shape) (*launchList, error) {
	if l := e.planned[s]; l != nil {
		return l, nil
	}
	if err := e.prepareShape(ctx, s); err != nil {
		return nil, err
	}
	commands, err := e.layout.Commands(s, e.kernels)
	if err != nil {
		return nil, err
	}
	l := newLaunchList(s, commands, !s.Prefill() && e.options.graphs())
	if e.storesPlan(s) {
		e.planned[s] = l
	}
	return l, nil
}

// storesPlan reports whether forward passes of a shape are frequent enough to store their plan: decode
// steps, and whole chunks of one prompt.
func (e *Engine) storesPlan(s plan.Shape) bool {
	return !s.Prefill() || s.Sequences == 1 && s.Tokens == e.options.Chunk
}

// capture captures the graph of a list, once. If that fails, the list is launched kernel by kernel
// from then on; Stats counts it. Only a lost device is an error.
func (e *Engine) capture(l *launchList) error {
	if l.graph.Captured() {
		return nil
	}
	if err := l.graph.Capture(e.stream); err != nil {
		if e.dev.Err() != nil {
			return err
		}
		e.stats.CaptureFailures++
		e.stats.CaptureError = err
	}
	if l.graph.Captured() {
		e.opened.add(l.graph)
		e.stats.Captures++
	}
	return nil
}

// launch queues a list kernel by kernel, with Options.Tap or Options.Timer if they are set.
func (e *Engine) launch(p *pass, l *launchList, batch []batchToken) error {
	if e.options.Tap != nil {
		return e.launchTapped(p, l, batch)
	}
	if e.options.Timer != nil {
		return e.launchTimed(l)
	}
	return l.graph.Launch(e.stream)
}

// launchSegments plans a forward pass and queues each segment as soon as it is planned, so that the
// device works while the host plans. It stops once ctx has ended.
func (e *Engine) launchSegments(ctx context.Context, s plan.Shape) error {
	if err := e.prepareShape(ctx, s); err != nil {
		return err
	}
	for segment, err := range e.layout.Segments(s, e.kernels) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		e.segment = e.segment[:0]
		for _, c := range segment {
			e.segment = append(e.segment, c.Launch)
		}
		if err := e.stream.Launch(e.segment...); err != nil {
			return err
		}
	}
	return nil
}
