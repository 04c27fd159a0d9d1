package ptx

import "fmt"

// MatrixLayout is how a matrix of 16-bit floats lies in shared memory as an operand of WGMMA: rows of
// A or columns of B, here both called rows, with elements along K.
//
// The matrix is stored in panels, one after another. A panel is Line/2 elements wide: along K or, if Transposed,
// along the rows. It has a line of Line bytes for each row or, if Transposed, for each k. If Line is 32, 64 or 128, the
// 16-byte chunks of a line are permuted ("swizzled"): bits 4 to 6 of an address are xored with bits 7 to 9, of which only
// those of Line/16-1 count. Then reads of many lines at once hit different banks.
type MatrixLayout struct {
	Rows       int  // a multiple of 8
	Depth      int  // elements along K, a multiple of 16
	Line       int  // bytes: 16, which means no swizzling, 32, 64 or 128
	Transposed bool // lines run along the rows: the major-ness of the PTX ISA is MN, else K
}

// swizzleModes holds the mode in a descriptor for each length of a line.
var swizzleModes = map[int]uint64{16: 0, 32: 3, 64: 2, 128: 1}

// inner returns the number of elements in the direction of the lines.
func (l MatrixLayout) inner() int {
	if l.Transposed {
		return l.Rows
	}
	return l.Depth
}

// outer returns the number of elements across the lines.
func (l MatrixLayout) outer() int {
	if l.Transposed {
		return l.Depth
	}
	return l.Rows
}

// Bytes returns the size of the matrix.
func (l MatrixLayout) Bytes() int { return 2 * l.Rows * l.Depth }

// Align returns the alignment in bytes that the matrix needs.
func (l MatrixLayout) Align() int {
	if l.Line == 16 {
		return 16
	}
	return 8 * l.Line
}

// Offset returns the distance in bytes of an element from the beginning of the matrix.
func (l MatrixLayout) Offset(row, k int) int {
	inner, outer := k, row
	if l.Transposed {
		inner, outer = row, k
	}
	at := inner/(l.Line/2)*l.outer()*l.Line + outer*l.Line + inner%(l.Line/2)*2
	return at ^ at>>7&(l.Line/16-1)<<4
}

// Chunk returns the address of the elements 8*chunk to 8*chunk+7 along a line of the matrix at p. It
// emits the arithmetic, with the permutation of the chunks. Without transposition, line is the row and
// chunk is k/8; transposed, line is k and chunk is row/8.
func (l MatrixLayout) Chunk(p Shared, line, chunk U32) Shared {
	chunks := l.Line / 16
	if l.inner() > l.Line/2 {
		p = p.At(chunk.DivN(chunks), l.outer()*l.Line)
	}
	p = p.At(line, l.Line)
	if chunks == 1 {
		return p
	}
	return p.At(l.Swizzle(line, chunk), 16)
}

// Swizzle returns which 16 bytes of a line hold the elements 8*chunk to 8*chunk+7 along the line.
func (l MatrixLayout) Swizzle(line, chunk U32) U32 {
	chunks := l.Line / 16
	mask := uint32(chunks - 1)
	return chunk.AndN(mask).Xor(line.DivN(8 / chunks).AndN(mask))
}

// check returns an error if the layout is not one that wgmma can read.
func (l MatrixLayout) check() error {
	_, ok := swizzleModes[l.Line]
	switch {
	case !ok:
		return fmt.Errorf("MatrixLayout.Line is %d, want 16, 32, 64 or 128", l.Line)
	case l.Rows <= 0 || l.Rows%8 != 0:
		return fmt.Errorf("MatrixLayout.Rows is %d, want a multiple of 8", l.Rows)
	case l.Depth <= 0 || l.Depth%16 != 0:
		return fmt.Errorf("MatrixLayout.Depth is %d, want a multiple of 16", l.Depth)
	case l.inner()%(l.Line/2) != 0:
		return fmt.Errorf("MatrixLayout.Line is %d bytes, which %d elements do not fill a whole number of times", l.Line, l.inner())
	}
	return nil
}

// SharedMatrix is a matrix of 16-bit floats in shared memory, or a submatrix that begins at a row and a k. T is a pair of
// its elements in a register. It needs sm_90a.
type SharedMatrix[T Half2] struct {
	layout MatrixLayout
	desc   U64 // of the whole matrix
	row, k int
}

// NewSharedMatrix returns the matrix at p. It emits the computation of the descriptor.
func NewSharedMatrix[T Half2](p Shared, l MatrixLayout) SharedMatrix[T] {
	if err := l.check(); err != nil {
		p.b.fail("wgmma: %v", err)
		l = MatrixLayout{Rows: 8, Depth: 16, Line: 16}
	}
	// In the PTX ISA's canonical layouts, one offset leads to the next eight lines. The other leads to
	// the lines that continue these, which an instruction does not need if it reads a part of a line.
	next, continued := 8*l.Line, l.outer()*l.Line
	leading, stride := continued, next
	switch {
	case l.Line == 16 && l.Transposed:
		leading, stride = next, continued
	case l.Line > 16 && !l.Transposed:
		leading = 16
	}
	return SharedMatrix[T]{layout: l, desc: p.matrixDescriptor(l.Align(), leading, stride, swizzleModes[l.Line])}
}

// Sub returns the submatrix that begins at a row and a k. It emits nothing. k is a multiple of 16.
// The row is a multiple of 8 or, if the matrix is transposed, of the elements of a line.
func (m SharedMatrix[T]) Sub(row, k int) SharedMatrix[T] {
	l, step := m.layout, 8
	if l.Transposed {
		step = l.Line / 2
	}
	m.row, m.k = m.row+row, m.k+k
	if row%step != 0 || k%16 != 0 || m.row < 0 || m.row >= l.Rows || m.k < 0 || m.k >= l.Depth {
		m.desc.b.fail("wgmma: a submatrix from row %d and k %d of a matrix of %d rows and %d of K, want multiples of %d and 16", m.row, m.k, l.Rows, l.Depth, step)
	}
	return m
}

// At emits mad.wide.u32: the matrix that lies i*stride bytes after m, such as that of another pipeline
// stage. stride is a multiple of the layout's Align.
func (m SharedMatrix[T]) At(i U32, stride int) SharedMatrix[T] {
	b := m.desc.b
	if stride < 0 || stride%m.layout.Align() != 0 {
		b.fail("wgmma: matrices %d bytes apart, want a multiple of %d", stride, m.layout.Align())
	}
	m.desc = apply[U64]("mad.wide.u32", i.value, b.U32(uint32(stride/16)).value, m.desc.value)
	return m
}

// check fails unless the matrix has that number of rows and they fill whole lines. name is the operand, for the message.
func (m SharedMatrix[T]) check(name string, rows int) {
	l := m.layout
	switch {
	case m.row+rows > l.Rows:
		m.desc.b.fail("wgmma: %d rows of %s from row %d of %d", rows, name, m.row, l.Rows)
	case l.Transposed && rows%(l.Line/2) != 0:
		m.desc.b.fail("wgmma: %d rows of %s do not fill lines of %d bytes", rows, name, l.Line)
	}
}

// descriptor returns the descriptor of the submatrix.
func (m SharedMatrix[T]) descriptor() U64 {
	offset := m.layout.Offset(m.row, m.k)
	if offset == 0 {
		return m.desc
	}
	return m.desc.Add(m.desc.b.U64(uint64(offset / 16)))
}

// transposed is the operand imm-trans-a or imm-trans-b.
func (m SharedMatrix[T]) transposed() int64 {
	if m.layout.Transposed {
		return 1
	}
	return 0
}
