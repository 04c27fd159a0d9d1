package emu

// Races are found with vector clocks as in FastTrack (Flanagan, Freund 2009). Each word of memory
// has a shadow cell with its last write and the reads since. An access races with an access in the
// cell if one of the two writes, not both are strong, and the earlier one does not happen before the later one.

// accessKind is how an access takes part in races.
type accessKind uint8

const (
	accessRead      accessKind = iota
	accessConstant             // a read that requires constant memory: ld.global.nc
	accessWrite                // also at the issue and the completion of an asynchronous copy
	accessAtomic               // a strong read and write
	accessBulkWrite            // a write by a bulk copy, which wgmma sees without a proxy fence
)

// stamp packs the thread of an access, the time of its warp, and flags. 0 means no access.
type stamp uint64

const (
	stampStrong  stamp = 1 << 32 // the access is strong: volatile, relaxed or more
	stampSeveral stamp = 1 << 33 // several lanes of the warp accessed; the thread is one of them
	timeShift          = 34
)

func (s stamp) thread() uint32 { return uint32(s) }
func (s stamp) warp() uint32   { return uint32(s) / warpSize }
func (s stamp) time() uint32   { return uint32(s >> timeShift) }

// access is a stamp with the line of the instruction.
type access struct {
	stamp stamp
	line  int32
}

// cell is the shadow of a word, or of a byte on a fine page. It has no pointers, so the garbage
// collector need not scan it.
type cell struct {
	write, read         stamp // the last ones; a write clears the read
	writeLine, readLine int32 // writeLine is negative if a bulk copy wrote
	moreReads           int32 // index of a list in shadowPage.moreReads, 0 if none
	constantLine        int32 // of a read that requires constant memory, 0 if none
}

// bulk reports whether a bulk copy wrote.
func (c *cell) bulk() bool { return c.writeLine < 0 }

// lastWrite returns the last write.
func (c *cell) lastWrite() access { return access{c.write, max(c.writeLine, -c.writeLine)} }

const (
	shadowPageBytes = 1 << 10
	wordBytes       = 4
)

// shadowPage is the shadow of shadowPageBytes bytes. If epoch is not the current one, the page counts as empty.
type shadowPage struct {
	epoch     uint64
	fine      bool // one cell per byte, else per word
	cells     []cell
	moreReads [][]access // concurrent reads beyond the one in a cell; list 0 is unused
}

// history is the shadow of an allocation. pages has its full length from the start, because workers
// change its elements under different locks.
type history struct {
	epoch    uint64 // of shared memory: changes with the CTA
	pages    []*shadowPage
	releases releases
}

// page returns the page of an offset, cleared if its epoch is over.
func (h *history) page(at int, epoch uint64) *shadowPage {
	p := h.pages[at/shadowPageBytes]
	if p == nil {
		p = &shadowPage{cells: make([]cell, shadowPageBytes/wordBytes)}
		h.pages[at/shadowPageBytes] = p
	}
	if p.epoch != epoch {
		p.epoch = epoch
		clear(p.cells)
		p.moreReads = p.moreReads[:0]
	}
	return p
}

// addList gives a cell an empty list of reads, and reuses the memory of an old list.
func (p *shadowPage) addList(c *cell) {
	n := max(len(p.moreReads), 1)
	if n < cap(p.moreReads) {
		p.moreReads = p.moreReads[:n+1]
		p.moreReads[n] = p.moreReads[n][:0]
	} else {
		p.moreReads = append(p.moreReads, make([][]access, n+1-len(p.moreReads))...)
	}
	c.moreReads = int32(n)
}

// refine gives every byte its own cell.
func (p *shadowPage) refine() {
	if p.fine {
		return
	}
	p.fine = true
	cells := make([]cell, shadowPageBytes)
	for i := range cells {
		c := &cells[i]
		*c = p.cells[i/wordBytes]
		if old := c.moreReads; old != 0 && i%wordBytes != 0 {
			p.addList(c)
			p.moreReads[c.moreReads] = append(p.moreReads[c.moreReads], p.moreReads[old]...)
		}
	}
	p.cells = cells
}

// checkAccess records an access of a lane to n bytes. It traps and returns false if the access
// races, or comes too early in an overlapping kernel.
func (w *warp) checkAccess(o *op, s *allocation, at, n, lane int, kind accessKind) bool {
	if s.locks != nil && !w.checkOverlap(o, s, at, n, lane, kind) {
		return false
	}
	return !w.cta.grid.races || w.record(o, s, at, n, lane, kind)
}

// epoch returns the current epoch of an allocation. Only accesses of the same epoch can race.
func (w *warp) epoch(s *allocation) uint64 {
	if s == w.cta.shared {
		return s.history.epoch
	}
	return w.cta.grid.launch
}

// page returns the page of an offset for an access of n bytes, and locks it if it is shared with
// other workers.
func (w *warp) page(s *allocation, at, n int) *shadowPage {
	if s.locks != nil {
		w.lockRange(s, at)
	}
	p := s.history.page(at, w.epoch(s))
	if n < wordBytes {
		p.refine()
	}
	return p
}

// record adds an access to the history of the allocation. It traps and returns false if the access
// races.
func (w *warp) record(o *op, s *allocation, at, n, lane int, kind accessKind) bool {
	if kind >= accessWrite && s == w.cta.shared && !w.checkWGMMAReads(o, at, n, lane) {
		return false
	}
	now := access{stamp(w.clock.now)<<timeShift | stamp(w.gridIndex*warpSize+uint32(lane)), o.line}
	if o.order.strong {
		now.stamp |= stampStrong
	}
	start := at
	var p *shadowPage
	size := wordBytes
	for end := at + n; at < end; at += size {
		if p == nil || at%shadowPageBytes == 0 {
			p = w.page(s, at, n)
			if size = wordBytes; p.fine {
				size = 1
			}
		}
		c := &p.cells[at%shadowPageBytes/size]
		var other access
		switch {
		case kind == accessConstant && c.write != 0:
			w.trapWrittenConstant(o, s, at, lane, o.line, c.lastWrite().line)
			return false
		case kind >= accessWrite && c.constantLine != 0:
			w.trapWrittenConstant(o, s, at, lane, c.constantLine, o.line)
			return false
		case kind <= accessConstant:
			other = p.noteRead(c, w, lane, now)
			if kind == accessConstant {
				c.constantLine = o.line
			}
		default:
			other = p.noteWrite(c, w, lane, now)
			if kind == accessBulkWrite {
				c.writeLine = -c.writeLine
			}
		}
		if other.stamp != 0 {
			w.trapRace(o, s, at, lane, other)
			return false
		}
	}
	if o.order.strong {
		w.synchronize(o, s, start, lane, kind)
	}
	return true
}

// noteRead records a read and returns the write that it races with.
func (p *shadowPage) noteRead(c *cell, w *warp, lane int, now access) (other access) {
	if c.write != 0 && w.races(lane, c.write, now.stamp) {
		return c.lastWrite()
	}
	switch old := c.read; {
	case old == now.stamp:
	case old == 0 || w.supersedes(lane, old, now.stamp):
		c.read, c.readLine = now.stamp, now.line
	case old.warp() == now.stamp.warp() && (old^now.stamp)&stampStrong == 0:
		c.read, c.readLine = max(old, now.stamp)|stampSeveral, now.line
	default:
		p.noteConcurrentRead(c, w, lane, now)
	}
	return access{}
}

// noteConcurrentRead records a read in the list of a cell. It replaces a read of the same warp, or
// one that it supersedes.
func (p *shadowPage) noteConcurrentRead(c *cell, w *warp, lane int, now access) {
	if c.moreReads == 0 {
		p.addList(c)
	}
	list := p.moreReads[c.moreReads]
	for i := range list {
		r := &list[i]
		if r.stamp.warp() == now.stamp.warp() && (r.stamp^now.stamp)&stampStrong == 0 {
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
	p.moreReads[c.moreReads] = append(list, now)
}

// noteWrite records a write and returns the access that it races with.
func (p *shadowPage) noteWrite(c *cell, w *warp, lane int, now access) (other access) {
	if c.write != 0 && w.races(lane, c.write, now.stamp) {
		// Lanes may write the same value to one address by one instruction.
		if !w.sameValue || c.write.warp() != now.stamp.warp() || c.write.time() != now.stamp.time() {
			return c.lastWrite()
		}
	}
	if c.read != 0 && w.races(lane, c.read, now.stamp) {
		return access{c.read, c.readLine}
	}
	if c.moreReads != 0 {
		for _, r := range p.moreReads[c.moreReads] {
			if w.races(lane, r.stamp, now.stamp) {
				return r
			}
		}
		p.moreReads[c.moreReads] = p.moreReads[c.moreReads][:0]
	}
	*c = cell{write: now.stamp, writeLine: now.line, moreReads: c.moreReads}
	return access{}
}

// supersedes reports whether a read now can replace an earlier read: every later write that races
// with the earlier one also races with the new one. A strong read cannot replace a weak one, because
// weak reads also race with strong writes.
func (w *warp) supersedes(lane int, old, now stamp) bool {
	return old&stampStrong >= now&stampStrong &&
		(old.thread() == now.thread() && old&stampSeveral == 0 || w.ordered(lane, old))
}

// races reports whether an earlier access is not ordered before an access of a lane now, where one
// of them writes and not both are strong.
func (w *warp) races(lane int, old, now stamp) bool {
	if old.thread() == now.thread() && old&stampSeveral == 0 || old&now&stampStrong != 0 {
		return false
	}
	return !w.ordered(lane, old)
}

// trapWrittenConstant traps because a line writes what another line reads as constant memory.
func (w *warp) trapWrittenConstant(o *op, s *allocation, at, lane int, read, written int32) {
	text := func(line int32) string { return w.cta.grid.prog.text(int(line)) }
	w.trap(TrapRace, o, lane, "byte %d of %s: line %d (%s) writes what line %d (%s) reads as constant memory", at, s.name, written, text(written), read, text(read))
}

func (w *warp) trapRace(o *op, s *allocation, at, lane int, other access) {
	warp, warps := int(other.stamp.warp()), len(w.cta.warps)
	w.trap(TrapRace, o, lane, "byte %d of %s: not ordered after the access of line %d (%s) by CTA %d warp %d lane %d", at, s.name,
		other.line, w.cta.grid.prog.text(int(other.line)), warp/warps, warp%warps, other.stamp.thread()%warpSize)
}
