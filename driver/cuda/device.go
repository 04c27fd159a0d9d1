package cuda

import (
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

// Device is an NVIDIA GPU with its primary context. It implements driver.Device.
type Device struct {
	lib     *library
	number  int32 // CUdevice
	context uintptr
	props   driver.Properties
	uuid    string // 32 hexadecimal digits, or "" if the driver does not report it
	cache   *cache

	closed atomic.Bool
	lost   atomic.Pointer[driver.Error]

	mu       sync.Mutex // guards children and slow
	children map[*resource]struct{}
	slow     map[string]error // by kernel, see SlowKernels
}

var _ driver.Device = (*Device)(nil)

// Open opens the device with the given ordinal, from 0. The error is driver.ErrNoDriver or
// driver.ErrNoDevice, or it is the driver's error.
func Open(ordinal int) (*Device, error) { return openWith(ordinal, options{}) }

func openWith(ordinal int, o options) (*Device, error) {
	lib, err := system.get()
	if err != nil {
		return nil, err
	}
	return lib.open(ordinal, o)
}

func (l *library) open(ordinal int, o options) (*Device, error) {
	var n int32
	if c := l.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&n))); c != success {
		return nil, l.error(cuDeviceGetCount, c, "")
	}
	if ordinal < 0 || ordinal >= int(n) {
		return nil, &driver.Error{Op: "Open", Kind: driver.ErrNoDevice, Detail: fmt.Sprintf("device %d of %d", ordinal, n)}
	}
	d := &Device{lib: l, children: map[*resource]struct{}{}, slow: map[string]error{}}
	if err := d.call(cuDeviceGet, uintptr(unsafe.Pointer(&d.number)), uintptr(ordinal)); err != nil {
		return nil, err
	}
	if err := d.readProperties(); err != nil {
		return nil, err
	}
	if err := d.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&d.context)), uintptr(d.number)); err != nil {
		return nil, err
	}
	d.cache = newCache(o)
	return d, nil
}

// Properties returns the properties, which were read by Open.
func (d *Device) Properties() driver.Properties { return d.props }

// Close waits for the device's work, frees all objects made from the device and releases the primary
// context. On a lost device it ignores errors.
func (d *Device) Close() error {
	if !d.closed.CompareAndSwap(false, true) {
		return nil
	}
	wasLost := d.Err() != nil
	s, err := d.enterAnyway()
	if err == nil {
		err = d.call(cuCtxSynchronize)
		if freeErr := d.freeChildren(); err == nil {
			err = freeErr
		}
		d.leave(s)
	}
	d.cache.close()
	if releaseErr := d.call(cuDevicePrimaryCtxRelease, uintptr(d.number)); err == nil {
		err = releaseErr
	}
	if wasLost {
		return nil
	}
	return err
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
	var id [16]byte
	if d.lib.call(cuDeviceGetUUID, uintptr(unsafe.Pointer(&id)), uintptr(d.number)) == success {
		d.uuid = hex.EncodeToString(id[:])
	}
	d.props.Name = cString(&name[0])
	d.props.Memory = int64(total)
	d.props.DriverVersion = d.lib.version
	d.props.PTXVersion = ptxVersion(d.lib.version)
	var major, minor int
	for _, a := range []struct {
		attribute deviceAttribute
		to        *int
	}{
		{attributeSMs, &d.props.SMs},
		{attributeL2, &d.props.L2},
		{attributeMajor, &major},
		{attributeMinor, &minor},
		{attributeSharedPerCTA, &d.props.SharedPerCTA},
	} {
		var v int32
		if err := d.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a.attribute), uintptr(d.number)); err != nil {
			return err
		}
		*a.to = int(v)
	}
	d.props.ComputeCapability = 10*major + minor
	return nil
}

// deviceAttribute is a CUdevice_attribute.
type deviceAttribute int

const (
	attributeSMs          deviceAttribute = 16
	attributeL2           deviceAttribute = 38
	attributeMajor        deviceAttribute = 75
	attributeMinor        deviceAttribute = 76
	attributeSharedPerCTA deviceAttribute = 97
)

// ptxVersions maps CUDA versions to the newest PTX version that their drivers accept, from the
// release notes of the PTX ISA. Newest first.
var ptxVersions = [...]struct{ cuda, ptx int }{
	{13010, 91}, {13000, 90},
	{12090, 88}, {12080, 87}, {12070, 86}, {12050, 85}, {12040, 84}, {12030, 83}, {12020, 82}, {12010, 81}, {12000, 80},
	{11080, 78}, {11070, 77}, {11060, 76}, {11050, 75}, {11040, 74}, {11030, 73}, {11020, 72}, {11010, 71}, {11000, 70},
}

// ptxVersion returns the newest .version that a driver accepts. A driver newer than the table accepts
// at least the newest version of the table. The result is 0 for a driver older than the table.
func ptxVersion(cuda int) int {
	for _, v := range ptxVersions {
		if cuda >= v.cuda {
			return v.ptx
		}
	}
	return 0
}
