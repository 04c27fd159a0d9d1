package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

type buffer struct{ resource }

// Alloc takes device memory.
func (d *Device) Alloc(bytes int64) (driver.Buffer, error) {
	if bytes <= 0 {
		return nil, invalid("Alloc", fmt.Sprintf("%d bytes", bytes))
	}
	b := new(buffer)
	if err := b.create(d, buffers, cuMemAlloc, uintptr(bytes)); err != nil {
		return nil, fmt.Errorf("%d bytes: %w", bytes, err)
	}
	return b, nil
}

func (b *buffer) Address() driver.Address { return driver.Address(b.handle) }

type pinned struct {
	resource
	mem     []byte
	address uintptr // for kernels
}

// Flags of pinned memory: pinned for every context, so that a stream of another device
// may copy to and from it, and mapped, so that kernels may write it.
const (
	hostPortable = 1
	hostMapped   = 2
)

// AllocPinned takes page-locked host memory.
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
	p := new(pinned)
	if err := p.create(d, pinneds, cuMemHostAlloc, uintptr(bytes), hostPortable|hostMapped); err != nil {
		return nil, fmt.Errorf("%d bytes: %w", bytes, err)
	}
	// The handle is an address outside Go's heap; reading it as a pointer is sound.
	p.mem = unsafe.Slice(*(**byte)(unsafe.Pointer(&p.handle)), bytes)
	if err := d.ask(cuMemHostGetDevicePointer, uintptr(unsafe.Pointer(&p.address)), p.handle, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("the address of %d bytes: %w", bytes, err), p.Close())
	}
	return p, nil
}

func (p *pinned) Bytes() []byte           { return p.mem }
func (p *pinned) Address() driver.Address { return driver.Address(p.address) }

// at is the address of bytes mem[offset:offset+bytes], which must exist.
func (p *pinned) at(op string, offset, bytes int) (uintptr, error) {
	if err := p.use(op); err != nil {
		return 0, err
	}
	if offset < 0 || bytes < 0 || offset > len(p.mem)-bytes {
		return 0, invalid(op, fmt.Sprintf("%d bytes at %d of %d bytes of pinned memory", bytes, offset, len(p.mem)))
	}
	return p.handle + uintptr(offset), nil
}

// Memory says how much device memory is free, by everyone's use, and how much there is.
func (d *Device) Memory() (free, total int64, err error) {
	var f, t uintptr
	err = d.ask(cuMemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int64(f), int64(t), err
}
