package emu

import (
	"math"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Comparison operators of setp. All types have the first set, which is false for NaN. The second set has other names for lt, le,
// gt and ge of unsigned integers. The third is for floats: those with a final u are true if an operand is NaN; num and nan
// test for that.
const (
	ordered = "eq|ne|lt|le|gt|ge"
	lowHigh = "lo|ls|hi|hs"
	forNaN  = "equ|neu|ltu|leu|gtu|geu|num|nan"
)

// Comparisons and selections.
var compareForms = []form{
	{pattern: "setp." + ordered + "|" + lowHigh + ".u32|u64", build: buildCompare},
	{pattern: "setp." + ordered + ".s32|s64", build: buildCompare},
	{pattern: "setp.eq|ne.b32|b64", build: buildCompare},
	{pattern: "setp." + ordered + "|" + forNaN + ".f32|f64", build: buildCompare},
	{pattern: "selp.b16|" + words32 + "|" + words64, build: buildSelect},
}

// comparison compares two registers in all lanes.
type comparison func(a, b *vec) uint32

func buildCompare(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	return d.fromArgs(&form{args: "pred T T", cmp: compare(q[1], q.typ())}, in, q)
}

// compare builds a comparison from equal, less and, for floats, nan.
func compare(name string, t syntax.Type) comparison {
	equal, less, nan := equalInt, lessInt[uint64], comparison(nil)
	switch t {
	case typeS32:
		less = lessInt[int32]
	case typeS64:
		less = lessInt[int64]
	case typeF32:
		equal, less, nan = equalFloat, lessFloat, nanFloat
	case typeF64:
		equal, less, nan = equalDouble, lessDouble, nanDouble
	}
	if nan == nil {
		nan = func(a, b *vec) uint32 { return 0 }
	}
	switch name {
	case "eq":
		return equal
	case "ne":
		return func(a, b *vec) uint32 { return ^equal(a, b) &^ nan(a, b) }
	case "lt", "lo":
		return less
	case "gt", "hi":
		return func(a, b *vec) uint32 { return less(b, a) }
	case "le", "ls":
		return func(a, b *vec) uint32 { return ^less(b, a) &^ nan(a, b) }
	case "ge", "hs":
		return func(a, b *vec) uint32 { return ^less(a, b) &^ nan(a, b) }
	case "nan":
		return nan
	case "num":
		return func(a, b *vec) uint32 { return ^nan(a, b) }
	}
	// The other names are ordered ones with the suffix u, which are also true for NaN.
	ordered := compare(name[:len(name)-1], t)
	return func(a, b *vec) uint32 { return ordered(a, b) | nan(a, b) }
}

func equalInt(a, b *vec) (m uint32) {
	for l := range a {
		if a[l] == b[l] {
			m |= 1 << l
		}
	}
	return m
}

func lessInt[T int32 | int64 | uint64](a, b *vec) (m uint32) {
	for l := range a {
		if T(a[l]) < T(b[l]) {
			m |= 1 << l
		}
	}
	return m
}

func equalFloat(a, b *vec) (m uint32) {
	for l := range a {
		if float32Of(a[l]) == float32Of(b[l]) {
			m |= 1 << l
		}
	}
	return m
}

func lessFloat(a, b *vec) (m uint32) {
	for l := range a {
		if float32Of(a[l]) < float32Of(b[l]) {
			m |= 1 << l
		}
	}
	return m
}

func nanFloat(a, b *vec) (m uint32) {
	for l := range a {
		if x, y := float32Of(a[l]), float32Of(b[l]); x != x || y != y {
			m |= 1 << l
		}
	}
	return m
}

func equalDouble(a, b *vec) (m uint32) {
	for l := range a {
		if math.Float64frombits(a[l]) == math.Float64frombits(b[l]) {
			m |= 1 << l
		}
	}
	return m
}

func lessDouble(a, b *vec) (m uint32) {
	for l := range a {
		if math.Float64frombits(a[l]) < math.Float64frombits(b[l]) {
			m |= 1 << l
		}
	}
	return m
}

func nanDouble(a, b *vec) (m uint32) {
	for l := range a {
		if x, y := math.Float64frombits(a[l]), math.Float64frombits(b[l]); x != x || y != y {
			m |= 1 << l
		}
	}
	return m
}

// buildSelect decodes d, a, b, predicate.
func buildSelect(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	o, err := d.fromArgs(&form{args: "T T T pred"}, in, q)
	o.kind = opSel
	return o, err
}
