package ptxgen

import (
	"fmt"

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
func (s Gemv) plan(rows, k, slots, shared int) (gemvPlan, error) {
	if s.integer() {
		return s.planInteger(rows, k, slots, shared)
	}
	return s.planFloat(rows, k, shared)
}

// Workspace is how many bytes of workspace a launch with these arguments needs. The
// addresses do not matter.
func (s Gemv) Workspace(k *ptx.Kernel, a GemvArgs) (int, error) {
	a.defaults()
	p, err := s.plan(a.Rows, a.K, a.Slots, a.Shared-k.Static)
	if err != nil {
		return 0, argumentError(k, "Shared", "%v", err)
	}
	return p.workspace, nil
}

// GemvFor chooses the kernel for so many vectors of k numbers, on a device whose CTAs may
// have so many bytes of shared memory. The choice has no part in the results' bits.
func GemvFor(format quant.Format, columns int, gated bool, k, shared int) (Gemv, error) {
	if columns < 1 || columns > maxColumns {
		return Gemv{}, fmt.Errorf("ptxgen: a product of %d vectors, want 1 to %d", columns, maxColumns)
	}
	shared -= staticLimit
	choice, err := Gemv{format, 1, gated}, error(nil)
	if !choice.integer() {
		// As many as fit whole.
		for _, c := range gemvColumns[1:] {
			if c/2 < columns && ceilDiv(k, groupLen)*c*stagedGroup <= shared {
				choice.Columns = c
			}
		}
		return choice, nil
	}
	for _, c := range gemvColumns {
		if c < columns {
			continue
		}
		// A kernel for more columns takes fewer, too, and needs less memory.
		choice.Columns = c
		if _, err = choice.plan(1, k, 1, shared); err == nil {
			return choice, nil
		}
	}
	return Gemv{}, fmt.Errorf("ptxgen: a product of %d vectors with %v: %w", columns, format, err)
}

// staticLimit is more than any kernel's own shared memory.
const staticLimit = 4 << 10

// planFloat stages as many groups as there is room for; if not all of the row, then in
// multiples of split where possible, so that no warp waits.
func (s Gemv) planFloat(rows, k, shared int) (gemvPlan, error) {
	p := gemvPlan{threads: floatThreads, slices: 1, chunk: ceilDiv(k, groupLen)}
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
	p.groups = ceilDiv(rows, floatWarps/p.split*s.rows())
	p.resident = min(2, max(1, shared/p.shared))
	return p, nil
}

// planInteger cuts rows into as few slices as fit.
func (s Gemv) planInteger(rows, k, slots, shared int) (gemvPlan, error) {
	blocks := Packing{s.Format, k}.blocks()
	p := gemvPlan{threads: 32 * s.warps(), resident: 1}
	fixed := s.warps()*s.ringBytes() + s.resultBuffers()*s.roundBytes() + 4*s.columns()*blocks // the squares
	parts := partsOf(blocks)
	for p.slices = max(1, parts/s.warps()); ; p.slices *= 2 {
		p.split = parts / p.slices
		p.chunk = 0
		for i := range p.slices {
			p.chunk = max(p.chunk, blocks*(i+1)/p.slices-blocks*i/p.slices)
		}
		p.shared = fixed + p.chunk*s.stagedBytes()
		if p.shared <= shared {
			break
		}
		if p.split == 1 {
			return p, fmt.Errorf("%d bytes, of which %d are needed for a part of %d columns", shared, p.shared, s.columns())
		}
	}
	p.groups = ceilDiv(ceilDiv(rows, tileRows), s.warps()/p.split)
	if p.slices > 1 {
		tickets := ceilDiv(p.groups*slots, 4) * 16
		results := s.warps() / p.split * s.matrixCount() * s.tileResults()
		p.workspace = tickets + 4*p.groups*slots*p.slices*results
	}
	return p, nil
}
