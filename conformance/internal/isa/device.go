// Package isa tests single PTX instructions: each form of instruction that kernels use runs
// in a small kernel of its own, and its results are compared with an implementation in Go.
package isa

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The names of the devices in messages and in the table.
const (
	Emulator  = "emulator"
	Perturbed = "emulator with perturbed approximations"
	GPU       = "GPU"
)

// Device runs test kernels on one device.
type Device struct {
	Name       string
	Properties driver.Properties
	// Corrupt, if set, changes the output. The comparison must detect it.
	Corrupt func(out []byte)

	open   func() (driver.Device, error)
	device driver.Device
	stream driver.Stream
}

// ErrGone means that a kernel's fault lost a device, and that the device cannot be opened again. A GPU
// stays lost until the process ends.
var ErrGone = errors.New("the device is lost for good")

// OpenDevice opens a device, and again after a kernel's fault lost it.
func OpenDevice(name string, open func() (driver.Device, error)) (*Device, error) {
	d := &Device{Name: name, open: open}
	return d, d.reopen()
}

// Close closes the device.
func (d *Device) Close() error {
	if d.device == nil {
		return nil
	}
	return d.device.Close()
}

// reopen replaces the device, which a trapping kernel has lost. If that fails, there is none.
func (d *Device) reopen() error {
	d.Close()
	d.device = nil
	device, err := d.open()
	if err != nil {
		return err
	}
	stream, err := device.NewStream()
	if err != nil {
		return errors.Join(err, device.Close())
	}
	d.device, d.stream, d.Properties = device, stream, device.Properties()
	return nil
}

// Lacks returns what the device lacks to run a kernel for target, or "".
func (d *Device) Lacks(target ptx.Target) string {
	p := d.Properties
	if p.ComputeCapability < target.SM || target.Arch && p.ComputeCapability > target.SM || p.PTXVersion < target.Version {
		return fmt.Sprintf("the %s has sm_%d and PTX %d, not %v and PTX %d", d.Name, p.ComputeCapability, p.PTXVersion, target, target.Version)
	}
	return ""
}

// Run runs a kernel of CTAs of some threads on input arrays in for the parameters p0, p1, ... and returns
// out bytes of output. The other parameters are paramValue. If the kernel loses the device for good, the
// error of this and of each later call is ErrGone.
func (d *Device) Run(text string, in [][]byte, ctas, threads, out int) ([]byte, error) {
	if d.device == nil {
		return nil, ErrGone
	}
	got, err := d.launch(text, in, ctas, threads, out)
	if errors.Is(err, driver.ErrDeviceLost) {
		if again := d.reopen(); again != nil {
			err = fmt.Errorf("%w: %w; opening it again: %w", ErrGone, err, again)
		}
	}
	if err == nil && d.Corrupt != nil {
		d.Corrupt(got)
	}
	return got, err
}

func (d *Device) launch(text string, in [][]byte, ctas, threads, out int) ([]byte, error) {
	m, err := d.device.Load([]byte(text))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	f, err := m.Function("form")
	if err != nil {
		return nil, err
	}
	var params []byte
	for i := range len(Parameters) {
		data := make([]byte, out)
		if i < len(in) {
			data = in[i]
		} else if i < len(Parameters)-1 {
			params = binary.LittleEndian.AppendUint64(params, paramValue)
			continue
		}
		b, err := d.device.Alloc(int64(len(data)))
		if err != nil {
			return nil, err
		}
		defer b.Close()
		if err := d.stream.Write(b.Address(), data); err != nil {
			return nil, err
		}
		params = binary.LittleEndian.AppendUint64(params, uint64(b.Address()))
	}
	one := driver.Dim3{X: 1, Y: 1, Z: 1}
	l := driver.Launch{Function: f, Grid: one, Block: one, Params: params}
	l.Grid.X, l.Block.X = uint32(ctas), uint32(threads)
	if err := d.stream.Launch(l); err != nil {
		return nil, err
	}
	got := make([]byte, out)
	at := driver.Address(binary.LittleEndian.Uint64(params[8*(len(Parameters)-1):]))
	return got, d.stream.Read(got, at)
}
