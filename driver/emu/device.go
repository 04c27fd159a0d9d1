// Package emu is a device without a GPU: it parses PTX text and runs it warp by
// warp, as a sanitiser. A kernel that reads what nobody wrote, leaves its buffers,
// races, or uses a barrier wrongly traps, and the trap names kernel, line and lane.
//
// It proves what a kernel means. It does not say whether the real compiler takes
// the text, how fast the kernel is, or what a tensor core rounds.
package emu

import (
	"fmt"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
)

// Device is an emulated device. It implements driver.Device.
type Device struct {
	mu       sync.Mutex // held by every call, and while kernels run
	opts     Options
	props    driver.Properties
	limits   smLimits
	memory   memory
	counters Counters
	fault    error // the trap that took the device
	closed   bool
	live     Live
	streams  map[*stream]bool
	launches uint64
	chain    uint32 // see settled
	ticks    int64  // stands in for time: instructions executed
}

// Live counts the objects that have been made and not closed.
type Live struct{ Buffers, Pinned, Modules, Streams, Events, Graphs int }

// smLimits bounds the CTAs that are resident on one SM.
type smLimits struct{ threads, shared int }

// Open makes a device. ErrUnsupported for a compute capability that it does not know.
func Open(opts Options) (*Device, error) {
	opts = opts.withDefaults()
	shared, ok := sharedPerSM[opts.ComputeCapability]
	if !ok || opts.SMs < 0 || opts.Memory < 0 || opts.Workers < 0 || opts.MaxInstructions < 0 {
		return nil, &driver.Error{Op: "emu.Open", Kind: driver.ErrUnsupported, Detail: fmt.Sprintf("%+v", opts)}
	}
	d := &Device{opts: opts, counters: Counters{}, streams: map[*stream]bool{}}
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

// SetSchedule changes Options.Schedule and Options.IgnoreRaces for what runs from now on.
func (d *Device) SetSchedule(s Schedule, ignoreRaces bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opts.Schedule, d.opts.IgnoreRaces = s, ignoreRaces
}

// Properties describe the device that is emulated.
func (d *Device) Properties() driver.Properties { return d.props }

// invalid is a wrong use of the device.
func invalid(op, format string, args ...any) error {
	return &driver.Error{Op: "emu." + op, Kind: driver.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}

// usable is nil, or why the device takes no more calls. The lock is held.
func (d *Device) usable(op string) error {
	if d.closed {
		return invalid(op, "the device is closed")
	}
	return d.fault
}

// Live says how many objects there are.
func (d *Device) Live() Live {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live
}

// Memory says how many bytes are free and how many there are.
func (d *Device) Memory() (free, total int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.memory.limit - d.memory.used, d.memory.limit, d.usable("Memory")
}

// Err is nil, or the trap that took the device.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fault
}

// drain runs what all streams have queued.
func (d *Device) drain() error {
	for s := range d.streams {
		if err := s.runUntil(s.queued); err != nil {
			return err
		}
	}
	return nil
}

// Close frees everything. Work still queued is dropped.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.memory.segments = nil
	d.memory.used = 0
	d.live = Live{}
	d.streams = nil
	return nil
}

// launch runs a kernel to its end. The lock is held.
func (d *Device) launch(l *driver.Launch) error {
	f := l.Function.(*function)
	p := f.prog
	d.launches++
	if !l.Overlaps {
		d.chain++
	}
	g := &grid{
		prog: p, dim: l.Grid, block: l.Block, params: l.Params, sharedBytes: p.dynamic + int(l.Shared),
		memory: &d.memory, schedule: d.opts.Schedule, late: d.opts.Async == Late,
		approx: alu.Approx{Seed: d.opts.Approx.Seed, Perturb: d.opts.Approx.Perturb},
		tensor: alu.Hopper, races: !d.opts.IgnoreRaces, epoch: d.launches,
		overlaps: l.Overlaps, chain: d.chain,
	}
	if d.opts.ComputeCapability < 90 {
		g.tensor = alu.Ampere
	}
	g.resident = max(1, d.opts.SMs*d.occupancy(p, threads(l.Block), l.Shared))
	g.left.Store(d.opts.MaxInstructions)
	trap, loadBytes := g.checkPointers(), uint64(0)
	if trap == nil {
		loadBytes, trap = g.run(d.opts.Workers)
	}
	executed := d.opts.MaxInstructions - g.left.Load()
	d.ticks += executed
	c := d.counters[p.name]
	c.Launches++
	c.WarpInstructions += uint64(executed)
	c.LoadBytes += loadBytes
	d.counters[p.name] = c
	if trap != nil {
		d.fault = trap
		return trap
	}
	return nil
}

// occupancy is how many CTAs an SM holds by threads and shared memory.
func (d *Device) occupancy(p *program, n int, dynamic uint32) int {
	warps := (n + warpSize - 1) / warpSize
	if n <= 0 || n > p.maxThreads() {
		return 0
	}
	shared := p.dynamic + int(dynamic) + sharedBase
	if shared > d.limits.shared {
		return 0
	}
	return min(32, d.limits.threads/(warps*warpSize), d.limits.shared/shared)
}
