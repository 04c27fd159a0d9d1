package cuda

import (
	"errors"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

// captureThreadLocal keeps what other threads do meanwhile out of the capture's way.
const captureThreadLocal = 1

// Capture runs record and returns what it queued. The whole of it is one locked
// section, because a thread-local capture must begin, be fed and end on one thread;
// the calls of record, from its own goroutine, run on that thread too.
func (s *stream) Capture(record func() error) (driver.Graph, error) {
	if err := s.use("Capture"); err != nil {
		return nil, err
	}
	d := s.dev
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
	if err := d.call(cuStreamBeginCapture, s.handle, captureThreadLocal); err != nil {
		s.capturing.Store(false)
		return nil, err
	}
	ended := false
	defer func() {
		if !ended { // record panicked, or ended its goroutine
			s.discardCapture()
		}
	}()
	err = record()
	ended = true
	if err == nil && s.forbidden.Load() {
		err = invalid("Capture", "something was asked of the stream that cannot be captured")
	}
	if err != nil {
		s.discardCapture()
		return nil, err
	}
	return s.endCapture()
}

// endCapture turns the captured work into an executable graph, in a locked section.
func (s *stream) endCapture() (driver.Graph, error) {
	defer s.capturing.Store(false)
	d := s.dev
	var captured uintptr // a CUgraph, which the executable graph does not need any longer
	if err := d.call(cuStreamEndCapture, s.handle, uintptr(unsafe.Pointer(&captured))); err != nil {
		return nil, err
	}
	if captured == 0 {
		return nil, errors.New("cuda: the driver captured no graph")
	}
	g := new(graph)
	err := d.call(cuGraphInstantiate, uintptr(unsafe.Pointer(&g.handle)), captured, 0)
	if destroyed := d.call(cuGraphDestroy, captured); err == nil && destroyed != nil {
		d.lib.call(cuGraphExecDestroy, g.handle)
		err = destroyed
	}
	if err != nil {
		return nil, err
	}
	if err := g.adopt(d, graphs); err != nil {
		return nil, err
	}
	return g, nil
}

// discardCapture ends a capture that failed, so that the stream can be used again.
// That the driver may call the capture invalid is no news.
func (s *stream) discardCapture() {
	defer s.capturing.Store(false)
	var handle uintptr
	s.dev.lib.call(cuStreamEndCapture, s.handle, uintptr(unsafe.Pointer(&handle)))
	if handle != 0 {
		s.dev.lib.call(cuGraphDestroy, handle)
	}
}
