// Package emu implements driver.Device without a GPU. It interprets PTX text warp by warp and
// checks it like a sanitizer: uninitialized registers and memory, accesses out of bounds, data
// races, misused barriers and asynchronous operations, deadlocks and livelocks. A kernel that does
// such a thing fails with a [Trap], which names the kernel, the line of the text, the CTA and the
// thread.
//
// The emulator does not tell whether ptxas accepts the text or how fast the kernel is. Where the
// PTX ISA defines a result, the emulator computes the same bits. Sums of tensor cores follow
// published models of the hardware.
//
// A Device and everything made from it may be used by several goroutines. Calls run one at a time.
package emu

import (
	"fmt"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
)

// Device is an emulated GPU.
type Device struct {
	mu               sync.Mutex // held by every call until it returns, also while kernels run
	opts             Options
	props            driver.Properties
	limits           smLimits
	memory           memory
	warpInstructions map[string]uint64 // since the last reset, by kernel
	fault            error             // the trap or error after which the device is lost
	closed           bool
	live             Live
	streams          map[*stream]bool
	launches         uint64
	chain            uint32 // number of the current chain, see dependentlaunch.go
	ticks            int64  // instructions executed
}

// Live counts open objects.
type Live struct{ Buffers, Pinned, Modules, Streams, Events, Graphs int }

const (
	maxThreadsPerCTA = 1024
	maxCTAsPerSM     = 32
)

// smLimits bounds the CTAs that are resident on one SM.
type smLimits struct{ threads, shared int }

// Open returns a device. It fails with driver.ErrUnsupported if opts has a negative number or an
// unknown compute capability.
func Open(opts Options) (*Device, error) {
	opts = opts.withDefaults()
	shared, ok := sharedPerSM[opts.ComputeCapability]
	if !ok || opts.SMs < 0 || opts.Memory < 0 || opts.Workers < 0 || opts.MaxInstructions < 0 {
		return nil, &driver.Error{Op: "emu.Open", Kind: driver.ErrUnsupported, Detail: fmt.Sprintf("%+v", opts)}
	}
	d := &Device{opts: opts, warpInstructions: map[string]uint64{}, streams: map[*stream]bool{}}
	d.memory.limit = opts.Memory
	perSM := 2048
	if opts.ComputeCapability == 86 || opts.ComputeCapability == 89 {
		perSM = 1536
	}
	d.props = driver.Properties{
		Name:              fmt.Sprintf("emulated sm_%d", opts.ComputeCapability),
		DriverVersion:     12040,
		ComputeCapability: opts.ComputeCapability,
		PTXVersion:        84,
		SMs:               opts.SMs,
		SharedPerCTA:      shared - 1<<10,
		Memory:            opts.Memory,
	}
	d.limits = smLimits{perSM, shared}
	return d, nil
}

var _ driver.Device = (*Device)(nil)

// SetSchedule changes Options.Schedule and Options.IgnoreRaces for kernels that run from now on, so
// that one device can run the same work in several schedules.
func (d *Device) SetSchedule(s Schedule, ignoreRaces bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opts.Schedule, d.opts.IgnoreRaces = s, ignoreRaces
}

// Properties describes the emulated device.
func (d *Device) Properties() driver.Properties { return d.props }

// invalid returns a driver.ErrInvalid.
func invalid(op, format string, args ...any) error {
	return &driver.Error{Op: "emu." + op, Kind: driver.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}

// usable returns an error if the device is closed or lost. The lock is held.
func (d *Device) usable(op string) error {
	if d.closed {
		return invalid(op, "the device is closed")
	}
	return d.fault
}

// Live counts the objects that have been made and not closed.
func (d *Device) Live() Live {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live
}

// Memory returns free and total bytes of device memory.
func (d *Device) Memory() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.memory.limit - d.memory.used, d.memory.limit, d.usable("Memory")
}

// Err returns the trap or error after which the device is lost, or nil.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fault
}

// drain runs the tasks of all streams.
func (d *Device) drain() error {
	for s := range d.streams {
		if err := s.run(s.queued); err != nil {
			return err
		}
	}
	return nil
}

// Close frees everything and drops queued tasks.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.memory.allocations = nil
	d.memory.used = 0
	d.live = Live{}
	d.streams = nil
	return nil
}

// launch runs a kernel until it ends or stop returns true. The lock is held.
func (d *Device) launch(l *driver.Launch, stop func() bool) error {
	f := l.Function.(*function)
	p := f.prog
	d.launches++
	if !l.Overlaps {
		d.chain++
	}
	g := &grid{
		prog: p, dim: l.Grid, block: l.Block, params: l.Params, sharedBytes: p.static,
		memory: &d.memory, schedule: d.opts.Schedule, lateCopies: d.opts.Async == Late,
		approx: alu.Approx{Seed: d.opts.Approx.Seed, Perturb: d.opts.Approx.Perturb},
		tensor: alu.Hopper, races: !d.opts.IgnoreRaces, launch: d.launches,
		overlaps: l.Overlaps, chain: d.chain, stop: stop,
	}
	if l.Shared > 0 {
		g.sharedBytes = p.dynamic + int(l.Shared)
	}
	if d.opts.ComputeCapability < 90 {
		g.tensor = alu.Ampere
	}
	g.resident = d.residentCTAs(p, l)
	g.remaining.Store(d.opts.MaxInstructions)
	trap := g.checkPointers()
	if trap == nil {
		trap = g.run(d.opts.Workers)
	}
	executed := d.opts.MaxInstructions - g.remaining.Load()
	d.ticks += executed
	d.warpInstructions[p.name] += uint64(executed)
	if trap != nil {
		d.fault = trap
		return trap
	}
	if g.stopped.Load() {
		return &driver.Error{Op: "emu.Launch", Kind: driver.ErrInterrupted, Detail: "kernel " + p.name}
	}
	return nil
}

// residentCTAs is how many CTAs of a launch fit on the device.
func (d *Device) residentCTAs(p *program, l *driver.Launch) int {
	warps := (volume(l.Block) + warpSize - 1) / warpSize
	shared := p.static + int(l.Shared) + sharedBase
	return d.opts.SMs * min(maxCTAsPerSM, d.limits.threads/(warps*warpSize), d.limits.shared/shared)
}
