package emu

import "slices"

// Races are found with vector clocks, a clock a warp, in the manner of FastTrack
// (Flanagan, Freund 2009): each word of memory remembers who wrote it last and who
// has read it since, and an access that does not come after them races.

// accessKind is how an access takes part in races.
type accessKind uint8

const (
	accessRead     accessKind = iota
	accessConstant            // a read that takes the memory for constant: ld.global.nc
	accessWrite               // also at the issue and the arrival of an asynchronous copy
	accessAtomic              // reads and writes, strongly
)

// stamp is who accessed a word and when: the warp's clock, whether the access was
// strong, whether several lanes did, and the thread.
type stamp uint64

const (
	stampStrong  stamp = 1 << 32
	stampSeveral stamp = 1 << 33
	clockShift         = 34
)

func (s stamp) thread() uint32 { return uint32(s) }
func (s stamp) warp() uint32   { return uint32(s) / warpSize }
func (s stamp) clock() uint32  { return uint32(s >> clockShift) }

// access is a stamp and the line of the instruction.
type access struct {
	stamp
	line int32
}

// cell is the history of a word, or of a byte where bytes are accessed.
type cell struct {
	write, read         stamp // the last ones, 0 if none; a write forgets the reads
	writeLine, readLine int32
	reads               *[]access // further ones by other warps
}

const (
	pageBytes = 1 << 10
	wordBytes = 4
)

// page is the history of a piece of memory. It is worth nothing in another epoch.
type page struct {
	epoch uint64
	fine  bool // a cell a byte, else a word
	cells []cell
}

// history is the shadow of a segment.
type history struct {
	epoch uint64 // of shared memory: the CTA
	pages []*page
	sync  locations
}

// page finds the page of an offset, empty if its epoch is over.
func (h *history) page(at, size int, epoch uint64) *page {
	if h.pages == nil {
		h.pages = make([]*page, (size+pageBytes-1)/pageBytes)
	}
	p := h.pages[at/pageBytes]
	if p == nil {
		p = &page{cells: make([]cell, pageBytes/wordBytes)}
		h.pages[at/pageBytes] = p
	}
	if p.epoch != epoch {
		p.epoch = epoch
		clear(p.cells)
	}
	return p
}

// refine gives every byte its own cell.
func (p *page) refine() {
	if p.fine {
		return
	}
	p.fine = true
	cells := make([]cell, pageBytes)
	for i := range cells {
		cells[i] = p.cells[i/wordBytes]
		if r := cells[i].reads; r != nil {
			cells[i].reads = new(slices.Clone(*r))
		}
	}
	p.cells = cells
}

// note records an access of n bytes by a lane. It traps and returns false if it
// races with an earlier one.
func (w *warp) note(o *op, s *segment, at, n, lane int, kind accessKind) bool {
	return !w.cta.grid.races || w.record(o, s, at, n, lane, kind)
}

func (w *warp) record(o *op, s *segment, at, n, lane int, kind accessKind) bool {
	epoch := w.cta.grid.epoch
	if s == w.cta.shared {
		epoch = s.history.epoch
	}
	now := access{stamp(w.clock.now)<<clockShift | stamp(w.gid*warpSize+uint32(lane)), o.line}
	if o.order.strong {
		now.stamp |= stampStrong
	}
	start := at
	var p *page
	size := wordBytes
	for end := at + n; at < end; at += size {
		if p == nil || at%pageBytes == 0 {
			if s.locks != nil {
				w.hold(s, at)
			}
			p = s.history.page(at, len(s.data), epoch)
			if size = wordBytes; n < wordBytes {
				p.refine()
			}
			if p.fine {
				size = 1
			}
		}
		c := &p.cells[at%pageBytes/size]
		var other access
		switch {
		case kind == accessConstant && c.write != 0:
			other = access{c.write, c.writeLine}
		case kind <= accessConstant:
			other = c.noteRead(w, lane, now)
		default:
			other = c.noteWrite(w, lane, now)
		}
		if other.stamp != 0 {
			w.race(o, s, at, lane, other)
			return false
		}
	}
	if o.order.strong {
		w.synchronise(o, s, start, lane, kind)
	}
	return true
}

// noteRead records a read and returns a write that it races with.
func (c *cell) noteRead(w *warp, lane int, now access) (other access) {
	if c.write != 0 && w.races(lane, c.write, now.stamp) {
		return access{c.write, c.writeLine}
	}
	switch old := c.read; {
	case old == now.stamp:
	case old == 0 || old.thread() == now.thread() && old&stampSeveral == 0 || w.after(lane, old):
		c.read, c.readLine = now.stamp, now.line
	case old.warp() == now.warp():
		c.read, c.readLine = max(old, now.stamp)|stampSeveral|now.stamp&stampStrong, now.line
	default:
		c.share(w, lane, now)
	}
	return access{}
}

// share records a read beside those of other warps, in the place of one that it
// comes after if there is any.
func (c *cell) share(w *warp, lane int, now access) {
	if c.reads == nil {
		c.reads = new([]access)
	}
	for i := range *c.reads {
		r := &(*c.reads)[i]
		if r.warp() == now.warp() && r.thread() != now.thread() {
			now.stamp |= stampSeveral
		}
		if r.warp() == now.warp() || w.after(lane, r.stamp) {
			*r = now
			return
		}
	}
	*c.reads = append(*c.reads, now)
}

// noteWrite records a write and returns an access that it races with.
func (c *cell) noteWrite(w *warp, lane int, now access) (other access) {
	if c.write != 0 && w.races(lane, c.write, now.stamp) {
		// Lanes may write one value to one place by one instruction.
		if !w.same || c.write.warp() != now.warp() || c.write.clock() != now.clock() {
			return access{c.write, c.writeLine}
		}
	}
	if c.read != 0 && w.races(lane, c.read, now.stamp) {
		return access{c.read, c.readLine}
	}
	if c.reads != nil {
		for _, r := range *c.reads {
			if w.races(lane, r.stamp, now.stamp) {
				return r
			}
		}
	}
	*c = cell{write: now.stamp, writeLine: now.line}
	return access{}
}

// races tells whether an earlier access, of which one writes, is not ordered before now.
func (w *warp) races(lane int, old, now stamp) bool {
	if old.thread() == now.thread() && old&stampSeveral == 0 || old&now&stampStrong != 0 {
		return false
	}
	return !w.after(lane, old)
}

// race traps.
func (w *warp) race(o *op, s *segment, at, lane int, other access) {
	g := w.cta.grid
	warp := other.warp()
	cta := int(warp) / len(w.cta.warps)
	w.trap(TrapRace, o, lane, "byte %d of %s: not ordered after line %d (%s) of CTA %d warp %d lane %d", at, s.name,
		other.line, g.prog.text(int(other.line)), cta, int(warp)%len(w.cta.warps), other.thread()%warpSize)
}
