package isa

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// expectation returns a Go implementation of an exact instruction, for thread i of operands
// x, or nil if there is none. It follows the PTX ISA and shares no code with the emulator.
// An unknown modifier has no implementation.
func expectation(f LaneForm) func(x [][]uint64, i int) uint64 {
	switch {
	case f.form.isOp("shfl"):
		return shuffleWant(f)
	case f.form.isOp("vote.", "redux."):
		return warpWant(f)
	}
	lane := LaneExpectation(f)
	if lane == nil {
		return nil
	}
	own := make([]uint64, len(f.in))
	return func(x [][]uint64, i int) uint64 {
		for j := range x {
			own[j] = x[j][i]
		}
		return lane(own)
	}
}

// LaneExpectation is expectation for instructions that read only the lane's own operands.
func LaneExpectation(f LaneForm) func(x []uint64) uint64 {
	switch {
	case f.form.isOp("lop3.b32"):
		return lop3Want(f)
	case f.form.isOp("prmt.b32"):
		return prmtWant(f)
	case f.form.isOp("setp."):
		return setpWant(f)
	case f.form.isOp("selp."):
		return func(x []uint64) uint64 { return pick(x[2] != 0, x[0], x[1]) }
	case f.form.isOp("mov."):
		return func(x []uint64) uint64 { return x[0] }
	case f.form.isOp("cvt."):
		return convertWant(f)
	case f.form.isOp("dp4a."):
		return dp4aWant(f)
	case predicateWants[f.form.Op] != nil:
		return predicateWants[f.form.Op]
	}
	if want := intWant(f); want != nil {
		return want
	}
	return floatWant(f)
}

var predicateWants = map[string]func(x []uint64) uint64{
	"and.pred": func(x []uint64) uint64 { return x[0] & x[1] },
	"or.pred":  func(x []uint64) uint64 { return x[0] | x[1] },
	"xor.pred": func(x []uint64) uint64 { return x[0] ^ x[1] },
	"not.pred": func(x []uint64) uint64 { return x[0] ^ 1 },
}

// lop3Want looks each bit up in the truth table.
func lop3Want(f LaneForm) func([]uint64) uint64 {
	table, err := strconv.ParseUint(f.tail, 10, 8)
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

// prmtModes maps each mode of prmt to the selectors for the lowest two bits of its operand.
var prmtModes = map[string][4]uint64{
	"f4e": {0x3210, 0x4321, 0x5432, 0x6543}, "b4e": {0x5670, 0x6701, 0x7012, 0x0123},
	"rc8": {0x0000, 0x1111, 0x2222, 0x3333}, "ecl": {0x3210, 0x3211, 0x3222, 0x3333},
	"ecr": {0x0000, 0x1110, 0x2210, 0x3210}, "rc16": {0x1010, 0x3232, 0x1010, 0x3232},
}

// prmtWant picks four of the bytes of b:a. Without a mode, bit 3 of a selector nibble
// replicates the byte's sign.
func prmtWant(f LaneForm) func([]uint64) uint64 {
	mode, isMode := strings.CutPrefix(f.form.Op, "prmt.b32.")
	selectors, ok := prmtModes[mode]
	if isMode && !ok {
		return nil
	}
	return func(x []uint64) uint64 {
		selector := x[2]
		if isMode {
			selector = selectors[selector&3]
		}
		var r uint64
		for i := range 4 {
			nibble := selector >> (4 * i)
			b := (x[1]<<32 | x[0]) >> (8 * (nibble & 7)) & 255
			if nibble&8 != 0 {
				b = b >> 7 * 255
			}
			r |= b << (8 * i)
		}
		return r
	}
}

// setpWant compares as the type demands: unsigned, signed or float.
func setpWant(f LaneForm) func([]uint64) uint64 {
	parts := strings.Split(f.form.Op, ".")
	typ := f.in[0]
	holds := comparisons[parts[1]]
	t, isInt := intTypeOf(typ)
	format, isFloat := floatFormats[typ]
	if len(parts) != 3 || holds == nil || !isInt && !isFloat {
		return nil
	}
	return func(x []uint64) uint64 {
		var a, b float64 // ordered like the operands
		switch {
		case isFloat:
			a, b = format.value(x[0]), format.value(x[1])
		case t.less(x[0], x[1]):
			a, b = 0, 1
		case x[0] != x[1]:
			a, b = 1, 0
		}
		return pick(holds(a, b, a != a || b != b), 1, 0)
	}
}

// comparisons of setp. Names that end in u also hold for NaN; lo, ls, hi and hs are
// unsigned.
var comparisons = map[string]func(a, b float64, nan bool) bool{
	"eq":  func(a, b float64, _ bool) bool { return a == b },
	"ne":  func(a, b float64, nan bool) bool { return a != b && !nan },
	"lt":  func(a, b float64, _ bool) bool { return a < b },
	"le":  func(a, b float64, _ bool) bool { return a <= b },
	"gt":  func(a, b float64, _ bool) bool { return a > b },
	"ge":  func(a, b float64, _ bool) bool { return a >= b },
	"equ": func(a, b float64, nan bool) bool { return a == b || nan },
	"neu": func(a, b float64, _ bool) bool { return a != b },
	"ltu": func(a, b float64, nan bool) bool { return a < b || nan },
	"leu": func(a, b float64, nan bool) bool { return a <= b || nan },
	"gtu": func(a, b float64, nan bool) bool { return a > b || nan },
	"geu": func(a, b float64, nan bool) bool { return a >= b || nan },
	"lo":  func(a, b float64, _ bool) bool { return a < b },
	"ls":  func(a, b float64, _ bool) bool { return a <= b },
	"hi":  func(a, b float64, _ bool) bool { return a > b },
	"hs":  func(a, b float64, _ bool) bool { return a >= b },
	"num": func(_, _ float64, nan bool) bool { return !nan },
	"nan": func(_, _ float64, nan bool) bool { return nan },
}

// shuffleWant follows the pseudocode of the PTX ISA. If the result is a pair, the high word
// says whether the source lane was in range.
func shuffleWant(f LaneForm) func([][]uint64, int) uint64 {
	mode := strings.TrimSuffix(strings.TrimPrefix(f.form.Op, "shfl.sync."), ".b32")
	if modes := []string{"up", "down", "bfly", "idx"}; !slices.Contains(modes, mode) {
		return nil
	}
	return func(x [][]uint64, i int) uint64 {
		lane, by, clamp, segment := i%32, int(x[1][i]%32), int(x[2][i]%32), int(x[2][i]>>8%32)
		most, least := lane&segment|clamp&^segment, lane&segment
		from := map[string]int{"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": least | by&^segment}[mode]
		inside := from <= most
		if mode == "up" {
			inside = from >= most
		}
		if !inside {
			from = lane
		}
		got := x[0][i-lane+from]
		if f.form.Args == "pair" {
			got |= pick(inside, 1<<32, 0)
		}
		return got
	}
}

// warpWant combines the values of the lanes in the thread's mask.
func warpWant(f LaneForm) func([][]uint64, int) uint64 {
	parts := strings.Split(f.form.Op, ".")
	t, isInt := intTypeOf(parts[len(parts)-1])
	combine := reductions[parts[2]]
	if combine == nil || parts[0] == "redux" && !isInt {
		return nil
	}
	return func(x [][]uint64, i int) uint64 {
		var list []uint64
		var ballot uint64
		mask := x[1][i] & math.MaxUint32
		for lane := range 32 {
			v := x[0][i/32*32+lane]
			if f.form.Args == "negated" {
				v ^= 1
			}
			if mask>>lane&1 == 1 {
				list = append(list, v)
				ballot |= v & 1 << lane
			}
		}
		if parts[2] == "ballot" {
			return ballot
		}
		r := list[0]
		for _, v := range list[1:] {
			r = combine(t, r, v)
		}
		return r
	}
}

// reductions combine two lanes, for vote and redux.
var reductions = map[string]func(t intType, a, b uint64) uint64{
	"ballot": func(_ intType, a, _ uint64) uint64 { return a },
	"any":    func(_ intType, a, b uint64) uint64 { return a | b },
	"all":    func(_ intType, a, b uint64) uint64 { return a & b },
	"add":    func(t intType, a, b uint64) uint64 { return t.truncate(a + b) },
	"min":    func(t intType, a, b uint64) uint64 { return pick(t.less(a, b), a, b) },
	"max":    func(t intType, a, b uint64) uint64 { return pick(t.less(a, b), b, a) },
	"and":    func(_ intType, a, b uint64) uint64 { return a & b },
	"or":     func(_ intType, a, b uint64) uint64 { return a | b },
	"xor":    func(_ intType, a, b uint64) uint64 { return a ^ b },
}
