package emu

import "github.com/lockstep-go/lockstep/driver"

// graph is a captured list of tasks.
type graph struct {
	object object
	tasks  []task
}

// capture collects the tasks that a stream receives during Capture.
type capture struct {
	tasks  []task
	failed error // of the last call that cannot be captured
}

func (c *capture) put(op string, t task) error {
	if t.kind == taskWrite {
		return c.refuse(op)
	}
	c.tasks = append(c.tasks, t)
	return nil
}

// refuse fails the capture because of a call that cannot be captured.
func (c *capture) refuse(op string) error {
	c.failed = invalid(op, "%s cannot be captured", op)
	return c.failed
}

// Capture runs record and returns the tasks that it queues.
func (s *stream) Capture(record func() error) (driver.Graph, error) {
	c := new(capture)
	err := s.doUncaptured("Capture", func() error {
		s.capture = c
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err = s.captureInto(record); err == nil {
		err = c.failed
	}
	if err != nil {
		return nil, err
	}
	d := s.object.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.object.usable("Capture"); err != nil {
		return nil, err
	}
	return &graph{d.newObject(&d.live.Graphs), c.tasks}, nil
}

// captureInto runs record. It ends the capture, even if record panics.
func (s *stream) captureInto(record func() error) error {
	defer func() {
		s.object.dev.mu.Lock()
		s.capture = nil
		s.object.dev.mu.Unlock()
	}()
	return record()
}

// Launch queues the tasks.
func (g *graph) Launch(on driver.Stream) error {
	const op = "Graph.Launch"
	s, ok := on.(*stream)
	if !ok || s.object.dev != g.object.dev {
		return invalid(op, "the stream is of another device")
	}
	return s.doUncaptured(op, func() error {
		if err := g.object.usable(op); err != nil {
			return err
		}
		for i, t := range g.tasks {
			if err := t.usable(op); err != nil {
				return err
			}
			t.beginsGraph = i == 0
			if err := s.put(op, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// usable checks that the module or the pinned memory of a task is open.
func (t *task) usable(op string) error {
	if t.kind == taskLaunch {
		return t.launch.Function.(*function).module.object.usable(op)
	}
	if t.pinned != nil {
		return t.pinned.object.usable(op)
	}
	return nil
}

func (g *graph) Close() error { return g.object.Close() }
