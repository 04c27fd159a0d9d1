package harness

import (
	"encoding/binary"
	"math"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// poisons fill what nothing has written, repeated. Each is a NaN as float64,
// float32, float16 and bfloat16, in both halves, and as an index far outside of
// anything. Two, so that a result that depends on one shows.
var fillPatterns = [2]uint32{0x7FFE7FFE, 0xFFFDFFFD}

// Mem is a buffer on the device. The rig holds it once for each of the suite's worlds,
// which differ in the poison of what was never set; a launch is run in each.
type Buffer struct {
	r      *Fixture
	name   string
	memory driver.Buffer
	guard  int
	input  bool     // no kernel may change it
	images [][]byte // with the guards
}

// Input is a buffer that kernels only read, full of poison: Set what they may use.
// That it stays as it is is checked after each launch.
func (r *Fixture) Input(name string, bytes int) *Buffer {
	r.Helper()
	return r.alloc(name, bytes, true)
}

// Output is a buffer that kernels may write, full of poison. What a comparison
// reads of it must have been written, and be the same whatever the poison was.
func (r *Fixture) Output(name string, bytes int) *Buffer {
	r.Helper()
	return r.alloc(name, bytes, false)
}

func (r *Fixture) alloc(name string, bytes int, input bool) *Buffer {
	r.Helper()
	guard := r.suite.Guard
	b, err := r.suite.device.Alloc(int64(bytes + 2*guard))
	if err != nil {
		r.Fatalf("%s: %d bytes: %v", name, bytes, err)
	}
	m := &Buffer{r: r, name: name, memory: b, guard: guard, input: input, images: make([][]byte, r.suite.Patterns)}
	for w := range m.images {
		m.images[w] = make([]byte, bytes+2*guard)
		fill(m.images[w], w)
	}
	r.buffers = append(r.buffers, m)
	return m
}

func fill(b []byte, world int) {
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], fillPatterns[world])
	for n := copy(b, p[:]); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// F32s is an input of these numbers.
func (r *Fixture) F32s(name string, data []float32) *Buffer {
	return r.Input(name, 4*len(data)).SetF32s(0, data)
}

// F64s is an input of these numbers.
func (r *Fixture) F64s(name string, data []float64) *Buffer {
	b := make([]byte, 0, 8*len(data))
	for _, x := range data {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return r.Bytes(name, b)
}

// U32s is an input of these numbers.
func (r *Fixture) U32s(name string, data []uint32) *Buffer {
	return r.Input(name, 4*len(data)).SetU32s(0, data)
}

// Bytes is an input of these bytes.
func (r *Fixture) Bytes(name string, data []byte) *Buffer {
	return r.Input(name, len(data)).Set(0, data)
}

// Floats is an input of these numbers, rounded to F32, F16 or BF16.
func (r *Fixture) Floats(name string, f quant.Format, data []float32) *Buffer {
	return r.Input(name, f.BlockBytes()*len(data)).SetFloats(0, f, data)
}

// Rows is an input of rows of width numbers, each of which begins stride numbers
// after the one before. What lies between them is poison.
func (r *Fixture) Rows(name string, data []float32, width, stride int) *Buffer {
	rows := len(data) / width
	m := r.Input(name, 4*rows*stride)
	for i := range rows {
		m.SetF32s(4*i*stride, data[i*width:(i+1)*width])
	}
	return m
}

// Set puts data at a byte offset, in place of the poison or of what a kernel wrote.
func (m *Buffer) Set(offset int, data []byte) *Buffer {
	for w := range m.images {
		copy(m.image(w)[offset:offset+len(data)], data)
	}
	return m
}

// SetF32s puts numbers at a byte offset.
func (m *Buffer) SetF32s(offset int, data []float32) *Buffer {
	return m.SetFloats(offset, quant.F32, data)
}

// SetFloats puts numbers at a byte offset, rounded to F32, F16 or BF16.
func (m *Buffer) SetFloats(offset int, f quant.Format, data []float32) *Buffer {
	b := make([]byte, f.BlockBytes()*len(data))
	if err := f.Encode(b, data); err != nil {
		panic(err)
	}
	return m.Set(offset, b)
}

// SetU32s puts numbers at a byte offset.
func (m *Buffer) SetU32s(offset int, data []uint32) *Buffer {
	b := make([]byte, 0, 4*len(data))
	for _, x := range data {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return m.Set(offset, b)
}

// Poison makes a range unset again: a page that was freed.
func (m *Buffer) Poison(offset, bytes int) *Buffer {
	for w := range m.images {
		fill(m.image(w)[offset:offset+bytes], w)
	}
	return m
}

// inner is a world's image without the guards.
func (m *Buffer) image(world int) []byte {
	b := m.images[world]
	return b[m.guard : len(b)-m.guard]
}

// Addr is where the buffer begins on the device; a multiple of 256.
func (m *Buffer) Addr() ptxgen.Address { return ptxgen.Address(m.memory.Address()) + uint64(m.guard) }

// At is the address so many bytes further on.
func (m *Buffer) At(bytes int) ptxgen.Address { return m.Addr() + uint64(bytes) }

// Len is the size in bytes.
func (m *Buffer) Len() int { return len(m.images[0]) - 2*m.guard }

// Bytes are what the buffer holds. Bytes that are not the same in both worlds were
// not written, or depend on what was not: a failure.
func (m *Buffer) Bytes() []byte { return m.Range(0, m.Len()) }

// Range is Bytes of a part.
func (m *Buffer) Range(offset, bytes int) []byte {
	m.r.Helper()
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
		what := "depend on what was never set"
		if isFill(a, first&^3, 0) && isFill(b, first&^3, last) {
			what = "were not written"
		}
		m.r.Errorf("%s: %d of %d bytes %s, the first at %d", m.name, differ, bytes, what, offset+first)
	}
	return a
}

func isFill(b []byte, at, world int) bool {
	return at+4 <= len(b) && binary.LittleEndian.Uint32(b[at:]) == fillPatterns[world]
}

// F32s are the numbers that the buffer holds.
func (m *Buffer) F32s() []float32 { return m.Floats(quant.F32) }

// Floats are the numbers that it holds in F32, F16 or BF16.
func (m *Buffer) Floats(f quant.Format) []float32 {
	m.r.Helper()
	b := m.Bytes()
	out := make([]float32, len(b)/f.BlockBytes())
	quant.Decode(f, out, b)
	return out
}

// U32s are the numbers that it holds.
func (m *Buffer) U32s() []uint32 {
	m.r.Helper()
	b := m.Bytes()
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

// Untouched demands that no kernel wrote a range that was never set.
func (m *Buffer) Untouched(offset, bytes int) {
	m.r.Helper()
	for w := range m.images {
		want := make([]byte, bytes)
		fill(want, w)
		if i := FirstDifferentByte(m.image(w)[offset:offset+bytes], want); i >= 0 {
			m.r.Errorf("%s: byte %d was written, which is not the kernel's", m.name, offset+i)
			return
		}
	}
}

// firstByte is where two slices of one length part; -1: nowhere.
func FirstDifferentByte(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
