package accel

import (
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// use is what device memory is for.
type use int

const (
	weightMemory use = iota
	cacheMemory
	activationMemory
	workspaceMemory
	tableMemory
	uses
)

func (u use) String() string {
	return [...]string{"weights", "KV cache", "activations", "workspace", "tables"}[u]
}

// region is a piece of device memory: who wants it, and what it holds at first.
type region struct {
	use   use
	name  string
	bytes int64
	at    *ptxgen.Address                       // where its address goes
	fill  func(*uploader, driver.Address) error // nil: zeros
}

// inventory lists all device memory of an engine before any of it is taken, so that
// what is planned is what is allocated.
type inventory struct{ regions []region }

func (v *inventory) add(use use, name string, bytes int64, at *ptxgen.Address) {
	v.fill(use, name, bytes, at, nil)
}

func (v *inventory) fill(use use, name string, bytes int64, at *ptxgen.Address, fill func(*uploader, driver.Address) error) {
	if bytes > 0 {
		v.regions = append(v.regions, region{use, name, bytes, at, fill})
	}
}

// What allocations are rounded up to in the plan: CUDA gives large ones whole pages.
const (
	allocAlign = 256
	pageAlign  = 2 << 20
)

func (r region) size() int64 {
	align := int64(allocAlign)
	if r.bytes > pageAlign/2 {
		align = pageAlign
	}
	return (r.bytes + align - 1) / align * align
}

// bytes sums up the regions by class.
func (v *inventory) bytes() (sums [uses]int64) {
	for _, r := range v.regions {
		sums[r.use] += r.size()
	}
	return sums
}

// toUpload is how many bytes there are to fill from the model.
func (v *inventory) toUpload() (n int64) {
	for _, r := range v.regions {
		if r.fill != nil {
			n += r.bytes
		}
	}
	return n
}

// allocate takes the memory and says where it is. After an error, what was taken is
// among the buffers.
func (v *inventory) allocate(dev driver.Device) (buffers []driver.Buffer, err error) {
	for _, r := range v.regions {
		b, err := dev.Alloc(r.bytes)
		if err != nil {
			return buffers, fmt.Errorf("accel: %d bytes of %v for %s: %w", r.bytes, r.use, r.name, err)
		}
		buffers = append(buffers, b)
		*r.at = ptxgen.Address(b.Address())
	}
	return buffers, nil
}

// upload fills the memory that was allocated.
func (v *inventory) upload(u *uploader) error {
	for _, r := range v.regions {
		at := driver.Address(*r.at)
		err := error(nil)
		if r.fill == nil {
			err = u.stream.Fill(at, 0, r.bytes)
		} else {
			err = r.fill(u, at)
		}
		if err != nil {
			return fmt.Errorf("accel: uploading %s: %w", r.name, err)
		}
	}
	return u.finish()
}

// closeAll closes what was opened, the last first.
func closeAll[C interface{ Close() error }](list []C) error {
	var errs []error
	for i := len(list) - 1; i >= 0; i-- {
		errs = append(errs, list[i].Close())
	}
	return errors.Join(errs...)
}
