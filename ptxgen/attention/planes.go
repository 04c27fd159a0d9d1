package attention

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// planes multiplies float32 numbers on tensor cores, as sums of 16-bit planes. Each plane is the rounded remainder that the planes before
// it leave. Two planes of float16, or three of bfloat16, have the precision of float32.
//
// A left operand has its planes in rows of matrices: plane i in half i%2 of matrix i/2. Of a right operand, each plane is an operand of its own.
type planes struct {
	count   int // of a left operand
	ofCache int // of a right operand

	exponent int                                    // as in tensorType
	split    func(lo, hi ptx.F32) (words []ptx.U32) // the planes of two numbers
	mma      func(acc [4]ptx.F32, a [4]ptx.U32, b [2]ptx.U32)
	load     func(p ptx.Shared, n int, transposed bool) []ptx.U32
}

// planesOf returns the planes for a format of the cache.
func planesOf(f quant.Format) planes {
	switch f {
	case quant.F16:
		return newPlanes(2, 1, tensorF16)
	case quant.BF16:
		return newPlanes(3, 1, tensorBF16)
	}
	return newPlanes(3, 3, tensorBF16)
}

func newPlanes[T ptx.Half2](count, ofCache int, typ tensorType[T]) planes {
	return planes{
		count: count, ofCache: ofCache, exponent: typ.exponent,
		split: func(lo, hi ptx.F32) (words []ptx.U32) {
			for len(words) < count {
				plane := typ.pack(lo, hi)
				words = append(words, typ.bits(plane))
				if len(words) < count {
					a, b := typ.unpack(plane)
					lo, hi = lo.Sub(a), hi.Sub(b)
				}
			}
			return words
		},
		mma: func(acc [4]ptx.F32, a [4]ptx.U32, b [2]ptx.U32) {
			ptx.MMA(acc, [4]T{typ.from(a[0]), typ.from(a[1]), typ.from(a[2]), typ.from(a[3])}, [2]T{typ.from(b[0]), typ.from(b[1])})
		},
		load: func(p ptx.Shared, n int, transposed bool) (words []ptx.U32) {
			for _, x := range ptx.LoadMatrices[T](p, n, transposed) {
				words = append(words, typ.bits(x))
			}
			return words
		},
	}
}

// matricesOf returns how many matrices the planes of a left operand take.
func matricesOf(f quant.Format) int { return planesOf(f).matrices() }
func (p planes) matrices() int      { return (p.count + 1) / 2 }

// operands returns the planes of a right operand, of which a lane has two pairs of numbers.
func (p planes) operands(a, b [2]ptx.F32) (list [][2]ptx.U32) {
	lo, hi := p.split(a[0], a[1]), p.split(b[0], b[1])
	for i := range lo {
		list = append(list, [2]ptx.U32{lo[i], hi[i]})
	}
	return list
}

// multiply adds the product of left, [matrix], and right, [plane], to acc, [matrix], the smallest plane of right first.
func (p planes) multiply(acc [][4]ptx.F32, left [][4]ptx.U32, right [][2]ptx.U32) {
	for i := range right {
		for matrix := range acc {
			p.mma(acc[matrix], left[matrix], right[len(right)-1-i])
		}
	}
}

// sum returns the two numbers that a lane has of the product of all planes. acc is what multiply adds to.
func (p planes) sum(acc [][4]ptx.F32) (pair [2]ptx.F32) {
	for odd := range pair {
		for i := p.count - 1; i >= 0; i-- {
			x := acc[i/2][2*(i%2)+odd]
			if i < p.count-1 {
				x = x.Add(pair[odd])
			}
			pair[odd] = x
		}
	}
	return pair
}
