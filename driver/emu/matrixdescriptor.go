package emu

import "encoding/binary"

// sharedMatrix is a matrix operand of a wgmma in shared memory: `size` rows of A or columns of B,
// with depthBytes each.
//
// It consists of atoms of eight lines of 16 bytes or, if swizzled, 32, 64 or 128 bytes. Without
// transposition, a line belongs to one row of A or column of B and runs along K ("K-major").
// Transposed, a line belongs to one k and runs along the rows or columns ("MN-major"), and elements
// have two bytes.
//
// Source: PTX ISA, wgmma, shared memory matrix layout; its canonical layouts name leading and
// stride offset LBO and SBO.
type sharedMatrix struct {
	start      uint64 // address
	size       int
	transposed bool

	line   int    // bytes of a line
	used   int    // bytes of a line that the instruction reads
	along  uint64 // bytes between atoms that continue each other's lines
	across uint64 // bytes between an atom and that of the next eight lines
}

// maxMatrixSize is the largest number of columns of B.
const maxMatrixSize = 256

// depthBytes is the size of the part of a row of A or column of B that an instruction multiplies.
const depthBytes = 32

// descriptorZeros are the bits of a descriptor that must be zero here: those between the fields, and
// the base offset of a matrix that does not begin at an atom.
const descriptorZeros = 3<<14 | 3<<30 | uint64(1<<16-1)<<46

// lineBytes holds the bytes of a line by the swizzling mode of a descriptor.
var lineBytes = [4]int{16, 128, 64, 32}

// matrix reads the descriptor in a register, which must be the same in all lanes. It traps if the
// PTX ISA does not say for certain which bytes the layout means.
func (w *warp) matrix(o *op, reg int32, size int, transposed bool) (bits uint64, m sharedMatrix, ok bool) {
	refuse := func(lane int, format string, args ...any) (uint64, sharedMatrix, bool) {
		w.trap(TrapWarpgroup, o, lane, format, args...)
		return 0, m, false
	}
	bits = w.regs[reg][0]
	for l, v := range w.regs[reg] {
		if v != bits {
			return refuse(l, "the descriptor is %#x in this lane and %#x in lane 0", v, bits)
		}
	}
	if extra := bits & descriptorZeros; extra != 0 {
		return refuse(0, "the descriptor %#x has bits %#x, which must be zero", bits, extra)
	}
	field := func(at int) uint64 { return bits >> at & (1<<14 - 1) << 4 }
	leading, stride := field(16), field(32)
	m = sharedMatrix{start: field(0), size: size, transposed: transposed, line: lineBytes[bits>>62], along: leading, across: stride}
	m.used = m.line
	swizzled := m.line > chunkBytes
	switch {
	case !swizzled && transposed:
		m.along, m.across = stride, leading
	case swizzled && transposed && 2*size%m.line != 0:
		return refuse(0, "%d rows or columns do not fill lines of %d bytes of a transposed matrix", size, m.line)
	case swizzled && !transposed && leading > 16:
		return refuse(0, "the leading offset is %d bytes, which a swizzled matrix that is not transposed does not use", leading)
	case swizzled && !transposed:
		m.used = depthBytes
	}
	atom := uint64(8 * m.line)
	switch at := m.start % atom; {
	case !swizzled:
	case at%uint64(m.used) != 0 || at >= uint64(m.line):
		return refuse(0, "the matrix begins %d bytes after a multiple of %d, the bytes of a swizzled atom", at, atom)
	case m.across%atom != 0, transposed && m.along%atom != 0: // also if the instruction reads one atom
		return refuse(0, "offsets of %d and %d bytes between atoms, want multiples of %d", leading, stride, atom)
	}
	return bits, m, true
}

// atoms returns the number of groups of eight lines, and the number of atoms per group: these continue
// each other's lines.
func (m *sharedMatrix) atoms() (groups, continued int) {
	if m.transposed {
		return depthBytes / 2 / 8, 2 * m.size / m.used
	}
	return m.size / 8, depthBytes / m.used
}

// address is that of byte x of line y. It is a multiple of 16 if x is.
func (m *sharedMatrix) address(x, y int) uint64 {
	a := m.start + uint64(x/m.used)*m.along + uint64(x%m.used) + uint64(y/8)*m.across + uint64(y%8*m.line)
	return a ^ a>>7&uint64(m.line/16-1)<<4
}

// block is a range of consecutive addresses that a matrix fills, in another order if it is swizzled.
type block struct {
	at    uint64
	bytes int
}

// blocks calls f for each block until f returns false, and returns the last result of f.
func (m *sharedMatrix) blocks(f func(block) bool) bool {
	groups, continued := m.atoms()
	for i := range groups {
		for j := range continued {
			first := m.address(j*m.used, 8*i)
			if m.used == m.line {
				if !f(block{first, 8 * m.line}) {
					return false
				}
				continue
			}
			for y := range 8 {
				// Swizzling exchanges the two halves of the 32 bytes.
				if !f(block{m.address(j*m.used, 8*i+y) &^ (depthBytes - 1), m.used}) {
					return false
				}
			}
		}
	}
	return true
}

// gather copies the matrix from shared memory: 32 bytes of K per row of A or column of B.
func (m *sharedMatrix) gather(shared *allocation, to *[maxMatrixSize][depthBytes]byte) {
	data := func(x, y int) []byte { return shared.data[m.address(x, y)-shared.base:][:16] }
	if !m.transposed {
		for y := range m.size {
			copy(to[y][:], data(0, y))
			copy(to[y][16:], data(16, y))
		}
		return
	}
	for k := range depthBytes / 2 {
		for i := 0; i < m.size; i += 8 {
			from := data(2*i, k)
			for j := range 8 {
				binary.LittleEndian.PutUint16(to[i+j][2*k:], binary.LittleEndian.Uint16(from[2*j:]))
			}
		}
	}
}
