package matmul

import (
	"cmp"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Digits converts vectors to the integers that GemvBatch and GemvWide multiply: 31-bit numbers
// with a power of two per block of 256 elements, as bytes. Gemv does the same for itself.
//
// Out holds digitBlock bytes for each {block of 256 elements, vector}, with everything that any
// format needs; for GemvWide {block, set of 16 vectors}, in another order (see
// gemv_wide_digits.go). Behind the blocks it holds one float32 per vector, by which products
// with the vector must be multiplied. There is room for a multiple of 16 vectors; missing
// vectors are zeros.
//
// A warp converts one block, a CTA those of a slice of a vector. For a norm each CTA reads the
// whole vector.
type Digits struct {
	Wide bool // in the order that GemvWide reads
}

// Where a block of digits has what; see gemv_digits.go for how that lies.
const (
	digitsOfMeans   = 4 * digitWeights     // behind the digits: those of means by 32 numbers, of formats without halves
	digitsPower     = digitsOfMeans + 64   // the power of two, and zeros up to 16 bytes
	digitsOfMeans16 = digitsPower + 16     // {digit, sub-block}: of means by 16 numbers
	digitsSums      = digitsOfMeans16 + 64 // sums by 32 numbers, as float32
	digitBlock      = digitsSums + 64
)

const (
	digitVectors = 16  // there is room for a multiple of so many
	digitWeights = 256 // of a block
	digitWarps   = 16  // of a CTA
)

// digitsLike is a format with staged blocks that begin as blocks of digits do: with the digits,
// those of means, and the power.
const digitsLike = quant.Q4_K

// DigitsArgs are the arguments of a launch of Digits.
type DigitsArgs struct {
	X   ptx.Address // f32 [Vectors, K], rows XStride apart
	Out ptx.Address // Digits.Bytes bytes, aligned to 16

	K, Vectors int
	XStride    int // elements; 0: K

	Norm       norm.Kind   // of X
	NormWeight ptx.Address // f32 [K]; 0: none
	NormBias   ptx.Address // f32 [K]; 0: none
	Eps        float32
}

// Name implements Spec.
func (s Digits) Name() string {
	if s.Wide {
		return "gemv_digits_wide"
	}
	return "gemv_digits"
}

// Bytes returns the size of the digits of vectors vectors of k elements.
func (s Digits) Bytes(k, vectors int) int64 {
	return int64(roomFor(vectors)) * (digitBlock*int64(host.CeilDiv(k, digitWeights)) + 4)
}

// roomFor is how many vectors there is room for.
func roomFor(vectors int) int { return host.CeilDiv(vectors, digitVectors) * digitVectors }

// digits is a Digits being built.
type digits struct {
	*gemvInteger
	s      Digits
	out    ptx.Global
	count  ptx.U32 // of vectors
	number ptx.U32 // of the CTA's vector, which may not be there
	room   ptx.U32 // vectors that there is room for
}

// Build implements Spec.
func (s Digits) Build() (*ptx.Kernel, error) {
	b := begin(s.Name())
	b.Doc("the digits of vectors, normalized or not, for products with several")
	d := newDigits(b, s)
	b.IfElse(d.number.Lt(d.count), d.make, func() {
		b.Comment("zeros for a vector that is not there")
		zero := b.U32(0)
		d.store(b.F32(0), func(ptx.U32) [4]ptx.U32 { return [4]ptx.U32{zero, zero, zero, zero} })
	})
	return b.Finish(ptx.MaxThreads(32 * digitWarps))
}

type digitsParams struct {
	X                         ptx.Global
	Out                       ptx.Global `align:"16"`
	K, Span, XStride, Vectors ptx.U32
	Norm                      ptx.U32
	NormWeight, NormBias      ptx.Global
	Eps                       ptx.F32
}

// newDigits declares the parameters.
func newDigits(b *ptx.Builder, s Digits) *digits {
	g := &gemv{Gemv: Gemv{Format: digitsLike}, b: b, d: decoderOf(digitsLike), cta: device.FirstThreads(b, normThreads), lane: b.Lane(), warp: b.Warp()}
	d := &digits{gemvInteger: &gemvInteger{gemv: g}, s: s}
	var p digitsParams
	ptx.Declare(b, &p)
	g.x, d.out = p.X, p.Out
	g.k, g.span, g.xStride, d.count = p.K, p.Span, p.XStride, p.Vectors
	g.norm, g.normWeight, g.normBias, g.eps = p.Norm, p.NormWeight, p.NormBias, p.Eps
	d.number, d.room, d.slice = b.BlockX(), b.GridX(), b.BlockY()
	g.xRow = d.number
	d.origin = d.slice.MulN(digitWarps)
	d.limit = d.origin.AddN(digitWarps).Min(d.span)
	d.quad = g.lane.AndN(3)
	d.placeStaged(d.count.Min(b.U32(1)))
	if s.Wide {
		d.placeWide()
	}
	g.staged, g.stats = b.DynamicShared(16), b.Shared("stats", 16, 16)
	d.vector, d.stagedSize, d.put = g.staged, digitBlock, d.putAll
	d.squares = g.staged.Plus(digitWarps * digitBlock)
	return d
}

// make makes the digits of the CTA's slice of its vector.
func (d *digits) make() {
	b := d.b
	d.copyVector()
	d.stage(0)
	b.Barrier()
	d.store(d.stats.LoadF32(), func(at ptx.U32) [4]ptx.U32 { return d.stagedBlock(d.warp).At(at, 16).LoadU32x4() })
}

// store stores the warp's block, of which load gives 16 bytes at a time, and what products
// are multiplied by.
func (d *digits) store(inverse ptx.F32, load func(at ptx.U32) [4]ptx.U32) {
	b, block := d.b, d.origin.Add(d.warp)
	b.If(block.Lt(d.limit), func() {
		b.For(d.lane, b.N(digitBlock/16), b.U32(32), func(i ptx.U32) { d.blockAt(block, i).StoreU32x4(load(i)) }, ptx.NoUnroll)
	})
	b.If(b.ThreadX().EqN(0).And(d.slice.EqN(0)), func() {
		d.out.At(d.span.Mul(d.room), digitBlock).At(d.number, 4).StoreF32(inverse)
	})
}

// putAll stages a lane's quads of a block: what any format takes of them.
func (d *digits) putAll(values []device.Vec4, block ptx.Shared) {
	sum := d.halved(d.stageDigits(values, d.stagePower(values, block), block)).folded(2)
	d.stageMean(sum.mean(d.b, 4), block.Plus(digitsOfMeans16).At(d.subBlock(4), 1), d.leader(4))
	sum = sum.folded(4)
	leader := d.leader(8)
	d.stageMean(sum.mean(d.b, 5), block.Plus(digitsOfMeans).AtBytes(d.meanAt), leader)
	d.stageZeros(block.Plus(digitsOfMeans))
	d.stageFloats(sum, block.Plus(digitsSums).At(d.subBlock(8), 4), leader)
	d.b.If(d.lane.LtN(3), func() { block.Plus(digitsPower+4).At(d.lane, 4).StoreU32(d.b.U32(0)) })
}

// check holds the arguments to what the kernel takes.
func (s Digits) check(k *ptx.Kernel, a DigitsArgs) error {
	if a.Norm == norm.None && (a.NormWeight != 0 || a.NormBias != 0) {
		return host.Errorf(k, "Norm", "there is none, but its weight or bias is given")
	}
	return host.Valid(k, host.Bound("K", a.K, 1, 1<<24), host.Bound("Vectors", a.Vectors, 1, 65535),
		host.Bound("XStride", a.XStride, a.K, host.MaxSize), host.Bound("Norm", int(a.Norm), 0, int(norm.Layer)),
		host.Number("Eps", a.Eps), host.NonNil("X", a.X), host.NonNil("Out", a.Out))
}

// Launch makes a launch.
func (s Digits) Launch(k *ptx.Kernel, a DigitsArgs) (ptx.Launch, error) {
	a.XStride = cmp.Or(a.XStride, a.K)
	if err := s.check(k, a); err != nil {
		return ptx.Launch{}, err
	}
	span := host.CeilDiv(a.K, digitWeights)
	shared := digitWarps*digitBlock + 4*span // the squares
	if shared > k.MaxDynamic(48<<10) {
		return ptx.Launch{}, host.Errorf(k, "K", "the squares of %d blocks do not fit", span)
	}
	grid := [3]uint32{uint32(roomFor(a.Vectors)), uint32(host.CeilDiv(span, digitWarps)), 1}
	return k.Launch(grid, 32*digitWarps, shared, &digitsParams{
		X: ptx.Addr(a.X), Out: ptx.Addr(a.Out), K: ptx.Uint(a.K), Span: ptx.Uint(span), XStride: ptx.Uint(a.XStride), Vectors: ptx.Uint(a.Vectors),
		Norm: ptx.Uint(int(a.Norm)), NormWeight: ptx.Addr(a.NormWeight), NormBias: ptx.Addr(a.NormBias), Eps: ptx.Float(a.Eps),
	})
}
