// Package upload copies host data to device memory through pinned staging buffers.
package upload

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/ptxgen/product"
)

// TileRows is the number of matrix rows that are packed together. A range of rows that
// begins and ends at a multiple of it packs to the same bytes alone as within its matrix.
const TileRows = 16

// Uploader copies through two staging buffers: it fills one while the copy from the other
// is in flight. It is for one goroutine.
type Uploader struct {
	ctx         context.Context
	stream      driver.Stream
	staging     [2]buffer
	next        int
	done, total int64 // bytes
	progress    func(done, total int64)
}

type buffer struct {
	memory   driver.Pinned
	copied   driver.Event // when the copy from it has ended
	inFlight bool
}

// Options configure an Uploader.
type Options struct {
	StagingBytes int                     // of each of the two buffers
	Total        int64                   // bytes of the whole upload, for Progress
	Progress     func(done, total int64) // called after each copy is queued; may be nil
}

// New allocates the staging buffers. The caller closes the Uploader. Copies fail with
// ctx.Err() once ctx has ended.
func New(ctx context.Context, dev driver.Device, stream driver.Stream, o Options) (*Uploader, error) {
	u := &Uploader{ctx: ctx, stream: stream, total: o.Total, progress: o.Progress}
	for i := range u.staging {
		var err error
		if u.staging[i].memory, err = dev.AllocPinned(o.StagingBytes); err != nil {
			return nil, errors.Join(err, u.Close())
		}
		if u.staging[i].copied, err = dev.NewEvent(); err != nil {
			return nil, errors.Join(err, u.Close())
		}
	}
	return u, nil
}

// Close releases the staging buffers. No copy may be in flight.
func (u *Uploader) Close() error {
	var errs []error
	for _, b := range u.staging {
		if b.copied != nil {
			errs = append(errs, b.copied.Close())
		}
		if b.memory != nil {
			errs = append(errs, b.memory.Close())
		}
	}
	return errors.Join(errs...)
}

// send lets fill write n bytes into a staging buffer and queues their copy. n is at most
// the size of a buffer.
func (u *Uploader) send(to driver.Address, n int, fill func(dst []byte) error) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	b := &u.staging[u.next]
	u.next = 1 - u.next
	if b.inFlight {
		if err := b.copied.Synchronize(); err != nil {
			return err
		}
	}
	if err := fill(b.memory.Bytes()[:n]); err != nil {
		return err
	}
	if err := u.stream.WriteAsync(to, b.memory, 0, n); err != nil {
		return err
	}
	b.inFlight = true
	if err := u.stream.Record(b.copied); err != nil {
		return err
	}
	u.done += int64(n)
	if u.progress != nil {
		u.progress(u.done, u.total)
	}
	return nil
}

// Zero queues clearing device memory.
func (u *Uploader) Zero(at driver.Address, bytes int64) error { return u.stream.Fill(at, 0, bytes) }

// Wait waits for all copies.
func (u *Uploader) Wait() error { return u.stream.Synchronize() }

// Matrix packs the rows of several matrices of one format and width, one below the other,
// and copies them.
func (u *Uploader) Matrix(to driver.Address, parts []model.Matrix) error {
	p := product.Packing{Format: parts[0].Format, K: parts[0].Cols}
	rows := Rows(parts)
	most := len(u.staging[0].memory.Bytes()) / p.TileBytes(TileRows) * TileRows
	var factors []float32
	for from := 0; from < rows; from += most {
		n := min(most, rows-from)
		if err := u.send(to, p.TileBytes(n), func(dst []byte) error {
			of, err := pack(p, dst, parts, from, n)
			factors = append(factors, of...)
			return err
		}); err != nil {
			return err
		}
		to += driver.Address(p.TileBytes(n))
	}
	return Values(u, to, factors)
}

// Rows returns the number of rows of all parts.
func Rows(parts []model.Matrix) (n int) {
	for _, m := range parts {
		n += m.Rows
	}
	return n
}

// pack packs n rows from row first on all cores, and returns their factors. Reading the mapped file is
// guarded, because another process can truncate it.
func pack(p product.Packing, dst []byte, parts []model.Matrix, first, n int) (factors []float32, err error) {
	tiles := (n + TileRows - 1) / TileRows
	workers := min(runtime.GOMAXPROCS(0), tiles)
	errs, lists := make([]error, workers), make([][]float32, workers)
	var wg sync.WaitGroup
	for w := range workers {
		from, to := w*tiles/workers*TileRows, min((w+1)*tiles/workers*TileRows, n)
		wg.Go(func() {
			errs[w] = gguf.Guard(func() {
				lists[w] = p.Pack(dst[p.TileBytes(from):p.TileBytes(to)], fileRows(parts, first+from, to-from), to-from)
			})
		})
	}
	wg.Wait()
	return slices.Concat(lists...), errors.Join(errs...)
}

// fileRows returns n rows of the parts from row first. It copies them only if they span
// several parts.
func fileRows(parts []model.Matrix, first, n int) []byte {
	var joined []byte
	partFirst := 0
	for _, m := range parts {
		size := len(m.Data) / m.Rows
		if from, to := max(first, partFirst)-partFirst, min(first+n, partFirst+m.Rows)-partFirst; from < to {
			rows := m.Data[from*size : to*size]
			if to-from == n {
				return rows
			}
			joined = append(joined, rows...)
		}
		partFirst += m.Rows
	}
	return joined
}

// Values copies numbers in little-endian byte order.
func Values[T float32 | float64 | uint32](u *Uploader, to driver.Address, x []T) error {
	var zero T
	size := binary.Size(zero)
	most := len(u.staging[0].memory.Bytes()) / size
	for from := 0; from < len(x); from += most {
		part := x[from:min(from+most, len(x))]
		if err := u.send(to, len(part)*size, func(dst []byte) error {
			_, err := binary.Encode(dst, binary.LittleEndian, part)
			return err
		}); err != nil {
			return err
		}
		to += driver.Address(len(part) * size)
	}
	return nil
}
