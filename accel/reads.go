package accel

import (
	"encoding/binary"
	"math"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// hostReads are queued copies from the device to host memory, by way of the staging buffer. All
// belong to one pass; before another pass reads, the engine waits for the device and takes them.
type hostReads struct {
	owner *pass
	list  []hostRead
	used  int // bytes of the staging buffer
}

type hostRead struct {
	to []float32
	at int // offset in the staging buffer
}

// read queues a copy of len(to) floats from the device. to is filled when the pass has ended. If the staging buffer is full
// or belongs to another pass, read waits for the device.
func (e *Engine) read(p *pass, to []float32, from ptx.Address) error {
	if e.reads.owner != p && len(e.reads.list) > 0 {
		if err := e.readAll(p); err != nil {
			return err
		}
	}
	for len(to) > 0 {
		n := min(len(to), (len(e.staging.Bytes())-e.reads.used)/4)
		if n == 0 {
			if err := e.readAll(p); err != nil {
				return err
			}
			continue
		}
		if err := e.stream.ReadAsync(e.staging, e.reads.used, driver.Address(from), 4*n); err != nil {
			return err
		}
		e.reads.owner = p
		e.reads.list = append(e.reads.list, hostRead{to[:n], e.reads.used})
		e.reads.used += 4 * n
		to, from = to[n:], from+ptx.Address(4*n)
	}
	return nil
}

// take decodes what the device has copied to the staging buffer.
func (r *hostReads) take(staging driver.Pinned) {
	for _, x := range r.list {
		decodeFloats(x.to, staging.Bytes()[x.at:])
	}
	r.reset()
}

func (r *hostReads) reset() {
	clear(r.list) // it must not keep the memory of results
	r.owner, r.list, r.used = nil, r.list[:0], 0
}

func appendFloats(to []byte, list []float32) []byte {
	for _, x := range list {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(x))
	}
	return to
}

func decodeFloats(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// readFloats waits for the stream and reads floats, as many at a time as the staging buffer holds.
func (e *Engine) readFloats(at ptx.Address, n int) ([]float32, error) {
	x := make([]float32, n)
	for rest := x; len(rest) > 0; {
		n := min(len(rest), len(e.staging.Bytes())/4)
		if err := e.stream.ReadAsync(e.staging, 0, driver.Address(at), 4*n); err != nil {
			return nil, err
		}
		if err := e.stream.Synchronize(); err != nil {
			return nil, err
		}
		decodeFloats(rest[:n], e.staging.Bytes())
		rest, at = rest[n:], at+ptx.Address(4*n)
	}
	return x, nil
}
