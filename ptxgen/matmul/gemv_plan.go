package matmul

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// gemvPlan is how a launch is cut up.
type gemvPlan struct {
	threads, shared int // of a CTA; shared without what the kernel has itself
	split           int // warps that share rows
	groups          int // of rows: what the CTAs share out
	slices          int // of a row
	chunk           int // what is staged at a time
	resident        int // CTAs an SM
	workspace       int
}

// plan cuts up a product, for CTAs of so much dynamic shared memory.
func (s Gemv) plan(a GemvArgs, shared int) (gemvPlan, error) {
	if s.integer() {
		return s.planInteger(a, shared)
	}
	return s.planFloat(a.Rows, a.K, shared)
}

// Workspace returns the bytes of workspace that a launch with these arguments needs; the
// addresses do not matter. Without a norm it needs at least as many as with one.
func (s Gemv) Workspace(k *ptx.Kernel, a GemvArgs) (int, error) {
	a.defaults()
	p, err := s.planned(k, a)
	return p.workspace, err
}

// GemvFor returns the kernel for columns vectors of k elements, on a device with shared bytes of
// shared memory per CTA: 1 vector of a quantized format, up to 16 of F32, F16 and BF16. If
// these do not fit it has fewer Columns, and several launches are needed. The choice does not
// change a bit of the results.
func GemvFor(format quant.Format, columns int, gated bool, k, shared int) (Gemv, error) {
	choice := Gemv{Format: format, Columns: 1, Gated: gated}
	most := maxColumns
	if choice.integer() {
		most = 1
	}
	if columns < 1 || columns > most {
		return Gemv{}, fmt.Errorf("ptxgen: a product of %d vectors with %v, want 1 to %d", columns, format, most)
	}
	if err := wholeBlocks(format, k); err != nil {
		return Gemv{}, err
	}
	for choice.Columns < columns {
		choice.Columns *= 2
	}
	for ; choice.Columns > 1; choice.Columns /= 2 {
		if choice.fits(k, shared) {
			return choice, nil
		}
	}
	choice.Small = choice.betterSmall(k, shared)
	if _, err := choice.planRow(k, shared); err != nil {
		return Gemv{}, fmt.Errorf("ptxgen: a product of vectors of %d with %v: %w", k, format, err)
	}
	return choice, nil
}

// wholeBlocks holds rows of k weights to the format.
func wholeBlocks(format quant.Format, k int) error {
	if n := format.BlockLen(); k < 1 || k%n != 0 {
		return fmt.Errorf("ptxgen: rows of %d weights are no whole blocks of %v, which have %d", k, format, n)
	}
	return nil
}

// betterSmall reports whether, for one vector on a device with little shared memory, the
// small kernel's CTAs have room for larger slices.
func (s Gemv) betterSmall(k, shared int) bool {
	const little = 200 << 10
	if !s.integer() || shared > little {
		return false
	}
	n, err := s.leastSlices(k, shared-staticLimit)
	s.Small = true
	small, e := s.leastSlices(k, shared-staticLimit)
	return e == nil && (err != nil || small < n)
}

// fits reports whether several vectors are staged whole, as they are to be.
func (s Gemv) fits(k, shared int) bool {
	p, err := s.planRow(k, shared)
	return err == nil && p.chunk == host.CeilDiv(k, groupLen)
}

// planRow is the plan of a row, for a device with at most shared bytes of shared memory per CTA.
func (s Gemv) planRow(k, shared int) (gemvPlan, error) {
	return s.plan(GemvArgs{Rows: 1, K: k, Slots: 1}, shared-staticLimit)
}

// staticLimit is more than any kernel's own shared memory.
const staticLimit = 4 << 10

// planFloat stages as many groups as there is room for; if not all of the row, then in
// multiples of split where possible, so that no warp waits.
func (s Gemv) planFloat(rows, k, shared int) (gemvPlan, error) {
	p := gemvPlan{threads: floatThreads, slices: 1, chunk: host.CeilDiv(k, groupLen)}
	p.split = splitOf(p.chunk)
	size := s.columns() * stagedGroup
	if fit := shared / size; fit < p.chunk {
		p.chunk = fit
		if fit >= p.split {
			p.chunk = fit / p.split * p.split
		}
	}
	if p.chunk == 0 {
		return p, fmt.Errorf("%d elements of %d columns do not fit", groupLen, s.columns())
	}
	p.shared = p.chunk * size
	p.groups = host.CeilDiv(rows, floatWarps/p.split*s.rows())
	p.resident = min(2, max(1, shared/p.shared))
	return p, nil
}

// Rows of more blocks than a CTA has warps are cut into slices, at least so many, that have
// no more: CTAs stage as much of x each in a fraction of the time.
const (
	sliceBlocks = 16
	usualSlices = 4
)

// planInteger cuts rows into slices. With a norm, of which each takes the squares of the
// whole vector, they need only fit.
func (s Gemv) planInteger(a GemvArgs, shared int) (gemvPlan, error) {
	p := gemvPlan{threads: 32 * s.warps(), resident: 1}
	blocks := Packing{s.Format, a.K}.blocks()
	var err error
	if p.slices, err = s.leastSlices(a.K, shared); err != nil {
		return p, err
	}
	parts := partsOf(blocks)
	if a.Norm == norm.None && blocks > sliceBlocks {
		for p.slices < usualSlices || p.slices < parts && host.CeilDiv(blocks, p.slices) > sliceBlocks {
			p.slices *= 2
		}
	}
	p.split, p.chunk = parts/p.slices, host.CeilDiv(blocks, p.slices)
	p.shared = s.sliceBytes(a.K, p.slices)
	teams := max(1, s.warps()/p.split)
	p.groups = host.CeilDiv(host.CeilDiv(a.Rows, tileRows), teams)
	pairs := p.slices - 1 // that meet
	p.workspace = 4 * p.groups * a.Slots * pairs * teams * s.matrixCount() * tileRows
	return p, nil
}

// leastSlices is into how few slices rows can be cut for one to fit.
func (s Gemv) leastSlices(k, shared int) (int, error) {
	parts := partsOf(Packing{s.Format, k}.blocks())
	for n := 1; n <= parts; n *= 2 {
		if s.sliceBytes(k, n) <= shared {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%d bytes, where a part of a vector takes %d", shared, s.sliceBytes(k, parts))
}

// sliceBytes is the shared memory for one of so many slices of a row.
func (s Gemv) sliceBytes(k, slices int) int {
	blocks := Packing{s.Format, k}.blocks()
	squares := 4 * blocks
	return s.warps()*s.ringBytes() + resultBuffers*s.roundBytes() + squares + host.CeilDiv(blocks, slices)*s.stagedBytes()
}
