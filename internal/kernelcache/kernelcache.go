// Package kernelcache loads kernels into a device, each one once, and converts their launches
// to launches of the driver.
package kernelcache

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Cache holds the kernels that are loaded into one device. It is safe for concurrent use,
// except for Close.
type Cache struct {
	device driver.Device
	target ptx.Target
	mu     sync.Mutex
	loaded map[string]*entry // by kernel name
}

// entry is a loaded kernel. If loading failed, module and function are nil.
type entry struct {
	mu       sync.Mutex // held while the kernel is loaded
	kernel   *ptx.Kernel
	overlaps bool
	text     []byte
	module   driver.Module
	function driver.Function
}

// New returns an empty cache. The device must stay open until Close.
func New(device driver.Device) *Cache {
	return &Cache{device: device, target: Target(device.Properties()), loaded: map[string]*entry{}}
}

// Target returns the target that all kernels of a device have at least: sm_90 if the device
// supports programmatic dependent launch, else the zero Target. [ptx.Target.For] raises it to
// what a kernel needs.
func Target(p driver.Properties) ptx.Target {
	const sm, version = 90, 78
	if p.ComputeCapability >= sm && p.PTXVersion >= version {
		return ptx.Target{SM: sm}
	}
	return ptx.Target{}
}

// MaxTarget returns the highest target that a device accepts, including architecture-specific
// features such as those of sm_90a.
func MaxTarget(p driver.Properties) ptx.Target {
	return ptx.Target{Version: p.PTXVersion, SM: p.ComputeCapability, Arch: true}
}

// Function returns the loaded function of a kernel. It is an error if a different kernel with
// the same name is loaded.
func (c *Cache) Function(k *ptx.Kernel) (driver.Function, error) {
	e, err := c.load(k)
	if err != nil {
		return nil, err
	}
	return e.function, nil
}

// load returns the entry of a kernel. Different kernels are loaded concurrently.
func (c *Cache) load(k *ptx.Kernel) (*entry, error) {
	c.mu.Lock()
	e := c.loaded[k.Name]
	if e == nil {
		e = new(entry)
		c.loaded[k.Name] = e
	}
	c.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.module != nil && e.kernel == k {
		return e, nil
	}
	target := c.target.For(k)
	text, err := k.Text(target)
	if err != nil {
		return nil, err
	}
	if e.module != nil {
		if !bytes.Equal(text, e.text) {
			return nil, fmt.Errorf("kernelcache: two different kernels are named %s", k.Name)
		}
		return e, nil
	}
	m, err := c.device.Load(text)
	if err != nil {
		return nil, err
	}
	f, err := m.Function(k.Name)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	e.kernel, e.overlaps, e.text, e.module, e.function = k, k.Overlaps(target), text, m, f
	return e, nil
}

// Launch converts a launch to a launch of the driver. It loads the kernel if necessary.
func (c *Cache) Launch(l ptx.Launch) (driver.Launch, error) {
	e, err := c.load(l.Kernel)
	if err != nil {
		return driver.Launch{}, err
	}
	return launch(l, e.function, e.overlaps), nil
}

// Launch converts a launch of a kernel that was loaded for target t.For(l.Kernel).
func Launch(l ptx.Launch, f driver.Function, t ptx.Target) driver.Launch {
	return launch(l, f, l.Kernel.Overlaps(t.For(l.Kernel)))
}

func launch(l ptx.Launch, f driver.Function, overlaps bool) driver.Launch {
	return driver.Launch{
		Function: f, Grid: dim3(l.Grid), Block: dim3(l.Block), Shared: l.Shared, Params: l.Params, Overlaps: overlaps,
	}
}

func dim3(d [3]uint32) driver.Dim3 { return driver.Dim3{X: d[0], Y: d[1], Z: d[2]} }

// Close unloads all kernels.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, e := range c.loaded {
		if e.module != nil {
			errs = append(errs, e.module.Close())
		}
	}
	clear(c.loaded)
	return errors.Join(errs...)
}
