package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// Digits as warpgroups multiply by them: {block, set of 16 vectors}, and of a set
//
//	means by 32 numbers {vector}, each as in digits.go
//	digits {unit, half, four vectors, upper or lower digits}: core matrices of 8 columns
//	{vector, digit}, of 16 numbers each
//	powers of two {vector}, 16 bytes each
//	means by 16 numbers {vector}
//	sums {vector}
//
// so that what a format takes of them lies together. All sets have as many bytes as 16
// blocks of Digits otherwise.
const (
	wideVectors = digitVectors // of a set

	wideMeans   = 0
	wideDigits  = wideMeans + wideVectors*meansBytes
	widePowers  = wideDigits + wideVectors*digitsOfMeans
	wideMeans16 = widePowers + wideVectors*powerBytes
	wideSums    = wideMeans16 + wideVectors*meansBytes

	meansBytes = digitsPower - digitsOfMeans   // of a vector
	powerBytes = digitsOfMeans16 - digitsPower // of a vector
	wideCore   = 8 * 16                        // a core matrix
	wideHalf   = wideVectors / 2 * wideCore    // those of half a unit
)

// wideParts says where the parts of a block of digits go: in 16 bytes, where each begins,
// and of a set where those of all vectors do, and how many bytes a vector has.
var wideParts = []struct{ first, to, size int }{
	{digitsOfMeans / 16, wideMeans, meansBytes},
	{digitsPower / 16, widePowers, powerBytes},
	{digitsOfMeans16 / 16, wideMeans16, meansBytes},
	{digitsSums / 16, wideSums, digitBlock - digitsSums},
}

// placeWide is place for digits that are staged {unit, half, digit, lane}.
func (d *digits) placeWide() {
	unit, half := d.lane.ShrN(3), d.lane.ShrN(2).AndN(1)
	d.stagedAt = d.kept(unit.MulN(128).Add(half.MulN(64)).Add(d.quad.MulN(4)))
	d.digitStride = 16
}

// blockAt is where the i-th 16 bytes of a staged block go.
func (d *digits) blockAt(block, i ptx.U32) ptx.Global {
	if !d.s.Wide {
		return d.out.At(block.Mul(d.room).Add(d.number), digitBlock).At(i, 16)
	}
	b, vector, digit := d.b, d.number.RemN(wideVectors), i.RemN(4)
	core := i.DivN(4).MulN(wideHalf).Add(vector.DivN(4).MulN(2 * wideCore)).Add(digit.DivN(2).MulN(wideCore))
	to := ptx.Var(core.Add(vector.RemN(4).MulN(2 * 16)).Add(digit.RemN(2).MulN(16)).AddN(wideDigits))
	for _, p := range wideParts {
		b.If(i.GeN(p.first), func() { ptx.Set(to, vector.MulN(p.size).Add(i.AddN(-p.first).MulN(16)).AddN(p.to)) })
	}
	set := d.out.At(block.Mul(d.room).Add(d.number.Sub(vector)), digitBlock)
	return set.AtBytes(to.U64()).Aligned(16)
}
