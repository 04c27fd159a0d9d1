package emu

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Qualifiers of loads and stores, in the order of the PTX ISA. Caches are not modeled:
// their hints are checked and ignored.
const (
	evictPriority = "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
	cacheHint     = "L2::cache_hint"
	prefetchSize  = "L2::64B|L2::128B|L2::256B"
	vectorTypes   = "v2|v4"
	memoryTypes   = "u8|s8|b8|u16|s16|b16|" + words32 + "|" + words64
)

// Loads and stores of global and shared memory.
var memoryForms = []form{
	{pattern: "ld.global.nc?." + evictPriority + "?." + cacheHint + "?." + prefetchSize + "?." + vectorTypes + "?." + memoryTypes, build: buildLoad},
	{pattern: "ld.global.ca|cg|cs.nc?." + cacheHint + "?." + prefetchSize + "?." + vectorTypes + "?." + memoryTypes, build: buildLoad},
	{pattern: "ld.global.lu|cv." + cacheHint + "?." + prefetchSize + "?." + vectorTypes + "?." + memoryTypes, build: buildLoad},
	{pattern: "ld.volatile?.shared." + vectorTypes + "?." + memoryTypes, build: buildLoad},
	{pattern: "ld.volatile.global." + vectorTypes + "?." + memoryTypes, build: buildLoad},
	{pattern: "ld.relaxed|acquire." + scopes + ".global|shared." + vectorTypes + "?." + memoryTypes, needs: requirement{60, 70}, build: buildLoad},

	{pattern: "st.global.wb|cg|cs|wt." + cacheHint + "?." + vectorTypes + "?." + memoryTypes, build: buildStore},
	{pattern: "st.global." + evictPriority + "?." + cacheHint + "?." + vectorTypes + "?." + memoryTypes, build: buildStore},
	{pattern: "st.volatile?.shared." + vectorTypes + "?." + memoryTypes, build: buildStore},
	{pattern: "st.volatile.global." + vectorTypes + "?." + memoryTypes, build: buildStore},
	{pattern: "st.relaxed|release." + scopes + ".global|shared." + vectorTypes + "?." + memoryTypes, needs: requirement{60, 70}, build: buildStore},

	{pattern: "createpolicy.fractional.L2::evict_first|L2::evict_last|L2::evict_normal|L2::evict_unchanged.b64",
		needs: requirement{74, 80}, build: buildCreatePolicy},
	{pattern: "prefetch.global.L1|L2", needs: requirement{20, 20}, build: buildPrefetch},
}

// qualifierNeeds are the requirements that qualifiers add to their instruction.
var qualifierNeeds = map[string]requirement{
	"nc": {31, 32}, "L1::evict_normal": {74, 70}, "L1::evict_unchanged": {74, 70}, "L1::evict_first": {74, 70},
	"L1::evict_last": {74, 70}, "L1::no_allocate": {74, 70}, "L2::64B": {74, 75}, "L2::128B": {74, 75},
	"L2::256B": {74, 80}, "L2::cache_hint": {74, 80},
}

func (d *decoder) requireQualifiers(q qualifiers) error {
	for _, s := range q {
		if r, ok := qualifierNeeds[s]; ok {
			if err := d.require(s, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// order is the memory order and the scope of an access.
type order struct {
	acquire, release bool
	strong           bool // at least relaxed or volatile
	cta              bool // the scope is the CTA
}

func orderOf(q qualifiers) order {
	o := order{
		acquire: q.has("acquire") || q.has("acq_rel"),
		release: q.has("release") || q.has("acq_rel"),
		cta:     q.has("cta"),
	}
	o.strong = o.acquire || o.release || q.has("relaxed") || q.has("volatile")
	return o
}

// access decodes the address and the value registers of a load or store.
func (d *decoder) access(q qualifiers, value, address syntax.Operand, load bool) (op, error) {
	t := q.typ()
	o := op{kind: opRun, shared: q.has("shared"), size: int32(t.Bytes()), order: orderOf(q)}
	if err := d.requireQualifiers(q); err != nil {
		return o, err
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
			r, err = d.sourceWithin(v, t)
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

// cachePolicy checks the number of operands, and returns the register of the policy that
// cache_hint adds to them. Without cache_hint it returns register 0.
func (d *decoder) cachePolicy(in *syntax.Instruction, q qualifiers, operands int) (int32, error) {
	if !q.has(cacheHint) {
		return 0, wantOperands(in, operands)
	}
	if err := wantOperands(in, operands+1); err != nil {
		return 0, err
	}
	return d.source(in.Operands[operands], typeB64)
}

func buildLoad(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	policy, err := d.cachePolicy(in, q, 2)
	if err != nil {
		return op{}, err
	}
	o, err := d.access(q, in.Operands[0], in.Operands[1], true)
	o.run, o.constant, o.b = runLoad, q.has("nc"), policy
	return o, err
}

func runLoad(w *warp, o *op, m uint32) result {
	if !w.reads(o, m, o.a) || !w.readsPolicy(o, m, o.b) {
		return resultTrap
	}
	defer w.unlockRange()
	n := int(o.size) * len(o.list)
	kind := accessRead
	if o.constant {
		kind = accessConstant
	}
	for l := range lanesOf(m) {
		s, at := w.locate(o, o.shared, l, w.regs[o.a][l]+uint64(o.imm), n, n)
		if s == nil || !w.checkDefined(o, s, at, n, l) || !w.checkAccess(o, s, at, n, l, kind) {
			return resultTrap
		}
		for i, d := range o.list {
			v := s.load(at+i*int(o.size), o.size)
			if o.signed {
				shift := 64 - 8*o.size
				v = uint64(int64(v<<shift)>>shift) & o.keep
			}
			w.regs[d][l] = v
		}
	}
	for _, d := range o.list {
		w.written[d] |= m
	}
	if o.order.strong {
		w.cta.polls++
	}
	return resultNext
}

func buildStore(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	policy, err := d.cachePolicy(in, q, 2)
	if err != nil {
		return op{}, err
	}
	o, err := d.access(q, in.Operands[1], in.Operands[0], false)
	o.run, o.b = runStore, policy
	return o, err
}

func runStore(w *warp, o *op, m uint32) result {
	if !w.reads(o, m, o.a) || !w.readsPolicy(o, m, o.b) || !w.reads(o, m, o.list...) {
		return resultTrap
	}
	defer w.unlockRange()
	n := int(o.size) * len(o.list)
	for l := range lanesOf(m) {
		s, at := w.locate(o, o.shared, l, w.regs[o.a][l]+uint64(o.imm), n, n)
		if s == nil {
			return resultTrap
		}
		w.sameValue = true
		for i, d := range o.list {
			keep := ones(8 * int(o.size))
			w.sameValue = w.sameValue && s.load(at+i*int(o.size), o.size) == w.regs[d][l]&keep
		}
		if !w.checkAccess(o, s, at, n, l, accessWrite) {
			return resultTrap
		}
		for i, d := range o.list {
			s.store(at+i*int(o.size), o.size, w.regs[d][l])
		}
		s.define(at, n)
	}
	w.sameValue = false
	w.clock.now++
	return resultNext
}

// opaquePolicy is the number of every cache policy. PTX leaves its bits open. A GPU may fault on a
// number that createpolicy has not made.
const opaquePolicy = 0x12f0_0000_0000_0000

// readsPolicy traps if a lane passes another number as the cache policy in a register. Register 0 is
// no policy.
func (w *warp) readsPolicy(o *op, m uint32, reg int32) bool {
	if reg == 0 {
		return true
	}
	if !w.reads(o, m, reg) {
		return false
	}
	for l := range lanesOf(m) {
		if v := w.regs[reg][l]; v != opaquePolicy {
			w.trap(TrapPolicy, o, l, "%#x is not from createpolicy", v)
			return false
		}
	}
	return true
}

// buildCreatePolicy decodes d[, fraction].
func buildCreatePolicy(d *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
	if len(in.Operands) == 2 {
		if _, err := d.source(in.Operands[1], typeF32); err != nil {
			return op{}, err
		}
	} else if err := wantOperands(in, 1); err != nil {
		return op{}, err
	}
	o := op{kind: opVec, vec: func(d, _, _, _ *vec) {
		for l := range d {
			d[l] = opaquePolicy
		}
	}}
	var err error
	o.d, err = d.destination(in.Operands[0], typeB64)
	return o, err
}

// buildPrefetch decodes [address], which prefetch only checks.
func buildPrefetch(d *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
	if err := wantOperands(in, 1); err != nil {
		return op{}, err
	}
	o := op{kind: opRun, run: func(w *warp, o *op, m uint32) result {
		if !w.reads(o, m, o.a) {
			return resultTrap
		}
		return resultNext
	}}
	var err error
	o.a, o.imm, err = d.address(in.Operands[0], false)
	return o, err
}
