// Package harness runs kernels on inputs of known distributions and compares the results
// with float64 references, within bounds that follow from the order of additions.
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
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Suite runs cases on one device. Only one goroutine may use it.
type Suite struct {
	Seed uint64
	// Guard is the number of bytes, a multiple of 256, before and after each buffer that
	// must keep their fill pattern. Use 0 for a device that traps out-of-bounds accesses.
	Guard int
	// Repeats is how often Launch repeats each launch on the same inputs to compare the
	// bits.
	Repeats int

	// Patterns is the number of fill patterns, 1 or 2. With 1, unwritten memory shows only
	// by its fill pattern.
	Patterns int
	// BeforeLaunch, if set, prepares the device for launches with a fill pattern.
	BeforeLaunch func(d driver.Device, pattern int)
	// Rewrite, if set, changes a kernel's text before it is loaded.
	Rewrite func(name string, text []byte) []byte
	// Serial launches each kernel after the previous one has ended. Rewrite needs it if it
	// adds memory accesses before the kernel waits for its predecessor.
	Serial bool

	Kernels map[string]*ptx.Kernel // built kernels by name
	Stream  driver.Stream          // of the open device

	open   func() (driver.Device, error)
	device driver.Device
	loaded map[*ptx.Kernel]driver.Function
}

// NewSuite opens a device. Run opens another one after a kernel's fault lost it.
func NewSuite(open func() (driver.Device, error), seed uint64) (*Suite, error) {
	s := &Suite{Seed: seed, Guard: 256, Patterns: len(fillPatterns), open: open, Kernels: map[string]*ptx.Kernel{}}
	return s, s.reopen()
}

// Device returns the open device.
func (s *Suite) Device() driver.Device { return s.device }

// reopen replaces a lost device. If it fails, the lost device stays.
func (s *Suite) reopen() error {
	if s.device != nil {
		if s.device.Err() == nil {
			return nil
		}
		s.device.Close() // its fault was reported
	}
	device, err := s.open()
	if err != nil {
		return err
	}
	stream, err := device.NewStream()
	if err != nil {
		return errors.Join(err, device.Close())
	}
	s.device, s.Stream, s.loaded = device, stream, map[*ptx.Kernel]driver.Function{}
	return nil
}

// Close closes the device.
func (s *Suite) Close() error { return s.device.Close() }

// Result is the outcome of one case.
type Result struct {
	Case     Case
	Skipped  string // the reason, or ""
	Failures int
	Compared int                // elements
	Worst    map[string]float64 // per check, the largest error divided by its bound
	Bias     float64            // the largest |mean|·√n/σ, or 0 if no bias check ran
	Kernels  map[string]bool    // names of the launched kernels
	Seconds  float64
	Hash     uint64 // of all bytes that kernels wrote
}

// Run runs one case and reports failures to t, also if it cannot open a device. The inputs depend
// on the seed and the case's ID alone. Run returns when the case has ended, also by Fatalf or Skip.
func (s *Suite) Run(t T, c Case) Result {
	t.Helper()
	h := fnv.New64a()
	h.Write([]byte(c.ID()))
	r := &Fixture{
		T: t, suite: s, rand: rand.New(rand.NewPCG(s.Seed, h.Sum64())),
		result: Result{Case: c, Worst: map[string]float64{}, Kernels: map[string]bool{}},
	}
	begin := time.Now()
	var done sync.WaitGroup
	done.Go(func() { // Fatalf and Skip end this goroutine
		if err := s.reopen(); err != nil {
			r.Fatalf("opening the device: %v", err)
		}
		defer r.close()
		c.Run(r)
	})
	done.Wait()
	r.result.Seconds = time.Since(begin).Seconds()
	if r.result.Skipped == "" && r.result.Failures == 0 {
		r.checkRead()
		switch {
		case r.result.Compared == 0:
			r.Errorf("nothing was compared")
		case r.bounds && !r.finite:
			r.Errorf("no reference is finite")
		case len(r.result.Kernels) == 0:
			r.Errorf("no kernel was launched")
		}
	}
	return r.result
}

// Function loads a kernel, once per device.
func (s *Suite) Function(k *ptx.Kernel) (driver.Function, error) {
	if f, ok := s.loaded[k]; ok {
		return f, nil
	}
	text, err := k.Text(kernelcache.Target(s.device.Properties()).For(k))
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

// launchedKernels returns the names of all kernels that cases launched, except skipped cases.
func launchedKernels(results []Result) map[string]bool {
	all := map[string]bool{}
	for _, r := range results {
		if r.Skipped == "" {
			maps.Copy(all, r.Kernels)
		}
	}
	return all
}

// EmulatorTarget is the PTX target of the emulator, which has the properties of the
// supported GPUs.
var EmulatorTarget = func() ptx.Target {
	dev, err := emu.Open(emu.Options{})
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	return kernelcache.Target(dev.Properties())
}()
