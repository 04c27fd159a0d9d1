package emu

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
	accessEngine              // a write of the copy engine, which products see as it is
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

// cell is the history of a word, or of a byte where bytes are accessed. It has no
// pointers, so that the garbage collector passes by.
type cell struct {
	write, read         stamp // the last ones, 0 if none; a write forgets the reads
	writeLine, readLine int32
	more                int32 // where in the page's list further reads are, 0 if nowhere
	engine              bool  // the write was the copy engine's
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
	more  [][]access // reads that a cell has no room for; the first list is nobody's
}

// history is the shadow of a segment. Workers change its pages under the locks of
// the segment, of which each serves some pages only; so the list of pages is there
// from the start.
type history struct {
	epoch uint64 // of shared memory: the CTA
	pages []*page
	sync  locations
}

// page finds the page of an offset, empty if its epoch is over.
func (h *history) page(at int, epoch uint64) *page {
	p := h.pages[at/pageBytes]
	if p == nil {
		p = &page{cells: make([]cell, pageBytes/wordBytes)}
		h.pages[at/pageBytes] = p
	}
	if p.epoch != epoch {
		p.epoch = epoch
		clear(p.cells)
		p.more = p.more[:0]
	}
	return p
}

// list gives a cell a list for further reads, an old one's memory if there is any.
func (p *page) list(c *cell) {
	n := max(len(p.more), 1)
	if n < cap(p.more) {
		p.more = p.more[:n+1]
		p.more[n] = p.more[n][:0]
	} else {
		p.more = append(p.more, make([][]access, n+1-len(p.more))...)
	}
	c.more = int32(n)
}

// refine gives every byte its own cell.
func (p *page) refine() {
	if p.fine {
		return
	}
	p.fine = true
	cells := make([]cell, pageBytes)
	for i := range cells {
		c := &cells[i]
		*c = p.cells[i/wordBytes]
		if old := c.more; old != 0 && i%wordBytes != 0 {
			p.list(c)
			p.more[c.more] = append(p.more[c.more], p.more[old]...)
		}
	}
	p.cells = cells
}

// note records an access of n bytes by a lane. It traps and returns false if it
// races with an earlier one.
func (w *warp) note(o *op, s *segment, at, n, lane int, kind accessKind) bool {
	if s.locks != nil && !w.settled(o, s, at, n, lane, kind) {
		return false
	}
	return !w.cta.grid.races || w.record(o, s, at, n, lane, kind)
}

// epoch is what the history of a segment counts for now.
func (w *warp) epoch(s *segment) uint64 {
	if s == w.cta.shared {
		return s.history.epoch
	}
	return w.cta.grid.epoch
}

// page is the history at an offset, locked, for an access of n bytes.
func (w *warp) page(s *segment, at, n int) *page {
	if s.locks != nil {
		w.hold(s, at)
	}
	p := s.history.page(at, w.epoch(s))
	if n < wordBytes {
		p.refine()
	}
	return p
}

func (w *warp) record(o *op, s *segment, at, n, lane int, kind accessKind) bool {
	if kind >= accessWrite && s == w.cta.shared && !w.spares(o, at, n, lane) {
		return false
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
			p = w.page(s, at, n)
			if size = wordBytes; p.fine {
				size = 1
			}
		}
		c := &p.cells[at%pageBytes/size]
		var other access
		switch {
		case kind == accessConstant && c.write != 0:
			other = access{c.write, c.writeLine}
		case kind <= accessConstant:
			other = p.noteRead(c, w, lane, now)
		default:
			other = p.noteWrite(c, w, lane, now)
			c.engine = kind == accessEngine
		}
		if other.stamp != 0 {
			w.race(o, s, at, lane, other)
			return false
		}
	}
	if o.order.strong {
		w.synchronize(o, s, start, lane, kind)
	}
	return true
}

// noteRead records a read and returns a write that it races with.
func (p *page) noteRead(c *cell, w *warp, lane int, now access) (other access) {
	if c.write != 0 && w.races(lane, c.write, now.stamp) {
		return access{c.write, c.writeLine}
	}
	switch old := c.read; {
	case old == now.stamp:
	case old == 0 || w.supersedes(lane, old, now.stamp):
		c.read, c.readLine = now.stamp, now.line
	case old.warp() == now.warp() && (old^now.stamp)&stampStrong == 0:
		c.read, c.readLine = max(old, now.stamp)|stampSeveral, now.line
	default:
		p.share(c, w, lane, now)
	}
	return access{}
}

// share records a read beside others, in the place of one by the same warp or of one
// that it supersedes, if there is any.
func (p *page) share(c *cell, w *warp, lane int, now access) {
	if c.more == 0 {
		p.list(c)
	}
	list := p.more[c.more]
	for i := range list {
		r := &list[i]
		if r.warp() == now.warp() && (r.stamp^now.stamp)&stampStrong == 0 {
			if !w.supersedes(lane, r.stamp, now.stamp) {
				now.stamp |= stampSeveral
			}
			*r = now
			return
		}
	}
	for i := range list {
		if w.supersedes(lane, list[i].stamp, now.stamp) {
			list[i] = now
			return
		}
	}
	p.more[c.more] = append(list, now)
}

// noteWrite records a write and returns an access that it races with.
func (p *page) noteWrite(c *cell, w *warp, lane int, now access) (other access) {
	if c.write != 0 && w.races(lane, c.write, now.stamp) {
		// Lanes may write one value to one place by one instruction.
		if !w.same || c.write.warp() != now.warp() || c.write.clock() != now.clock() {
			return access{c.write, c.writeLine}
		}
	}
	if c.read != 0 && w.races(lane, c.read, now.stamp) {
		return access{c.read, c.readLine}
	}
	if c.more != 0 {
		for _, r := range p.more[c.more] {
			if w.races(lane, r.stamp, now.stamp) {
				return r
			}
		}
		p.more[c.more] = p.more[c.more][:0]
	}
	*c = cell{write: now.stamp, writeLine: now.line, more: c.more}
	return access{}
}

// supersedes tells whether what races with an earlier read also races with a read
// now. A strong one does not supersede a weak one, which races with strong writes too.
func (w *warp) supersedes(lane int, old, now stamp) bool {
	return old&stampStrong >= now&stampStrong &&
		(old.thread() == now.thread() && old&stampSeveral == 0 || w.after(lane, old))
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
