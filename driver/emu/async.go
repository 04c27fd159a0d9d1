package emu

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

var asyncForms = []form{
	{pattern: "cp.async.ca|cg.shared|shared::cta.global." + hint + "?." + prefetch + "?", since: gate{70, 80}, build: buildAsyncCopy},
	{pattern: "cp.async.commit_group", since: gate{70, 80}, build: buildCommit},
	{pattern: "cp.async.wait_group", since: gate{70, 80}, build: buildWaitGroup},
	{pattern: "cp.async.wait_all", since: gate{70, 80}, build: buildWaitAll},
}

// asyncCopy is a copy of one thread on its way to shared memory.
type asyncCopy struct {
	op     *op
	from   *segment
	fromAt int
	at     int // in shared memory
	bytes  int // copied
	zeros  int // after them
}

// asyncCopies are a warp's late copies, by lane: groups in the order of their
// commitment, the last one still open.
type asyncCopies [warpSize][][]asyncCopy

// buildAsyncCopy decodes [to], [from], bytes[, source bytes][, policy].
func buildAsyncCopy(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	o := op{kind: opRun, run: runAsyncCopy, b: -1}
	plain := 3
	if n := len(in.Operands); n == 5 || n == 4 && !q.has(hint) {
		plain = 4
	}
	var err error
	if o.c, err = d.policy(in, q, plain); err != nil {
		return o, err
	}
	operands := in.Operands[:plain]
	for _, s := range q {
		if g, ok := qualifierGates[s]; ok {
			if err := d.needs(s, g); err != nil {
				return o, err
			}
		}
	}
	n := operands[2]
	if n.Kind != syntax.ImmInt || n.Value != 16 && (q[2] == "cg" || n.Value != 4 && n.Value != 8) {
		return o, fmt.Errorf("cp.async.%s does not copy so many bytes", q[2])
	}
	o.size = int32(n.Value)
	if o.d, o.imm, err = d.address(operands[0], true); err != nil {
		return o, err
	}
	var offset int64
	if o.a, offset, err = d.address(operands[1], false); err != nil {
		return o, err
	}
	o.target = int32(offset)
	if plain == 4 {
		o.b, err = d.source(operands[3], typeU32)
	}
	return o, err
}

func runAsyncCopy(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a, o.c, o.d) || o.b >= 0 && !w.reads(o, m, o.b) {
		return stepFault
	}
	defer w.release()
	n := int(o.size)
	for l := range lanesOf(m) {
		source := n
		if o.b >= 0 {
			if source = int(w.regs[o.b][l]); source > n {
				return w.trap(TrapAsync, o, l, "a source of %d bytes for a copy of %d", source, n)
			}
		}
		_, at := w.locate(o, true, l, w.regs[o.d][l]+uint64(o.imm), n, n)
		if w.fault != nil {
			return stepFault
		}
		cp := asyncCopy{op: o, at: at, bytes: source, zeros: n - source}
		if source > 0 {
			if cp.from, cp.fromAt = w.locate(o, false, l, w.regs[o.a][l]+uint64(int64(o.target)), source, n); cp.from == nil {
				return stepFault
			}
			if !w.checkDefined(o, cp.from, cp.fromAt, source, l) || !w.note(o, cp.from, cp.fromAt, source, l, accessRead) {
				return stepFault
			}
		}
		if !w.note(o, w.cta.shared, at, n, l, accessWrite) {
			return stepFault
		}
		if w.cta.grid.late {
			w.postpone(l, cp)
		} else {
			w.cta.land(cp)
		}
		w.cta.worker.loadBytes += uint64(source)
	}
	return stepNext
}

// postpone adds a copy to the open group of a lane: its destination is undefined
// until somebody waits for it.
func (w *warp) postpone(lane int, cp asyncCopy) {
	w.cta.shared.mark(cp.at, cp.bytes+cp.zeros, false)
	groups := &w.async[lane]
	if len(*groups) == 0 {
		*groups = append(*groups, nil)
	}
	open := &(*groups)[len(*groups)-1]
	*open = append(*open, cp)
}

// land lets the data of a copy arrive.
func (c *cta) land(cp asyncCopy) {
	if cp.bytes > 0 {
		c.shared.copyFrom(cp.at, cp.from, cp.fromAt, cp.bytes)
	}
	if cp.zeros > 0 {
		clear(c.shared.data[cp.at+cp.bytes : cp.at+cp.bytes+cp.zeros])
		c.shared.define(cp.at+cp.bytes, cp.zeros)
	}
}

func buildCommit(_ *decoder, in *syntax.Instruction, _ quals) (op, error) {
	return op{kind: opRun, run: func(w *warp, _ *op, m uint32) step {
		if !w.cta.grid.late {
			return stepNext
		}
		for l := range lanesOf(m) {
			// A group may be empty, and counts all the same.
			if w.async[l] = append(w.async[l], nil); len(w.async[l]) == 1 {
				w.async[l] = append(w.async[l], nil)
			}
		}
		return stepNext
	}}, count(in, 0)
}

func buildWaitGroup(_ *decoder, in *syntax.Instruction, _ quals) (op, error) {
	if err := count(in, 1); err != nil {
		return op{}, err
	}
	n := in.Operands[0]
	if n.Kind != syntax.ImmInt || n.Value > 1<<20 {
		return op{}, fmt.Errorf("the number of groups is not a number")
	}
	return op{kind: opRun, target: int32(n.Value), run: func(w *warp, o *op, m uint32) step {
		return w.waitGroups(o, m, int(o.target)+1)
	}}, nil
}

func buildWaitAll(_ *decoder, in *syntax.Instruction, _ quals) (op, error) {
	return op{kind: opRun, run: func(w *warp, o *op, m uint32) step { return w.waitGroups(o, m, 0) }}, count(in, 0)
}

// waitGroups lets all groups of each lane arrive but the last so many; the open
// group counts as one.
func (w *warp) waitGroups(o *op, m uint32, but int) step {
	defer w.release()
	for l := range lanesOf(m) {
		for len(w.async[l]) > but {
			for _, cp := range w.async[l][0] {
				if !w.note(cp.op, w.cta.shared, cp.at, cp.bytes+cp.zeros, l, accessWrite) {
					return stepFault
				}
				if cp.from != nil {
					w.hold(cp.from, cp.fromAt)
				}
				w.cta.land(cp)
			}
			w.async[l] = w.async[l][1:]
		}
	}
	return stepNext
}
