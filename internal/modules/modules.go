// Package modules loads kernels into a device, each once, and turns their launches
// into the driver's.
package modules

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Set holds the kernels loaded into one device. It is safe for concurrent use.
type Set struct {
	device driver.Device
	target ptx.Target
	mu     sync.Mutex
	loaded map[string]entry // by the kernel's name
	shared int              // carve-out in percent; 0: the device's default
}

// PreferShared passes a carve-out in percent to [driver.Function.PreferShared] of every kernel
// that is loaded afterwards.
func (s *Set) PreferShared(percent int) { s.shared = percent }

type entry struct {
	kernel   *ptx.Kernel
	overlaps bool
	text     []byte
	module   driver.Module
	function driver.Function
}

// New makes an empty set for a device, which must outlive it.
func New(device driver.Device) *Set {
	return &Set{device: device, target: Target(device.Properties()), loaded: map[string]entry{}}
}

// Target is what kernels are printed for, see also [ptx.Target.For]: as little as they need,
// but for a device that can overlap kernels the first target that has the instructions for it.
func Target(p driver.Properties) ptx.Target {
	const sm, version = 90, 78
	if p.ComputeCapability >= sm && p.PTXVersion >= version {
		return ptx.Target{SM: sm}
	}
	return ptx.Target{}
}

// Most is the most that a device takes, its architecture's own features among it.
func Most(p driver.Properties) ptx.Target {
	return ptx.Target{Version: p.PTXVersion, SM: p.ComputeCapability, Arch: true}
}

// Function loads a kernel, unless it is there already. Two kernels with one name and
// different texts are an error.
func (s *Set) Function(k *ptx.Kernel) (driver.Function, error) {
	e, err := s.load(k)
	return e.function, err
}

func (s *Set) load(k *ptx.Kernel) (entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.loaded[k.Name]
	if ok && old.kernel == k {
		return old, nil
	}
	target := s.target.For(k)
	text, err := k.Text(target)
	if err != nil {
		return entry{}, err
	}
	if ok {
		if !bytes.Equal(text, old.text) {
			return entry{}, fmt.Errorf("modules: two kernels are named %s", k.Name)
		}
		return old, nil
	}
	m, err := s.device.Load(text)
	if err != nil {
		return entry{}, err
	}
	f, err := m.Function(k.Name)
	if err != nil {
		return entry{}, errors.Join(err, m.Close())
	}
	if s.shared > 0 {
		f.PreferShared(s.shared)
	}
	e := entry{k, k.Overlaps(target), text, m, f}
	s.loaded[k.Name] = e
	return e, nil
}

// Launch turns a kernel's launch into the driver's, loading the kernel if need be.
func (s *Set) Launch(l ptx.Launch) (driver.Launch, error) {
	e, err := s.load(l.Kernel)
	if err != nil {
		return driver.Launch{}, err
	}
	return launch(l, e.function, e.overlaps), nil
}

// Launch is the driver's launch of a kernel that was loaded for a target.
func Launch(l ptx.Launch, f driver.Function, t ptx.Target) driver.Launch {
	return launch(l, f, l.Kernel.Overlaps(t.For(l.Kernel)))
}

func launch(l ptx.Launch, f driver.Function, overlaps bool) driver.Launch {
	return driver.Launch{
		Function: f, Grid: dim3(l.Grid), Block: dim3(l.Block), Shared: l.Shared, Params: l.Params, Overlaps: overlaps,
	}
}

func dim3(d [3]uint32) driver.Dim3 { return driver.Dim3{X: d[0], Y: d[1], Z: d[2]} }

// Close unloads every kernel.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, e := range s.loaded {
		errs = append(errs, e.module.Close())
	}
	clear(s.loaded)
	return errors.Join(errs...)
}
