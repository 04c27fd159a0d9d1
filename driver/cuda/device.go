package cuda

import (
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

// Options say how a device is opened. The zero value is what Open uses.
type Options struct {
	// CacheDir is where compiled modules are kept; "" is lockstep/cubin in the
	// user's cache directory.
	CacheDir string
	// NoCache compiles every module anew, as far as the driver's own cache lets it.
	NoCache bool
	// CacheLimit bounds the directory in bytes; what was not used longest goes first.
	// 0 means 512 MiB.
	CacheLimit int64
	// Verbose has the compiler report registers, spills and shared memory in Module.Log.
	Verbose bool
}

// Stats count what the cubin cache did for a device.
type Stats struct {
	CacheHits     int64 // modules loaded from disk
	CacheMisses   int64 // modules compiled because the cache did not have them
	CacheRejected int64 // files that were damaged, foreign or refused by the driver; compiled anew
	CacheFailures int64 // files or directories that could not be read or written
}

// Device is an NVIDIA GPU with its primary context. It implements driver.Device.
type Device struct {
	lib     *library
	number  int32
	context uintptr
	props   driver.Properties
	uuid    string
	options Options
	cache   *cache

	closed atomic.Bool
	lost   atomic.Pointer[driver.Error]

	mu       sync.Mutex // guards children
	children map[*resource]struct{}
}

func (l *library) count() (int, error) {
	var n int32
	c := l.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), l.error(cuDeviceGetCount, c, "")
}

// Open opens a device by its ordinal, from 0. The errors are driver.ErrNoDriver,
// driver.ErrNoDevice, or what the driver says.
func Open(ordinal int) (*Device, error) { return OpenWith(ordinal, Options{}) }

// OpenWith is Open with options.
func OpenWith(ordinal int, o Options) (*Device, error) {
	lib, err := system.get()
	if err != nil {
		return nil, err
	}
	return lib.open(ordinal, o)
}

func (l *library) open(ordinal int, o Options) (*Device, error) {
	n, err := l.count()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		return nil, &driver.Error{Op: "Open", Kind: driver.ErrNoDevice, Detail: fmt.Sprintf("device %d of %d", ordinal, n)}
	}
	d := &Device{lib: l, options: o, children: map[*resource]struct{}{}}
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

// Properties describe the device, as read when it was opened.
func (d *Device) Properties() driver.Properties { return d.props }

// UUID identifies the device across processes and reboots, in hexadecimal; "" if
// the driver does not tell.
func (d *Device) UUID() string { return d.uuid }

// Stats count what the cubin cache did so far.
func (d *Device) Stats() Stats { return d.cache.stats() }

// Close waits for the device's work, frees what was made of it and gives the
// primary context back. On a lost device it releases what the driver lets go of.
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
	if releaseErr := d.call(cuDevicePrimaryCtxRelease, uintptr(d.number)); err == nil {
		err = releaseErr
	}
	if wasLost {
		return nil
	}
	return err
}

func (d *Device) readUUID() {
	var id [16]byte
	if d.lib.call(cuDeviceGetUUID, uintptr(unsafe.Pointer(&id)), uintptr(d.number)) == success {
		d.uuid = hex.EncodeToString(id[:])
	}
}
