package emu

import "runtime"

// Options select the emulated device, and how it uses the freedom that PTX gives an implementation.
// The zero value is a device of sm_90 with deterministic order, immediate copies and correctly
// rounded results.
type Options struct {
	ComputeCapability int   // major×10 + minor: 80, 86, 89 or 90; 0 is 90
	SMs               int   // 0 is 132
	Memory            int64 // bytes; 0 is 1 GiB
	// Workers is the number of goroutines that run CTAs; 0 is GOMAXPROCS. Results depend on it only
	// if the result of a kernel depends on the order of its atomic operations.
	Workers         int
	MaxInstructions int64 // warp instructions per launch; 0 is 2³²

	Schedule    Schedule
	Async       Async
	Approx      Approximation
	LateStreams bool // queued work runs only when a call waits for it, so a missing wait has visible effects
	// IgnoreRaces skips what needs a history of accesses, about half of the time: the detection of races, of writes to
	// operands of wgmma in flight and to memory that ld.global.nc reads, of missing proxy fences, and of warpgroups that
	// do not synchronize before setmaxnreg.
	IgnoreRaces bool

	Cache *Cache // shares decoded modules between devices; nil decodes each time
}

// Schedule is the order in which warps and diverged lanes run.
type Schedule struct {
	Adversarial bool
	Seed        uint64
}

// InOrder runs the warps of a CTA one after the other, for long turns. Of diverged lanes, those
// with the lowest program counter run first.
var InOrder = Schedule{}

// Adversarial picks warps and lanes at random, for a few instructions at a time.
func Adversarial(seed uint64) Schedule { return Schedule{true, seed} }

// Async says when asynchronous copies complete.
type Async uint8

// The modes of asynchronous copies.
const (
	// Eager copies complete when they are issued.
	Eager Async = iota
	// Late copies leave their destination undefined until the kernel waits for them. In an adversarial schedule, bulk copies
	// end in any order.
	Late
)

// Approximation says what approximate instructions return. If Perturb is set, Seed selects a result within
// the error bound of the PTX ISA. Otherwise it is the correctly rounded one.
type Approximation struct {
	Perturb bool
	Seed    uint64
}

// Perturbed is an Approximation that perturbs results.
func Perturbed(seed uint64) Approximation { return Approximation{true, seed} }

func (o Options) withDefaults() Options {
	if o.ComputeCapability == 0 {
		o.ComputeCapability = 90
	}
	if o.SMs == 0 {
		o.SMs = 132
	}
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.MaxInstructions == 0 {
		o.MaxInstructions = 1 << 32
	}
	return o
}

// sharedPerSM is the shared memory of an SM in bytes, by compute capability, from the CUDA
// programming guide. A CTA may have all of it but the kilobyte of the system.
var sharedPerSM = map[int]int{80: 164 << 10, 86: 100 << 10, 89: 100 << 10, 90: 228 << 10}
