package product

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// loadSegment loads a lane's eight columns, from column first on, of a row of k columns, a multiple of kMultiple. They are at from.
// Columns from k on are 0, and all are if live does not hold.
func loadSegment(b *ptx.Builder, from ptx.Global, live ptx.Pred, first, k ptx.U32, kMultiple int) (x [8]ptx.F32) {
	for j := range x {
		x[j] = ptx.Var(b.F32(0))
	}
	vectors := func() {
		for i := range 2 {
			for j, v := range from.Plus(16 * i).Aligned(16).LoadF32x4() {
				ptx.Set(x[4*i+j], v)
			}
		}
	}
	switch {
	case kMultiple%segment == 0:
		b.If(live, vectors)
	case kMultiple%8 == 0: // the row has all eight columns or none
		b.If(live.And(first.Lt(k)), vectors)
	default:
		whole := first.DivN(segment).AddN(1).MulN(segment).Le(k).And(k.AndN(3).EqN(0)) // rows are aligned to 16 bytes then
		b.If(live, func() {
			b.IfElse(whole, vectors, func() {
				for j := range x {
					b.When(first.AddN(j).Lt(k), func() { ptx.Set(x[j], from.Plus(4*j).LoadF32()) })
				}
			})
		})
	}
	return x
}

// laneColumn returns the first of a lane's eight columns of a segment.
func laneColumn(seg, lane ptx.U32) ptx.U32 { return seg.MulN(segment).Add(lane.MulN(8)) }

// assign sets variables to values. The first values become the variables.
func assign[T ptx.Value](variables, values []T) {
	var none T
	for i, v := range values {
		if variables[i] == none {
			variables[i] = ptx.Var(v)
		} else {
			ptx.Set(variables[i], v)
		}
	}
}

// squares returns the sum of the squares of what loadSegment loaded, the same bits in all lanes: those of a lane's
// columns in turn, then the lanes' as ptx.WarpSum adds them.
func squares(x [8]ptx.F32) ptx.F32 {
	sum := x[0].Mul(x[0])
	for _, v := range x[1:] {
		sum = v.FMA(v, sum)
	}
	return ptx.WarpSum(sum)
}

// roundedSegment is a lane's part of a rounded segment.
type roundedSegment struct {
	e ptx.F32
	// words has the registers of operand B that belong to the lanes 4g+i of an instruction, where i is lane/8:
	// both registers of step s, then of step s+1. s is 4·(lane%4), and in lanes 4 to 7 of 8 two more.
	words [4]ptx.F16x2
	sums  []segmentSums // one per bit of offsetSteps
}

// segmentSums are a lane's part of the sums of a segment.
type segmentSums struct {
	offsetSteps int          // 1 or 2
	words       [2]ptx.F16x2 // both registers of operand B of an offset step, for the lanes of roundedSegment.words: see sumLane
}

// sumLane is the lane, of each eight, in which roundedSegment has the sums of an offset step: the last lane of
// the later one of its two sub-blocks.
func sumLane(step, offsetSteps int) int { return 7 - 2*(offsetSteps-1-step) }

// roundSegment rounds what loadSegment loaded. If the segment has an infinity or a NaN, E may be anything: no
// result of the token is finite.
func roundSegment(b *ptx.Builder, lane ptx.U32, x [8]ptx.F32, offsetSteps int) (r roundedSegment) {
	top := ptx.Var(x[0].Abs().Bits())
	for _, v := range x[1:] {
		ptx.Set(top, top.Max(v.Abs().Bits()))
	}
	ptx.Set(top, top.WarpReduce("max"))
	// Exponents are biased by 127, and in bits 23 and up. That of E is a multiple of 16 less 8.
	const one = 1 << 23
	plus8 := top.AddN(9 * one).AndN(^uint32(16*one - 1))
	plus8 = plus8.Max(b.U32((127 - 103 + 8) * one)).Min(b.U32((127 + 113 + 8) * one))
	r.e = ptx.Select(top.EqN(0), b.U32((127-7)*one), plus8.AddN(-8*one)).AsF32()
	inverse := b.U32((2*127 + 8) * one).Sub(plus8).AsF32()
	var pairs [4]ptx.F16x2 // neighbors
	for i := range pairs {
		pairs[i] = ptx.PackF16(x[2*i].Mul(inverse), x[2*i+1].Mul(inverse))
	}
	r.words = exchange(b, lane, pairs)
	for n := 1; n <= 2; n++ {
		if offsetSteps&n != 0 {
			r.sums = append(r.sums, segmentSums{n, sumSegment(b, pairs, 2/n)})
		}
	}
	return r
}

// exchange pairs columns that are 32 apart. Lane l has columns 8l to 8l+7, so they are in lanes l and l+4. The earlier lane returns
// the pairs of its first four columns, {8l, 8l+32} and so on, the later one those of its last four, {8l-28, 8l+4} and so on.
func exchange(b *ptx.Builder, lane ptx.U32, pairs [4]ptx.F16x2) (words [4]ptx.F16x2) {
	later := lane.AndN(4).Ne(b.U32(0))
	// The bytes of {low half, high half} of the earlier lane's and the later one's numbers.
	firsts := ptx.Select(later, b.U32(0x1054), b.U32(0x5410))
	seconds := ptx.Select(later, b.U32(0x3276), b.U32(0x7632))
	for i := range 2 {
		keep := ptx.Select(later, pairs[2+i].Bits(), pairs[i].Bits())
		give := ptx.Select(later, pairs[i].Bits(), pairs[2+i].Bits())
		take := ptx.ShuffleXor(give, 4)
		words[2*i] = keep.Permute(take, firsts).AsF16x2()
		words[2*i+1] = keep.Permute(take, seconds).AsF16x2()
	}
	return words
}

// sumSegment adds up the columns of sub-blocks of 16·halves, and returns both parts of 1/32 of the sums: of the
// lane's sub-block in the high half, and of the one 32 columns earlier in the low half.
func sumSegment(b *ptx.Builder, pairs [4]ptx.F16x2, halves int) [2]ptx.F16x2 {
	var s [4]ptx.F32
	for i, p := range pairs {
		low, high := p.F32()
		s[i] = low.Add(high)
	}
	sum := s[0].Add(s[1]).Add(s[2].Add(s[3]))
	for i := range halves {
		sum = sum.Add(ptx.ShuffleUp(sum, 1<<i)) // the last lane of a sub-block has all of it
	}
	sum = sum.MulN(1.0 / offsetScale)
	high := sum.F16()
	own := ptx.PackF16(high.F32(), sum.Sub(high.F32())).Bits()
	earlier := ptx.ShuffleUp(own, 4)
	return [2]ptx.F16x2{earlier.Prmt(own, 0x5410).AsF16x2(), earlier.Prmt(own, 0x7632).AsF16x2()}
}

// addSquares adds the squares of a row to sum, a variable. The sums of its segments are stride bytes apart.
func addSquares(b *ptx.Builder, sum ptx.F32, segments ptx.U32, squares ptx.Shared, stride int) {
	addInOrder(b, segments, func(seg ptx.U32, i int) func() {
		v := squares.At(seg, stride).Plus(stride * i).LoadF32()
		return func() { ptx.Set(sum, sum.Add(v)) }
	})
}

// normFactor emits f from the sum of the squares of a row of k columns.
func normFactor(squares ptx.F32, k ptx.U32, eps ptx.F32) ptx.F32 {
	return squares.Div(k.F32()).Add(eps).Sqrt().Rcp()
}
