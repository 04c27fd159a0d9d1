package cuda

import "github.com/lockstep-go/lockstep/driver"

// slotBytes is the size of a staging slot. It is large enough to hide the fixed cost of a copy, and
// small enough to pin two slots per stream.
const slotBytes = 4 << 20

// staging is pinned memory for copies from and to ordinary memory. The driver never sees an address
// in the Go heap. While the host fills or empties one slot, the device copies the other.
type staging struct{ slots [2]slot }

type slot struct {
	mem *pinned
	// copied completes when the last copy of the slot has run. An event that was never recorded
	// counts as completed.
	copied *event
}

func (d *Device) newStaging() (*staging, error) {
	g := new(staging)
	for i := range g.slots {
		mem, err := d.allocPinned(slotBytes)
		if err != nil {
			g.close()
			return nil, err
		}
		g.slots[i].mem = mem
		copied, err := d.newEvent(eventNoTiming)
		if err != nil {
			g.close()
			return nil, err
		}
		g.slots[i].copied = copied
	}
	return g, nil
}

func (g *staging) close() {
	for _, s := range g.slots {
		if s.mem != nil {
			s.mem.Close()
		}
		if s.copied != nil {
			s.copied.Close()
		}
	}
}

// needStaging checks that the stream can copy now, and allocates its staging memory. The caller
// holds mu.
func (s *stream) needStaging(op string) error {
	if err := s.uncaptured(op); err != nil || s.staging != nil {
		return err
	}
	var err error
	s.staging, err = s.res.dev.newStaging()
	return err
}

// Write copies src to the device. The copy of the last bytes may still be queued on return.
func (s *stream) Write(dst driver.Address, src []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.needStaging("Write"); err != nil || len(src) == 0 {
		return err
	}
	sc, err := s.res.dev.enter()
	if err != nil {
		return err
	}
	defer s.res.dev.leave(sc)
	for i := 0; len(src) > 0; i++ {
		slot := &s.staging.slots[i%2]
		if err := s.inSection(sc, cuEventSynchronize, slot.copied.res.handle); err != nil {
			return err
		}
		n := copy(slot.mem.mem, src)
		if err := s.inSection(sc, cuMemcpyHtoDAsync, uintptr(dst), slot.mem.res.handle, uintptr(n), s.res.handle); err != nil {
			return err
		}
		if err := s.inSection(sc, cuEventRecord, slot.copied.res.handle, s.res.handle); err != nil {
			return err
		}
		dst += driver.Address(n)
		src = src[n:]
	}
	return nil
}

// Read copies from the device and waits for the copy.
func (s *stream) Read(dst []byte, src driver.Address) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.needStaging("Read"); err != nil || len(dst) == 0 {
		return err
	}
	sc, err := s.res.dev.enter()
	if err != nil {
		return err
	}
	defer s.res.dev.leave(sc)
	queued := 0
	for done := 0; done < len(dst); done += slotBytes {
		for ; queued < len(dst) && queued < done+2*slotBytes; queued += slotBytes {
			if err := s.queueRead(sc, queued, src, len(dst)); err != nil {
				return err
			}
		}
		slot := &s.staging.slots[done/slotBytes%2]
		if err := s.inSection(sc, cuEventSynchronize, slot.copied.res.handle); err != nil {
			return err
		}
		copy(dst[done:], slot.mem.mem)
	}
	return nil
}

// queueRead queues the copy of one slot, from src+offset up to src+total.
func (s *stream) queueRead(sc *scratch, offset int, src driver.Address, total int) error {
	slot := &s.staging.slots[offset/slotBytes%2]
	n := min(slotBytes, total-offset)
	from := uintptr(src) + uintptr(offset)
	if err := s.inSection(sc, cuMemcpyDtoHAsync, slot.mem.res.handle, from, uintptr(n), s.res.handle); err != nil {
		return err
	}
	return s.inSection(sc, cuEventRecord, slot.copied.res.handle, s.res.handle)
}

// inSection makes one call within a locked section, without allocating. The arguments must not
// contain pointers, see scratch.call.
func (s *stream) inSection(sc *scratch, e entry, args ...uintptr) error {
	return s.res.dev.check(e, sc.call(s.res.dev.lib, e, args...), "")
}
