package emu

import (
	"fmt"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
	"math/bits"
)

var bulkForms = []form{
	{pattern: "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes." + hint + "?", since: gate{80, 90}, build: buildBulk},
}

// bulkCopy is a bulk copy on its way.
type bulkCopy struct {
	asyncCopy
	know *knowledge
}

// complete lets a bulk copy's data arrive and counts them.
func (c *cta) complete(b *mbarrier, cp bulkCopy) {
	c.land(cp.asyncCopy)
	b.gathered = join(b.gathered, cp.know)
	b.tx -= cp.bytes
	c.hopeless = 0
	b.advance()
}

// buildBulk decodes [to], [from], bytes, [barrier][, policy].
func buildBulk(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	o := op{kind: opRun, run: runBulk}
	policy, err := d.policy(in, q, 4)
	if err != nil {
		return o, err
	}
	o.more = []int32{policy}
	if o.d, o.imm, err = d.address(in.Operands[0], true); err != nil {
		return o, err
	}
	var from, object int64
	if o.a, from, err = d.address(in.Operands[1], false); err != nil {
		return o, err
	}
	if o.b, err = d.source(in.Operands[2], typeU32); err != nil {
		return o, err
	}
	if o.c, object, err = d.address(in.Operands[3], true); err != nil {
		return o, err
	}
	if from != int64(int32(from)) || object < 0 || object > 1<<24 {
		return o, fmt.Errorf("an offset out of range")
	}
	o.target, o.size = int32(from), int32(object)
	return o, nil
}

func runBulk(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a, o.b, o.c, o.d) || !w.reads(o, m, o.more...) {
		return stepFault
	}
	defer w.release()
	for l := range lanesOf(m) {
		n := int(w.regs[o.b][l])
		if n == 0 || n%16 != 0 {
			return w.trap(TrapAlignment, o, l, "a bulk copy of %d bytes, not a multiple of 16", n)
		}
		_, b := w.object(o, l, w.regs[o.c][l]+uint64(int64(o.size)))
		if b == nil {
			return stepFault
		}
		to, at := w.locate(o, true, l, w.regs[o.d][l]+uint64(o.imm), n, 16)
		if to == nil {
			return stepFault
		}
		from, fromAt := w.locate(o, false, l, w.regs[o.a][l]+uint64(int64(o.target)), n, 16)
		if from == nil || !w.checkDefined(o, from, fromAt, n, l) || !w.note(o, from, fromAt, n, l, accessRead) ||
			!w.note(o, to, at, n, l, accessEngine) {
			return stepFault
		}
		cp := bulkCopy{asyncCopy: asyncCopy{op: o, from: from, fromAt: fromAt, at: at, bytes: n}}
		if w.cta.grid.races {
			cp.know = w.known(l)
		}
		w.clock.now++
		if w.cta.grid.late {
			to.mark(at, n, false)
			b.late = append(b.late, cp)
		} else {
			w.cta.complete(b, cp)
		}
		w.cta.worker.loadBytes += uint64(n)
	}
	return stepNext
}

// unfinished traps if the CTA ends with copies under way.
func (c *cta) unfinished(w *warp, o *op, m uint32) {
	for _, other := range c.warps {
		if other.live != 0 {
			return
		}
	}
	for _, b := range c.arrivals {
		if len(b.late) > 0 {
			w.trap(TrapAsync, o, bits.TrailingZeros32(m), "the CTA ends while %d bytes are on their way to it", b.tx)
		}
	}
}
