package kernelbench

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Runner allocates the buffers of one case and launches its kernels. Its methods keep the
// first error, which ends the case.
type Runner struct {
	dev         driver.Device
	lib         *library
	stream      driver.Stream
	begin, end  driver.Event
	buffers     []driver.Buffer
	outputs     []output
	patterns    map[any][]byte    // random data by format and shape
	common      map[string]uint64 // buffers of Once
	rng         *rand.Rand
	launchIndex int // of the launch being made
	err         error
}

// output is a buffer that a kernel writes.
type output struct {
	address  uint64
	bytes    int64
	format   quant.Format // F32, F16 or BF16
	integers bool         // u32 instead of format
	inPlace  bool         // also an input
}

func newRunner(dev driver.Device, lib *library) (*Runner, error) {
	r := &Runner{dev: dev, lib: lib, rng: rand.New(rand.NewPCG(1, 2)), patterns: map[any][]byte{}, common: map[string]uint64{}}
	var errs [3]error
	r.stream, errs[0] = dev.NewStream()
	r.begin, errs[1] = dev.NewEvent()
	r.end, errs[2] = dev.NewEvent()
	if err := errors.Join(errs[:]...); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *Runner) close() {
	for _, b := range r.buffers {
		b.Close()
	}
	if r.begin != nil {
		r.begin.Close()
	}
	if r.end != nil {
		r.end.Close()
	}
	if r.stream != nil {
		r.stream.Close()
	}
}

func (r *Runner) setErr(err error) {
	if r.err == nil {
		r.err = err
	}
}

// launches returns n launches of a case, each with its own buffers.
func (r *Runner) launches(c Case, n int) ([]driver.Launch, error) {
	k, err := r.lib.kernel(c.Spec)
	if err != nil {
		return nil, err
	}
	var list []driver.Launch
	for r.launchIndex = range n {
		l, err := r.lib.launch(c.Launch(r, k))
		if r.err != nil { // the cause of a zero address
			err = r.err
		}
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// distinct returns how many copies of a case's memory to use in turn, so that the L2 cache
// never holds the copy that is read next. They take four times the size of the cache, in 2
// to 64 copies. If one copy takes 16 times the size of the cache, one is enough.
func (r *Runner) distinct(bytes int64) int {
	l2 := int64(max(r.dev.Properties().L2, 1<<20))
	if bytes >= 16*l2 {
		return 1
	}
	return int(min(max((4*l2+bytes-1)/bytes, 2), 64))
}

// Run launches a kernel whose results the measured kernel reads.
func (r *Runner) Run(s kernel.Spec, launch func(k *ptx.Kernel) (ptx.Launch, error)) {
	l, err := r.launchOf(s, launch)
	if r.setErr(err); r.err == nil {
		r.setErr(r.stream.Launch(l))
	}
}

// Once returns a buffer that all launches of the case share. Its first call allocates it.
func (r *Runner) Once(name string, alloc func() uint64) uint64 {
	if _, ok := r.common[name]; !ok {
		r.common[name] = alloc()
	}
	return r.common[name]
}

func (r *Runner) alloc(bytes int64) uint64 {
	if r.err != nil {
		return 0
	}
	b, err := r.dev.Alloc(bytes)
	if err != nil {
		r.setErr(err)
		return 0
	}
	r.buffers = append(r.buffers, b)
	return uint64(b.Address())
}

// Zeros allocates zeroed memory.
func (r *Runner) Zeros(bytes int64) uint64 {
	a := r.alloc(bytes)
	if r.err == nil {
		r.setErr(r.stream.Fill(driver.Address(a), 0, bytes))
	}
	return a
}

// Out allocates memory for n results in F32, F16 or BF16.
func (r *Runner) Out(f quant.Format, n int) uint64 {
	o := output{address: r.Zeros(int64(n * f.BlockBytes())), bytes: int64(n * f.BlockBytes()), format: f}
	r.outputs = append(r.outputs, o)
	return o.address
}

// OutU32s allocates memory for n results of type u32.
func (r *Runner) OutU32s(n int) uint64 {
	o := output{address: r.Zeros(int64(4 * n)), bytes: int64(4 * n), integers: true}
	r.outputs = append(r.outputs, o)
	return o.address
}

// writes declares memory that the kernel reads and changes, as integers.
func (r *Runner) writes(address uint64, bytes int64) {
	r.outputs = append(r.outputs, output{address: address, bytes: bytes, integers: true, inPlace: true})
}

// repeat allocates memory and fills it with copies of data.
func (r *Runner) repeat(data []byte, bytes int64) uint64 {
	a := r.alloc(bytes)
	r.fill(a, data, bytes)
	return a
}

// fill fills memory with copies of data, by copies on the device.
func (r *Runner) fill(a uint64, data []byte, bytes int64) {
	n := min(int64(len(data)), bytes)
	if r.err == nil && n > 0 {
		r.setErr(r.stream.Write(driver.Address(a), data[:n]))
	}
	for r.err == nil && n < bytes {
		more := min(n, bytes-n)
		r.setErr(r.stream.Copy(driver.Address(a+uint64(n)), driver.Address(a), more))
		n += more
	}
}

// patternLen is the number of different random values in a buffer.
const patternLen = 1 << 16

// Normal allocates n random values in F32, F16 or BF16, from the standard normal
// distribution.
func (r *Runner) Normal(f quant.Format, n int) uint64 {
	data, ok := r.patterns[f]
	if !ok {
		x := make([]float32, min(n, patternLen))
		for i := range x {
			x[i] = float32(r.rng.NormFloat64())
		}
		data = make([]byte, len(x)*f.BlockBytes())
		r.setErr(f.Encode(data, x))
		if len(x) == patternLen {
			r.patterns[f] = data
		}
	}
	return r.repeat(data, int64(n*f.BlockBytes()))
}

// InPlace is Normal for an input that the kernel overwrites.
func (r *Runner) InPlace(f quant.Format, n int) uint64 {
	o := output{address: r.Normal(f, n), bytes: int64(n * f.BlockBytes()), format: f, inPlace: true}
	r.outputs = append(r.outputs, o)
	return o.address
}

// matrix is the shape of a weight matrix: [rows, k].
type matrix struct{ rows, k int }

// Packed allocates a random matrix in the layout of the kernels. Its rows repeat, and their factors are 1.
func (r *Runner) Packed(f quant.Format, m matrix) uint64 { return r.Experts(f, m, 1) }

// Experts allocates n equal matrices like Packed, one behind the other.
func (r *Runner) Experts(f quant.Format, m matrix, n int) uint64 {
	p := product.Packing{Format: f, K: m.k}
	key := struct {
		f quant.Format
		m matrix
	}{f, m}
	tiles, ok := r.patterns[key]
	if !ok {
		rows := min(m.rows, max(1, patternLen/m.k)*16) // whole tiles
		file, err := synth.Blocks(f, rows*m.k, 0.02, 1, f.String())
		if err != nil {
			r.setErr(err)
			return 0
		}
		tiles = make([]byte, p.TileBytes(rows))
		p.Pack(tiles, file, rows)
		r.patterns[key] = tiles
	}
	factors := make([]byte, p.Bytes(m.rows)-p.TileBytes(m.rows))
	for i := 0; i < len(factors); i += 4 {
		binary.LittleEndian.PutUint32(factors[i:], math.Float32bits(1))
	}
	a := r.alloc(int64(n * p.Bytes(m.rows)))
	for i := range uint64(n) {
		at := a + i*uint64(p.Bytes(m.rows))
		r.fill(at, tiles, int64(p.TileBytes(m.rows)))
		r.fill(at+uint64(p.TileBytes(m.rows)), factors, int64(len(factors)))
	}
	return a
}

// packedBytes returns the size of a matrix in the layout of the kernels.
func packedBytes(f quant.Format, m matrix) int64 {
	return int64(product.Packing{Format: f, K: m.k}.Bytes(m.rows))
}

// U32s allocates a list of u32.
func (r *Runner) U32s(list ...uint32) uint64 {
	b := make([]byte, 0, 4*len(list))
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return r.repeat(b, int64(len(b)))
}

// F64s allocates a list of f64.
func (r *Runner) F64s(list ...float64) uint64 {
	b := make([]byte, 0, 8*len(list))
	for _, x := range list {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return r.repeat(b, int64(len(b)))
}
