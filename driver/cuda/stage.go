package cuda

import (
	"github.com/lockstep-go/lockstep/driver"
)

// slotBytes is the size of one staging slot: long enough that a copy's fixed cost
// does not show, short enough to pin two of them a stream.
const slotBytes = 4 << 20

// stage is a stream's pinned memory for copies from and to ordinary memory. The
// driver never sees an address of the caller's, so nothing of Go's need stay in
// place; and while one slot is being filled the other is on its way.
type stage struct{ slots [2]slot }

type slot struct {
	mem *pinned
	// moved happens when the last copy from or to the slot is done. An event that was
	// never recorded counts as having happened.
	moved *event
}

func (d *Device) newStage() (*stage, error) {
	g := new(stage)
	for i := range g.slots {
		mem, err := d.allocPinned(slotBytes)
		if err != nil {
			g.close()
			return nil, err
		}
		g.slots[i].mem = mem
		moved := new(event)
		if err := moved.create(d, events, cuEventCreate, eventNoTiming); err != nil {
			g.close()
			return nil, err
		}
		g.slots[i].moved = moved
	}
	return g, nil
}

// eventNoTiming makes an event that is cheaper to record.
const eventNoTiming = 2

func (g *stage) close() {
	for _, s := range g.slots {
		if s.mem != nil {
			s.mem.Close()
		}
		if s.moved != nil {
			s.moved.Close()
		}
	}
}

// staged refuses what cannot be done now and makes the stage, under mu.
func (s *stream) staged(op string) error {
	if err := s.eager(op); err != nil || s.stage != nil {
		return err
	}
	var err error
	s.stage, err = s.dev.newStage()
	return err
}

// Write copies src to the device: src is free when Write returns, the copy may
// still be under way.
func (s *stream) Write(dst driver.Address, src []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.staged("Write"); err != nil || len(src) == 0 {
		return err
	}
	sc, err := s.dev.enter()
	if err != nil {
		return err
	}
	defer s.dev.leave(sc)
	for i := 0; len(src) > 0; i++ {
		slot := &s.stage.slots[i%2]
		if err := s.staging(sc, cuEventSynchronize, slot.moved.handle); err != nil {
			return err
		}
		n := copy(slot.mem.mem, src)
		if err := s.staging(sc, cuMemcpyHtoDAsync, uintptr(dst), slot.mem.handle, uintptr(n), s.handle); err != nil {
			return err
		}
		if err := s.staging(sc, cuEventRecord, slot.moved.handle, s.handle); err != nil {
			return err
		}
		dst += driver.Address(n)
		src = src[n:]
	}
	return nil
}

// Read copies from the device and waits for it.
func (s *stream) Read(dst []byte, src driver.Address) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.staged("Read"); err != nil || len(dst) == 0 {
		return err
	}
	sc, err := s.dev.enter()
	if err != nil {
		return err
	}
	defer s.dev.leave(sc)
	asked := 0
	for done := 0; done < len(dst); done += slotBytes {
		for ; asked < len(dst) && asked < done+2*slotBytes; asked += slotBytes {
			if err := s.fetch(sc, asked, src, len(dst)); err != nil {
				return err
			}
		}
		slot := &s.stage.slots[done/slotBytes%2]
		if err := s.staging(sc, cuEventSynchronize, slot.moved.handle); err != nil {
			return err
		}
		copy(dst[done:], slot.mem.mem)
	}
	return nil
}

// fetch queues the copy of one slot's bytes from src+offset, of total bytes.
func (s *stream) fetch(sc *scratch, offset int, src driver.Address, total int) error {
	slot := &s.stage.slots[offset/slotBytes%2]
	n := min(slotBytes, total-offset)
	from := uintptr(src) + uintptr(offset)
	if err := s.staging(sc, cuMemcpyDtoHAsync, slot.mem.handle, from, uintptr(n), s.handle); err != nil {
		return err
	}
	return s.staging(sc, cuEventRecord, slot.moved.handle, s.handle)
}

func (s *stream) staging(sc *scratch, e entry, args ...uintptr) error {
	return s.dev.check(e, sc.call(s.dev.lib, e, args...), "")
}
