package emu

import (
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
	"sort"
	"strings"
)

// What products under way use, others leave alone: registers, which the decoder has every
// other instruction watch that names one, and B in shared memory, of which any write is
// checked. Writes before come through another proxy and need a fence.proxy.async besides.

// watch has the instructions that name a register of some product's A or D tell of it.
func (d *decoder) watch() {
	if !d.prog.products {
		return
	}
	used := map[string]bool{}
	for _, in := range d.entry.Body {
		if strings.HasPrefix(in.Opcode, product) && len(in.Operands) > 1 {
			for _, e := range append(in.Operands[0].Elems, in.Operands[1].Elems...) {
				used[e.Name] = true
			}
		}
	}
	for i, in := range d.entry.Body {
		var regs []int32
		for _, o := range in.Operands {
			for _, e := range append([]syntax.Operand{o}, o.Elems...) {
				if used[e.Name] {
					regs = append(regs, d.regs[e.Name])
				}
			}
		}
		if o := &d.prog.ops[i]; len(regs) > 0 && !strings.HasPrefix(in.Opcode, product) {
			inner := *o
			*o = op{kind: opRun, guard: o.guard, negated: o.negated, line: o.line, run: func(w *warp, o *op, m uint32) step {
				if !w.touch(o, m, regs) {
					return stepFault
				}
				return w.execute(&inner, m)
			}}
		}
	}
}

// product begins the instructions that use registers behind the warp's back.
const product = "wgmma.mma_async."

// touch is an access of lanes to registers by another instruction than a product.
func (w *warp) touch(o *op, m uint32, regs []int32) bool {
	f := &w.flight
	for _, r := range regs {
		held := &f.registers[r]
		if held.sums+held.factor > 0 {
			w.trap(TrapProduct, o, firstOf(m), "%s is in use by the product of line %d, whose group has not been waited for",
				w.cta.grid.prog.names[r], held.op.line)
			return false
		}
		held.touched, held.fences = true, f.fences
	}
	return true
}

// inUse counts the products under way that read each 16 bytes of shared memory.
type inUse struct {
	products int
	chunks   []uint16
}

// start forgets everything.
func (u *inUse) start(p *program, bytes int) {
	if p.products && u.chunks == nil {
		u.chunks = make([]uint16, (bytes+coreDepth-1)/coreDepth)
	}
	u.products = 0
	clear(u.chunks)
}

// add counts a core matrix that begins at an offset, or with -1 no longer.
func (u *inUse) add(at int, by int) {
	for i := range coreBytes / coreDepth {
		u.chunks[at/coreDepth+i] += uint16(by)
	}
}

// spares tells whether a write leaves alone what products under way read.
func (w *warp) spares(o *op, at, n, lane int) bool {
	u := &w.cta.inUse
	if u.products == 0 {
		return true
	}
	for i := at / coreDepth; i <= (at+n-1)/coreDepth; i++ {
		if u.chunks[i] > 0 {
			w.trap(TrapRace, o, lane, "byte %d of shared memory is written while %s still reads it", max(at, i*coreDepth), w.cta.reader(i))
			return false
		}
	}
	return true
}

// reader names a product under way that reads a chunk.
func (c *cta) reader(chunk int) string {
	for _, w := range c.warps {
		for _, p := range w.flight.underWay() {
			for i := range cores {
				if at := int(p.b.core(i)-c.shared.base) / coreDepth; at <= chunk && chunk < at+coreBytes/coreDepth {
					return "the product of line " + itoa(p.op.line) + " of warp " + itoa(w.index)
				}
			}
		}
	}
	return "a product"
}

// readB reads a core matrix like any other memory: as the product begins, and again as it
// ends, since a write in between races too.
func (w *warp) readB(o *op, d descriptor, begins bool) bool {
	u := &w.cta.inUse
	for i := range cores {
		s, at := w.locate(o, true, 0, d.core(i), coreBytes, coreDepth)
		if s == nil || !w.checkDefined(o, s, at, coreBytes, 0) || !w.note(o, s, at, coreBytes, 0, accessRead) {
			return false
		}
		if begins && !w.proxied(o, s, at, coreBytes) {
			return false
		}
	}
	by := 1
	if !begins {
		by = -1
	}
	for i := range cores {
		u.add(int(d.core(i)-w.cta.shared.base), by)
	}
	u.products += by
	return true
}

// proxyFence is when lanes executed a fence.proxy.async.
type proxyFence struct{ clock, lanes uint32 }

func buildProxyFence(_ *decoder, in *syntax.Instruction, q quals) (op, error) {
	shared := !q.has("global")
	return op{kind: opRun, run: func(w *warp, o *op, m uint32) step {
		if shared && w.cta.grid.races {
			w.clock.proxies = append(w.clock.proxies, proxyFence{w.clock.now, m})
		}
		return runFence(w, o, m)
	}}, count(in, 0)
}

// proxied tells whether what threads wrote to n bytes of shared memory is seen by products:
// each has executed a fence.proxy.async since, which comes before now.
func (w *warp) proxied(o *op, s *segment, at, n int) bool {
	if !w.cta.grid.races {
		return true
	}
	var seen stamp
	for end, size := at+n, 0; at < end; at += size {
		p := w.page(s, at, n)
		if size = wordBytes; p.fine {
			size = 1
		}
		c := &p.cells[at%pageBytes/size]
		if c.write == 0 || c.engine || c.write == seen {
			continue
		}
		if seen = c.write; !w.fencedAfter(seen) {
			w.trap(TrapRace, o, 0, "byte %d of %s was written at line %d by thread %d, and no fence.proxy.async of that thread lies between",
				at, s.name, c.writeLine, w.inCTA(seen))
			return false
		}
	}
	return true
}

// inCTA is the number of the thread in its CTA.
func (w *warp) inCTA(s stamp) int { return int(s.thread()) - w.cta.number*len(w.cta.warps)*warpSize }

// fencedAfter looks for the first fence.proxy.async that a thread executed after a write.
func (w *warp) fencedAfter(s stamp) bool {
	all := w.cta.warps[w.inCTA(s)/warpSize].clock.proxies
	for _, f := range all[sort.Search(len(all), func(i int) bool { return all[i].clock >= s.clock() }):] {
		if f.lanes>>(s.thread()%warpSize)&1 != 0 {
			return w.after(0, stamp(f.clock)<<clockShift|stamp(s.thread()))
		}
	}
	return false
}
