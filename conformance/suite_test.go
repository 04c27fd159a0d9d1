package conformance

import (
	"flag"
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
)

// The flags of the suite, as in
//
//	go test ./conformance -run TestKernels -kernels 'product_stream/' -seed 7 -long -gpu
//
// go test has a -json flag of its own: pass -json FILE after -args.
var (
	onGPU      = flag.Bool("gpu", false, "run on the first CUDA device instead of the emulator")
	longCases  = flag.Bool("long", false, "also run long cases")
	kernelSeed = flag.Uint64("seed", 1, "seed of the inputs of kernel cases and of random scripts")
	jsonFile   = flag.String("json", "", "write the kernel report to this file")
	kernelIDs  = flag.String("kernels", "", "run the kernel cases whose operation/name matches this regular expression")
)

// openDevice opens the GPU or the emulator, as -gpu says.
func openDevice(t testing.TB) (driver.Device, error) {
	if *onGPU {
		return openGPU(t)
	}
	return emu.Open(emulation())
}

// openGPU opens the first CUDA device. The test fails if the driver's compiler makes a kernel slow.
func openGPU(t testing.TB) (driver.Device, error) {
	dev, err := cuda.Open(0)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		for _, err := range dev.SlowKernels() {
			t.Error(err)
		}
	})
	return dev, nil
}

// emulation uses the freedom that PTX gives a device: warps in any order, asynchronous
// copies as late as possible, and approximate instructions anywhere within their bounds.
func emulation() emu.Options {
	return emu.Options{
		Schedule: emu.Adversarial(*kernelSeed), Async: emu.Late, Approx: emu.Perturbed(*kernelSeed), LateStreams: true,
	}
}

// setEmulation runs the first fill pattern on an adversarial emulator and the other in
// order, without race detection. Equal bits from both say more than two random orders, in
// half the time.
func setEmulation(d driver.Device, pattern int) {
	o := emulation()
	if pattern > 0 {
		o.Schedule, o.IgnoreRaces = emu.InOrder, true
	}
	d.(*emu.Device).SetSchedule(o.Schedule, o.IgnoreRaces)
}

func kernelSuite(t *testing.T) *harness.Suite {
	t.Helper()
	s, err := harness.NewSuite(func() (driver.Device, error) { return openDevice(t) }, *kernelSeed)
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

// skipIfShort skips a test that takes minutes on the emulator under the race detector.
func skipIfShort(t *testing.T) {
	if testing.Short() {
		t.Skip("too slow on the emulator for -short")
	}
}

// slowParallel skips a test that takes seconds if -short is set, and runs it in parallel
// with others, except on a GPU.
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
