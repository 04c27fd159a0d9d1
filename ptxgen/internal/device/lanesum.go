package device

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// LaneSum sums several values over neighboring lanes at once. At each level of the tree a
// lane exchanges values with a partner. While the number of values is even, the lane keeps
// one half of the sums and leaves the other half to its partner. So 8 values over 8 lanes
// take 7 shuffles instead of 24. Every value is added in the same tree, whichever lane ends
// with its sum.
type LaneSum struct {
	width int        // lanes
	upper []ptx.Pred // per level that halves: this lane keeps the upper half
	First ptx.U32    // index of the first value whose sum this lane returns
	// Unique is true in exactly one of the lanes that return the same sums. It is the zero
	// Pred if Shared is false.
	Unique ptx.Pred
	Shared bool // several lanes return the same sums
}

// NewLaneSum prepares sums of values over width lanes, a power of two. lane is the index of
// this lane among them.
func NewLaneSum(b *ptx.Builder, lane ptx.U32, width, values int) LaneSum {
	s := LaneSum{width: width, First: b.U32(0)}
	same, left := 0, values
	for mask := width / 2; mask > 0; mask /= 2 {
		if left%2 != 0 {
			same |= mask
			continue
		}
		left /= 2
		up := lane.AndN(uint32(mask)).Ne(b.U32(0))
		s.upper = append(s.upper, up)
		s.First = s.First.Add(ptx.Select(up, b.N(left), b.U32(0)))
	}
	if s.Shared = same != 0; s.Shared {
		s.Unique = lane.AndN(uint32(same)).EqN(0)
	}
	return s
}

// Add returns the sums of values First, First+1, … over the lanes. It overwrites values.
func (s LaneSum) Add(values []ptx.F32) []ptx.F32 {
	level := 0
	for mask := s.width / 2; mask > 0; mask /= 2 {
		n := len(values)
		if n%2 != 0 {
			for i, x := range values {
				values[i] = x.Add(ptx.ShuffleXor(x, mask))
			}
			continue
		}
		half := make([]ptx.F32, n/2)
		for i := range half {
			keep := ptx.Select(s.upper[level], values[n/2+i], values[i])
			send := ptx.Select(s.upper[level], values[i], values[n/2+i])
			half[i] = keep.Add(ptx.ShuffleXor(send, mask))
		}
		values = half
		level++
	}
	return values
}
