package matmul

import (
	"cmp"
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// GemvBatchArgs are the arguments of a launch of a BatchKernel.
type GemvBatchArgs struct {
	Digits ptx.Address // Columns vectors, as Digits wrote them
	W      ptx.Address // packed [Rows, K]; if Gated, the gate
	Up     ptx.Address // packed [Rows, K]; only if Gated
	Y      ptx.Address // f32 [Columns, Rows], rows YStride apart

	Rows, K, Columns int
	YStride          int // elements; 0: Rows

	Bias       ptx.Address // f32 [Rows]; 0: none
	Softcap    float32     // 0: none
	Activation elementwise.Activation
	Residual   ptx.Address // f32, with the stride of Y; may be Y; 0: none

	// Workspace has the bytes that the kernel's Workspace returns, used as GemvArgs.Workspace; 0
	// if that is 0.
	Workspace ptx.Address

	SMs    int // of the device: the grid has about as many CTAs; 0: no limit
	Shared int // maximum bytes of shared memory per CTA; 0: 99 KiB, which every device has
}

// BatchKernel multiplies a matrix of quantized weights by several vectors.
type BatchKernel interface {
	kernel.Spec
	// Digits returns the kernel that converts the vectors to the layout that this one reads.
	Digits() Digits
	// Workspace returns the bytes of workspace that a launch with these arguments needs; the
	// addresses do not matter.
	Workspace(k *ptx.Kernel, a GemvBatchArgs) (int, error)
	// Launch makes a launch.
	Launch(k *ptx.Kernel, a GemvBatchArgs) (ptx.Launch, error)
}

// GemvBatchFor returns the kernel for columns vectors of k elements, on a device that supports
// kernels for target most and has shared bytes of shared memory per CTA: GemvWide for more
// than 16 vectors; else the smallest set that holds them all, or sets of 8, which need the
// least memory. The choice does not change a bit of the results.
func GemvBatchFor(format quant.Format, columns int, gated bool, k int, most ptx.Target, shared int) (BatchKernel, error) {
	if wide := (wideKernel{format, gated}); most.HasWGMMA() && columns > wideVectors && wide.fits(k, shared) {
		return wide, nil
	}
	return gemvBatchFor(format, columns, gated, k, shared)
}

func gemvBatchFor(format quant.Format, columns int, gated bool, k, shared int) (GemvBatch, error) {
	if !decoderOf(format).quantized() {
		return GemvBatch{}, fmt.Errorf("ptxgen: %v has no digits to multiply: Gemv is for several vectors of it", format)
	}
	if columns < 1 {
		return GemvBatch{}, fmt.Errorf("ptxgen: a product of %d vectors", columns)
	}
	if err := wholeBlocks(format, k); err != nil {
		return GemvBatch{}, err
	}
	s := GemvBatch{Format: format, Gated: gated}
	for _, s.Columns = range gemvBatchColumns(format) {
		if s.Columns >= columns {
			break
		}
	}
	for _, s.Columns = range []int{s.Columns, 8} {
		if s.mostEntries(k, shared-staticLimit) >= s.matrices() {
			return s, nil
		}
	}
	return GemvBatch{}, fmt.Errorf("ptxgen: products of several vectors of %d with %v do not fit into %d bytes of shared memory", k, format, shared)
}

// Digits implements BatchKernel.
func (s GemvBatch) Digits() Digits { return Digits{} }

// Workspace implements BatchKernel: none.
func (s GemvBatch) Workspace(*ptx.Kernel, GemvBatchArgs) (int, error) { return 0, nil }

func (s GemvBatch) matrices() int { return s.gemv().matrixCount() }

// ringBytes is the size of a warp's ring.
func (s GemvBatch) ringBytes() int { return s.stages() * decoderOf(s.Format).blockBytes() }

// entryBytes is what a warp has of a tile of a round, where rows are of k weights: only a
// part of several blocks has sums that wait for the next.
func (s GemvBatch) entryBytes(k int) int {
	if blocks := (Packing{s.Format, k}).blocks(); blocks > partsOf(blocks) {
		return s.sumsBytes() + s.pendingBytes()
	}
	return s.sumsBytes()
}

// mostEntries is how many tiles a round may have, of all matrices.
func (s GemvBatch) mostEntries(k, shared int) int {
	return max(0, shared/s.warps()-s.warpBytes()) / s.entryBytes(k)
}

// batchPlan is how a launch is cut up.
type batchPlan struct {
	parts  int // of a row
	sets   int // of vectors
	ctas   int // of a set
	share  int // groups of tiles of a CTA
	round  int // groups that are multiplied by what is in registers
	shared int
}

// plan cuts up a launch, of arguments that check allows.
func (s GemvBatch) plan(k *ptx.Kernel, a GemvBatchArgs) (p batchPlan, err error) {
	p = batchPlan{parts: partsOf(Packing{s.Format, a.K}.blocks()), sets: host.CeilDiv(a.Columns, s.Columns)}
	shared := k.MaxDynamic(cmp.Or(a.Shared, 99<<10))
	most := s.mostEntries(a.K, shared) / s.matrices()
	if most == 0 {
		return p, host.Errorf(k, "Shared", "%d bytes are too few for rows of %d weights", shared, a.K)
	}
	teams := max(1, s.warps()/p.parts)
	groups := host.CeilDiv(host.CeilDiv(a.Rows, tileRows), teams)
	p.ctas = groups
	if a.SMs > 0 {
		p.ctas = min(groups, max(1, a.SMs/p.sets))
	}
	p.share = host.CeilDiv(groups, p.ctas)
	p.ctas = host.CeilDiv(groups, p.share)
	p.round = host.CeilDiv(p.share, host.CeilDiv(p.share, most))
	p.shared = s.warps() * (s.warpBytes() + p.round*s.matrices()*s.entryBytes(a.K))
	return p, nil
}

// checkSizes holds the sizes to what the kernel takes.
func (s GemvBatch) checkSizes(k *ptx.Kernel, a GemvBatchArgs) error {
	return host.Valid(k, checkK(s.Format, a.K), host.Bound("Rows", a.Rows, 1, host.MaxSize-64),
		host.Bound("Columns", a.Columns, 1, 65535), host.Bound("YStride", a.YStride, a.Rows, host.MaxSize), host.Bound("SMs", a.SMs, 0, host.MaxSize))
}

// check holds what else there is to what the kernel takes.
func (s GemvBatch) check(k *ptx.Kernel, a GemvBatchArgs) error {
	if s.Gated != (a.Up != 0) {
		return host.Errorf(k, "Up", "two matrices are for the gated kernel, which needs both")
	}
	return host.Valid(k, host.Bound("Activation", int(a.Activation), 0, int(elementwise.GELU)), host.Number("Softcap", a.Softcap),
		host.NonNil("Digits", a.Digits), host.NonNil("W", a.W), host.NonNil("Y", a.Y))
}

// Launch implements BatchKernel.
func (s GemvBatch) Launch(k *ptx.Kernel, a GemvBatchArgs) (ptx.Launch, error) {
	a.YStride = cmp.Or(a.YStride, a.Rows)
	if err := cmp.Or(s.checkSizes(k, a), s.check(k, a)); err != nil {
		return ptx.Launch{}, err
	}
	p, err := s.plan(k, a)
	if err != nil {
		return ptx.Launch{}, err
	}
	params := append(s.params(a, p.parts, p.share, p.sets), &roundParams{Round: ptx.Uint(p.round)})
	return k.Launch([3]uint32{uint32(p.ctas * p.sets), 1, 1}, 32*s.warps(), p.shared, params...)
}

// params are the values of the parameters of declareBatch.
func (s GemvBatch) params(a GemvBatchArgs, parts, share, sets int) []any {
	params := []any{&batchInputs{Digits: ptx.Addr(a.Digits), W: ptx.Addr(a.W)}}
	if s.Gated {
		params = append(params, &upMatrix{Up: ptx.Addr(a.Up)})
	}
	return append(params, &batchParams{
		Y: ptx.Addr(a.Y), Bias: ptx.Addr(a.Bias), Residual: ptx.Addr(a.Residual),
		Rows: ptx.Uint(a.Rows), Span: ptx.Uint(Packing{s.Format, a.K}.blocks()), Columns: ptx.Uint(a.Columns), YStride: ptx.Uint(a.YStride),
		Activation: ptx.Uint(int(a.Activation)), Softcap: ptx.Float(a.Softcap), PartsLog2: log2(parts), Share: ptx.Uint(share), Sets: ptx.Uint(sets),
	})
}
