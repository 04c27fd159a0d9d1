package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/internal/prefill"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// compare runs both engines. The device stays open.
func (c *diffCmd) compare(e *env, m, of *model.Model, dev driver.Device, tokens []int) (*layerdiff.Report, error) {
	got, err := c.onDevice(e, m, dev, tokens)
	if err != nil {
		return nil, fmt.Errorf("--device %s: %s: %w", c.Device, c.name(), err)
	}
	n := c.numerics(m)
	want, effects, err := c.onCPU(e, of, n, tokens)
	if err != nil {
		return nil, fmt.Errorf("%s: the reference: %w", cmp.Or(string(c.Reference), c.name()), err)
	}
	report, err := layerdiff.Compare(want, got, n, effects)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name(), err)
	}
	return report, nil
}

// numerics is to what the device rounds: prompts on tensor cores have inputs and weights
// in bf16 if the weights are, else in f16.
func (c *diffCmd) numerics(m *model.Model) layerdiff.Numerics {
	n := layerdiff.Numerics{KV: c.KV.Format(quant.F16)}
	if c.Prefill == "f16" {
		n.Input = quant.F16
		if m.Weights.Layers[0].Q.W.Format == quant.BF16 {
			n.Input = quant.BF16
		}
	}
	return n
}

// onCPU is what the reference shows with the numerics' roundings, and what these do.
func (c *diffCmd) onCPU(e *env, m *model.Model, n layerdiff.Numerics, tokens []int) (*layerdiff.Trace, map[layerdiff.Op]float64, error) {
	numerics := ref.Numerics{KV: c.KV}
	if n.Input != quant.F32 {
		numerics = prefill.Numerics(c.KV, m.Config.HeadDim)
		if c.Reference != "" { // its weights may have another format than those of the device
			numerics.Input = map[quant.Format]ref.Rounding{quant.F16: ref.ToF16, quant.BF16: ref.ToBF16}[n.Input]
			numerics.Weights = numerics.Input
		}
	}
	want, err := refTrace(e, m, numerics, tokens)
	if err != nil {
		return nil, nil, err
	}
	want.Store(n.KV, "key", "value") // as the device shows them
	if !n.Rounds() {
		return want, nil, nil
	}
	exact, err := refTrace(e, m, ref.Numerics{}, tokens)
	if err != nil {
		return nil, nil, err
	}
	effects, err := layerdiff.Effects(exact, want)
	return want, effects, err
}

func refTrace(e *env, m *model.Model, n ref.Numerics, tokens []int) (*layerdiff.Trace, error) {
	t := layerdiff.NewTrace()
	eng, err := ref.NewWith(m, ref.Options{Numerics: n, Tap: t.Add})
	if err != nil {
		return nil, err
	}
	_, err = allLogits(e, eng, tokens)
	return t, err
}

// onDevice is what the accelerator shows.
func (c *diffCmd) onDevice(e *env, m *model.Model, dev driver.Device, tokens []int) (t *layerdiff.Trace, err error) {
	t = layerdiff.NewTrace()
	o := deviceFlag{KV: c.KV}.accelOptions(len(tokens))
	o.Tap, o.Prefill = t.AddFloats, accel.PrefillExact
	if c.Prefill == "f16" {
		o.Prefill = accel.PrefillF16
	}
	eng, err := accel.New(e.ctx, m, dev, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	s, err := eng.NewSession(len(tokens))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	// All at once: a single token left for the end would be a step.
	_, err = s.Forward(e.ctx, tokens, model.WantAll)
	return t, err
}
