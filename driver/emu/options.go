package emu

import "runtime"

// Options say what device is emulated and how it treats the freedom that PTX
// leaves it. The zero value is an sm_90 device with every freedom used kindly.
type Options struct {
	ComputeCapability int   // major×10 + minor: 80, 86, 89 or 90; 0 is 90
	SMs               int   // 0 is 132
	Memory            int64 // bytes; 0 is 1 GiB
	Workers           int   // CTAs that run at the same time; 0 is one a CPU. Only what atomics tell of their order depends on it
	MaxInstructions   int64 // warp instructions that a launch may execute; 0 is 2³²

	Schedule    Schedule
	Async       Async
	Approx      Approximation
	LateStreams bool // work runs only when something waits for it, so that a missing wait shows
	IgnoreRaces bool // do not look for races: faster, and blind to a missing barrier

	Cache *Cache // of programs, for many devices that load the same texts; nil: none
}

// Schedule is the order in which warps, and lanes that have parted, run.
type Schedule struct {
	Adversarial bool
	Seed        uint64
}

// InOrder runs the first warp as far as it gets, then the next; of lanes that have
// parted those that are behind.
var InOrder = Schedule{}

// Adversarial picks warps and lanes at random, a few instructions at a time.
func Adversarial(seed uint64) Schedule { return Schedule{true, seed} }

// Async is when the data of asynchronous copies arrive.
type Async uint8

// The modes of asynchronous copies.
const (
	// Eager copies arrive at once.
	Eager Async = iota
	// Late copies leave their destination undefined until something waits for them.
	Late
)

// Approximation is what approximate instructions return: rounded correctly, or
// anything within the bound that the PTX ISA documents.
type Approximation struct {
	Perturb bool
	Seed    uint64
}

// Perturbed moves the results of approximate instructions within their bounds.
func Perturbed(seed uint64) Approximation { return Approximation{true, seed} }

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	pick := func(v *int64, preset int64) {
		if *v == 0 {
			*v = preset
		}
	}
	pick(&o.Memory, 1<<30)
	pick(&o.MaxInstructions, 1<<32)
	if o.ComputeCapability == 0 {
		o.ComputeCapability = 90
	}
	if o.SMs == 0 {
		o.SMs = 132
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return o
}

// sharedPerSM are the bytes of shared memory of an SM, by compute capability; a CTA
// may have all but the kilobyte that the system takes. From the CUDA programming guide.
var sharedPerSM = map[int]int{80: 164 << 10, 86: 100 << 10, 89: 100 << 10, 90: 228 << 10}
