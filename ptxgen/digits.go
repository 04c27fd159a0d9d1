package ptxgen

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Digits turns vectors into the integers that GemvBatch multiplies: what Gemv does by
// itself for one vector (see gemvInteger), done once for all CTAs and matrices.
//
// A block of 256 numbers of a vector becomes, in digitBlock bytes, what formats of all
// kinds take of it: its digits, as for formats without halves; the digits of its means by
// 32 numbers, and zeros; the power of two that it was divided by, and twelve zero bytes; the digits of its means
// by 16; its sums by 32, as float32. Blocks lie {block, vector}, and behind them is, for
// each vector, what products with it are still to be multiplied by.
//
// It leaves room for a multiple of 16 vectors, and zeros for those that are not there.
type Digits struct{}

// The places in a block of digits.
const (
	digitsOfMeans   = 1024 // {digit, place} of 16, of which 8 have a mean
	digitsPower     = 1088
	digitsOfMeans16 = 1104 // {digit, sub-block}
	digitsSums      = 1168 // see stageFloats
	digitBlock      = 1232
)

const (
	digitVectors = 16  // room is made for a multiple of so many
	digitWeights = 256 // of a block
	digitWarps   = 16  // of a CTA, a block each
)

// DigitsArgs are a launch's arguments.
type DigitsArgs struct {
	X          Address // f32 [Vectors, K], rows XStride apart
	Out        Address // Digits.Bytes, aligned to 16
	K, Vectors int
	XStride    int // elements; 0 means K
	Norm       NormKind
	NormWeight Address // f32 [K], or 0
	NormBias   Address // f32 [K], or 0
	Eps        float32
}

// Name implements Spec.
func (s Digits) Name() string { return "gemv_digits" }

// Bytes is how many bytes the digits of so many vectors of k numbers take.
func (s Digits) Bytes(k, vectors int) int64 {
	padded := int64(ceilDiv(vectors, digitVectors) * digitVectors)
	return padded * (digitBlock*int64(ceilDiv(k, digitWeights)) + 4)
}

// digiting is the kernel while it is generated.
type digiting struct {
	*gemvInteger
	out     ptx.Global
	vector  ptx.U32
	vectors ptx.U32 // with those that are not there
}

// Build implements Spec.
func (s Digits) Build() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("the digits of vectors, normalised, for products with several")
	d := newDigiting(b)
	d.copyVectors()
	d.stage(0)
	b.Barrier()
	b.Comment("the warp's block, and what is known of the vector")
	block := d.origin.Add(d.warp)
	b.If(block.Lt(d.limit), func() {
		from := d.stagedBlock(d.warp)
		to := d.out.At(block.Mul(d.vectors).Add(d.vector), digitBlock)
		b.For(d.lane, b.N(digitBlock/16), b.U32(32), func(i ptx.U32) {
			to.At(i, 16).StoreU32x4(from.At(i, 16).LoadU32x4())
		}, ptx.NoUnroll)
	})
	b.If(b.ThreadX().EqN(0).And(d.slice.EqN(0)), func() {
		d.inverse().StoreF32(d.stats.LoadF32())
	})
	return b.Finish(ptx.MaxThreads(32 * digitWarps))
}

// inverse is where what the vector's products are multiplied by goes.
func (d *digiting) inverse() ptx.Global {
	return d.out.At(d.span.Mul(d.vectors), digitBlock).At(d.vector, 4)
}

func newDigiting(b *ptx.Builder) *digiting {
	// Any format has blocks of 256 numbers, and this one the parts of a block first that
	// have the same place here.
	like := Gemv{Format: quant.Q4_K, Columns: 1}
	g := &gemv{Gemv: like, b: b, d: decoderOf(like.Format), cta: firstThreads(b, normThreads), lane: b.Lane(), warp: b.Warp()}
	g.x = b.Global("x", 4)
	d := &digiting{gemvInteger: &gemvInteger{gemv: g}, out: b.Global("out", 16)}
	g.k, g.span, g.xStride = b.ParamU32("k"), b.ParamU32("span"), b.ParamU32("x_stride")
	there := b.ParamU32("vectors")
	g.norm, g.normWeight, g.normBias, g.eps = b.ParamU32("norm"), b.Global("norm_weight", 4), b.Global("norm_bias", 4), b.ParamF32("eps")
	d.vector, d.vectors = b.BlockX(), b.GridX()
	g.xRow, g.columnCount = d.vector, ptx.Select(d.vector.Lt(there), b.U32(1), b.U32(0))
	d.row, d.quad = g.lane.ShrN(2), g.lane.AndN(3)
	d.lanePlace = d.place()
	d.slice = b.BlockY()
	d.origin = d.slice.MulN(digitWarps)
	d.limit = d.origin.AddN(digitWarps).Min(d.span)
	g.staged, g.stats = b.DynamicShared(16), b.Shared("stats", 16, 16)
	d.vectors0()
	return d
}

// vectors0 lays out shared memory: the staged blocks, and the squares of all.
func (d *digiting) vectors0() {
	d.gemvInteger.vectors, d.stagedSize, d.put = d.staged, digitBlock, d.putAll
	d.squares = d.staged.Plus(digitWarps * digitBlock)
}

// putAll stages a lane's quads of a block: what any format takes of them.
func (d *digiting) putAll(values []quad, block ptx.Shared, c ptx.U32) {
	sum := d.halved(d.stageDigits(values, d.stagePower(values, block, c), block)).folded(2)
	d.stageMean(sum.mean(d.b, 4), block.Plus(digitsOfMeans16).At(d.subBlock(4), 1), d.leader(4))
	sum = sum.folded(4)
	leader := d.leader(8)
	d.stageMean(sum.mean(d.b, 5), block.Plus(digitsOfMeans).AtBytes(d.meanAt), leader)
	d.stageZeros(block.Plus(digitsOfMeans))
	d.stageFloats(sum, block.Plus(digitsSums).At(d.subBlock(8), 4), leader)
	d.b.If(d.lane.LtN(3), func() { block.Plus(digitsPower+4).At(d.lane, 4).StoreU32(d.b.U32(0)) })
}

// Launch makes a launch.
func (s Digits) Launch(k *ptx.Kernel, a DigitsArgs) (ptx.Launch, error) {
	a.XStride = orElse(a.XStride, a.K)
	if err := firstError(checkBounds(k, bound{"K", a.K, 1, 1 << 24}, bound{"Vectors", a.Vectors, 1, 65535}, bound{"XStride", a.XStride, a.K, maxSize},
		bound{"Norm", int(a.Norm), 0, int(LayerNorm)}), checkNumbers(k, number{"Eps", a.Eps}),
		checkPointers(k, pointer{"X", a.X}, pointer{"Out", a.Out})); err != nil {
		return ptx.Launch{}, err
	}
	if a.Norm == NoNorm && (a.NormWeight != 0 || a.NormBias != 0) {
		return ptx.Launch{}, argumentError(k, "Norm", "there is none, but its weight or bias is given")
	}
	span := ceilDiv(a.K, digitWeights)
	shared := digitWarps*digitBlock + 4*span
	if most := 48<<10 - k.Static; shared > most {
		return ptx.Launch{}, argumentError(k, "K", "the squares of %d blocks do not fit", span)
	}
	grid := [3]uint32{uint32(ceilDiv(a.Vectors, digitVectors) * digitVectors), uint32(ceilDiv(span, digitWarps)), 1}
	return k.Launch(grid, 32*digitWarps, shared, ptx.Addr(a.X), ptx.Addr(a.Out), ptx.Uint(a.K), ptx.Uint(span), ptx.Uint(a.XStride),
		ptx.Uint(a.Vectors), ptx.Uint(int(a.Norm)), ptx.Addr(a.NormWeight), ptx.Addr(a.NormBias), ptx.Float(a.Eps))
}
