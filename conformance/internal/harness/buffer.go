package harness

import (
	"encoding/binary"
	"math"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// fillPatterns are the words that fill uninitialized memory. Each is a NaN as float64,
// float32, float16 and bfloat16, and far out of range as an index. A result that depends on
// uninitialized memory differs between the two patterns.
var fillPatterns = [2]uint32{0x7FFE7FFE, 0xFFFDFFFD}

// Buffer is a buffer on the device. The fixture keeps one image per fill pattern, and each
// launch runs once per image.
type Buffer struct {
	r      *Fixture
	name   string
	memory driver.Buffer
	guard  int
	input  bool // kernels must not change it
	// unordered: its contents may differ when a launch is repeated.
	unordered bool
	images    [][]byte // per fill pattern, with the guards
	// unread holds, for each byte of an output, whether a kernel changed it and no comparison has
	// read it. It is nil for an input and for scratch memory.
	unread []bool
}

// Input allocates a buffer that kernels must not change, which each launch checks. The
// buffer is uninitialized: set what kernels may read.
func (r *Fixture) Input(name string, bytes int) *Buffer {
	r.T.Helper()
	return r.alloc(name, bytes, true)
}

// Output allocates an uninitialized buffer that kernels may write. Bytes that a comparison
// reads must have been written, and must not depend on the fill pattern. Bytes that a kernel
// changes must be read by the end of the case.
func (r *Fixture) Output(name string, bytes int) *Buffer {
	r.T.Helper()
	m := r.alloc(name, bytes, false)
	m.unread = make([]bool, bytes)
	return m
}

// Scratch allocates an output that only other kernels need to read.
func (r *Fixture) Scratch(name string, bytes int) *Buffer {
	r.T.Helper()
	return r.alloc(name, bytes, false)
}

// Unordered lets the contents differ when a launch is repeated, because atomics order them.
func (m *Buffer) Unordered() *Buffer {
	m.unordered = true
	return m
}

func (r *Fixture) alloc(name string, bytes int, input bool) *Buffer {
	r.T.Helper()
	guard := r.suite.Guard
	b, err := r.suite.device.Alloc(int64(bytes + 2*guard))
	if err != nil {
		r.Fatalf("%s: %d bytes: %v", name, bytes, err)
	}
	m := &Buffer{r: r, name: name, memory: b, guard: guard, input: input, images: make([][]byte, r.suite.Patterns)}
	for pattern := range m.images {
		m.images[pattern] = make([]byte, bytes+2*guard)
		fill(m.images[pattern], pattern)
	}
	r.buffers = append(r.buffers, m)
	return m
}

func fill(b []byte, pattern int) {
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], fillPatterns[pattern])
	for n := copy(b, p[:]); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// F32s allocates an input that holds data.
func (r *Fixture) F32s(name string, data []float32) *Buffer {
	return r.Input(name, 4*len(data)).SetF32s(0, data)
}

// F64s allocates an input that holds data.
func (r *Fixture) F64s(name string, data []float64) *Buffer {
	b := make([]byte, 0, 8*len(data))
	for _, x := range data {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return r.Bytes(name, b)
}

// U32s allocates an input that holds data.
func (r *Fixture) U32s(name string, data []uint32) *Buffer {
	return r.Input(name, 4*len(data)).SetU32s(0, data)
}

// Bytes allocates an input that holds data.
func (r *Fixture) Bytes(name string, data []byte) *Buffer {
	return r.Input(name, len(data)).Set(0, data)
}

// Floats allocates an input that holds data, rounded to format f: F32, F16 or BF16.
func (r *Fixture) Floats(name string, f quant.Format, data []float32) *Buffer {
	return r.Input(name, f.BlockBytes()*len(data)).SetFloats(0, f, data)
}

// Rows allocates an input of rows of width float32. The rows start stride elements apart; the
// gaps between them are uninitialized.
func (r *Fixture) Rows(name string, data []float32, width, stride int) *Buffer {
	rows := len(data) / width
	m := r.Input(name, 4*rows*stride)
	for i := range rows {
		m.SetF32s(4*i*stride, data[i*width:(i+1)*width])
	}
	return m
}

// Set copies data to a byte offset.
func (m *Buffer) Set(offset int, data []byte) *Buffer {
	for pattern := range m.images {
		copy(m.image(pattern)[offset:offset+len(data)], data)
	}
	return m
}

// SetF32s copies data to a byte offset.
func (m *Buffer) SetF32s(offset int, data []float32) *Buffer {
	return m.SetFloats(offset, quant.F32, data)
}

// SetFloats copies data to a byte offset, rounded to format f: F32, F16 or BF16.
func (m *Buffer) SetFloats(offset int, f quant.Format, data []float32) *Buffer {
	b := make([]byte, f.BlockBytes()*len(data))
	if err := f.Encode(b, data); err != nil {
		panic(err)
	}
	return m.Set(offset, b)
}

// SetU32s copies data to a byte offset.
func (m *Buffer) SetU32s(offset int, data []uint32) *Buffer {
	b := make([]byte, 0, 4*len(data))
	for _, x := range data {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return m.Set(offset, b)
}

// Poison makes a range uninitialized again.
func (m *Buffer) Poison(offset, bytes int) *Buffer {
	for pattern := range m.images {
		fill(m.image(pattern)[offset:offset+bytes], pattern)
	}
	return m
}

// image returns the bytes for a fill pattern, without the guards.
func (m *Buffer) image(pattern int) []byte {
	b := m.images[pattern]
	return b[m.guard : len(b)-m.guard]
}

// Addr returns the device address, a multiple of 256.
func (m *Buffer) Addr() ptx.Address { return ptx.Address(m.memory.Address()) + uint64(m.guard) }

// At returns the device address of a byte offset.
func (m *Buffer) At(bytes int) ptx.Address { return m.Addr() + uint64(bytes) }

// Len returns the size in bytes.
func (m *Buffer) Len() int { return len(m.images[0]) - 2*m.guard }

// Bytes returns the contents. It reports a failure if some bytes were not written or depend
// on uninitialized memory.
func (m *Buffer) Bytes() []byte { return m.Range(0, m.Len()) }

// Range returns a part of Bytes.
func (m *Buffer) Range(offset, bytes int) []byte {
	m.r.T.Helper()
	if m.unread != nil {
		clear(m.unread[offset : offset+bytes])
	}
	last := len(m.images) - 1
	a, b := m.image(0)[offset:offset+bytes], m.image(last)[offset:offset+bytes]
	differ, first := 0, 0
	for i := range a {
		if a[i] != b[i] {
			if differ++; differ == 1 {
				first = i
			}
		}
	}
	if differ > 0 {
		what := "depend on uninitialized memory"
		if isFill(a, first&^3, 0) && isFill(b, first&^3, last) {
			what = "were not written"
		}
		m.r.Errorf("%s: %d of %d bytes %s, the first at %d", m.name, differ, bytes, what, offset+first)
	}
	return a
}

func isFill(b []byte, at, pattern int) bool {
	return at+4 <= len(b) && binary.LittleEndian.Uint32(b[at:]) == fillPatterns[pattern]
}

// F32s returns the contents as float32.
func (m *Buffer) F32s() []float32 { return m.Floats(quant.F32) }

// Floats returns the contents as numbers of format f: F32, F16 or BF16.
func (m *Buffer) Floats(f quant.Format) []float32 { return m.FloatsAt(f, 0, m.Len()/f.BlockBytes()) }

// FloatsAt returns n numbers of format f at a byte offset.
func (m *Buffer) FloatsAt(f quant.Format, offset, n int) []float32 {
	m.r.T.Helper()
	out := make([]float32, n)
	quant.Decode(f, out, m.Range(offset, n*f.BlockBytes()))
	return out
}

// U32s returns the contents as uint32.
func (m *Buffer) U32s() []uint32 {
	m.r.T.Helper()
	b := m.Bytes()
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

// Untouched reports a failure if a kernel wrote to an uninitialized range.
func (m *Buffer) Untouched(offset, bytes int) {
	m.r.T.Helper()
	for pattern := range m.images {
		want := make([]byte, bytes)
		fill(want, pattern)
		if i := FirstDifferentByte(m.image(pattern)[offset:offset+bytes], want); i >= 0 {
			m.r.Errorf("%s: byte %d was written outside the kernel's output", m.name, offset+i)
			return
		}
	}
}

// FirstDifferentByte returns the first index at which two slices of equal length differ, or
// -1.
func FirstDifferentByte(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
