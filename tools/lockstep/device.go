package main

import (
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// deviceFlag selects what computes a model.
type deviceFlag struct {
	Device lockstep.Device `enum:"auto,cpu,gpu,emu" default:"auto" env:"LOCKSTEP_DEVICE" help:"Device: cpu; gpu, an NVIDIA GPU; emu, an emulated GPU, slow; auto, the GPU if it can run the model, else the CPU (${default})." placeholder:"auto|cpu|gpu|emu"`
	KV     model.KVFormat  `name:"kv" env:"LOCKSTEP_KV" help:"Format of the KV cache: f32 on the CPU alone (default: f32 on the CPU, f16 on a GPU)." placeholder:"f16|bf16|f32"`
}

// openGPU opens the first GPU. Tests replace it.
var openGPU = func() (driver.Device, error) { return lockstep.OpenDevice(lockstep.GPU) }

func openDevice(d lockstep.Device) (driver.Device, error) {
	if d == lockstep.GPU {
		return openGPU()
	}
	return lockstep.OpenDevice(d)
}

// openNoted opens a device and watches it.
func (e *env) openNoted(d lockstep.Device) (driver.Device, error) {
	dev, err := openDevice(d)
	if err == nil {
		e.watch(dev)
	}
	return dev, err
}

// gpuDevice has the methods of [cuda.Device] that tell why it is slow.
type gpuDevice interface {
	CacheError() error
	SlowKernels() []error
}

// watch prints why a GPU does not cache its kernels, which makes every start slow. It lets
// noteSlowKernels find the GPU when the command has ended.
func (e *env) watch(dev driver.Device) {
	gpu, ok := dev.(gpuDevice)
	if !ok {
		return
	}
	e.gpus = append(e.gpus, gpu)
	if err := gpu.CacheError(); err != nil {
		e.note("%s", oneLine(err))
	}
}

// noteSlowKernels prints the kernels that the GPU's compiler made slow.
func (e *env) noteSlowKernels() {
	for _, gpu := range e.gpus {
		for _, err := range gpu.SlowKernels() {
			e.note("%s", oneLine(err))
		}
	}
}

// checkKV refuses a cache that no GPU has. With auto, the CPU computes the model then.
func checkKV(d lockstep.Device, kv model.KVFormat) error {
	if kv == model.KVF32 && (d == lockstep.GPU || d == lockstep.Emulator) {
		return usagef("--kv: f32, want f16 or bf16 with --device %s", d)
	}
	return nil
}

// openFlag opens the device of a --device flag.
func (e *env) openFlag(d lockstep.Device) (driver.Device, error) {
	dev, err := e.openNoted(d)
	if err != nil {
		return nil, fmt.Errorf("--device %s: %w", d, err)
	}
	return dev, nil
}

// engine makes an engine for one sequence of up to positions positions. On a GPU, timer
// receives the kernel times if it is not nil. The caller closes the result, and then m.
func (d deviceFlag) engine(e *env, m *model.Model, name string, positions int, timer func(accel.Timing)) (*lockstep.Model, error) {
	o := d.accelOptions(positions)
	o.Timer = timer
	return d.run(e, m, name, lockstep.Options{Accel: o})
}

// run is lockstep.New with the flags and with progress. The caller closes the result, and then m.
func (d deviceFlag) run(e *env, m *model.Model, name string, o lockstep.Options) (*lockstep.Model, error) {
	if err := checkKV(d.Device, d.KV); err != nil {
		return nil, err
	}
	progress, end := e.uploadProgress()
	o.Device, o.KV, o.OpenDevice, o.Accel.Progress = d.Device, d.KV, e.openNoted, progress
	c, err := lockstep.New(e.ctx, m, o)
	end()
	if err != nil {
		return nil, fmt.Errorf("--device %s: %s: %w", d.Device, name, err)
	}
	for _, w := range m.Warnings {
		e.note("warning: %s", w)
	}
	if d.Device == lockstep.Auto {
		e.noteDevice(c)
	}
	if device, _ := c.Device(); device == lockstep.CPU {
		e.noteSlow(m)
	}
	return c, nil
}

// noteDevice tells which device auto selected. On a machine without a GPU driver it does so
// only with --verbose.
func (e *env) noteDevice(c *lockstep.Model) {
	if eng, ok := c.Engine().(*accel.Engine); ok {
		p := eng.Plan()
		e.note("device: gpu, %s: %s of %s free memory", p.Device, size(p.Need()), size(p.Free))
		return
	}
	if _, err := c.Device(); e.verbose || !errors.Is(err, driver.ErrNoDriver) {
		e.note("device: cpu, GPU not used: %s", oneLine(err))
		e.noteTried(err)
	}
}

// accelOptions returns the options of an engine for one sequence on a GPU.
func (d deviceFlag) accelOptions(positions int) accel.Options {
	return accel.Options{KV: d.KV, MaxSequences: 1, KVPages: max(1, (positions+attention.PageTokens-1)/attention.PageTokens)}
}

// hint returns how to see more of an error, or "".
func (e *env) hint(err error) string {
	var missing *cuda.LibraryError
	if e.verbose || !errors.As(err, &missing) || len(missing.Tried) < 2 {
		return ""
	}
	return " (-v lists them)"
}

// noteTried lists, with --verbose, the paths where a missing driver library was searched.
func (e *env) noteTried(err error) {
	var missing *cuda.LibraryError
	if !e.verbose || !errors.As(err, &missing) {
		return
	}
	for _, tried := range missing.Tried {
		e.note("  %s", oneLine(errors.New(tried)))
	}
}
