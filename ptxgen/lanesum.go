package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// laneSum adds each of several values over width neighboring lanes. As long as
// their number is even the lanes halve it at every step: one keeps the one half,
// the other the other half, so that 8 values over 8 lanes cost 7 shuffles and not
// 24. Whatever lane a sum ends in, it is added in the same tree.
type laneSum struct {
	width  int
	values int
	upper  []ptx.Pred // by step: this lane keeps the upper half
	left   int        // values a lane has in the end
	first  ptx.U32    // the first of them
	only   ptx.Pred   // holds in one of the lanes that have the same
	copies bool       // there are others
}

// newLaneSum prepares the sums; lane is the lane among width, a power of two.
func newLaneSum(b *ptx.Builder, lane ptx.U32, width, values int) laneSum {
	s := laneSum{width: width, values: values, left: values, first: b.U32(0)}
	same := 0
	for mask := width / 2; mask > 0; mask /= 2 {
		if s.left%2 != 0 {
			same |= mask
			continue
		}
		s.left /= 2
		up := lane.AndN(uint32(mask)).Ne(b.U32(0))
		s.upper = append(s.upper, up)
		s.first = s.first.Add(ptx.Select(up, b.N(s.left), b.U32(0)))
	}
	if s.copies = same != 0; s.copies {
		s.only = lane.AndN(uint32(same)).EqN(0)
	}
	return s
}

// add gives the sums first, first+1, ... that this lane has in the end.
func (s laneSum) add(list []ptx.F32) []ptx.F32 {
	step := 0
	for mask := s.width / 2; mask > 0; mask /= 2 {
		n := len(list)
		if n%2 != 0 {
			for i, x := range list {
				list[i] = x.Add(ptx.ShuffleXor(x, mask))
			}
			continue
		}
		half := make([]ptx.F32, n/2)
		for i := range half {
			keep := ptx.Select(s.upper[step], list[n/2+i], list[i])
			give := ptx.Select(s.upper[step], list[i], list[n/2+i])
			half[i] = keep.Add(ptx.ShuffleXor(give, mask))
		}
		list = half
		step++
	}
	return list
}
