package emu

import (
	"slices"

	"github.com/lockstep-go/lockstep/driver"
)

// graph is captured work.
type graph struct {
	object
	tasks  []task
	failed error
}

// Capture runs record and collects the work that it queues.
func (s *stream) Capture(record func() error) (driver.Graph, error) {
	g := &graph{object: object{d: s.d}}
	if err := s.beginCapture(g); err != nil {
		return nil, err
	}
	finish := func() {
		s.d.mu.Lock()
		s.capture = nil
		s.d.mu.Unlock()
	}
	err := func() error {
		defer finish() // after a panic in record, too
		return record()
	}()
	if err == nil {
		err = g.failed
	}
	if err != nil {
		return nil, err
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if err := s.usable("Capture"); err != nil {
		return nil, err
	}
	g.object = s.d.object(&s.d.live.Graphs)
	return g, nil
}

func (s *stream) beginCapture(g *graph) error {
	defer s.end()
	if err := s.begin("Capture"); err != nil {
		return err
	}
	if s.capture != nil {
		return s.capture.refuse("Capture")
	}
	s.capture = g
	return nil
}

// refuse fails the capture: the call is not one that can be captured.
func (g *graph) refuse(op string) error {
	g.failed = invalid(op, "%s cannot be captured", op)
	return g.failed
}

// put captures a task.
func (g *graph) put(op string, t task) error {
	if t.kind == taskWrite {
		return g.refuse(op)
	}
	g.tasks = append(g.tasks, t)
	return nil
}

func (g *graph) Nodes() (int, error) {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	return len(g.tasks), g.usable("Graph.Nodes")
}

func (g *graph) Close() error {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	g.close()
	return nil
}

// Instantiate copies the work, so that the graph may be closed.
func (g *graph) Instantiate() (driver.Executable, error) {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	if err := g.usable("Instantiate"); err != nil {
		return nil, err
	}
	return &executable{g.d.object(&g.d.live.Executables), slices.Clone(g.tasks)}, nil
}

type executable struct {
	object
	tasks []task
}

// Launch queues the work once.
func (x *executable) Launch(on driver.Stream) error {
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	if err := x.usable("Executable.Launch"); err != nil {
		return err
	}
	s, ok := on.(*stream)
	if !ok || s.d != x.d {
		return invalid("Executable.Launch", "the stream is not of this device")
	}
	if err := s.usable("Executable.Launch"); err != nil {
		return err
	}
	if s.capture != nil {
		return s.capture.refuse("Executable.Launch")
	}
	for i, t := range x.tasks {
		if err := t.usable(); err != nil {
			return err
		}
		t.begins = i == 0
		if err := s.put("Executable.Launch", t); err != nil {
			return err
		}
	}
	return nil
}

// usable checks that what a captured task uses has not been closed since.
func (t *task) usable() error {
	if t.kind == taskLaunch {
		return t.launch.Function.(*function).module.usable("Executable.Launch")
	}
	if t.pinned != nil {
		return t.pinned.usable("Executable.Launch")
	}
	return nil
}

// Update takes over the parameters of a graph with the same tasks in the same order.
func (x *executable) Update(from driver.Graph) error {
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	if err := x.usable("Executable.Update"); err != nil {
		return err
	}
	g, ok := from.(*graph)
	if !ok || g.d != x.d {
		return invalid("Executable.Update", "the graph is not of this device")
	}
	if err := g.usable("Executable.Update"); err != nil {
		return err
	}
	if !slices.EqualFunc(x.tasks, g.tasks, sameShape) {
		return &driver.Error{Op: "emu.Executable.Update", Kind: driver.ErrUnsupported, Detail: "the graph has another shape"}
	}
	x.tasks = slices.Clone(g.tasks)
	return nil
}

// sameShape tells whether one task can take over the parameters of another: the same
// kernel with other arguments, or a transfer of as many bytes.
func sameShape(a, b task) bool {
	return a.kind == b.kind && a.launch.Function == b.launch.Function && (a.kind == taskLaunch || a.bytes == b.bytes)
}

func (x *executable) Close() error {
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	x.close()
	return nil
}
