package matmul

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// GemvArgs are the arguments of a launch of Gemv. With Experts, slot i of Slots uses expert e =
// Experts[i]: its matrices begin at e*ExpertBytes, its vector is row i/SlotsPerX of X, and its
// result is row i of Y.
type GemvArgs struct {
	X  ptx.Address // f32 [Columns, K], rows XStride apart
	W  ptx.Address // packed [Rows, K]; if Gated, the gate
	Up ptx.Address // packed [Rows, K]; only if Gated
	Y  ptx.Address // f32 [Columns, Rows], rows YStride apart

	Rows, K, Columns int
	XStride, YStride int // elements; 0: K and Rows

	Norm       norm.Kind   // of X
	NormWeight ptx.Address // f32 [K]; 0: none
	NormBias   ptx.Address // f32 [K]; 0: none
	Eps        float32

	Bias       ptx.Address // f32 [Rows]; 0: none
	Softcap    float32     // 0: none
	Activation elementwise.Activation
	Residual   ptx.Address // f32, with the stride of Y; may be Y; 0: none

	Experts     ptx.Address // u32 [Slots]; 0: no experts
	Slots       int         // 0: 1
	SlotsPerX   int         // slots that share a row of X; 0: 1
	ExpertBytes int

	// Workspace has the bytes that Gemv.Workspace returns; 0 if that is 0. It must be zero before
	// its first use. Launches of any kernel and shape may use it one after the other; launches
	// that overlap need one each.
	Workspace ptx.Address

	SMs    int // of the device: the grid has at most as many CTAs as run at a time; 0: no limit
	Shared int // maximum bytes of shared memory per CTA; 0: 99 KiB, which every device has
}

// defaults fills in what 0 stands for.
func (a *GemvArgs) defaults() {
	a.Columns, a.Slots, a.SlotsPerX = cmp.Or(a.Columns, 1), cmp.Or(a.Slots, 1), cmp.Or(a.SlotsPerX, 1)
	a.XStride, a.YStride = cmp.Or(a.XStride, a.K), cmp.Or(a.YStride, a.Rows)
	a.Shared = cmp.Or(a.Shared, 99<<10)
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
	p, err := s.plan(a, k.MaxDynamic(a.Shared))
	if err != nil {
		return p, host.Errorf(k, "Shared", "%v", err)
	}
	if p.workspace > 4*mostSums {
		return p, host.Errorf(k, "Slots", "%d of %d rows in %d slices leave more sums than are counted in 32 bits", a.Slots, a.Rows, p.slices)
	}
	return p, nil
}

// checkSizes holds the sizes to what the kernel takes.
func (s Gemv) checkSizes(k *ptx.Kernel, a GemvArgs) error {
	return host.Valid(k, checkK(s.Format, a.K), host.Bound("Rows", a.Rows, 1, host.MaxSize-64),
		host.Bound("Columns", a.Columns, 1, s.maxColumns()), host.Bound("XStride", a.XStride, a.K, host.MaxSize),
		host.Bound("YStride", a.YStride, a.Rows, host.MaxSize), host.Bound("Slots", a.Slots, 1, 65535), host.Bound("SMs", a.SMs, 0, host.MaxSize))
}

// check holds what else there is to what the kernel takes.
func (s Gemv) check(k *ptx.Kernel, a GemvArgs) error {
	if err := host.Valid(k, host.Bound("Norm", int(a.Norm), 0, int(norm.Layer)),
		host.Bound("Activation", int(a.Activation), 0, int(elementwise.GELU)),
		host.Bound("SlotsPerX", a.SlotsPerX, 1, 65535), host.Bound("ExpertBytes", a.ExpertBytes, 0, math.MaxInt),
		host.Number("Eps", a.Eps), host.Number("Softcap", a.Softcap),
		host.NonNil("X", a.X), host.NonNil("W", a.W), host.NonNil("Y", a.Y)); err != nil {
		return err
	}
	switch {
	case s.Gated != (a.Up != 0):
		return host.Errorf(k, "Up", "two matrices are for the gated kernel, which needs both")
	case a.Slots > 1 && (a.Experts == 0 || a.Columns > 1):
		return host.Errorf(k, "Slots", "%d slots of %d columns: slots are for experts, with one column each", a.Slots, a.Columns)
	case a.Norm == norm.None && (a.NormWeight != 0 || a.NormBias != 0):
		return host.Errorf(k, "Norm", "there is none, but its weight or bias is given")
	case a.ExpertBytes%rowAlign != 0:
		return host.Errorf(k, "ExpertBytes", "%d is no multiple of %d", a.ExpertBytes, rowAlign)
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
		return ptx.Launch{}, host.Errorf(k, "Workspace", "no address, where %d bytes are needed", plan.workspace)
	}
	grid := plan.ctas(a)
	p := Packing{s.Format, a.K}
	span := p.units()
	if s.integer() {
		span = p.blocks()
	}
	params := []any{&gemvInputs{X: ptx.Addr(a.X), W: ptx.Addr(a.W)}}
	if s.Gated {
		params = append(params, &upMatrix{Up: ptx.Addr(a.Up)})
	}
	params = append(params, &gemvParams{
		Y: ptx.Addr(a.Y), Bias: ptx.Addr(a.Bias), Residual: ptx.Addr(a.Residual),
		Rows: ptx.Uint(a.Rows), K: ptx.Uint(a.K), Span: ptx.Uint(span), TileBytes: ptx.Uint(p.tileBytes()),
		Columns: ptx.Uint(a.Columns), XStride: ptx.Uint(a.XStride), YStride: ptx.Uint(a.YStride),
		Norm: ptx.Uint(int(a.Norm)), NormWeight: ptx.Addr(a.NormWeight), NormBias: ptx.Addr(a.NormBias), Eps: ptx.Float(a.Eps),
		Activation: ptx.Uint(int(a.Activation)), Softcap: ptx.Float(a.Softcap), Chunk: ptx.Uint(plan.chunk), SplitLog2: log2(plan.split),
		Experts: ptx.Addr(a.Experts), SlotsPerX: ptx.Uint(a.SlotsPerX), ExpertBytes: ptx.Uint64(uint64(a.ExpertBytes)),
	})
	depth := host.CeilDiv(a.Columns, s.columns())
	if s.integer() {
		depth = plan.slices
		share := host.CeilDiv(plan.groups, grid)
		grid = host.CeilDiv(plan.groups, share)
		params = append(params, &integerParams{PartsLog2: log2(plan.split * plan.slices), Share: ptx.Uint(share), Workspace: ptx.Addr(a.Workspace)})
	}
	return k.Launch([3]uint32{uint32(grid), uint32(a.Slots), uint32(depth)}, plan.threads, plan.shared, params...)
}

// log2 is that of a power of two.
func log2(n int) ptx.U32 { return ptx.Uint(bits.TrailingZeros(uint(n))) }
