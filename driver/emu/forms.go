package emu

import (
	"strings"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// gate is the least .version and .target that an instruction needs, both
// major×10 + minor.
type gate struct{ ptx, sm int }

// form is a row of the table of instructions: how one is written, what it needs
// and what it does. Exactly one of vec, cmp, run and build is set.
type form struct {
	// pattern is the opcode, segment by segment: "a|b" stands for either, a last
	// "?" for a segment that may be absent.
	pattern string
	since   gate
	// args are the operands' types, the destination first: a type's name, or T for
	// the last type that the opcode names; reg: before it where a number is refused.
	args  string
	vec   func(d, a, b, c *vec)         // lane by lane, without side effects
	cmp   func(a, b *vec) uint32        // into a predicate
	run   func(*warp, *op, uint32) step // anything else with operands as in args
	build func(*decoder, *syntax.Instruction, quals) (op, error)
}

// quals are the segments of an opcode as its pattern took them: "" where an
// optional one is absent.
type quals []string

// typ is the last segment that names a type.
func (q quals) typ() syntax.Type {
	for i := len(q) - 1; i >= 0; i-- {
		if t, ok := syntax.ParseType(q[i]); ok {
			return t
		}
	}
	return syntax.Type{}
}

// has tells whether one of the segments reads so.
func (q quals) has(text string) bool {
	for _, s := range q {
		if s == text {
			return true
		}
	}
	return false
}

// match takes an opcode's segments apart by a pattern's.
func match(pattern, segments []string, q quals) (quals, bool) {
	if len(pattern) == 0 {
		return q, len(segments) == 0
	}
	alternatives, optional := strings.CutSuffix(pattern[0], "?")
	if len(segments) > 0 && among(segments[0], alternatives) {
		if full, ok := match(pattern[1:], segments[1:], append(q[:len(q):len(q)], segments[0])); ok {
			return full, true
		}
	}
	if optional {
		return match(pattern[1:], segments, append(q[:len(q):len(q)], ""))
	}
	return nil, false
}

// among tells whether s is one of the alternatives a|b|c.
func among(s, alternatives string) bool {
	for alternatives != "" {
		var a string
		a, alternatives, _ = strings.Cut(alternatives, "|")
		if a == s {
			return true
		}
	}
	return false
}

// Types of operands that several instructions share.
var (
	typePred = syntax.Type{Kind: syntax.Pred, Bits: 1}
	typeB32  = syntax.Type{Kind: syntax.Bits, Bits: 32}
	typeB64  = syntax.Type{Kind: syntax.Bits, Bits: 64}
	typeU32  = syntax.Type{Kind: syntax.Unsigned, Bits: 32}
	typeS32  = syntax.Type{Kind: syntax.Signed, Bits: 32}
	typeS64  = syntax.Type{Kind: syntax.Signed, Bits: 64}
	typeF32  = syntax.Type{Kind: syntax.Float, Bits: 32}
	typeF64  = syntax.Type{Kind: syntax.Float, Bits: 64}
)

// Types as patterns name them.
const (
	int32s  = "u32|s32"
	int64s  = "u64|s64"
	words32 = "b32|u32|s32|f32"
	words64 = "b64|u64|s64|f64"
)

// tables are all forms by the first segment of an opcode.
var tables = byMnemonic(
	moveForms, intForms, bitForms, compareForms, floatForms, doubleForms, halfForms, convertForms,
	memoryForms, atomicForms, controlForms, collectiveForms, asyncForms, matrixForms, wgmmaForms, mbarrierForms, bulkForms,
)

type tableRow struct {
	*form
	segments []string
}

func byMnemonic(all ...[]form) map[string][]tableRow {
	m := map[string][]tableRow{}
	for _, table := range all {
		for i := range table {
			segments := strings.Split(table[i].pattern, ".")
			for name := range strings.SplitSeq(segments[0], "|") {
				m[name] = append(m[name], tableRow{&table[i], segments})
			}
		}
	}
	return m
}

// lookup finds the form of an opcode.
func lookup(opcode string) (*form, quals, bool) {
	segments := strings.Split(opcode, ".")
	for _, r := range tables[segments[0]] {
		if q, ok := match(r.segments, segments, nil); ok {
			return r.form, q, true
		}
	}
	return nil, nil, false
}
