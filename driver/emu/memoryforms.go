package emu

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Qualifiers of loads and stores, in the order of the PTX ISA.
const (
	level1   = "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
	hint     = "L2::cache_hint"
	prefetch = "L2::64B|L2::128B|L2::256B"
	vectors  = "v2|v4"
	stored   = "u8|s8|b8|u16|s16|b16|" + words32 + "|" + words64
	scopes   = "cta|gpu|sys"
)

var memoryForms = []form{
	{pattern: "ld.global.nc?." + level1 + "?." + hint + "?." + prefetch + "?." + vectors + "?." + stored, build: buildLoad},
	{pattern: "ld.global.ca|cg|cs.nc?." + hint + "?." + prefetch + "?." + vectors + "?." + stored, build: buildLoad},
	{pattern: "ld.global.lu|cv." + hint + "?." + prefetch + "?." + vectors + "?." + stored, build: buildLoad},
	{pattern: "ld.volatile?.shared." + vectors + "?." + stored, build: buildLoad},
	{pattern: "ld.volatile.global." + vectors + "?." + stored, build: buildLoad},
	{pattern: "ld.relaxed|acquire." + scopes + ".global." + vectors + "?." + stored, since: gate{60, 70}, build: buildLoad},
	{pattern: "ld.relaxed|acquire." + scopes + ".shared." + vectors + "?." + stored, since: gate{60, 70}, build: buildLoad},

	{pattern: "st.global.wb|cg|cs|wt." + hint + "?." + vectors + "?." + stored, build: buildStore},
	{pattern: "st.global." + level1 + "?." + hint + "?." + vectors + "?." + stored, build: buildStore},
	{pattern: "st.volatile?.shared." + vectors + "?." + stored, build: buildStore},
	{pattern: "st.volatile.global." + vectors + "?." + stored, build: buildStore},
	{pattern: "st.relaxed|release." + scopes + ".global." + vectors + "?." + stored, since: gate{60, 70}, build: buildStore},
	{pattern: "st.relaxed|release." + scopes + ".shared." + vectors + "?." + stored, since: gate{60, 70}, build: buildStore},

	{pattern: "createpolicy.fractional.L2::evict_first|L2::evict_last|L2::evict_normal|L2::evict_unchanged.b64",
		since: gate{74, 80}, build: buildPolicy},
	{pattern: "prefetch.global.L1|L2", since: gate{20, 20}, build: buildPrefetch},
}

// needs checks a gate that a qualifier adds to its instruction.
func (d *decoder) needs(what string, g gate) error {
	if g.ptx <= d.mod.Version && g.sm <= d.mod.SM {
		return nil
	}
	return fmt.Errorf("%s needs .version %d.%d and .target sm_%d, the text declares %d.%d and %s",
		what, max(g.ptx, 10)/10, g.ptx%10, g.sm, d.mod.Version/10, d.mod.Version%10, d.mod.Target)
}

// qualifierGates are what qualifiers of loads and stores need.
var qualifierGates = map[string]gate{
	"nc": {31, 32}, "L1::evict_normal": {74, 70}, "L1::evict_unchanged": {74, 70}, "L1::evict_first": {74, 70},
	"L1::evict_last": {74, 70}, "L1::no_allocate": {74, 70}, "L2::64B": {74, 75}, "L2::128B": {74, 75},
	"L2::256B": {74, 80}, "L2::cache_hint": {74, 80},
}

// transfer decodes what loads and stores share: registers that hold the values, and
// an address.
func (d *decoder) transfer(in *syntax.Instruction, q quals, value, address syntax.Operand, load bool) (op, error) {
	t := q.typ()
	o := op{kind: opRun, shared: q.has("shared"), size: int32(t.Bytes()), order: orderOf(q)}
	for _, s := range q {
		if g, ok := qualifierGates[s]; ok {
			if err := d.needs(s, g); err != nil {
				return o, err
			}
		}
	}
	values := []syntax.Operand{value}
	if q.has("v2") || q.has("v4") {
		want := 2
		if q.has("v4") {
			want = 4
		}
		if value.Kind != syntax.Vector || len(value.Elems) != want {
			return o, fmt.Errorf("want a vector of %d registers", want)
		}
		if want*t.Bytes() > 16 {
			return o, fmt.Errorf("more than 16 bytes at once")
		}
		values = value.Elems
	}
	var err error
	for _, v := range values {
		var r int32
		if load {
			r, err = d.typed(v, t, t.FitsWithin)
		} else {
			r, err = d.wide(v, t)
		}
		if err != nil {
			return o, err
		}
		o.list = append(o.list, r)
		if reg, _ := d.entry.Register(v.Name); load && t.Kind == syntax.Signed && reg.Bits > t.Bits {
			o.signed, o.keep = true, ones(reg.Bits)
		}
	}
	o.a, o.imm, err = d.address(address, o.shared)
	return o, err
}

// policy is the register that a cache hint adds to so many operands; the one that
// is always zero without it.
func (d *decoder) policy(in *syntax.Instruction, q quals, operands int) (int32, error) {
	if !q.has(hint) {
		return 0, count(in, operands)
	}
	if err := count(in, operands+1); err != nil {
		return 0, err
	}
	return d.source(in.Operands[operands], typeB64)
}

func buildLoad(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	policy, err := d.policy(in, q, 2)
	if err != nil {
		return op{}, err
	}
	o, err := d.transfer(in, q, in.Operands[0], in.Operands[1], true)
	o.run, o.constant, o.b = runLoad, q.has("nc"), policy
	return o, err
}

func buildStore(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	policy, err := d.policy(in, q, 2)
	if err != nil {
		return op{}, err
	}
	o, err := d.transfer(in, q, in.Operands[1], in.Operands[0], false)
	o.run, o.b = runStore, policy
	return o, err
}

// buildPolicy decodes createpolicy: a policy is a number that means nothing here.
func buildPolicy(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if len(in.Operands) == 2 {
		if _, err := d.source(in.Operands[1], typeF32); err != nil {
			return op{}, err
		}
	} else if err := count(in, 1); err != nil {
		return op{}, err
	}
	o := op{kind: opVec, vec: copyLanes}
	var err error
	o.d, err = d.dest(in.Operands[0], typeB64)
	return o, err
}

// buildPrefetch decodes prefetch, which does nothing that can be seen.
func buildPrefetch(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if err := count(in, 1); err != nil {
		return op{}, err
	}
	o := op{kind: opRun, run: func(w *warp, o *op, m uint32) step {
		w.reads(o, m, o.a)
		return w.step()
	}}
	var err error
	o.a, o.imm, err = d.address(in.Operands[0], false)
	return o, err
}

// step is stepNext, or stepFault after a trap.
func (w *warp) step() step {
	if w.fault != nil {
		return stepFault
	}
	return stepNext
}

// order is the memory order and the scope of an access.
type order struct {
	acquire, release bool
	strong           bool // relaxed or volatile at least
	cta              bool // within a CTA only
}

func orderOf(q quals) order {
	o := order{
		acquire: q.has("acquire") || q.has("acq_rel"),
		release: q.has("release") || q.has("acq_rel"),
		cta:     q.has("cta"),
	}
	o.strong = o.acquire || o.release || q.has("relaxed") || q.has("volatile")
	return o
}
