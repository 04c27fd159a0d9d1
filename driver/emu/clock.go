package emu

import (
	"slices"
	"sync"
)

// clocks are what a warp knows of the progress of others: accesses of a warp with a
// clock up to the known one come before its own next access.
type clocks struct {
	now   uint32             // the warp's own clock
	base  uint32             // what all lanes know of each other
	seen  *[warpSize]vec     // what lane i knows of lane j besides, after a bar.warp.sync of some lanes
	peers []uint32           // of the other warps of the CTA
	far   *knowledge         // of other CTAs, and of single threads
	lanes [warpSize]laneView // what single lanes know more

	proxies []proxyFence // in their order
}

// laneView is what one lane has acquired and prepared to release.
type laneView struct {
	far    *knowledge // acquired since the lanes last synchronized
	read   *knowledge // found by relaxed reads: a fence acquires it
	fence  *knowledge // known at the last fence: a later strong write releases it
	fenced uint32     // the clock then, 0 if there was no fence
	narrow bool       // the fence orders within the CTA only
}

// knowledge is how far warps and single threads have come. It is never changed.
type knowledge struct{ warps, threads progress }

// join is what two know together.
func join(a, b *knowledge) *knowledge {
	switch {
	case a == b || b.within(a):
		return a
	case a.within(b):
		return b
	}
	return &knowledge{a.warps.join(b.warps), a.threads.join(b.threads)}
}

// within tells whether another knows all of it.
func (k *knowledge) within(other *knowledge) bool {
	return k == nil || other != nil && k.warps.within(other.warps) && k.threads.within(other.threads)
}

// covers tells whether an access is known of.
func (k *knowledge) covers(s stamp) bool {
	return k != nil && (s.clock() <= k.warps.of(s.warp()) || s&stampSeveral == 0 && s.clock() <= k.threads.of(s.thread()))
}

// progress is the clocks of those numbered from first on, 0 where nothing is known.
type progress struct {
	first  uint32
	clocks []uint32
}

func (p progress) of(i uint32) uint32 {
	if at := i - p.first; at < uint32(len(p.clocks)) {
		return p.clocks[at]
	}
	return 0
}

func (p progress) within(q progress) bool {
	for i, c := range p.clocks {
		if c > q.of(p.first+uint32(i)) {
			return false
		}
	}
	return true
}

func (p progress) join(q progress) progress {
	switch {
	case q.within(p):
		return p
	case p.within(q):
		return q
	}
	first := min(p.first, q.first)
	end := max(p.first+uint32(len(p.clocks)), q.first+uint32(len(q.clocks)))
	all := make([]uint32, end-first)
	copy(all[p.first-first:], p.clocks)
	for i, c := range q.clocks {
		at := &all[q.first-first+uint32(i)]
		*at = max(*at, c)
	}
	return progress{first, all}
}

// locations are what was released at addresses.
type locations struct {
	sync.Mutex
	epoch uint64
	at    map[int]released
}

// released is what a strong write leaves for those who read it.
type released struct {
	know   *knowledge
	cta    int  // the writer's
	narrow bool // for that CTA only
}

// start forgets everything.
func (c *clocks) start(warps int) {
	peers := c.peers
	if len(peers) != warps {
		peers = make([]uint32, warps)
	}
	clear(peers)
	*c = clocks{now: 1, peers: peers, proxies: c.proxies[:0]}
}

// after tells whether an earlier access is ordered before what a lane does now.
func (w *warp) after(lane int, s stamp) bool {
	c := &w.clock
	if s.warp() == w.gid {
		from := int(s.thread() % warpSize)
		if s.clock() <= c.base ||
			s&stampSeveral == 0 && (from == lane || c.seen != nil && uint64(s.clock()) <= c.seen[lane][from]) {
			return true
		}
	} else if peer := s.warp() - uint32(w.cta.number*len(c.peers)); peer < uint32(len(c.peers)) && s.clock() <= c.peers[peer] {
		return true
	}
	return c.far.covers(s) || c.lanes[lane].far.covers(s)
}

// syncLanes orders memory among lanes: bar.warp.sync.
func (w *warp) syncLanes(lanes uint32) {
	c := &w.clock
	if !w.cta.grid.races {
		return
	}
	var far *knowledge
	for l := range lanesOf(lanes) {
		far = join(far, c.lanes[l].far)
	}
	if lanes == w.live {
		c.base = c.now
		c.far = join(c.far, far)
		for l := range c.lanes {
			c.lanes[l].far = nil
		}
	} else {
		if c.seen == nil {
			c.seen = new([warpSize]vec)
		}
		var known vec // of some lane of them
		for i := range lanesOf(lanes) {
			for j := range known {
				known[j] = max(known[j], c.seen[i][j])
			}
		}
		for i := range lanesOf(lanes) {
			known[i] = uint64(c.now)
		}
		for i := range lanesOf(lanes) {
			c.seen[i] = known
			c.lanes[i].far = far
		}
	}
	c.now++
}

// syncWarps orders memory among all lanes of warps: a barrier.
func (c *cta) syncWarps(warps []*warp) {
	if !c.grid.races {
		return
	}
	joined := make([]uint32, len(c.warps))
	var far *knowledge
	for _, w := range warps {
		w.syncLanes(w.live) // it knows itself up to here
		for i, t := range w.clock.peers {
			joined[i] = max(joined[i], t)
		}
		joined[w.index] = w.clock.base
		far = join(far, w.clock.far)
	}
	for _, w := range warps {
		copy(w.clock.peers, joined)
		w.clock.far = far
	}
}

// known is everything that a lane knows, as it releases it.
func (w *warp) known(lane int) *knowledge {
	c := &w.clock
	k := &knowledge{
		progress{uint32(w.cta.number * len(c.peers)), slices.Clone(c.peers)},
		progress{w.gid*warpSize + uint32(lane), []uint32{c.now}},
	}
	k.warps.clocks[w.index] = c.base
	if c.seen != nil {
		seen := make([]uint32, warpSize)
		for j, t := range c.seen[lane] {
			seen[j] = uint32(t)
		}
		seen[lane] = c.now
		k.threads = progress{w.gid * warpSize, seen}
	}
	return join(k, join(c.far, c.lanes[lane].far))
}

// fence acquires what relaxed reads have found, and prepares what strong writes release.
func (w *warp) fence(o *op, m uint32) {
	if !w.cta.grid.races {
		return
	}
	for l := range lanesOf(m) {
		v := &w.clock.lanes[l]
		v.far, v.read = join(v.far, v.read), nil
		v.fence, v.fenced, v.narrow = w.known(l), w.clock.now, o.order.cta
	}
	w.clock.now++
}

// synchronize lets a strong access acquire and release at its address.
func (w *warp) synchronize(o *op, s *segment, at, lane int, kind accessKind) {
	view := &w.clock.lanes[lane]
	locations := &s.history.sync
	locations.Lock()
	defer locations.Unlock()
	epoch := w.epoch(s)
	if locations.epoch != epoch || locations.at == nil {
		locations.epoch, locations.at = epoch, map[int]released{}
	}
	old := locations.at[at]
	if kind != accessWrite && (old.cta == w.cta.number || !old.narrow && !o.order.cta) {
		if o.order.acquire {
			view.far = join(view.far, old.know)
		} else {
			view.read = join(view.read, old.know)
		}
	}
	if kind <= accessConstant {
		return
	}
	published := released{cta: w.cta.number, narrow: o.order.cta}
	if o.order.release {
		published.know = w.known(lane)
		w.clock.now++
	} else if view.fenced != 0 {
		published.know, published.narrow = view.fence, view.narrow
	}
	if kind == accessAtomic {
		// A read-modify-write goes on with what was released before it.
		published.know = join(old.know, published.know)
		published.narrow = published.narrow && (old.narrow || old.know == nil)
	}
	locations.at[at] = published
}
