package emu

import (
	"fmt"
	"sort"
)

// memory is what kernels can address: a device's global memory and pinned memory of the
// host. Buffers lie far apart, so that running over the end of one never meets another.
type memory struct {
	segments []*segment // by address; freed ones stay, without bytes, to tell of their use
	next     uint64
	used     int64
	limit    int64
	count    int // buffers and pinned memory so far
}

const (
	firstAddress = 0x7f00_0000_0000
	granule      = 256     // alignment of a buffer
	guardGap     = 1 << 20 // addresses between two buffers
)

// alloc takes a buffer, or gives nil if there is not so much left.
func (m *memory) alloc(bytes int64) *segment {
	if bytes > m.limit-m.used {
		return nil
	}
	m.used += bytes
	return m.place("buffer", bytes)
}

// pin takes memory of the host, of which the device has as much as there was.
func (m *memory) pin(bytes int64) *segment {
	s := m.place("pinned memory", bytes)
	s.host = true
	return s
}

// place finds addresses for memory of a kind.
func (m *memory) place(kind string, bytes int64) *segment {
	if m.next == 0 {
		m.next = firstAddress
	}
	m.count++
	s := newSegment(fmt.Sprintf("%s %d of %d bytes", kind, m.count, bytes), m.next, int(bytes))
	s.locks, s.written = newLocks(), newWritten(bytes)
	m.next += (uint64(bytes)+granule-1)&^(granule-1) + guardGap
	m.segments = append(m.segments, s)
	return s
}

// free gives the bytes of a segment back. Its addresses are never used again.
func (m *memory) free(s *segment) {
	if !s.host {
		m.used -= int64(len(s.data))
	}
	s.freed = len(s.data)
	s.def, s.written = nil, nil
	s.data = nil
	s.history.pages, s.history.sync.at = nil, nil
	s.name += ", freed"
}

// below finds the buffer with the highest address at or below addr, nil if there is none.
func (m *memory) below(addr uint64) *segment {
	i := sort.Search(len(m.segments), func(i int) bool { return m.segments[i].base > addr })
	if i == 0 {
		return nil
	}
	return m.segments[i-1]
}

// find finds the live buffer that has n bytes at addr. The error names the nearest buffer.
func (m *memory) find(addr uint64, n int64) (*segment, int, TrapKind, error) {
	s := m.below(addr)
	if s == nil {
		return nil, 0, TrapBounds, fmt.Errorf("%d bytes at %#x: below all buffers", n, addr)
	}
	off := addr - s.base
	if off < uint64(s.freed) {
		return nil, 0, TrapFreed, fmt.Errorf("%d bytes at %#x: offset %d of %s", n, addr, off, s.name)
	}
	if size := uint64(len(s.data)); off > size || uint64(n) > size-off {
		return nil, 0, TrapBounds, fmt.Errorf("%d bytes at %#x: offset %d of %s", n, addr, off, s.name)
	}
	return s, int(off), "", nil
}
