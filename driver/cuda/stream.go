package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/driver"
)

type stream struct {
	res       *resource
	capturing atomic.Bool
	forbidden atomic.Bool // a call that cannot be captured was made during the current capture

	mu      sync.Mutex // guards staging
	staging *staging   // nil before the first Write or Read
}

const streamNonBlocking = 1

// NewStream creates a stream that is not ordered with any other stream.
func (d *Device) NewStream() (driver.Stream, error) {
	res, err := d.create(streams, cuStreamCreate, streamNonBlocking)
	if err != nil {
		return nil, err
	}
	return &stream{res: res}, nil
}

// Close waits for staged copies and frees the stream.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.staging != nil && !s.res.closed.Load() {
		s.res.dev.command(cuStreamSynchronize, s.res.handle) // a failure comes back from close, or the device is lost
		s.staging.close()
	}
	return s.res.close()
}

// uncaptured checks a call that cannot be captured. If the stream is closed, it returns an error.
// During a capture it returns an error and makes the capture fail.
func (s *stream) uncaptured(op string) error {
	if err := s.res.use(op); err != nil {
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
	return s.res.dev.command(cuMemcpyHtoDAsync, uintptr(dst), from, uintptr(bytes), s.res.handle)
}

// ReadAsync queues a copy to pinned memory.
func (s *stream) ReadAsync(dst driver.Pinned, offset int, src driver.Address, bytes int) error {
	to, err := s.hostRange("ReadAsync", dst, offset, bytes)
	if err != nil || bytes == 0 {
		return err
	}
	return s.res.dev.command(cuMemcpyDtoHAsync, to, uintptr(src), uintptr(bytes), s.res.handle)
}

func (s *stream) hostRange(op string, p driver.Pinned, offset, bytes int) (uintptr, error) {
	if err := s.res.use(op); err != nil {
		return 0, err
	}
	own, ok := p.(*pinned)
	if !ok || own == nil {
		return 0, invalid(op, fmt.Sprintf("the pinned memory is a %T", p))
	}
	return own.at(op, offset, bytes)
}

// Copy queues a copy within the device.
func (s *stream) Copy(dst, src driver.Address, bytes int64) error {
	if err := s.deviceRange("Copy", bytes); err != nil || bytes == 0 {
		return err
	}
	return s.res.dev.command(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), s.res.handle)
}

// Fill queues a write of value to every byte.
func (s *stream) Fill(dst driver.Address, value byte, bytes int64) error {
	if err := s.deviceRange("Fill", bytes); err != nil || bytes == 0 {
		return err
	}
	return s.res.dev.command(cuMemsetD8Async, uintptr(dst), uintptr(value), uintptr(bytes), s.res.handle)
}

func (s *stream) deviceRange(op string, bytes int64) error {
	if bytes < 0 {
		return invalid(op, fmt.Sprintf("%d bytes", bytes))
	}
	return s.res.use(op)
}

// Record queues the event.
func (s *stream) Record(e driver.Event) error {
	if err := s.uncaptured("Record"); err != nil {
		return err
	}
	own, err := asEvent("Record", e)
	if err != nil {
		return err
	}
	return s.res.dev.command(cuEventRecord, own.res.handle, s.res.handle)
}

// Synchronize waits for all queued work.
func (s *stream) Synchronize() error {
	if err := s.uncaptured("Synchronize"); err != nil {
		return err
	}
	return s.res.dev.command(cuStreamSynchronize, s.res.handle)
}
