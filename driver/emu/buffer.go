package emu

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
)

type buffer struct {
	object object
	seg    *allocation
}

// Alloc allocates undefined device memory. If there is too little, the error is
// driver.ErrOutOfMemory.
func (d *Device) Alloc(bytes int64) (driver.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("Alloc"); err != nil {
		return nil, err
	}
	if bytes <= 0 {
		return nil, invalid("Alloc", "%d bytes", bytes)
	}
	s := d.memory.alloc(bytes)
	if s == nil {
		return nil, &driver.Error{Op: "emu.Alloc", Kind: driver.ErrOutOfMemory,
			Detail: fmt.Sprintf("%d bytes, %d of %d are free", bytes, d.memory.limit-d.memory.used, d.memory.limit)}
	}
	return &buffer{d.newObject(&d.live.Buffers), s}, nil
}

func (b *buffer) Address() driver.Address { return driver.Address(b.seg.base) }

// Close waits for the work of the device, as freeing memory on a GPU does.
func (b *buffer) Close() error {
	d := b.object.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if b.object.usable("Close") == nil {
		err = d.drain()
	}
	if b.object.closeLocked() {
		d.memory.free(b.seg)
	}
	return err
}

type pinned struct {
	object object
	seg    *allocation
	bytes  []byte // of the allocation, also after Close
}

// AllocPinned allocates undefined host memory that kernels can address.
func (d *Device) AllocPinned(bytes int) (driver.Pinned, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("AllocPinned"); err != nil {
		return nil, err
	}
	if bytes <= 0 {
		return nil, invalid("AllocPinned", "%d bytes", bytes)
	}
	s := d.memory.pin(int64(bytes))
	return &pinned{d.newObject(&d.live.Pinned), s, s.data}, nil
}

func (p *pinned) Bytes() []byte           { return p.bytes }
func (p *pinned) Address() driver.Address { return driver.Address(p.seg.base) }

// Close does not wait. Queued work that uses the memory fails.
func (p *pinned) Close() error {
	d := p.object.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.object.closeLocked() {
		d.memory.free(p.seg)
	}
	return nil
}
