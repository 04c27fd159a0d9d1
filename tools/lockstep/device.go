package main

import (
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// deviceFlag says what computes a model.
type deviceFlag struct {
	Device string         `enum:"auto,cpu,gpu,emu" default:"auto" help:"What computes: cpu; gpu, an NVIDIA GPU; emu, an emulated GPU, which shows what the kernels do and is slow; auto: the GPU if there is one with room for the model, else the CPU (${default})." placeholder:"auto|cpu|gpu|emu"`
	KV     model.KVFormat `name:"kv" help:"Format of the keys and values in the cache (default: f32 on the CPU, f16 on a GPU)." placeholder:"f16|bf16|f32"`
}

// demand is what a command wants of an engine.
type demand struct {
	name      string             // what messages call the model
	positions int                // of its one sequence
	timer     func(accel.Timing) // of a GPU's kernels; nil: none, and graphs are used
}

// computer is an engine with what it was made on.
type computer struct {
	model.Engine
	device driver.Device // nil: the CPU
}

// Close closes the engine and the device.
func (c *computer) Close() error {
	err := c.Engine.Close()
	if c.device != nil {
		err = errors.Join(err, c.device.Close())
	}
	return err
}

// onCPU says whether the reference computes.
func (c *computer) onCPU() bool { return c.device == nil }

// openGPU opens the first GPU. Tests put another device in its place.
var openGPU = func() (driver.Device, error) {
	dev, err := cuda.Open(0)
	if err != nil {
		return nil, err // not a *cuda.Device that is nil
	}
	return dev, nil
}

// emulated is the device of --device emu: few SMs, for which kernels split their work
// less, and with room for a small model.
var emulated = emu.Options{SMs: 4, Memory: 4 << 30, IgnoreRaces: true}

// openDevice opens what --device gpu or emu names.
func openDevice(name string) (dev driver.Device, err error) {
	if name == "emu" {
		dev, err = emu.Open(emulated)
	} else {
		dev, err = openGPU()
	}
	if err != nil {
		return nil, fmt.Errorf("--device %s: %w", name, err)
	}
	return dev, nil
}

// engine makes the engine that the flags ask for. The caller closes it, and then the
// model.
func (d deviceFlag) engine(e *env, m *model.Model, want demand) (*computer, error) {
	switch {
	case d.Device == "cpu":
		return d.onCPU(m, want)
	case d.Device == "auto":
		return d.auto(e, m, want)
	}
	dev, err := openDevice(d.Device)
	if err != nil {
		return nil, err
	}
	c, err := d.onDevice(e, dev, m, want)
	if err != nil {
		return nil, fmt.Errorf("--device %s: %s: %w", d.Device, want.name, err)
	}
	return c, nil
}

func (d deviceFlag) onCPU(m *model.Model, want demand) (*computer, error) {
	eng, err := ref.NewWith(m, ref.Options{Numerics: ref.Numerics{KV: d.KV}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", want.name, err)
	}
	return &computer{Engine: eng}, nil
}

// auto takes the GPU if there is one that can compute the model, and says so. Otherwise
// it says why not, unless it is because nothing here ever had a GPU: then with --verbose
// only. A GPU that should be
// able to and fails is an error: to be slow without a word would hide it.
func (d deviceFlag) auto(e *env, m *model.Model, want demand) (*computer, error) {
	dev, err := openGPU()
	if err != nil {
		if e.verbose || !errors.Is(err, driver.ErrNoDriver) {
			e.note("device: cpu, because of the GPU: %s", oneLine(err))
			e.places(err)
		}
		return d.onCPU(m, want)
	}
	name := dev.Properties().Name
	c, err := d.onDevice(e, dev, m, want)
	switch {
	case err == nil:
		p := c.Engine.(*accel.Engine).Plan()
		e.note("device: gpu, %s: %s of the %s that are free", name, size(p.Need()), size(p.Free))
		return c, nil
	case unable(err):
		e.note("device: cpu, because of the GPU, %s: %s", name, oneLine(err))
		return d.onCPU(m, want)
	}
	return nil, fmt.Errorf("--device auto: %s: %s: %w; --device cpu does without it", want.name, name, err)
}

// hint says how to see more of an error.
func (e *env) hint(err error) string {
	var missing *cuda.MissingError
	if e.verbose || !errors.As(err, &missing) || len(missing.Tried) < 2 {
		return ""
	}
	return " (-v lists them)"
}

// places lists where a driver was looked for in vain, with --verbose.
func (e *env) places(err error) {
	var missing *cuda.MissingError
	if !e.verbose || !errors.As(err, &missing) {
		return
	}
	for _, place := range missing.Tried {
		e.note("  %s", oneLine(errors.New(place)))
	}
}

// unable says whether an error means that a model is not for this device, rather than
// that something broke.
func unable(err error) bool {
	return errors.Is(err, driver.ErrOutOfMemory) || errors.Is(err, driver.ErrUnsupported) || errors.Is(err, model.ErrUnsupported)
}

// leastCapability is the compute capability that the kernels are written for, times 10.
const leastCapability = 80

// onDevice uploads the model. The device is the engine's, or closed.
func (d deviceFlag) onDevice(e *env, dev driver.Device, m *model.Model, want demand) (c *computer, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, dev.Close())
		}
	}()
	if err := capable(dev.Properties()); err != nil {
		return nil, err
	}
	o := d.options(want)
	var bar *progress
	shown := int64(0)
	o.Progress = func(done, total int64) {
		if bar == nil {
			bar = e.progressBytes("upload", total)
		}
		bar.add(int(done - shown))
		shown = done
	}
	eng, err := accel.New(e.ctx, m, dev, o)
	if bar != nil {
		bar.end()
	}
	if err != nil {
		return nil, err
	}
	return &computer{eng, dev}, nil
}

func capable(p driver.Properties) error {
	if p.ComputeCapability < leastCapability {
		return fmt.Errorf("%w: compute capability %d.%d; the kernels need %d.%d", driver.ErrUnsupported,
			p.ComputeCapability/10, p.ComputeCapability%10, leastCapability/10, leastCapability%10)
	}
	return nil
}

// kvPage is the positions of a page of a GPU's cache.
const kvPage = 64

// options are those of a GPU's engine that is to hold one sequence, and no more.
func (d deviceFlag) options(want demand) accel.Options {
	return accel.Options{
		KV: d.KV, MaxSequences: 1, KVPages: max(1, (want.positions+kvPage-1)/kvPage),
		Timer: want.timer,
	}
}
