package ptxgen

import (
	"math"
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// GemvArgs are a launch's arguments. Where there are experts, slot i of Slots takes
// expert e = Experts[i]: the matrices begin at e*ExpertBytes, the vector is that of
// row i / SlotsPerX of X, the result goes to row i of Y.
type GemvArgs struct {
	X  Address // f32 [Columns, K], rows XStride apart; quantized weights take one
	W  Address // packed [Rows, K]; of Gated the gate's
	Up Address // packed [Rows, K]; of Gated alone
	Y  Address // f32 [Columns, Rows], rows YStride apart

	Rows, K, Columns int
	XStride, YStride int // elements; 0 means K and Rows

	Norm       NormKind // of X
	NormWeight Address  // f32 [K], or 0
	NormBias   Address  // f32 [K], or 0
	Eps        float32

	Bias       Address // f32 [Rows], or 0
	Softcap    float32 // 0 means none
	Activation Activation
	Residual   Address // f32, laid out as Y, which it may be; or 0

	Experts     Address // u32 [Slots], or 0
	Slots       int     // 0 means 1
	SlotsPerX   int     // 0 means 1
	ExpertBytes int

	// Workspace has the bytes that Gemv.Workspace asks for; 0 where that is none. It is
	// zero before its first use. Launches of any kernel and shape may use it one after the
	// other; those that overlap have one each.
	Workspace Address

	SMs    int // of the device: no more CTAs than run at a time; 0 means as many as there is work for
	Shared int // bytes of shared memory that a CTA may have; 0 means 99 KiB, which every device has
}

// defaults fills in what 0 stands for.
func (a *GemvArgs) defaults() {
	a.Columns, a.Slots, a.SlotsPerX = orElse(a.Columns, 1), orElse(a.Slots, 1), orElse(a.SlotsPerX, 1)
	a.XStride, a.YStride = orElse(a.XStride, a.K), orElse(a.YStride, a.Rows)
	a.Shared = orElse(a.Shared, 99<<10)
}

// maxColumns is how many vectors the kernel's launches take: where weights are numbers, CTAs
// share out what is more than its columns.
func (s Gemv) maxColumns() int {
	if s.integer() {
		return 1
	}
	return maxColumns
}

// mostSums is how many sums a workspace holds: they are counted in 32 bits.
const mostSums = 1 << 32

// planned cuts a launch up, of arguments that the sizes allow.
func (s Gemv) planned(k *ptx.Kernel, a GemvArgs) (gemvPlan, error) {
	if err := s.checkSizes(k, a); err != nil {
		return gemvPlan{}, err
	}
	p, err := s.plan(a, a.Shared-k.Static)
	if err != nil {
		return p, argumentError(k, "Shared", "%v", err)
	}
	if p.workspace > 4*mostSums {
		return p, argumentError(k, "Slots", "%d of %d rows in %d slices leave more sums than are counted in 32 bits", a.Slots, a.Rows, p.slices)
	}
	return p, nil
}

// checkSizes holds the sizes to what the kernel takes.
func (s Gemv) checkSizes(k *ptx.Kernel, a GemvArgs) error {
	return firstError(checkK(k, s.Format, a.K), checkBounds(k, bound{"Rows", a.Rows, 1, maxSize - 64},
		bound{"Columns", a.Columns, 1, s.maxColumns()}, bound{"XStride", a.XStride, a.K, maxSize},
		bound{"YStride", a.YStride, a.Rows, maxSize}, bound{"Slots", a.Slots, 1, 65535}, bound{"SMs", a.SMs, 0, maxSize}))
}

// check holds what else there is to what the kernel takes.
func (s Gemv) check(k *ptx.Kernel, a GemvArgs) error {
	if err := firstError(checkBounds(k, bound{"Norm", int(a.Norm), 0, int(LayerNorm)},
		bound{"Activation", int(a.Activation), 0, int(GELU)},
		bound{"SlotsPerX", a.SlotsPerX, 1, 65535}, bound{"ExpertBytes", a.ExpertBytes, 0, math.MaxInt}),
		checkNumbers(k, number{"Eps", a.Eps}, number{"Softcap", a.Softcap}),
		checkPointers(k, pointer{"X", a.X}, pointer{"W", a.W}, pointer{"Y", a.Y})); err != nil {
		return err
	}
	switch {
	case s.Gated != (a.Up != 0):
		return argumentError(k, "Up", "two matrices are for the gated kernel, which needs both")
	case a.Slots > 1 && (a.Experts == 0 || a.Columns > 1):
		return argumentError(k, "Slots", "%d slots of %d columns: slots are for experts, with one column each", a.Slots, a.Columns)
	case a.Norm == NoNorm && (a.NormWeight != 0 || a.NormBias != 0):
		return argumentError(k, "Norm", "there is none, but its weight or bias is given")
	case a.ExpertBytes%rowAlign != 0:
		return argumentError(k, "ExpertBytes", "%d is no multiple of %d", a.ExpertBytes, rowAlign)
	}
	return nil
}

// ctas is how many CTAs share the groups of rows out, of each slot and slice.
func (p gemvPlan) ctas(a GemvArgs) int {
	n := p.groups
	if a.SMs > 0 {
		n = min(n, max(1, a.SMs*p.resident/(a.Slots*p.slices)))
	}
	return n
}

// Launch makes a launch.
func (s Gemv) Launch(k *ptx.Kernel, a GemvArgs) (ptx.Launch, error) {
	a.defaults()
	plan, err := s.planned(k, a)
	if err == nil {
		err = s.check(k, a)
	}
	if err != nil {
		return ptx.Launch{}, err
	}
	if plan.workspace > 0 && a.Workspace == 0 {
		return ptx.Launch{}, argumentError(k, "Workspace", "no address, where %d bytes are needed", plan.workspace)
	}
	grid := plan.ctas(a)
	p := Packing{s.Format, a.K}
	span := p.Units()
	if s.integer() {
		span = p.blocks()
	}
	args := []ptx.Arg{ptx.Addr(a.X), ptx.Addr(a.W)}
	if s.Gated {
		args = append(args, ptx.Addr(a.Up))
	}
	args = append(args, ptx.Addr(a.Y), ptx.Addr(a.Bias), ptx.Addr(a.Residual),
		ptx.Uint(a.Rows), ptx.Uint(a.K), ptx.Uint(span), ptx.Uint(p.tileBytes()),
		ptx.Uint(a.Columns), ptx.Uint(a.XStride), ptx.Uint(a.YStride),
		ptx.Uint(int(a.Norm)), ptx.Addr(a.NormWeight), ptx.Addr(a.NormBias), ptx.Float(a.Eps),
		ptx.Uint(int(a.Activation)), ptx.Float(a.Softcap), ptx.Uint(plan.chunk), log2(plan.split),
		ptx.Addr(a.Experts), ptx.Uint(a.SlotsPerX), ptx.Addr(Address(a.ExpertBytes)))
	depth := ceilDiv(a.Columns, s.columns())
	if s.integer() {
		depth = plan.slices
		share := ceilDiv(plan.groups, grid)
		grid = ceilDiv(plan.groups, share)
		args = append(args, log2(plan.split*plan.slices), ptx.Uint(share), ptx.Addr(a.Workspace))
	}
	return k.Launch([3]uint32{uint32(grid), uint32(a.Slots), uint32(depth)}, plan.threads, plan.shared, args...)
}

// log2 is that of a power of two.
func log2(n int) ptx.Arg { return ptx.Uint(bits.TrailingZeros(uint(n))) }
