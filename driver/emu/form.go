package emu

import (
	"fmt"
	"strings"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// form is a row of the instruction tables: opcodes of one pattern, their requirement, and what
// they do. Exactly one of vec, cmp, run and build is set.
type form struct {
	// pattern lists the parts of the opcode between its dots. "a|b" stands for a or b.
	// A "?" at the end of a part makes it optional.
	pattern string
	needs   requirement
	// args are the types of the operands, destination first, unless build is set. "T" is the
	// last type that the opcode names. "reg:" before a type refuses an immediate.
	args  string
	vec   func(d, a, b, c *vec)           // computes d in all lanes; no side effects
	cmp   func(a, b *vec) uint32          // computes a predicate in all lanes
	run   func(*warp, *op, uint32) result // executes the op in the lanes of a mask
	build func(*decoder, *syntax.Instruction, qualifiers) (op, error)
}

// requirement is the minimum .version and .target of an instruction, both major×10 + minor.
type requirement struct{ ptx, sm int }

// require checks a requirement. The error names what needs it.
func (d *decoder) require(what string, r requirement) error {
	if r.ptx <= d.mod.Version && r.sm <= d.mod.SM {
		return nil
	}
	return fmt.Errorf("%s needs .version %d.%d and .target sm_%d, the text declares %d.%d and %s",
		what, max(r.ptx, 10)/10, r.ptx%10, r.sm, d.mod.Version/10, d.mod.Version%10, d.mod.Target)
}

// qualifiers are the parts of an opcode, one per part of the pattern. An absent optional
// part is "".
type qualifiers []string

// typ is the last part that names a type.
func (q qualifiers) typ() syntax.Type {
	for i := len(q) - 1; i >= 0; i-- {
		if t, ok := syntax.ParseType(q[i]); ok {
			return t
		}
	}
	return syntax.Type{}
}

func (q qualifiers) has(part string) bool {
	for _, s := range q {
		if s == part {
			return true
		}
	}
	return false
}

// match matches the parts of an opcode with those of a pattern, and appends one qualifier
// per part of the pattern to q.
func match(pattern, parts []string, q qualifiers) (qualifiers, bool) {
	if len(pattern) == 0 {
		return q, len(parts) == 0
	}
	alternatives, optional := strings.CutSuffix(pattern[0], "?")
	if len(parts) > 0 && oneOf(parts[0], alternatives) {
		if full, ok := match(pattern[1:], parts[1:], append(q[:len(q):len(q)], parts[0])); ok {
			return full, true
		}
	}
	if optional {
		return match(pattern[1:], parts, append(q[:len(q):len(q)], ""))
	}
	return nil, false
}

// oneOf reports whether s is one of the alternatives "a|b|c".
func oneOf(s, alternatives string) bool {
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

// Alternatives that several patterns share.
const (
	words32 = "b32|u32|s32|f32"
	words64 = "b64|u64|s64|f64"
	scopes  = "cta|gpu|sys"
)

// formsByMnemonic are the rows of all tables by the first part of the opcode.
var formsByMnemonic = byMnemonic(
	moveForms, intForms, bitForms, compareForms, floatForms, doubleForms, halfForms, convertForms,
	memoryForms, atomicForms, controlForms, barrierForms, collectiveForms, asyncCopyForms, mbarrierForms,
	matrixForms, wgmmaForms, setMaxNRegForms,
)

type splitForm struct {
	*form
	parts []string // of the pattern
}

func byMnemonic(tables ...[]form) map[string][]splitForm {
	m := map[string][]splitForm{}
	for _, table := range tables {
		for i := range table {
			parts := strings.Split(table[i].pattern, ".")
			for name := range strings.SplitSeq(parts[0], "|") {
				m[name] = append(m[name], splitForm{&table[i], parts})
			}
		}
	}
	return m
}

// lookup finds the form of an opcode.
func lookup(opcode string) (*form, qualifiers, bool) {
	parts := strings.Split(opcode, ".")
	for _, f := range formsByMnemonic[parts[0]] {
		if q, ok := match(f.parts, parts, nil); ok {
			return f.form, q, true
		}
	}
	return nil, nil, false
}
