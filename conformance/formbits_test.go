package conformance

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// shuffleWant is what a lane gets of its warp.
func shuffleWant(f laneForm) func([][]uint64, int) uint64 {
	mode := strings.Split(f.op, ".")[2]
	return func(x [][]uint64, i int) uint64 {
		lane, by := i%32, 0
		if len(x) == 2 {
			by = int(x[1][i] % 32)
		} else {
			by, _ = strconv.Atoi(f.tail[0])
		}
		from := map[string]int{"bfly": lane ^ by, "idx": by, "down": lane + by, "up": lane - by}[mode]
		if from < 0 || from > 31 {
			from = lane
		}
		return x[0][i-lane+from]
	}
}

// warpWant combines the operands of a warp.
func warpWant(combine func(warp []uint64) uint64) func([][]uint64, int) uint64 {
	return func(x [][]uint64, i int) uint64 { return combine(x[0][i/32*32 : i/32*32+32]) }
}

// warpWants are the votes and reductions.
var warpWants = map[string]func(x [][]uint64, i int) uint64{
	"vote.sync.ballot.b32": warpWant(func(warp []uint64) uint64 {
		var all uint64
		for lane, p := range warp {
			all |= p << lane
		}
		return all
	}),
	"vote.sync.any.pred": warpWant(slices.Max[[]uint64]),
	"vote.sync.all.pred": warpWant(slices.Min[[]uint64]),
	"redux.sync.max.u32": warpWant(slices.Max[[]uint64]),
	"redux.sync.min.u32": warpWant(slices.Min[[]uint64]),
	"redux.sync.add.u32": warpWant(func(warp []uint64) uint64 {
		var sum uint64
		for _, x := range warp {
			sum += x
		}
		return uint64(uint32(sum))
	}),
}

func bfiWant(x []uint64) uint64 {
	pos, n := min(x[2]&255, 32), min(x[3]&255, 32)
	mask := uint64(uint32((uint64(1)<<n - 1) << pos))
	return x[1]&^mask | uint64(uint32(x[0]<<pos))&mask
}

func dp4aWant(x []uint64, aSigned, bSigned bool) uint64 {
	part := func(w uint64, i int, signed bool) int64 {
		if signed {
			return int64(int8(w >> (8 * i)))
		}
		return int64(uint8(w >> (8 * i)))
	}
	sum := int64(int32(x[2]))
	for i := range 4 {
		sum += part(x[0], i, aSigned) * part(x[1], i, bSigned)
	}
	return u32(sum)
}

func lop3Want(f laneForm) func([]uint64) uint64 {
	table, err := strconv.ParseUint(f.tail[0], 10, 8)
	if err != nil {
		return nil
	}
	return func(x []uint64) uint64 {
		var r uint64
		for i := range 32 {
			at := x[0]>>i&1<<2 | x[1]>>i&1<<1 | x[2]>>i&1
			r |= table >> at & 1 << i
		}
		return r
	}
}

func prmtWant(f laneForm) func([]uint64) uint64 {
	selector, err := strconv.ParseUint(f.tail[0], 10, 32)
	if err != nil {
		return nil
	}
	return func(x []uint64) uint64 {
		var r uint64
		all := x[1]<<32 | x[0]
		for i := range 4 {
			nibble := selector >> (4 * i)
			b := all >> (8 * (nibble & 7)) & 255
			if nibble&8 != 0 {
				b = uint64(uint8(int8(b) >> 7))
			}
			r |= b << (8 * i)
		}
		return r
	}
}

// setpWant orders by the type: unsigned, signed or float, where only "neu" and "nan"
// hold with a NaN.
func setpWant(f laneForm) func([]uint64) uint64 {
	parts := strings.Split(f.op, ".")
	cmp, typ := parts[1], parts[len(parts)-1]
	return func(x []uint64) uint64 {
		less, equal, nan := x[0] < x[1], x[0] == x[1], false
		switch typ {
		case "s32":
			less = int32(x[0]) < int32(x[1])
		case "f32", "f64":
			a, b := float64(f32Of(x[0])), float64(f32Of(x[1]))
			if typ == "f64" {
				a, b = math.Float64frombits(x[0]), math.Float64frombits(x[1])
			}
			less, equal, nan = a < b, a == b, a != a || b != b
		}
		var holds bool
		switch cmp {
		case "eq":
			holds = equal
		case "ne":
			holds = !equal && !nan
		case "neu":
			holds = !equal || nan
		case "lt":
			holds = less
		case "le":
			holds = less || equal
		case "gt":
			holds = !less && !equal && !nan
		case "ge":
			holds = !less && !nan
		case "nan":
			holds = nan
		case "num":
			holds = !nan
		}
		if holds {
			return 1
		}
		return 0
	}
}
