package matmul

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// A staged block has the digits; then, where the format has an offset, the sums of x; then
// the power of two that x was divided by.
//
// The digits of 128 weights take 512 bytes, so that a lane loads with one instruction
// what it multiplies: without halves {pair of units, digit, lane of the quad, unit of
// the pair, half} with a word of four weights each, with halves {half, digit, lane, unit}.
//
// The sums of super formats are digits, too, of the means by sub-block: {digit, lane}
// with a word of four sub-blocks, of which there are 16 with halves and 8 without; then
// the others' places are zero. The sums of other formats are float32: {two upper digits,
// two lower}[unit].

func (s Gemv) digitBytes() int { return decoderOf(s.Format).units * unitLen * 4 }

func (s Gemv) sumBytes() int {
	if !decoderOf(s.Format).offset() {
		return 0
	}
	return 64
}

// powerLog is how much larger than the powers of two the numbers are that stand for
// them, for the least to be a number and the largest too.
const powerLog = 13

// sumsAt and powerAt are where the sums and the power are.
func (s Gemv) sumsAt() int  { return s.digitBytes() }
func (s Gemv) powerAt() int { return s.sumsAt() + s.sumBytes() }

// stagedBytes is the size of a staged block, a multiple of 16.
func (s Gemv) stagedBytes() int { return s.powerAt() + 16 }

// stagedBlock is a block of the slice.
func (n *gemvInteger) stagedBlock(i ptx.U32) ptx.Shared { return n.vector.At(i, n.stagedSize) }

// stagePower stores the power of two that a block is divided by, and gives what makes
// integers of its quads, a lane's of which it is given as variables and may already
// multiply by a part of that.
func (n *gemvInteger) stagePower(values []device.Vec4, block ptx.Shared) (up ptx.F32) {
	b := n.b
	largest := b.U32(0)
	for _, v := range values {
		for _, x := range v {
			largest = largest.Max(x.Abs().Bits())
		}
	}
	exponent := largest.WarpReduce("max").ShrN(23).Max(b.U32(1))
	// x*2^(156-exponent) is below 2^30; for small x that takes two steps, and its
	// inverse, times 2^powerLog, is subnormal.
	factor := ptx.Var(b.U32(283).Sub(exponent).ShlN(23))
	b.If(exponent.LtN(64), func() {
		for _, v := range values {
			for j := range v {
				ptx.Set(v[j], v[j].MulN(0x1p32))
			}
		}
		ptx.Set(factor, factor.AddN(-32<<23))
	})
	const least = 30 - powerLog // the least exponent of a power that is not subnormal
	power := ptx.Select(exponent.LtN(least), b.U32(1).Shl(exponent.AddN(23-least)), exponent.AddN(1-least).ShlN(23))
	power = ptx.Select(exponent.EqN(255), b.U32(0x7FC00000), power) // there is an Inf or NaN
	b.If(n.lane.EqN(0), func() { block.Plus(n.powerAt()).StoreU32(power) })
	return factor.AsF32()
}

// stageQuads turns a lane's quads of a block, which are variables, into digits.
// Neighboring lanes have neighboring quads: four each half of a unit.
func (n *gemvInteger) stageQuads(values []device.Vec4, block ptx.Shared) {
	sums := n.stageDigits(values, n.stagePower(values, block), block)
	if n.d.offset() {
		n.stageSums(sums, block.Plus(n.sumsAt()))
	}
}

// wideSum is a sum of integers, high*2^16 + low.
type wideSum struct{ high, low ptx.S32 }

// stageDigits stages the digits of a lane's quads, times up, and gives the sum of each quad.
func (n *gemvInteger) stageDigits(values []device.Vec4, up ptx.F32, to ptx.Shared) (sums []wideSum) {
	b := n.b
	to = to.AtBytes(n.stagedAt).Aligned(4)
	for i, v := range values {
		var x [4]ptx.S32
		for j := range v {
			x[j] = v[j].Mul(up).RoundS32()
		}
		var sum [4]ptx.S32 // of each digit
		for digit, word := range n.digitWords(x) {
			to.Plus(512*i + n.digitStride*digit).StoreU32(word)
			sum[digit] = b.S32(0).DP4A(word, b.U32(each(1)), true, true)
		}
		sums = append(sums, wideSum{sum[0].Mad(b.S32(256), sum[1]), sum[2].Mad(b.S32(256), sum[3])})
	}
	return sums
}

// The digits of a number are the bytes of it plus lowerDigits, but for the top bits of the
// lower three: adding 128 to each carries where that digit is negative.
const lowerDigits = 0x00808080

// digitWords gives words of one digit each of four numbers, the highest digit first. It
// multiplies by one where it would add, since integer units have more to do than those
// that multiply.
func (n *gemvInteger) digitWords(x [4]ptx.S32) [4]ptx.U32 {
	var biased [4]ptx.U32
	for i, v := range x {
		biased[i] = v.U32().Mad(n.one, n.b.U32(lowerDigits))
	}
	words := transposed(biased)
	for i := range words[1:] {
		words[1+i] = words[1+i].Xor(n.b.U32(each(0x80)))
	}
	return words
}

// transposed turns the digits of four numbers into words of one digit each, the highest
// digit first.
func transposed(x [4]ptx.U32) [4]ptx.U32 {
	lower := [2]ptx.U32{x[0].Prmt(x[1], 0x5140), x[2].Prmt(x[3], 0x5140)}
	upper := [2]ptx.U32{x[0].Prmt(x[1], 0x7362), x[2].Prmt(x[3], 0x7362)}
	return [4]ptx.U32{
		upper[0].Prmt(upper[1], 0x7632), upper[0].Prmt(upper[1], 0x5410),
		lower[0].Prmt(lower[1], 0x7632), lower[0].Prmt(lower[1], 0x5410),
	}
}

// lanesOfSum is how many lanes share a unit or sub-block.
func (n *gemvInteger) lanesOfSum() int {
	if n.d.halves() {
		return 4
	}
	return 8
}

// halved adds neighboring lanes up: even lanes go on with the first quad, odd ones with
// the second.
func (n *gemvInteger) halved(s []wideSum) wideSum {
	even := n.lane.AndN(1).EqN(0)
	halve := func(first, second ptx.S32) ptx.S32 {
		return ptx.Select(even, first, second).Add(ptx.ShuffleXor(ptx.Select(even, second, first), 1))
	}
	return wideSum{halve(s[0].high, s[1].high), halve(s[0].low, s[1].low)}
}

// folded adds up what lanes have that differ in a bit.
func (s wideSum) folded(mask int) wideSum {
	return wideSum{s.high.Add(ptx.ShuffleXor(s.high, mask)), s.low.Add(ptx.ShuffleXor(s.low, mask))}
}

// mean is that of 2^shift numbers, rounded.
func (s wideSum) mean(b *ptx.Builder, shift int) ptx.S32 {
	return s.high.Mul(b.S32(1 << (16 - shift))).Add(s.low.Add(b.S32(1 << (shift - 1))).ShrN(shift))
}

// leader reports whether the lane is the one to stage a sum that so many lanes have.
func (n *gemvInteger) leader(lanes int) ptx.Pred { return n.lane.AndN(uint32(lanes - 2)).EqN(0) }

// stageSums adds up x by unit or sub-block, and stages that.
func (n *gemvInteger) stageSums(list []wideSum, sums ptx.Shared) {
	lanes, sum := n.lanesOfSum(), n.halved(list)
	leader := n.leader(lanes)
	for mask := 2; mask < lanes; mask *= 2 {
		sum = sum.folded(mask)
	}
	if !n.d.super() {
		n.stageFloats(sum, sums.At(n.subBlock(lanes), 4), leader)
		return
	}
	n.stageMean(sum.mean(n.b, bits.Len(uint(2*lanes))), sums.AtBytes(n.meanAt), leader)
	if !n.d.halves() {
		n.stageZeros(sums)
	}
}

// stageFloats stages a unit's sum.
func (n *gemvInteger) stageFloats(sum wideSum, at ptx.Shared, leader ptx.Pred) {
	n.b.If(leader, func() {
		at.StoreF32(sum.high.F32())
		at.Plus(32).StoreF32(sum.low.F32())
	})
}

// stageMean stages the digits of a sub-block's mean.
func (n *gemvInteger) stageMean(mean ptx.S32, at ptx.Shared, leader ptx.Pred) {
	bytes := mean.U32().AddN(lowerDigits).Xor(n.b.U32(lowerDigits))
	n.b.If(leader, func() {
		for digit := range 4 {
			at.Plus(16 * digit).StoreU8(bytes.ShrN(24 - 8*digit))
		}
	})
}

// stageZeros clears the places of the staged sums that no sub-block has.
func (n *gemvInteger) stageZeros(sums ptx.Shared) {
	b := n.b
	b.If(n.lane.LtN(8), func() {
		sums.AtBytes(n.zerosAt).Aligned(4).Plus(8).StoreU32(b.U32(0))
	})
}
