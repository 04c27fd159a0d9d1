package accel

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/quant"
)

// compile makes the program of a pass.
func (e *Engine) compile(p pass) (*program, error) {
	b := e.planner(p, e.kernels)
	b.steps = make([]step, 0, e.longest)
	steps, err := b.plan()
	if err != nil {
		return nil, err
	}
	e.longest = max(e.longest, len(steps))
	made := newProgram(p, steps)
	made.tries = !p.fast && !e.o.Eager && e.o.Tap == nil && e.o.Timer == nil
	return made, nil
}

// planner plans a pass over this memory; without kernels, for looking at.
func (l *layout) planner(p pass, m *kernelcache.Cache) *planner {
	b := &planner{shape: &l.shape, buffers: l.buffers, w: l.weights, kv: l.pool, kernels: m, pass: p, layer: -1}
	if b.in = b.stepInputs(&l.shape); p.fast {
		b.in = b.chunkInputs(&l.shape, p.rows)
	}
	return b
}

// program is that of a pass, made once.
func (e *Engine) program(p pass) (*program, error) {
	if have := e.programs[p]; have != nil {
		return have, nil
	}
	made, err := e.compile(p)
	if err == nil && e.keeps(p) {
		e.programs[p] = made
	}
	return made, err
}

// keeps reports whether the program of a pass is kept. Chunks of odd sizes come once.
func (e *Engine) keeps(p pass) bool { return !p.fast || p.rows == e.o.Chunk }

// launchParts plans a pass that is not kept, and queues each part of it when it is planned: the
// device works on the first while the host plans the others.
func (e *Engine) launchParts(p pass) error {
	b := e.planner(p, e.kernels)
	for range b.parts() {
		e.launches = e.launches[:0]
		for _, s := range b.steps {
			e.launches = append(e.launches, s.launch)
		}
		if err := e.stream.Launch(e.launches...); err != nil {
			return err
		}
		b.steps = b.steps[:0]
	}
	return b.err
}

// row is one position of a pass.
type row struct {
	session  *session
	token    int
	position int
}

// tapped runs a program step by step, and shows what each gives.
func (e *Engine) tapped(ctx context.Context, p *program, rows []row) error {
	for _, s := range p.steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := e.stream.Launch(s.launch); err != nil {
			return fmt.Errorf("layer %d, %s: %w", s.Layer, s.Op, err)
		}
		for _, v := range s.shows {
			if err := e.show(s.Layer, v, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// show reads a view and gives it to the tap.
func (e *Engine) show(layer int, v view, rows []row) error {
	var values []float32
	width := v.width
	for i, r := range rows {
		if v.cache != 0 {
			x, err := e.cached(v.cache, r)
			if err != nil {
				return err
			}
			values, width = append(values, x...), len(x)
			continue
		}
		x, err := e.floats(v.at+uint64(4*i*v.stride), v.width)
		if err != nil {
			return err
		}
		values = append(values, x...)
	}
	e.o.Tap(layer, v.op, rows[0].position, width, values)
	return nil
}

// cached is the keys or values of a row: what its page holds of each head.
func (e *Engine) cached(cache uint64, r row) ([]float32, error) {
	f, dim := e.kvFormat, e.cfg.HeadDim
	data := make([]byte, dim*f.BlockBytes())
	x := make([]float32, e.cfg.KVHeads*dim)
	for h := range e.cfg.KVHeads {
		at := int(r.session.pages[r.position/page])*e.pool.bytes + (h*page+r.position%page)*len(data)
		if err := e.stream.Read(data, driver.Address(cache+uint64(at))); err != nil {
			return nil, err
		}
		quant.Decode(f, x[h*dim:][:dim], data)
	}
	return x, nil
}

// floats reads numbers from the device.
func (e *Engine) floats(at uint64, n int) ([]float32, error) {
	x := make([]float32, n)
	return x, e.readFloats(x, at)
}

// readFloats reads numbers from the device, in pieces that the pinned memory holds.
func (e *Engine) readFloats(dst []float32, at uint64) error {
	for len(dst) > 0 {
		n := min(len(dst), len(e.host.Bytes())/4)
		if err := e.stream.ReadAsync(e.host, 0, driver.Address(at), 4*n); err != nil {
			return err
		}
		if err := e.stream.Synchronize(); err != nil {
			return err
		}
		getFloats(dst[:n], e.host.Bytes())
		dst, at = dst[n:], at+uint64(4*n)
	}
	return nil
}

func getFloats(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// readLogits waits for the device, and reads rows of logits, as many together as the
// pinned memory holds.
func (e *Engine) readLogits(into [][]float32, from []int) error {
	size := 4 * e.cfg.Vocab
	most := len(e.host.Bytes()) / size
	for {
		n := min(len(from), most)
		for i, row := range from[:n] {
			if err := e.stream.ReadAsync(e.host, i*size, driver.Address(e.buffers.logits+uint64(row*size)), size); err != nil {
				return err
			}
		}
		if err := e.stream.Synchronize(); err != nil {
			return err
		}
		for i, dst := range into[:n] {
			getFloats(dst, e.host.Bytes()[i*size:])
		}
		if into, from = into[n:], from[n:]; len(from) == 0 {
			return nil
		}
	}
}
