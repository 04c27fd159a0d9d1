package isa

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The devices' names in complaints and in the table.
const (
	Emulator  = "emulator"
	Perturbed = "emulator with perturbed approximations"
	GPU       = "GPU"
)

// formDevice runs the small kernels of forms on one device.
type Device struct {
	Name       string
	Open       func() (driver.Device, error)
	Device     driver.Device
	stream     driver.Stream
	Properties driver.Properties
	// corrupt changes what came back; the comparison must notice.
	Corrupt func(out []byte)
}

// reopen begins with a new device: a kernel that trapped has lost the one before.
func (d *Device) Reopen() (err error) {
	if d.Device != nil {
		d.Device.Close()
	}
	if d.Device, err = d.Open(); err != nil {
		return err
	}
	d.Properties = d.Device.Properties()
	d.stream, err = d.Device.NewStream()
	return err
}

// lacks says what the device lacks to run a kernel for a target; "" nothing.
func (d *Device) Lacks(target ptx.Target) string {
	p := d.Properties
	if p.ComputeCapability < target.SM || target.Arch && p.ComputeCapability > target.SM || p.PTXVersion < target.Version {
		return fmt.Sprintf("the %s has sm_%d and PTX %d, not %v and PTX %d", d.Name, p.ComputeCapability, p.PTXVersion, target, target.Version)
	}
	return ""
}

// run runs a form's kernel on arrays p0, p1, ... and returns out. What is not given
// of the parameters is a constant.
func (d *Device) Run(text string, in [][]byte, ctas, out int) ([]byte, error) {
	got, err := d.launch(text, in, ctas, out)
	if errors.Is(err, driver.ErrDeviceLost) {
		err = errors.Join(err, d.Reopen())
	}
	if err == nil && d.Corrupt != nil {
		d.Corrupt(got)
	}
	return got, err
}

func (d *Device) launch(text string, in [][]byte, ctas, out int) ([]byte, error) {
	m, err := d.Device.Load([]byte(text))
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
		b, err := d.Device.Alloc(int64(len(data)))
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
	l.Grid.X, l.Block.X = uint32(ctas), Threads
	if err := d.stream.Launch(l); err != nil {
		return nil, err
	}
	got := make([]byte, out)
	at := driver.Address(binary.LittleEndian.Uint64(params[8*(len(Parameters)-1):]))
	return got, d.stream.Read(got, at)
}
