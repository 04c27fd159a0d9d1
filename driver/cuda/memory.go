package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

type buffer struct{ res *resource }

// Alloc allocates device memory.
func (d *Device) Alloc(bytes int64) (driver.Buffer, error) {
	if bytes <= 0 {
		return nil, invalid("Alloc", fmt.Sprintf("%d bytes", bytes))
	}
	res, err := d.create(buffers, cuMemAlloc, uintptr(bytes))
	if err != nil {
		return nil, fmt.Errorf("%d bytes: %w", bytes, err)
	}
	return &buffer{res}, nil
}

func (b *buffer) Address() driver.Address { return driver.Address(b.res.handle) }
func (b *buffer) Close() error            { return b.res.close() }

type pinned struct {
	res     *resource
	mem     []byte
	address uintptr // device address
}

// Flags of cuMemHostAlloc: pinned for every context, so that streams of all devices can copy it, and
// mapped, so that kernels can access it.
const (
	hostPortable = 1
	hostMapped   = 2
)

// AllocPinned allocates page-locked host memory.
func (d *Device) AllocPinned(bytes int) (driver.Pinned, error) {
	p, err := d.allocPinned(bytes)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (d *Device) allocPinned(bytes int) (*pinned, error) {
	if bytes <= 0 {
		return nil, invalid("AllocPinned", fmt.Sprintf("%d bytes", bytes))
	}
	res, err := d.create(pinneds, cuMemHostAlloc, uintptr(bytes), hostPortable|hostMapped)
	if err != nil {
		return nil, fmt.Errorf("%d bytes: %w", bytes, err)
	}
	var address uintptr
	if err := d.query(cuMemHostGetDevicePointer, uintptr(unsafe.Pointer(&address)), res.handle, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("device address of %d pinned bytes: %w", bytes, err), res.close())
	}
	// The handle is an address outside the Go heap, so reading it as a pointer is sound.
	mem := unsafe.Slice(*(**byte)(unsafe.Pointer(&res.handle)), bytes)
	return &pinned{res, mem, address}, nil
}

func (p *pinned) Bytes() []byte           { return p.mem }
func (p *pinned) Address() driver.Address { return driver.Address(p.address) }
func (p *pinned) Close() error            { return p.res.close() }

// at returns the host address of mem[offset:offset+bytes], or an error if that is out of range.
func (p *pinned) at(op string, offset, bytes int) (uintptr, error) {
	if err := p.res.use(op); err != nil {
		return 0, err
	}
	if offset < 0 || bytes < 0 || offset > len(p.mem)-bytes {
		return 0, invalid(op, fmt.Sprintf("%d bytes at %d of %d bytes of pinned memory", bytes, offset, len(p.mem)))
	}
	return p.res.handle + uintptr(offset), nil
}

// Memory returns the free and the total device memory in bytes. All processes share the free memory.
func (d *Device) Memory() (free, total int64, err error) {
	var f, t uintptr
	err = d.query(cuMemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int64(f), int64(t), err
}
