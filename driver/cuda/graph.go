package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

// captureThreadLocal lets other threads make any call during a capture.
const captureThreadLocal = 1

// Capture calls record and returns the queued work as a graph. It is one locked section, because a
// thread-local capture must begin, record and end on one thread. The calls of record run on that
// thread, too, because they are made by its goroutine.
func (s *stream) Capture(record func() error) (driver.Graph, error) {
	if err := s.res.use("Capture"); err != nil {
		return nil, err
	}
	d := s.res.dev
	sc, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer d.leave(sc)
	if !s.capturing.CompareAndSwap(false, true) {
		s.forbidden.Store(true)
		return nil, invalid("Capture", "a capture within a capture")
	}
	s.forbidden.Store(false)
	if err := d.call(cuStreamBeginCapture, s.res.handle, captureThreadLocal); err != nil {
		s.capturing.Store(false)
		return nil, err
	}
	returned := false
	defer func() {
		if !returned { // record has panicked or ended its goroutine
			s.discardCapture()
		}
	}()
	err = record()
	returned = true
	if err == nil && s.forbidden.Load() {
		err = invalid("Capture", "record made a call that cannot be captured")
	}
	if err != nil {
		s.discardCapture()
		return nil, err
	}
	return s.endCapture()
}

// endCapture instantiates the captured work, in a locked section.
func (s *stream) endCapture() (driver.Graph, error) {
	defer s.capturing.Store(false)
	d := s.res.dev
	var captured uintptr // a CUgraph, destroyed once the CUgraphExec is made from it
	if err := d.call(cuStreamEndCapture, s.res.handle, uintptr(unsafe.Pointer(&captured))); err != nil {
		return nil, err
	}
	if captured == 0 {
		return nil, errors.New("cuda: Capture: the driver returned no graph")
	}
	res := &resource{dev: d, class: graphs}
	err := d.call(cuGraphInstantiate, uintptr(unsafe.Pointer(&res.handle)), captured, 0)
	destroyErr := d.call(cuGraphDestroy, captured)
	if err != nil {
		return nil, err
	}
	if err := d.adopt(res); err != nil {
		return nil, err
	}
	g := &graph{res: res}
	if destroyErr != nil {
		return nil, errors.Join(destroyErr, g.Close())
	}
	return g, nil
}

// discardCapture ends a failed capture, so that the stream can be used again. The driver may report
// the capture as invalid, which is ignored.
func (s *stream) discardCapture() {
	defer s.capturing.Store(false)
	lib := s.res.dev.lib
	var captured uintptr
	lib.call(cuStreamEndCapture, s.res.handle, uintptr(unsafe.Pointer(&captured)))
	if captured != 0 {
		lib.call(cuGraphDestroy, captured)
	}
}

// graph is an executable graph, a CUgraphExec. The driver does not lock it, so mu does.
type graph struct {
	res *resource
	mu  sync.Mutex
}

// Launch queues one run.
func (g *graph) Launch(on driver.Stream) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.res.use("Launch"); err != nil {
		return err
	}
	s, ok := on.(*stream)
	if !ok || s == nil {
		return invalid("Launch", fmt.Sprintf("the stream is a %T", on))
	}
	if err := s.uncaptured("Launch"); err != nil {
		return err
	}
	if s.res.dev != g.res.dev {
		return invalid("Launch", "the stream belongs to another device")
	}
	return g.res.dev.command(cuGraphLaunch, g.res.handle, s.res.handle)
}

// Close waits for a concurrent Launch. The driver waits for queued runs.
func (g *graph) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.res.close()
}
