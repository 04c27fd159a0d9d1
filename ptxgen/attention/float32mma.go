package attention

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// float32MMA multiplies float32 numbers on tensor cores, as sums of 16-bit terms. Each term is the rounded remainder that the terms before
// it leave. Two terms of float16 differ from a float32 by at most its last bit, unless they are subnormal; three of bfloat16 do not differ.
//
// The left operand stacks its terms in matrices of 16 rows: term i is in half i%2 of matrix i/2. The right operand has one matrix per term.
type float32MMA struct {
	leftTerms, rightTerms int

	exponent int                                    // as in tensorType
	split    func(lo, hi ptx.F32) (words []ptx.U32) // the terms of two numbers
	mma      func(acc [4]ptx.F32, a [4]ptx.U32, b [2]ptx.U32)
	load     func(p ptx.Shared, n int, transposed bool) []ptx.U32
}

// mmaOf returns the multiplier for a format of the cache.
func mmaOf(f quant.Format) float32MMA {
	switch f {
	case quant.F16:
		return newFloat32MMA(2, 1, tensorF16)
	case quant.BF16:
		return newFloat32MMA(3, 1, tensorBF16)
	}
	return newFloat32MMA(3, 3, tensorBF16)
}

func newFloat32MMA[T ptx.Half2](leftTerms, rightTerms int, typ tensorType[T]) float32MMA {
	return float32MMA{
		leftTerms: leftTerms, rightTerms: rightTerms, exponent: typ.exponent,
		split: func(lo, hi ptx.F32) (words []ptx.U32) {
			for len(words) < leftTerms {
				term := typ.pack(lo, hi)
				words = append(words, typ.bits(term))
				if len(words) < leftTerms {
					a, b := typ.unpack(term)
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

// matricesOf returns how many matrices the terms of a left operand take.
func matricesOf(f quant.Format) int { return mmaOf(f).matrices() }
func (m float32MMA) matrices() int  { return (m.leftTerms + 1) / 2 }

// operands returns the terms of a right operand, of which a lane has two pairs of numbers.
func (m float32MMA) operands(a, b [2]ptx.F32) (list [][2]ptx.U32) {
	lo, hi := m.split(a[0], a[1]), m.split(b[0], b[1])
	for i := range lo {
		list = append(list, [2]ptx.U32{lo[i], hi[i]})
	}
	return list
}

// multiply adds the product of left, [matrix], and right, [term], to acc, [matrix], the smallest term of right first.
func (m float32MMA) multiply(acc [][4]ptx.F32, left [][4]ptx.U32, right [][2]ptx.U32) {
	for i := range right {
		for matrix := range acc {
			m.mma(acc[matrix], left[matrix], right[len(right)-1-i])
		}
	}
}

// sum returns the two numbers that a lane has of the product of all terms. acc is what multiply adds to.
func (m float32MMA) sum(acc [][4]ptx.F32) (pair [2]ptx.F32) {
	for odd := range pair {
		for i := m.leftTerms - 1; i >= 0; i-- {
			x := acc[i/2][2*(i%2)+odd]
			if i < m.leftTerms-1 {
				x = x.Add(pair[odd])
			}
			pair[odd] = x
		}
	}
	return pair
}
