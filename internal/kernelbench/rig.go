package kernelbench

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/modules"
)

// Rig makes the buffers of one case. Its first failure stays and ends the case.
type Rig struct {
	dev        driver.Device
	set        *modules.Set
	stream     driver.Stream
	begin, end driver.Event
	buffers    []driver.Buffer
	rng        *rand.Rand
	err        error
}

func newRig(dev driver.Device, set *modules.Set) (*Rig, error) {
	r := &Rig{dev: dev, set: set, rng: rand.New(rand.NewPCG(1, 2))}
	var errs [3]error
	r.stream, errs[0] = dev.NewStream()
	r.begin, errs[1] = dev.NewEvent()
	r.end, errs[2] = dev.NewEvent()
	return r, errors.Join(errs[:]...)
}

func (r *Rig) close() {
	for _, b := range r.buffers {
		b.Close()
	}
	r.begin.Close()
	r.end.Close()
	r.stream.Close()
}

func (r *Rig) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Alloc takes memory, all of whose bytes are 0.
func (r *Rig) Alloc(bytes int64) uint64 {
	if r.err != nil {
		return 0
	}
	b, err := r.dev.Alloc(bytes)
	if err != nil {
		r.keep(err)
		return 0
	}
	r.buffers = append(r.buffers, b)
	r.keep(r.stream.Fill(b.Address(), 0, bytes))
	return uint64(b.Address())
}

// Upload takes memory for data.
func (r *Rig) Upload(data []byte) uint64 {
	a := r.Alloc(int64(len(data)))
	if r.err == nil {
		r.keep(r.stream.Write(driver.Address(a), data))
	}
	return a
}

// Copies uploads data n times.
func (r *Rig) Copies(data []byte, n int) []uint64 {
	list := []uint64{r.Upload(data)}
	for len(list) < n && r.err == nil {
		a := r.Alloc(int64(len(data)))
		if r.err == nil {
			r.keep(r.stream.Copy(driver.Address(a), driver.Address(list[0]), int64(len(data))))
		}
		list = append(list, a)
	}
	return list
}

// Distinct is how many copies of so many bytes no cache can hold: four times the
// L2 together, and no more than a timed graph has launches.
func (r *Rig) Distinct(bytes int64) int {
	l2 := int64(max(r.dev.Properties().L2, 1<<20))
	return int(min(max((4*l2+bytes-1)/bytes, 2), 64))
}

// F32s are n random numbers, normal with deviation std, as bytes.
func (r *Rig) F32s(n int, std float64) []byte {
	b := make([]byte, 0, 4*n)
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(std*r.rng.NormFloat64())))
	}
	return b
}

// U32s are numbers as bytes.
func U32s(list ...uint32) []byte {
	b := make([]byte, 0, 4*len(list))
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}
