package emu

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sort"
	"sync"
	"sync/atomic"
)

// allocation is a range of memory: a buffer, pinned memory, or the shared memory of a CTA. It tracks
// which of its bytes are defined, that is, have been written. Pinned memory does not track writes
// of the host.
type allocation struct {
	name           string
	base           uint64 // address
	data           []byte
	definedBits    []byte // one bit per byte of data
	undefinedBytes atomic.Int64
	freedBytes     int // size of a freed allocation, else 0
	pinned         bool
	locks          *[stripes]sync.Mutex // of global memory: see lockRange
	history        history
	writerChain    []atomic.Uint32 // of global memory: the chain that wrote last, per writtenBlock
}

const (
	stripes   = 16 // locks per allocation; range i uses lock i modulo stripes
	lockShift = 12 // log2 of the bytes of a range
)

// poison fills undefined memory. As a float it is a NaN.
const poison = 0xff

func newAllocation(name string, base uint64, bytes int) *allocation {
	s := &allocation{name: name, base: base, data: make([]byte, bytes), definedBits: make([]byte, (bytes+7)/8)}
	s.history.pages = make([]*shadowPage, (bytes+shadowPageBytes-1)/shadowPageBytes)
	s.undefineAll()
	return s
}

// undefineAll makes all bytes undefined.
func (s *allocation) undefineAll() {
	for i := range s.data {
		s.data[i] = poison
	}
	clear(s.definedBits)
	s.undefinedBytes.Store(int64(len(s.data)))
}

// load reads size bytes as a little-endian number.
func (s *allocation) load(at int, size int32) uint64 {
	switch size {
	case 1:
		return uint64(s.data[at])
	case 2:
		return uint64(binary.LittleEndian.Uint16(s.data[at:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(s.data[at:]))
	}
	return binary.LittleEndian.Uint64(s.data[at:])
}

// store writes the lowest size bytes of v.
func (s *allocation) store(at int, size int32, v uint64) {
	switch size {
	case 1:
		s.data[at] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(s.data[at:], uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(s.data[at:], uint32(v))
	default:
		binary.LittleEndian.PutUint64(s.data[at:], v)
	}
}

// defined reports whether n bytes are defined.
func (s *allocation) defined(at, n int) bool {
	return s.undefinedBytes.Load() == 0 || s.firstUndefined(at, n) < 0
}

// firstUndefined is the offset of the first undefined byte of n bytes, or -1.
func (s *allocation) firstUndefined(at, n int) int {
	for i := at; i < at+n; {
		if i&7 == 0 && i+8 <= at+n && s.definedBits[i>>3] == 0xff {
			i += 8
			continue
		}
		if s.definedBits[i>>3]>>(i&7)&1 == 0 {
			return i
		}
		i++
	}
	return -1
}

// define makes n bytes defined.
func (s *allocation) define(at, n int) {
	if s.undefinedBytes.Load() != 0 {
		s.mark(at, n, true)
	}
}

// mark makes n bytes defined or undefined.
func (s *allocation) mark(at, n int, defined bool) {
	changed := 0
	for i := at; i < at+n; {
		k := min(8-i&7, at+n-i)
		m := byte(1<<k-1) << (i & 7)
		old := s.definedBits[i>>3]
		if defined {
			s.definedBits[i>>3] = old | m
		} else {
			s.definedBits[i>>3] = old &^ m
		}
		changed += bits.OnesCount8(old ^ s.definedBits[i>>3])
		i += k
	}
	if defined {
		changed = -changed
	}
	s.undefinedBytes.Add(int64(changed))
}

// copyFrom copies n bytes, and for each byte whether it is defined.
func (s *allocation) copyFrom(at int, from *allocation, fromAt, n int) {
	copy(s.data[at:at+n], from.data[fromAt:fromAt+n])
	if from.defined(fromAt, n) {
		s.define(at, n)
		return
	}
	for i := range n {
		s.mark(at+i, 1, from.definedBits[(fromAt+i)>>3]>>((fromAt+i)&7)&1 != 0)
	}
}

// memory is the global address space: the memory of the device, and pinned memory of the host. Gaps
// between allocations keep an access beyond the end of one from hitting the next.
type memory struct {
	allocations []*allocation // by address; a freed allocation stays without its bytes, to name it in a trap
	next        uint64        // address
	used        int64         // bytes of the device
	limit       int64         // bytes of the device
	count       int           // allocations so far
}

const (
	firstAddress = 0x7f00_0000_0000
	bufferAlign  = 256
	guardGap     = 1 << 20 // bytes between two allocations
)

// alloc allocates device memory. It returns nil if that exceeds the limit.
func (m *memory) alloc(bytes int64) *allocation {
	if bytes > m.limit-m.used {
		return nil
	}
	m.used += bytes
	return m.add("buffer", bytes)
}

// pin allocates pinned memory, which does not count against the limit.
func (m *memory) pin(bytes int64) *allocation {
	s := m.add("pinned memory", bytes)
	s.pinned = true
	return s
}

// add adds an allocation at the next free address.
func (m *memory) add(kind string, bytes int64) *allocation {
	if m.next == 0 {
		m.next = firstAddress
	}
	m.count++
	s := newAllocation(fmt.Sprintf("%s %d of %d bytes", kind, m.count, bytes), m.next, int(bytes))
	s.locks, s.writerChain = new([stripes]sync.Mutex), newWriterChains(bytes)
	m.next += (uint64(bytes)+bufferAlign-1)&^(bufferAlign-1) + guardGap
	m.allocations = append(m.allocations, s)
	return s
}

// free frees the bytes of an allocation. Its addresses are never used again.
func (m *memory) free(s *allocation) {
	if !s.pinned {
		m.used -= int64(len(s.data))
	}
	s.freedBytes = len(s.data)
	s.data, s.definedBits, s.writerChain = nil, nil, nil
	s.history.pages, s.history.releases.at = nil, nil
	s.name += ", freed"
}

// find returns the live allocation that has n bytes at addr, and the offset. An error names the
// nearest allocation and comes with the kind of the trap.
func (m *memory) find(addr uint64, n int64) (*allocation, int, TrapKind, error) {
	i := sort.Search(len(m.allocations), func(i int) bool { return m.allocations[i].base > addr })
	if i == 0 {
		return nil, 0, TrapBounds, fmt.Errorf("%d bytes at %#x: below all buffers", n, addr)
	}
	s := m.allocations[i-1]
	off := addr - s.base
	if off < uint64(s.freedBytes) {
		return nil, 0, TrapFreed, fmt.Errorf("%d bytes at %#x: offset %d of %s", n, addr, off, s.name)
	}
	if size := uint64(len(s.data)); off > size || uint64(n) > size-off {
		return nil, 0, TrapBounds, fmt.Errorf("%d bytes at %#x: offset %d of %s", n, addr, off, s.name)
	}
	return s, int(off), "", nil
}

// locate finds n bytes at addr for an access of a lane. It traps and returns nil if they are not
// there, or not aligned. It locks global memory.
func (w *warp) locate(o *op, shared bool, lane int, addr uint64, n, align int) (*allocation, int) {
	if addr&uint64(align-1) != 0 {
		w.trap(TrapAlignment, o, lane, "%d bytes at %#x", n, addr)
		return nil, 0
	}
	if shared {
		s := w.cta.shared
		if off := addr - s.base; off <= uint64(len(s.data)) && uint64(n) <= uint64(len(s.data))-off {
			return s, int(off)
		}
		w.trap(TrapBounds, o, lane, "%d bytes at %#x of shared memory, which has %d bytes at %#x", n, addr, len(s.data), s.base)
		return nil, 0
	}
	if s := w.lastBuffer; s != nil {
		if off := addr - s.base; off <= uint64(len(s.data)) && uint64(n) <= uint64(len(s.data))-off {
			w.lockRange(s, int(off))
			return s, int(off)
		}
	}
	s, off, kind, err := w.cta.grid.memory.find(addr, int64(n))
	if err != nil {
		w.trap(kind, o, lane, "%v", err)
		return nil, 0
	}
	w.lastBuffer = s
	w.lockRange(s, off)
	return s, off
}

// lockRange takes the lock for an offset in global memory, if several workers run. It releases the
// lock that the warp already holds. Call unlockRange at the end of the instruction.
func (w *warp) lockRange(s *allocation, at int) {
	if !w.cta.grid.parallel {
		return
	}
	lock := &s.locks[at>>lockShift%stripes]
	if lock == w.heldLock {
		return
	}
	w.unlockRange()
	lock.Lock()
	w.heldLock = lock
}

func (w *warp) unlockRange() {
	if w.heldLock != nil {
		w.heldLock.Unlock()
		w.heldLock = nil
	}
}

// checkDefined traps if a lane reads undefined bytes.
func (w *warp) checkDefined(o *op, s *allocation, at, n, lane int) bool {
	if s.defined(at, n) {
		return true
	}
	w.trap(TrapMemory, o, lane, "byte %d of %s is read before it is written", s.firstUndefined(at, n), s.name)
	return false
}
