// Package memory lists all device memory of an engine before any of it is allocated, so
// that the planned sizes are the allocated sizes.
package memory

import (
	"fmt"

	"github.com/lockstep-go/lockstep/accel/internal/upload"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Use is what device memory is for.
type Use int

const (
	Weights     Use = iota // packed matrices, norms and biases
	KVCache                // keys and values
	States                 // recurrent states of sequences
	Activations            // of the batch, and the logits
	Workspace              // scratch memory of kernels
	Tables                 // RoPE frequencies, page tables and the inputs of a step
	Uses                   // the number of uses
)

// String returns the name that plans show.
func (u Use) String() string {
	return [...]string{"weights", "KV cache", "states", "activations", "workspace", "tables"}[u]
}

// List is a list of allocations.
type List struct{ allocations []allocation }

type allocation struct {
	use     Use
	name    string
	bytes   int64
	address *ptx.Address // set by Allocate
	fill    Filler       // nil: zeros
}

// Filler uploads the initial contents of an allocation.
type Filler func(u *upload.Uploader, at driver.Address) error

// Add adds an allocation that is zero at first. Allocate stores its address in at. If bytes
// is 0, nothing is allocated and the address stays 0.
func (l *List) Add(use Use, name string, bytes int64, at *ptx.Address) {
	l.AddFilled(use, name, bytes, at, nil)
}

// AddFilled is Add with initial contents.
func (l *List) AddFilled(use Use, name string, bytes int64, at *ptx.Address, fill Filler) {
	if bytes > 0 {
		l.allocations = append(l.allocations, allocation{use, name, bytes, at, fill})
	}
}

// Allocation sizes are rounded up as CUDA does: large ones to whole pages of the GPU.
const (
	smallAlign = 256
	PageAlign  = 2 << 20
)

func (a allocation) size() int64 {
	align := int64(smallAlign)
	if a.bytes > PageAlign/2 {
		align = PageAlign
	}
	return (a.bytes + align - 1) / align * align
}

// Bytes returns the allocated bytes by use.
func (l *List) Bytes() (sums [Uses]int64) {
	for _, a := range l.allocations {
		sums[a.use] += a.size()
	}
	return sums
}

// UploadBytes returns the bytes with initial contents.
func (l *List) UploadBytes() (n int64) {
	for _, a := range l.allocations {
		if a.fill != nil {
			n += a.bytes
		}
	}
	return n
}

// Allocate allocates the list and stores the addresses. After an error it returns the
// buffers that it allocated; the caller closes them in any case.
func (l *List) Allocate(dev driver.Device) (buffers []driver.Buffer, err error) {
	for _, a := range l.allocations {
		b, err := dev.Alloc(a.bytes)
		if err != nil {
			return buffers, fmt.Errorf("%d bytes of %v for %s: %w", a.bytes, a.use, a.name, err)
		}
		buffers = append(buffers, b)
		*a.address = ptx.Address(b.Address())
	}
	return buffers, nil
}

// Upload fills the allocations and waits for the copies.
func (l *List) Upload(u *upload.Uploader) error {
	for _, a := range l.allocations {
		at := driver.Address(*a.address)
		var err error
		if a.fill == nil {
			err = u.Zero(at, a.bytes)
		} else {
			err = a.fill(u, at)
		}
		if err != nil {
			return fmt.Errorf("upload %s: %w", a.name, err)
		}
	}
	return u.Wait()
}

// Placeholders stores distinct addresses without allocating, for plans that never run. It
// returns the first address after them.
func (l *List) Placeholders() ptx.Address {
	at := ptx.Address(smallAlign)
	for _, a := range l.allocations {
		*a.address = at
		at += ptx.Address(a.size())
	}
	return at
}
