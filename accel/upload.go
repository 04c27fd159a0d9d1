package accel

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// uploader copies to the device through two halves of pinned memory: one is filled
// while the other is on its way.
type uploader struct {
	ctx         context.Context // of New
	stream      driver.Stream
	halves      [2]half
	next        int
	done, total int64
	progress    func(done, total int64)
}

type half struct {
	memory driver.Pinned
	sent   driver.Event // when it may be filled again
	busy   bool
}

// stagingBytes is the size of a half: as much as makes copies fast, or all there is to
// upload, but no less than a tile.
func (e *Engine) stagingBytes() int {
	const enough = 8 << 20
	return max(int(min(enough, e.toUpload())), e.tileBytes())
}

func newUploader(ctx context.Context, dev driver.Device, stream driver.Stream, bytes int, total int64, progress func(done, total int64)) (*uploader, error) {
	u := &uploader{ctx: ctx, stream: stream, total: total, progress: progress}
	for i := range u.halves {
		var err error
		if u.halves[i].memory, err = dev.AllocPinned(bytes); err != nil {
			return nil, errors.Join(err, u.close())
		}
		if u.halves[i].sent, err = dev.NewEvent(); err != nil {
			return nil, errors.Join(err, u.close())
		}
	}
	return u, nil
}

func (u *uploader) close() error {
	var errs []error
	for _, h := range u.halves {
		if h.sent != nil {
			errs = append(errs, h.sent.Close())
		}
		if h.memory != nil {
			errs = append(errs, h.memory.Close())
		}
	}
	return errors.Join(errs...)
}

// finish waits until everything has arrived.
func (u *uploader) finish() error { return u.stream.Synchronize() }

// send lets fill write n bytes, no more than a half has, and copies them to the device.
func (u *uploader) send(to driver.Address, n int, fill func(dst []byte) error) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	h := &u.halves[u.next]
	u.next = 1 - u.next
	if h.busy {
		if err := h.sent.Synchronize(); err != nil {
			return err
		}
	}
	if err := fill(h.memory.Bytes()[:n]); err != nil {
		return err
	}
	if err := u.stream.WriteAsync(to, h.memory, 0, n); err != nil {
		return err
	}
	h.busy = true
	if err := u.stream.Record(h.sent); err != nil {
		return err
	}
	u.done += int64(n)
	if u.progress != nil {
		u.progress(u.done, u.total)
	}
	return nil
}

// tileRows is what matrices are cut into multiples of: pieces of so many rows are packed
// by themselves as within the matrix.
const tileRows = 16

// matrix packs the rows of several matrices of one format, one below the other, as one.
func (u *uploader) matrix(to driver.Address, parts []model.Matrix) error {
	p := ptxgen.Packing{Format: parts[0].Format, K: parts[0].Cols}
	rows := rowsIn(parts)
	step := len(u.halves[0].memory.Bytes()) / p.Bytes(tileRows) * tileRows
	for from := 0; from < rows; from += step {
		n := min(step, rows-from)
		if err := u.send(to, p.Bytes(n), func(dst []byte) error { return pack(p, dst, parts, from, n) }); err != nil {
			return err
		}
		to += driver.Address(p.Bytes(n))
	}
	return nil
}

func rowsIn(parts []model.Matrix) (n int) {
	for _, m := range parts {
		n += m.Rows
	}
	return n
}

// pack packs n rows from row first, on all cores. The file is read inside a guard: it
// may be cut short while it is mapped.
func pack(p ptxgen.Packing, dst []byte, parts []model.Matrix, first, n int) error {
	tiles := ceilDiv(n, tileRows)
	workers := min(runtime.GOMAXPROCS(0), tiles)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		from, to := w*tiles/workers*tileRows, min((w+1)*tiles/workers*tileRows, n)
		wg.Go(func() {
			errs[w] = gguf.Guard(func() {
				p.Pack(dst[p.Bytes(from):p.Bytes(to)], fileRows(parts, first+from, to-from), to-from)
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// fileRows is rows first to first+n-1 of the parts: in place, or copied together where
// they are of several.
func fileRows(parts []model.Matrix, first, n int) []byte {
	var joined []byte
	at := 0 // the row at which a part begins
	for _, m := range parts {
		size := len(m.Data) / m.Rows
		if from, to := max(first, at)-at, min(first+n, at+m.Rows)-at; from < to {
			rows := m.Data[from*size : to*size]
			if to-from == n {
				return rows
			}
			joined = append(joined, rows...)
		}
		at += m.Rows
	}
	return joined
}

// numbers copies little-endian elements of some bytes each.
func (u *uploader) numbers(to driver.Address, count, size int, put func(dst []byte, i int)) error {
	step := len(u.halves[0].memory.Bytes()) / size
	for from := 0; from < count; from += step {
		n := min(step, count-from)
		if err := u.send(to, n*size, func(dst []byte) error {
			for i := range n {
				put(dst[i*size:], from+i)
			}
			return nil
		}); err != nil {
			return err
		}
		to += driver.Address(n * size)
	}
	return nil
}

func (u *uploader) f32s(to driver.Address, x []float32) error {
	return u.numbers(to, len(x), 4, func(dst []byte, i int) { binary.LittleEndian.PutUint32(dst, math.Float32bits(x[i])) })
}

func (u *uploader) f64s(to driver.Address, x []float64) error {
	return u.numbers(to, len(x), 8, func(dst []byte, i int) { binary.LittleEndian.PutUint64(dst, math.Float64bits(x[i])) })
}

func (u *uploader) u32s(to driver.Address, x []uint32) error {
	return u.numbers(to, len(x), 4, func(dst []byte, i int) { binary.LittleEndian.PutUint32(dst, x[i]) })
}
