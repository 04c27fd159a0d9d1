package conformance

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/modules"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// KernelSuite runs kernel cases on one device. It is for one goroutine.
type KernelSuite struct {
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
	worlds  int
	enter   func(d driver.Device, world int) // unless nil, prepares the device for launches in a world
	open    func() (driver.Device, error)
	device  driver.Device
	stream  driver.Stream
	kernels map[string]*ptx.Kernel // built
	loaded  map[*ptx.Kernel]driver.Function
	rewrite func(name string, text []byte) []byte // changes a kernel's text before it is loaded
	alone   bool                                  // kernels never overlap: what rewrite adds does not wait
}

// NewKernelSuite opens a device, and again whenever a kernel's fault took it.
func NewKernelSuite(open func() (driver.Device, error), seed uint64) (*KernelSuite, error) {
	s := &KernelSuite{Seed: seed, Guard: 256, worlds: len(poisons), open: open, kernels: map[string]*ptx.Kernel{}}
	return s, s.reopen()
}

// Device is the one in use.
func (s *KernelSuite) Device() driver.Device { return s.device }

// reopen gets a device that works.
func (s *KernelSuite) reopen() error {
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
	s.stream, err = s.device.NewStream()
	return err
}

// Close gives back the device and all that was made of it.
func (s *KernelSuite) Close() error { return s.device.Close() }

// KernelResult is what came of one case.
type KernelResult struct {
	Case     KernelCase
	Skipped  string             // why; "" if it ran
	Failures int                //
	Compared int                // numbers
	Worst    map[string]float64 // by gate: the largest error ÷ bound
	Bias     float64            // the largest |mean|·√n/σ; 0 where it is not judged
	Kernels  map[string]bool    // which were launched
	Seconds  float64
	bits     uint64 // a hash of all that the kernels wrote
}

// Run runs one case on inputs that depend on the seed and the case's ID only, and
// tells t what is wrong. It returns when the case has ended, by Fatalf too.
func (s *KernelSuite) Run(t T, c KernelCase) KernelResult {
	t.Helper()
	if err := s.reopen(); err != nil {
		t.Fatalf("opening the device: %v", err)
	}
	h := fnv.New64a()
	h.Write([]byte(c.ID()))
	r := &KernelRig{
		T: t, suite: s, rand: rand.New(rand.NewPCG(s.Seed, h.Sum64())),
		result: KernelResult{Case: c, Worst: map[string]float64{}, Kernels: map[string]bool{}},
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

// KernelRig is one case on one device: buffers, launches and comparisons. Its T
// counts failures.
type KernelRig struct {
	T
	suite   *KernelSuite
	rand    *rand.Rand
	buffers []*Mem
	result  KernelResult
}

// Errorf reports a failure and goes on.
func (r *KernelRig) Errorf(format string, args ...any) {
	r.T.Helper()
	r.result.Failures++
	r.T.Errorf(format, args...)
}

// Fatalf reports a failure and ends the case.
func (r *KernelRig) Fatalf(format string, args ...any) {
	r.T.Helper()
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Skip ends the case as not run. The suite's manifest must name it.
func (r *KernelRig) Skip(format string, args ...any) {
	r.result.Skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Properties are the device's.
func (r *KernelRig) Properties() driver.Properties { return r.suite.device.Properties() }

// Rand is the case's random generator.
func (r *KernelRig) Rand() *rand.Rand { return r.rand }

func (r *KernelRig) close() {
	if r.suite.device.Err() != nil {
		return // which was reported, and took the buffers with it
	}
	for _, m := range r.buffers {
		if err := m.buffer.Close(); err != nil {
			r.Errorf("freeing %s: %v", m.name, err)
		}
	}
}

// Kernel builds a kernel, once in a suite.
func (r *KernelRig) Kernel(s ptxgen.Spec) *ptx.Kernel {
	r.Helper()
	if k := r.suite.kernels[s.Name()]; k != nil {
		return k
	}
	k, err := s.Build()
	if err != nil {
		r.Fatalf("%s: %v", s.Name(), err)
	}
	r.suite.kernels[s.Name()] = k
	return k
}

// function loads a kernel, once a device.
func (s *KernelSuite) function(k *ptx.Kernel) (driver.Function, error) {
	if f, ok := s.loaded[k]; ok {
		return f, nil
	}
	text, err := k.Text(modules.Target(s.device.Properties()).For(k))
	if err != nil {
		return nil, err
	}
	if s.rewrite != nil {
		text = s.rewrite(k.Name, text)
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
func launched(results []KernelResult) map[string]bool {
	all := map[string]bool{}
	for _, r := range results {
		maps.Copy(all, r.Kernels)
	}
	return all
}
