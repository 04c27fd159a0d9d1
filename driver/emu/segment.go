package emu

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
)

// segment is a piece of memory: a buffer, pinned memory, or the shared memory of a CTA.
// Besides its bytes it knows which of them have been written; of pinned memory, by the
// device.
type segment struct {
	name      string
	base      uint64
	data      []byte
	def       []byte               // a bit a byte of data: it has been written
	undefined atomic.Int64         // bytes that have not
	freed     int                  // bytes that it had, once it is freed; else 0
	host      bool                 // pinned memory
	locks     *[stripes]sync.Mutex // of global memory
	history   history
	written   []atomic.Uint32 // of global memory: by which chain of kernels, see settled
}

// stripes is the number of locks of a buffer; each serves every so many pages.
const (
	stripes   = 16
	pageShift = 12
)

// poison is what memory holds that nobody has written: as a float, a NaN.
const poison = 0xff

func newSegment(name string, base uint64, bytes int) *segment {
	s := &segment{name: name, base: base, data: make([]byte, bytes), def: make([]byte, (bytes+7)/8)}
	s.history.pages = make([]*page, (bytes+pageBytes-1)/pageBytes)
	s.forget()
	return s
}

// forget makes all bytes undefined.
func (s *segment) forget() {
	for i := range s.data {
		s.data[i] = poison
	}
	clear(s.def)
	s.undefined.Store(int64(len(s.data)))
}

// load reads size bytes as a little-endian number.
func (s *segment) load(at int, size int32) uint64 {
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
func (s *segment) store(at int, size int32, v uint64) {
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

// defined tells whether n bytes from at have all been written.
func (s *segment) defined(at, n int) bool {
	return s.undefined.Load() == 0 || s.firstUndefined(at, n) < 0
}

// firstUndefined is the first byte of n from at that has not been written, or -1.
func (s *segment) firstUndefined(at, n int) int {
	for i := at; i < at+n; {
		if i&7 == 0 && i+8 <= at+n && s.def[i>>3] == 0xff {
			i += 8
			continue
		}
		if s.def[i>>3]>>(i&7)&1 == 0 {
			return i
		}
		i++
	}
	return -1
}

// define marks n bytes from at as written.
func (s *segment) define(at, n int) {
	if s.undefined.Load() != 0 {
		s.mark(at, n, true)
	}
}

// mark makes n bytes from at defined or undefined.
func (s *segment) mark(at, n int, defined bool) {
	changed := 0
	for i := at; i < at+n; {
		k := min(8-i&7, at+n-i)
		m := byte(1<<k-1) << (i & 7)
		old := s.def[i>>3]
		if defined {
			s.def[i>>3] = old | m
		} else {
			s.def[i>>3] = old &^ m
		}
		changed += bits.OnesCount8(old ^ s.def[i>>3])
		i += k
	}
	if defined {
		changed = -changed
	}
	s.undefined.Add(int64(changed))
}

// copyFrom copies n bytes and whether they are defined.
func (s *segment) copyFrom(at int, from *segment, fromAt, n int) {
	copy(s.data[at:at+n], from.data[fromAt:fromAt+n])
	if from.defined(fromAt, n) {
		s.define(at, n)
		return
	}
	for i := range n {
		s.mark(at+i, 1, from.def[(fromAt+i)>>3]>>((fromAt+i)&7)&1 != 0)
	}
}
