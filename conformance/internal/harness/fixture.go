package harness

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Fixture runs one case on one device. It allocates buffers, launches kernels and compares
// results.
type Fixture struct {
	T T // use Errorf and Fatalf of the fixture, which count failures

	suite   *Suite
	rand    *rand.Rand
	buffers []*Buffer
	result  Result
	bounds  bool // some comparison has bounds
	finite  bool // some result was compared with a bound
}

// Errorf reports a failure and continues.
func (r *Fixture) Errorf(format string, args ...any) {
	r.T.Helper()
	r.result.Failures++
	r.T.Errorf(format, args...)
}

// Fatalf reports a failure and ends the case.
func (r *Fixture) Fatalf(format string, args ...any) {
	r.T.Helper()
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Skip ends the case as skipped. testdata/skips.json must list the case.
func (r *Fixture) Skip(format string, args ...any) {
	r.result.Skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Properties returns the properties of the device.
func (r *Fixture) Properties() driver.Properties { return r.suite.device.Properties() }

// Rand returns the random generator of the case.
func (r *Fixture) Rand() *rand.Rand { return r.rand }

// checkRead demands that each byte that a kernel changed was read after it.
func (r *Fixture) checkRead() {
	r.T.Helper()
	for _, m := range r.buffers {
		if first := slices.Index(m.unread, true); first >= 0 {
			r.Errorf("%s: byte %d was written but not compared", m.name, first)
		}
	}
}

func (r *Fixture) close() {
	if r.suite.device.Err() != nil {
		return // a lost device has no buffers, and its error was reported
	}
	for _, m := range r.buffers {
		if err := m.memory.Close(); err != nil {
			r.Errorf("freeing %s: %v", m.name, err)
		}
	}
}

// Kernel builds a kernel, once per suite.
func (r *Fixture) Kernel(s kernel.Spec) *ptx.Kernel {
	r.T.Helper()
	if k := r.suite.Kernels[s.Name()]; k != nil {
		return k
	}
	k, err := s.Build()
	if err != nil {
		r.Fatalf("%s: %v", s.Name(), err)
	}
	r.suite.Kernels[s.Name()] = k
	return k
}

// Launch runs a launch once per fill pattern and then Repeats more times. It demands that
// guards and inputs are unchanged and that a repetition gives the same bits. The arguments
// are the results of a Spec's Launch method.
func (r *Fixture) Launch(l ptx.Launch, err error) {
	r.T.Helper()
	if err != nil {
		r.Fatalf("launch: %v", err)
	}
	r.LaunchInTurn(l)
}

// LaunchInTurn is Launch of several kernels in a row, as an engine queues them: each may start
// before the previous one has ended.
func (r *Fixture) LaunchInTurn(list ...ptx.Launch) {
	r.T.Helper()
	var launches []driver.Launch
	for _, l := range list {
		f, err := r.suite.Function(l.Kernel)
		if err != nil {
			r.Fatalf("%s: %v", l.Kernel.Name, err)
		}
		r.result.Kernels[l.Kernel.Name] = true
		launch := kernelcache.Launch(l, f, kernelcache.Target(r.suite.device.Properties()))
		launch.Overlaps = launch.Overlaps && !r.suite.Serial
		launches = append(launches, launch)
	}
	name := list[len(list)-1].Kernel.Name
	before := make([][][]byte, len(r.buffers))
	for i, m := range r.buffers {
		before[i] = slices.Clone(m.images)
	}
	for pattern := range r.suite.Patterns {
		after := r.run(pattern, launches, before)
		for i, m := range r.buffers {
			m.images[pattern] = after[i]
			for at := range m.unread {
				if m.image(pattern)[at] != before[i][pattern][m.guard+at] {
					m.unread[at] = true
				}
			}
			if !m.input && !m.unordered && pattern == 0 {
				r.result.Hash = r.result.Hash*0x100000001b3 ^ maphash.Bytes(hashSeed, after[i])
			}
		}
	}
	for n := range r.suite.Repeats {
		pattern := n % r.suite.Patterns
		for i, again := range r.run(pattern, launches, before) {
			if r.buffers[i].unordered {
				continue
			}
			if at := FirstDifferentByte(r.buffers[i].images[pattern], again); at >= 0 {
				r.Fatalf("%s: %s: byte %d differs when the launch is repeated", name, r.buffers[i].name, at-r.buffers[i].guard)
			}
		}
	}
}

// hashSeed makes the hashes of results comparable within a process.
var hashSeed = maphash.MakeSeed()

// run runs launches on the images for one fill pattern and returns the images after them.
func (r *Fixture) run(pattern int, launches []driver.Launch, before [][][]byte) [][]byte {
	r.T.Helper()
	name := launches[len(launches)-1].Function.Name()
	for i, m := range r.buffers {
		if err := r.suite.Stream.Write(m.memory.Address(), before[i][pattern]); err != nil {
			r.Fatalf("%s: writing %s: %v", name, m.name, err)
		}
	}
	if r.suite.BeforeLaunch != nil {
		r.suite.BeforeLaunch(r.suite.device, pattern)
	}
	if err := r.suite.Stream.Launch(launches...); err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	if err := r.suite.Stream.Synchronize(); err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	after := make([][]byte, len(r.buffers))
	for i, m := range r.buffers {
		image := make([]byte, len(before[i][pattern]))
		if err := r.suite.Stream.Read(image, m.memory.Address()); err != nil {
			r.Fatalf("%s: reading %s: %v", name, m.name, err)
		}
		m.inspect(name, before[i][pattern], image)
		if m.input {
			image = before[i][pattern]
		}
		after[i] = image
	}
	return after
}

// inspect compares a buffer after a launch with what it held before.
func (m *Buffer) inspect(kernel string, before, after []byte) {
	m.r.T.Helper()
	end := len(after) - m.guard
	switch {
	case bytes.Equal(before, after):
	case !bytes.Equal(before[:m.guard], after[:m.guard]):
		at := FirstDifferentByte(before[:m.guard], after[:m.guard])
		m.r.Errorf("%s: wrote %d bytes before %s", kernel, m.guard-at, m.name)
	case !bytes.Equal(before[end:], after[end:]):
		m.r.Errorf("%s: wrote beyond %s, %d bytes after its end", kernel, m.name, FirstDifferentByte(before[end:], after[end:]))
	case m.input:
		m.r.Errorf("%s: changed its input %s at byte %d", kernel, m.name, FirstDifferentByte(before, after)-m.guard)
	}
}
