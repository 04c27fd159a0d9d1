package accel

import (
	"fmt"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// launchTapped launches a list kernel by kernel and calls Options.Tap with the results of each. They come through the staging buffer, so
// what is in it is taken first.
func (e *Engine) launchTapped(p *pass, l *launchList, batch []batchToken) error {
	if len(e.reads.list) > 0 {
		if err := e.readAll(p); err != nil {
			return err
		}
	}
	for _, c := range l.commands {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if err := e.stream.Launch(c.Launch); err != nil {
			return fmt.Errorf("layer %d, %s: %w", c.Layer, c.Op, err)
		}
		for _, v := range c.Views {
			if err := e.tap(c.Layer, v, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// tap reads the values of all tokens in a view and calls Options.Tap.
func (e *Engine) tap(layer int, v plan.View, batch []batchToken) error {
	var values []float32
	width := v.Width
	for i, b := range batch {
		var x []float32
		var err error
		if v.Cache != 0 {
			x, err = e.readCache(layer, v.Cache, b)
			width = len(x)
		} else {
			x, err = e.readFloats(v.At+ptx.Address(4*i*v.Stride), v.Width)
		}
		if err != nil {
			return err
		}
		values = append(values, x...)
	}
	e.options.Tap(layer, v.Op, batch[0].position, width, values)
	return nil
}

// readCache returns the keys or values of a token in a layer, [kv heads, head dim].
func (e *Engine) readCache(layer int, base ptx.Address, b batchToken) ([]float32, error) {
	data, err := e.cache.Read(layer, base, &b.sequence.table, b.position)
	if err != nil {
		return nil, err
	}
	l := &e.layout.KV[layer]
	x := make([]float32, l.KVHeads*l.HeadDim)
	quant.Decode(l.Format, x, data)
	return x, nil
}
