package emu

import "github.com/lockstep-go/lockstep/driver/emu/internal/syntax"

const ctaShared = "shared|shared::cta"

var mbarrierForms = []form{
	{pattern: "mbarrier.init." + ctaShared + ".b64", since: gate{70, 80}, build: buildMbarrier(runInit, 1)},
	{pattern: "mbarrier.inval." + ctaShared + ".b64", since: gate{70, 80}, build: buildMbarrier(runInvalidate, 0)},
	{pattern: "mbarrier.arrive.release?.cta?." + ctaShared + ".b64", since: gate{70, 80}, build: buildArrive},
	{pattern: "mbarrier.arrive.expect_tx.release?.cta?." + ctaShared + ".b64", since: gate{80, 90}, build: buildArrive},
	{pattern: "mbarrier.expect_tx.relaxed.cta." + ctaShared + ".b64", since: gate{80, 90},
		build: buildMbarrier(runExpect, 1)},
	{pattern: "mbarrier.test_wait.parity." + ctaShared + ".b64", since: gate{71, 80}, build: buildTryWait},
	{pattern: "mbarrier.try_wait.parity." + ctaShared + ".b64", since: gate{78, 90}, build: buildTryWait},
	{pattern: "fence.mbarrier_init.release.cluster", since: gate{80, 90}, build: buildFence},
	{pattern: "fence.proxy.async.global|shared::cta|shared::cluster?", since: gate{80, 90}, build: buildProxyFence},
}

// mbarrier is a barrier object in shared memory. A phase ends when nobody is
// pending and no bytes are expected any more.
type mbarrier struct {
	count, pending int
	tx             int
	phase          uint64
	gathered       *knowledge // of those who arrived in this phase
	known          *knowledge // of all phases that have ended
	late           []bulkCopy // not arrived yet
}

// most is how many arrivals or bytes an mbarrier can wait for.
const most = 1<<20 - 1

// buildMbarrier decodes [barrier] and so many numbers.
func buildMbarrier(run func(*warp, *op, uint32) step, numbers int) func(*decoder, *syntax.Instruction, quals) (op, error) {
	return func(d *decoder, in *syntax.Instruction, _ quals) (op, error) {
		if err := count(in, 1+numbers); err != nil {
			return op{}, err
		}
		o := op{kind: opRun, run: run}
		var err error
		if o.a, o.imm, err = d.address(in.Operands[0], true); err == nil && numbers > 0 {
			o.b, err = d.source(in.Operands[1], typeU32)
		}
		return o, err
	}
}

// buildArrive decodes state, [barrier][, count or bytes]; the state may be _.
func buildArrive(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	o := op{kind: opRun, run: runArrive, d: -1, b: -1, signed: q.has("expect_tx"), order: order{strong: true}}
	want := 2
	if o.signed || len(in.Operands) == 3 {
		want = 3
	}
	if err := count(in, want); err != nil {
		return o, err
	}
	var err error
	if in.Operands[0].Name == "_" {
		err = d.needs("no state", gate{71, 80})
	} else {
		o.d, err = d.dest(in.Operands[0], typeB64)
	}
	if want == 3 && !o.signed && err == nil {
		err = d.needs("a count", gate{78, 90})
	}
	if err != nil {
		return o, err
	}
	if o.a, o.imm, err = d.address(in.Operands[1], true); err != nil || want == 2 {
		return o, err
	}
	o.b, err = d.source(in.Operands[2], typeU32)
	return o, err
}

// buildTryWait decodes p, [barrier], parity[, time].
func buildTryWait(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	o := op{kind: opRun, run: runTryWait, order: order{strong: true}}
	if len(in.Operands) != 4 || q[1] != "try_wait" {
		if err := count(in, 3); err != nil {
			return o, err
		}
	}
	var err error
	if o.d, err = d.dest(in.Operands[0], typePred); err != nil {
		return o, err
	}
	if o.a, o.imm, err = d.address(in.Operands[1], true); err != nil {
		return o, err
	}
	o.b, err = d.source(in.Operands[2], typeU32)
	return o, err
}

// object finds the eight bytes of an mbarrier, and what was initialized there.
func (w *warp) object(o *op, lane int, addr uint64) (at int, b *mbarrier) {
	s, at := w.locate(o, true, lane, addr, 8, 8)
	if s == nil {
		return at, nil
	}
	if b = w.cta.arrivals[at]; b == nil {
		w.trap(TrapBarrier, o, lane, "no mbarrier has been initialized at %#x", addr)
		return at, nil
	}
	if !w.note(o, s, at, 8, lane, accessRead) {
		return at, nil
	}
	return at, b
}

func runInit(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a, o.b) {
		return stepFault
	}
	for l := range lanesOf(m) {
		n := int(w.regs[o.b][l])
		s, at := w.locate(o, true, l, w.regs[o.a][l]+uint64(o.imm), 8, 8)
		if s == nil || !w.note(o, s, at, 8, l, accessWrite) {
			return stepFault
		}
		if n < 1 || n > most {
			return w.trap(TrapBarrier, o, l, "an mbarrier for %d arrivals, it may have 1 to %d", n, most)
		}
		if w.cta.arrivals[at] != nil {
			return w.trap(TrapBarrier, o, l, "the mbarrier has been initialized and not invalidated")
		}
		w.cta.hopeless = 0
		w.cta.arrivals[at] = &mbarrier{count: n, pending: n}
		s.mark(at, 8, false) // the object is opaque
	}
	w.clock.now++
	return stepNext
}

func runInvalidate(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a) {
		return stepFault
	}
	for l := range lanesOf(m) {
		at, b := w.object(o, l, w.regs[o.a][l]+uint64(o.imm))
		if b == nil {
			return stepFault
		}
		if !w.note(o, w.cta.shared, at, 8, l, accessWrite) {
			return stepFault
		}
		delete(w.cta.arrivals, at)
	}
	w.clock.now++
	return stepNext
}

func runExpect(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a, o.b) {
		return stepFault
	}
	for l := range lanesOf(m) {
		_, b := w.object(o, l, w.regs[o.a][l]+uint64(o.imm))
		if b == nil {
			return stepFault
		}
		if !w.expect(o, b, l) {
			return stepFault
		}
	}
	return stepNext
}

// expect lets an mbarrier wait for as many bytes more as a lane says.
func (w *warp) expect(o *op, b *mbarrier, lane int) bool {
	if b.tx += int(w.regs[o.b][lane]); b.tx > most {
		w.trap(TrapBarrier, o, lane, "the mbarrier expects %d bytes, it can count %d", b.tx, most)
		return false
	}
	return true
}

func runArrive(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a) || o.b >= 0 && !w.reads(o, m, o.b) {
		return stepFault
	}
	for l := range lanesOf(m) {
		_, b := w.object(o, l, w.regs[o.a][l]+uint64(o.imm))
		if b == nil {
			return stepFault
		}
		n := 1
		if o.signed {
			if !w.expect(o, b, l) {
				return stepFault
			}
		} else if o.b >= 0 {
			n = int(w.regs[o.b][l])
		}
		if o.d >= 0 {
			w.set(o.d, l, b.phase)
		}
		if n < 1 || n > b.pending {
			return w.trap(TrapBarrier, o, l, "%d arrivals at an mbarrier that waits for %d", n, b.pending)
		}
		if w.cta.grid.races {
			b.gathered = join(b.gathered, w.known(l))
		}
		b.pending -= n
		w.cta.hopeless = 0
		b.advance()
	}
	w.clock.now++
	return stepNext
}

// advance ends the phase if all have arrived.
func (b *mbarrier) advance() {
	if b.pending == 0 && b.tx == 0 {
		b.phase++
		b.pending = b.count
		b.known, b.gathered = join(b.known, b.gathered), nil
	}
}

func runTryWait(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a, o.b) {
		return stepFault
	}
	for l := range lanesOf(m) {
		_, b := w.object(o, l, w.regs[o.a][l]+uint64(o.imm))
		if b == nil {
			return stepFault
		}
		if b.phase&1 != w.regs[o.b][l]&1 {
			w.setPred(o.d, 1<<l, allLanes)
			v := &w.clock.lanes[l]
			v.far = join(v.far, b.known)
			continue
		}
		w.setPred(o.d, 1<<l, 0)
		if w.vain.op == nil {
			w.vain = vain{o, l, b}
		}
		// Late data arrive once somebody has looked for them in vain.
		late := b.late
		b.late = nil
		for _, cp := range late {
			w.cta.complete(b, cp)
		}
	}
	return stepNext
}
