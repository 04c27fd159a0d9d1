package emu

import "github.com/lockstep-go/lockstep/driver"

// capture collects the tasks that a stream receives during Capture.
type capture struct {
	tasks  []task
	failed error // of a call that cannot be captured
}

// graph is a captured list of tasks.
type graph struct {
	object
	tasks []task
}

// Capture runs record and returns the tasks that it queues.
func (s *stream) Capture(record func() error) (driver.Graph, error) {
	c, err := s.beginCapture()
	if err != nil {
		return nil, err
	}
	finish := func() {
		s.d.mu.Lock()
		s.capture = nil
		s.d.mu.Unlock()
	}
	err = func() error {
		defer finish() // also after a panic in record
		return record()
	}()
	if err == nil {
		err = c.failed
	}
	if err != nil {
		return nil, err
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if err := s.usable("Capture"); err != nil {
		return nil, err
	}
	return &graph{s.d.object(&s.d.live.Graphs), c.tasks}, nil
}

func (s *stream) beginCapture() (*capture, error) {
	defer s.end()
	if err := s.begin("Capture"); err != nil {
		return nil, err
	}
	if s.capture != nil {
		return nil, s.capture.refuse("Capture")
	}
	s.capture = new(capture)
	return s.capture, nil
}

// refuse fails the capture because of a call that cannot be captured.
func (c *capture) refuse(op string) error {
	c.failed = invalid(op, "%s cannot be captured", op)
	return c.failed
}

// put captures a task.
func (c *capture) put(op string, t task) error {
	if t.kind == taskWrite {
		return c.refuse(op)
	}
	c.tasks = append(c.tasks, t)
	return nil
}

// Launch queues the tasks.
func (g *graph) Launch(on driver.Stream) error {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	if err := g.usable("Graph.Launch"); err != nil {
		return err
	}
	s, ok := on.(*stream)
	if !ok || s.d != g.d {
		return invalid("Graph.Launch", "the stream is of another device")
	}
	if err := s.usable("Graph.Launch"); err != nil {
		return err
	}
	if s.capture != nil {
		return s.capture.refuse("Graph.Launch")
	}
	for i, t := range g.tasks {
		if err := t.usable(); err != nil {
			return err
		}
		t.beginsGraph = i == 0
		if err := s.put("Graph.Launch", t); err != nil {
			return err
		}
	}
	return nil
}

// usable checks that nothing that a captured task uses was closed since.
func (t *task) usable() error {
	if t.kind == taskLaunch {
		return t.launch.Function.(*function).module.usable("Graph.Launch")
	}
	if t.pinned != nil {
		return t.pinned.usable("Graph.Launch")
	}
	return nil
}

func (g *graph) Close() error {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	g.close()
	return nil
}
