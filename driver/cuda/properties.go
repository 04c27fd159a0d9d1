package cuda

import (
	"unsafe"
)

// attribute is a CUdevice_attribute.
type attribute int

const (
	computeMajor attribute = 75
	computeMinor attribute = 76
)

func (d *Device) attribute(a attribute) (int, error) {
	var v int32
	err := d.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(d.number))
	return int(v), err
}

// readProperties needs no context.
func (d *Device) readProperties() error {
	var name [256]byte
	err := d.call(cuDeviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), uintptr(d.number))
	if err != nil {
		return err
	}
	var total uintptr
	if err := d.call(cuDeviceTotalMem, uintptr(unsafe.Pointer(&total)), uintptr(d.number)); err != nil {
		return err
	}
	d.props.Name = cString(&name[0])
	d.props.Memory = int64(total)
	d.props.DriverVersion = d.lib.version
	d.props.PTXVersion = ptxVersion(d.lib.version)
	d.readUUID()
	return d.readAttributes()
}

func (d *Device) readAttributes() (err error) {
	p := &d.props
	var major, minor int
	for _, want := range []struct {
		attribute attribute
		into      *int
	}{
		{16, &p.SMs},
		{38, &p.L2},
		{computeMajor, &major},
		{computeMinor, &minor},
		{97, &p.SharedPerCTA},
	} {
		if *want.into, err = d.attribute(want.attribute); err != nil {
			return err
		}
	}
	p.ComputeCapability = 10*major + minor
	return nil
}

// ptxVersions pairs CUDA versions with the newest PTX that their drivers take, from
// the PTX ISA's table of release notes; newest first.
var ptxVersions = [...]struct{ cuda, ptx int }{
	{13010, 91}, {13000, 90},
	{12090, 88}, {12080, 87}, {12070, 86}, {12050, 85}, {12040, 84}, {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80},
	{11080, 78}, {11070, 77}, {11060, 76}, {11050, 75}, {11040, 74}, {11030, 73}, {11020, 72}, {11010, 71}, {11000, 70},
}

// ptxVersion is the newest .version that a driver takes, as far as is known: a
// driver newer than the table takes at least the newest there. 0 if older than all.
func ptxVersion(cuda int) int {
	for _, v := range ptxVersions {
		if cuda >= v.cuda {
			return v.ptx
		}
	}
	return 0
}
