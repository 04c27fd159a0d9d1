package conformance

import (
	"flag"
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
)

// heavy is of tests that compute for seconds on an emulated device: left out of -short,
// and beside each other, but on a GPU, of which there is one.
func slowParallel(t *testing.T) {
	t.Helper()
	skipIfShort(t)
	parallelUnlessGPU(t)
}

func parallelUnlessGPU(t *testing.T) {
	if !*onGPU {
		t.Parallel()
	}
}

// The kernel suite's flags, as in
//
//	go test ./conformance -run TestKernels -kernels 'gemv/' -seed 7 -long -gpu
//
// (-json FILE is go test's own flag: give it after -args.)
var (
	onGPU      = flag.Bool("gpu", false, "run the kernel suite on the first CUDA device, not on the emulator; without one it fails")
	longCases  = flag.Bool("long", false, "run the kernel suite's long cases, too")
	kernelSeed = flag.Uint64("seed", 1, "the seed of the kernel suite's inputs")
	jsonFile   = flag.String("json", "", "write the kernel suite's summary to this file")
	kernelIDs  = flag.String("kernels", "", "run the kernel cases whose operation/name matches this regular expression")
)

// openDevice opens what the flags ask for.
func openDevice() (driver.Device, error) {
	if *onGPU {
		return cuda.Open(0)
	}
	return emu.Open(emulation())
}

// emulation uses every freedom that PTX leaves a device against the kernel: warps in
// any order, asynchronous copies at the last moment, and approximations anywhere
// within their bounds.
func emulation() emu.Options {
	return emu.Options{
		Schedule: emu.Adversarial(*kernelSeed), Async: emu.Late, Approx: emu.Perturbed(*kernelSeed), LateStreams: true,
	}
}

// enterWorld lets the emulator be hostile in the first world alone: that the second one,
// where warps run in order and races are not looked for, has the same bits says more than
// another random order, in half the time.
func setEmulation(d driver.Device, world int) {
	o := emulation()
	if world > 0 {
		o.Schedule, o.IgnoreRaces = emu.InOrder, true
	}
	d.(*emu.Device).SetSchedule(o.Schedule, o.IgnoreRaces)
}

func kernelSuite(t *testing.T) *harness.Suite {
	t.Helper()
	s, err := harness.NewSuite(openDevice, *kernelSeed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if *onGPU {
		s.Repeats = 2
	} else {
		s.Guard, s.BeforeLaunch = 0, setEmulation // the emulator traps
	}
	return s
}

// notShort skips what takes minutes where tests are to be short, as under the race
// detector, which slows the emulator down tenfold.
func skipIfShort(t *testing.T) {
	if testing.Short() {
		t.Skip("left out of -short: the emulator takes its time")
	}
}
