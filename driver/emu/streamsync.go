package emu

import "github.com/lockstep-go/lockstep/driver"

// eventOf checks an event.
func (s *stream) eventOf(op string, ev driver.Event) (*event, error) {
	e, ok := ev.(*event)
	if !ok || e.d != s.d {
		return nil, invalid(op, "the event is not of this device")
	}
	return e, e.usable(op)
}

// Record lets the event happen here.
func (s *stream) Record(ev driver.Event) error {
	defer s.end()
	if err := s.begin("Record"); err != nil {
		return err
	}
	e, err := s.eventOf("Record", ev)
	if err != nil {
		return err
	}
	if s.capture != nil {
		return s.capture.refuse("Record")
	}
	e.stream, e.at, e.done = s, s.queued+1, false
	return s.put("Record", task{kind: taskRecord, event: e})
}

// Synchronize runs the stream's work.
func (s *stream) Synchronize() error {
	defer s.end()
	if err := s.begin("Synchronize"); err != nil {
		return err
	}
	if s.capture != nil {
		return s.capture.refuse("Synchronize")
	}
	return s.runUntil(s.queued)
}

// Close runs the stream's work and ends it.
func (s *stream) Close() error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.closed || s.d.closed {
		s.closed = true
		return nil
	}
	var err error
	if s.d.fault == nil {
		err = s.runUntil(s.queued)
	}
	delete(s.d.streams, s)
	s.close()
	return err
}
