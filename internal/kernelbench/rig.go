package kernelbench

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Rig makes the buffers of one case. Its first failure stays and ends the case.
type Rig struct {
	dev        driver.Device
	lib        *library
	stream     driver.Stream
	begin, end driver.Event
	buffers    []driver.Buffer
	outputs    []output
	patterns   map[any][]byte
	common     map[string]uint64
	rng        *rand.Rand
	turn       int // how many launches of the case there are
	err        error
}

// output is memory that a kernel writes.
type output struct {
	address  uint64
	bytes    int64
	format   quant.Format // F32, F16 or BF16
	integers bool         // u32 instead
	inPlace  bool         // it is an input, too
}

func newRig(dev driver.Device, lib *library) (*Rig, error) {
	r := &Rig{dev: dev, lib: lib, rng: rand.New(rand.NewPCG(1, 2)), patterns: map[any][]byte{}, common: map[string]uint64{}}
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

func (r *Rig) close() {
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

func (r *Rig) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// launches makes n launches of a case, each on other memory.
func (r *Rig) launches(c Case, n int) ([]driver.Launch, error) {
	k, err := r.lib.kernel(c.Spec)
	if err != nil {
		return nil, err
	}
	var list []driver.Launch
	for r.turn = range n {
		l, err := r.lib.launch(c.Launch(r, k))
		if r.err != nil { // the cause of an address that is missing
			err = r.err
		}
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// distinct is how many working sets of so many bytes no cache holds: four times the
// L2 together, but no more than 64. One alone must be far larger.
func (r *Rig) distinct(bytes int64) int {
	l2 := int64(max(r.dev.Properties().L2, 1<<20))
	if bytes >= 16*l2 {
		return 1
	}
	return int(min(max((4*l2+bytes-1)/bytes, 2), 64))
}

// Run runs a kernel before the measurement, for what it leaves to the one measured.
func (r *Rig) Run(s kernel.Spec, launch func(k *ptx.Kernel) (ptx.Launch, error)) {
	l, err := r.launchOf(s, launch)
	if r.keep(err); r.err == nil {
		r.keep(r.stream.Launch(l))
	}
}

// Once makes something that all launches of the case share.
func (r *Rig) Once(name string, make func() uint64) uint64 {
	if _, ok := r.common[name]; !ok {
		r.common[name] = make()
	}
	return r.common[name]
}

func (r *Rig) alloc(bytes int64) uint64 {
	if r.err != nil {
		return 0
	}
	b, err := r.dev.Alloc(bytes)
	if err != nil {
		r.keep(err)
		return 0
	}
	r.buffers = append(r.buffers, b)
	return uint64(b.Address())
}

// Zeros takes memory, all of whose bytes are 0.
func (r *Rig) Zeros(bytes int64) uint64 {
	a := r.alloc(bytes)
	if r.err == nil {
		r.keep(r.stream.Fill(driver.Address(a), 0, bytes))
	}
	return a
}

// Out takes memory for n results in F32, F16 or BF16.
func (r *Rig) Out(f quant.Format, n int) uint64 {
	o := output{address: r.Zeros(int64(n * f.BlockBytes())), bytes: int64(n * f.BlockBytes()), format: f}
	r.outputs = append(r.outputs, o)
	return o.address
}

// OutU32s takes memory for n results that are integers.
func (r *Rig) OutU32s(n int) uint64 {
	o := output{address: r.Zeros(int64(4 * n)), bytes: int64(4 * n), integers: true}
	r.outputs = append(r.outputs, o)
	return o.address
}

// repeat takes memory and fills it with repetitions of data, made on the device.
func (r *Rig) repeat(data []byte, bytes int64) uint64 {
	a := r.alloc(bytes)
	n := min(int64(len(data)), bytes)
	if r.err == nil {
		r.keep(r.stream.Write(driver.Address(a), data[:n]))
	}
	for r.err == nil && n < bytes {
		more := min(n, bytes-n)
		r.keep(r.stream.Copy(driver.Address(a+uint64(n)), driver.Address(a), more))
		n += more
	}
	return a
}

// patternLen is how many random numbers are made; more are repetitions of them.
const patternLen = 1 << 16

// Normal takes memory for n random numbers in F32, F16 or BF16, normal with deviation 1.
func (r *Rig) Normal(f quant.Format, n int) uint64 {
	data, ok := r.patterns[f]
	if !ok {
		x := make([]float32, min(n, patternLen))
		for i := range x {
			x[i] = float32(r.rng.NormFloat64())
		}
		data = make([]byte, len(x)*f.BlockBytes())
		r.keep(f.Encode(data, x))
		if len(x) == patternLen {
			r.patterns[f] = data
		}
	}
	return r.repeat(data, int64(n*f.BlockBytes()))
}

// InPlace is Normal for what the kernel overwrites.
func (r *Rig) InPlace(f quant.Format, n int) uint64 {
	o := output{address: r.Normal(f, n), bytes: int64(n * f.BlockBytes()), format: f, inPlace: true}
	r.outputs = append(r.outputs, o)
	return o.address
}

// matrix is a shape of a model's weights.
type matrix struct{ rows, k int }

// Packed takes memory for a random matrix as kernels read it: some rows, repeated.
func (r *Rig) Packed(f quant.Format, m matrix) uint64 {
	p := matmul.Packing{Format: f, K: m.k}
	key := struct {
		f quant.Format
		m matrix
	}{f, m}
	data, ok := r.patterns[key]
	if !ok {
		rows := min(m.rows, max(1, patternLen/m.k)*16) // whole tiles
		file, err := synth.Blocks(f, rows*m.k, 0.02, 1, f.String())
		if err != nil {
			r.keep(err)
			return 0
		}
		data = make([]byte, p.Bytes(rows))
		p.Pack(data, file, rows)
		r.patterns[key] = data
	}
	return r.repeat(data, packedBytes(f, m))
}

// packedBytes is the size of a matrix as kernels read it.
func packedBytes(f quant.Format, m matrix) int64 {
	return int64(matmul.Packing{Format: f, K: m.k}.Bytes(m.rows))
}

// U32s takes memory for numbers.
func (r *Rig) U32s(list ...uint32) uint64 {
	b := make([]byte, 0, 4*len(list))
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return r.repeat(b, int64(len(b)))
}

// F64s takes memory for numbers.
func (r *Rig) F64s(list ...float64) uint64 {
	b := make([]byte, 0, 8*len(list))
	for _, x := range list {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return r.repeat(b, int64(len(b)))
}
