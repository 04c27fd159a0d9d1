package harness

import (
	"errors"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/modules"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// production is what kernels are printed for where the emulator stands in for a GPU.
var EmulatorTarget = func() ptx.Target {
	dev, err := emu.Open(emu.Options{})
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	return modules.Target(dev.Properties())
}()

// KernelSuite runs kernel cases on one device. It is for one goroutine.
type Suite struct {
	Seed uint64
	// Guard is how many bytes, a multiple of 256, lie on both sides of each buffer
	// and must keep their poison. A device that traps accesses outside of a buffer
	// needs none.
	Guard int
	// Repeats is how often a launch is run again on what it was given, beyond once
	// for each poison; the bits must be equal.
	Repeats int

	// worlds is in how many worlds, one for each poison, launches run. In a single one,
	// what nothing has written shows by being poison alone.
	Patterns     int
	BeforeLaunch func(d driver.Device, world int) // unless nil, prepares the device for launches in a world
	open         func() (driver.Device, error)
	device       driver.Device
	Stream       driver.Stream
	Kernels      map[string]*ptx.Kernel // built
	loaded       map[*ptx.Kernel]driver.Function
	Rewrite      func(name string, text []byte) []byte // changes a kernel's text before it is loaded
	Serial       bool                                  // kernels never overlap: what rewrite adds does not wait
}

// NewKernelSuite opens a device, and again whenever a kernel's fault took it.
func NewSuite(open func() (driver.Device, error), seed uint64) (*Suite, error) {
	s := &Suite{Seed: seed, Guard: 256, Patterns: len(fillPatterns), open: open, Kernels: map[string]*ptx.Kernel{}}
	return s, s.reopen()
}

// Device is the one in use.
func (s *Suite) Device() driver.Device { return s.device }

// reopen gets a device that works.
func (s *Suite) reopen() error {
	if s.device != nil {
		if s.device.Err() == nil {
			return nil
		}
		s.device.Close() // its fault was reported when it happened
	}
	s.loaded = map[*ptx.Kernel]driver.Function{}
	var err error
	if s.device, err = s.open(); err != nil {
		return err
	}
	s.Stream, err = s.device.NewStream()
	return err
}

// Close gives back the device and all that was made of it.
func (s *Suite) Close() error { return s.device.Close() }

// KernelResult is what came of one case.
type Result struct {
	Case     Case
	Skipped  string             // why; "" if it ran
	Failures int                //
	Compared int                // numbers
	Worst    map[string]float64 // by gate: the largest error ÷ bound
	Bias     float64            // the largest |mean|·√n/σ; 0 where it is not judged
	Kernels  map[string]bool    // which were launched
	Seconds  float64
	Hash     uint64 // a hash of all that the kernels wrote
}

// Run runs one case on inputs that depend on the seed and the case's ID only, and
// tells t what is wrong. It returns when the case has ended, by Fatalf too.
func (s *Suite) Run(t T, c Case) Result {
	t.Helper()
	if err := s.reopen(); err != nil {
		t.Fatalf("opening the device: %v", err)
	}
	h := fnv.New64a()
	h.Write([]byte(c.ID()))
	r := &Fixture{
		T: t, suite: s, rand: rand.New(rand.NewPCG(s.Seed, h.Sum64())),
		result: Result{Case: c, Worst: map[string]float64{}, Kernels: map[string]bool{}},
	}
	begin := time.Now()
	var done sync.WaitGroup
	done.Go(func() { // Fatalf and Skip end the goroutine
		defer r.close()
		c.Run(r)
	})
	done.Wait()
	r.result.Seconds = time.Since(begin).Seconds()
	if r.result.Skipped == "" && r.result.Failures == 0 && r.result.Compared == 0 {
		r.Errorf("nothing was compared")
	}
	return r.result
}

// function loads a kernel, once a device.
func (s *Suite) Function(k *ptx.Kernel) (driver.Function, error) {
	if f, ok := s.loaded[k]; ok {
		return f, nil
	}
	text, err := k.Text(modules.Target(s.device.Properties()).For(k))
	if err != nil {
		return nil, err
	}
	if s.Rewrite != nil {
		text = s.Rewrite(k.Name, text)
	}
	m, err := s.device.Load(text)
	if err != nil {
		return nil, err
	}
	f, err := m.Function(k.Name)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	s.loaded[k] = f
	return f, nil
}

// launched are the names of the kernels that cases launched.
func launchedKernels(results []Result) map[string]bool {
	all := map[string]bool{}
	for _, r := range results {
		maps.Copy(all, r.Kernels)
	}
	return all
}
