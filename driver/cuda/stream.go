package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/driver"
)

type stream struct {
	resource
	capturing atomic.Bool
	forbidden atomic.Bool // a capture was asked for what cannot be captured

	mu    sync.Mutex // guards stage
	stage *stage     // nil until Write or Read needs it
}

const streamNonBlocking = 1

// NewStream makes a stream that does not wait for any other.
func (d *Device) NewStream() (driver.Stream, error) {
	s := new(stream)
	if err := s.create(d, streams, cuStreamCreate, streamNonBlocking); err != nil {
		return nil, err
	}
	return s, nil
}

// Close waits for the stream's staged copies and frees it.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != nil && !s.closed.Load() {
		s.dev.order(cuStreamSynchronize, s.handle) // a failure comes back from the Close below, or the device is lost
		s.stage.close()
	}
	return s.resource.Close()
}

// eager refuses, during a capture, what a graph cannot hold.
func (s *stream) eager(op string) error {
	if err := s.use(op); err != nil {
		return err
	}
	if s.capturing.Load() {
		s.forbidden.Store(true)
		return invalid(op, "cannot be captured")
	}
	return nil
}

// WriteAsync queues a copy from pinned memory.
func (s *stream) WriteAsync(dst driver.Address, src driver.Pinned, offset, bytes int) error {
	from, err := s.hostRange("WriteAsync", src, offset, bytes)
	if err != nil || bytes == 0 {
		return err
	}
	return s.dev.order(cuMemcpyHtoDAsync, uintptr(dst), from, uintptr(bytes), s.handle)
}

// ReadAsync queues a copy to pinned memory.
func (s *stream) ReadAsync(dst driver.Pinned, offset int, src driver.Address, bytes int) error {
	to, err := s.hostRange("ReadAsync", dst, offset, bytes)
	if err != nil || bytes == 0 {
		return err
	}
	return s.dev.order(cuMemcpyDtoHAsync, to, uintptr(src), uintptr(bytes), s.handle)
}

func (s *stream) hostRange(op string, p driver.Pinned, offset, bytes int) (uintptr, error) {
	if err := s.use(op); err != nil {
		return 0, err
	}
	own, ok := p.(*pinned)
	if !ok || own == nil {
		return 0, invalid(op, fmt.Sprintf("the pinned memory is a %T", p))
	}
	return own.at(op, offset, bytes)
}

// Copy queues a copy within the device, or from a peer.
func (s *stream) Copy(dst, src driver.Address, bytes int64) error {
	if err := s.deviceRange("Copy", bytes); err != nil || bytes == 0 {
		return err
	}
	return s.dev.order(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), s.handle)
}

// Fill queues setting every byte to value.
func (s *stream) Fill(dst driver.Address, value byte, bytes int64) error {
	if err := s.deviceRange("Fill", bytes); err != nil || bytes == 0 {
		return err
	}
	return s.dev.order(cuMemsetD8Async, uintptr(dst), uintptr(value), uintptr(bytes), s.handle)
}

func (s *stream) deviceRange(op string, bytes int64) error {
	if bytes < 0 {
		return invalid(op, fmt.Sprintf("%d bytes", bytes))
	}
	return s.use(op)
}

// Record lets the event happen when the stream has come so far.
func (s *stream) Record(e driver.Event) error {
	own, err := s.event("Record", e)
	if err != nil {
		return err
	}
	return s.dev.order(cuEventRecord, own.handle, s.handle)
}

func (s *stream) event(op string, e driver.Event) (*event, error) {
	if err := s.eager(op); err != nil {
		return nil, err
	}
	return asEvent(op, e)
}

// Synchronize waits until the stream has done what was queued.
func (s *stream) Synchronize() error {
	if err := s.eager("Synchronize"); err != nil {
		return err
	}
	return s.dev.order(cuStreamSynchronize, s.handle)
}
