package emu

import (
	"slices"
	"sync"
)

// A warp has a logical time, which advances when it writes or synchronizes. A vector clock holds
// times of many warps. An access of a warp at time t happens before what a lane does now if the
// lane has seen time t of that warp.

// warpClock is the time of a warp and what its lanes have seen of other warps. Most of it is the
// same for all lanes and is stored once.
type warpClock struct {
	now         uint32              // time of this warp
	synced      uint32              // all lanes have seen each other up to this time
	laneSeen    *[warpSize]vec      // laneSeen[i][j]: lane i has seen lane j up to this time; nil until some lanes synchronize without the others
	peers       []uint32            // seen of the other warps of the CTA
	seen        *vectorClock        // seen of other CTAs and of single threads
	lanes       [warpSize]laneClock // what single lanes have seen in addition
	proxyFences []proxyFence        // in the order of execution
}

// laneClock is what one lane has acquired, and what it releases.
type laneClock struct {
	acquired  *vectorClock // since the lanes last synchronized
	unfenced  *vectorClock // found by relaxed reads; the next fence acquires it
	fence     *vectorClock // seen at the last fence; a later strong write releases it
	fenceTime uint32       // time of the last fence, 0 if there was none
	fenceCTA  bool         // the last fence orders within the CTA only
}

// vectorClock holds the times up to which warps and single threads have been seen. nil is empty.
// A vectorClock does not change after it was made.
type vectorClock struct{ warps, threads clockRange }

// join returns the maximum of two clocks.
func join(a, b *vectorClock) *vectorClock {
	switch {
	case a == b || b.within(a):
		return a
	case a.within(b):
		return b
	}
	return &vectorClock{a.warps.join(b.warps), a.threads.join(b.threads)}
}

// within reports whether each time in k is at most that in other.
func (k *vectorClock) within(other *vectorClock) bool {
	return k == nil || other != nil && k.warps.within(other.warps) && k.threads.within(other.threads)
}

// covers reports whether an access has been seen.
func (k *vectorClock) covers(s stamp) bool {
	return k != nil && (s.time() <= k.warps.at(s.warp()) || s&stampSeveral == 0 && s.time() <= k.threads.at(s.thread()))
}

// clockRange holds the times of consecutive warps or threads. All other times are 0.
type clockRange struct {
	first uint32 // number in the grid of times[0]
	times []uint32
}

func (r clockRange) at(i uint32) uint32 {
	if i -= r.first; i < uint32(len(r.times)) {
		return r.times[i]
	}
	return 0
}

func (r clockRange) within(other clockRange) bool {
	for i, t := range r.times {
		if t > other.at(r.first+uint32(i)) {
			return false
		}
	}
	return true
}

func (r clockRange) join(other clockRange) clockRange {
	switch {
	case other.within(r):
		return r
	case r.within(other):
		return other
	}
	first := min(r.first, other.first)
	end := max(r.first+uint32(len(r.times)), other.first+uint32(len(other.times)))
	all := make([]uint32, end-first)
	copy(all[r.first-first:], r.times)
	for i, t := range other.times {
		at := &all[other.first-first+uint32(i)]
		*at = max(*at, t)
	}
	return clockRange{first, all}
}

func (c *warpClock) start(warps int) {
	peers := c.peers
	if len(peers) != warps {
		peers = make([]uint32, warps)
	}
	clear(peers)
	*c = warpClock{now: 1, peers: peers, proxyFences: c.proxyFences[:0]}
}

// ordered reports whether an earlier access happens before what a lane does now.
func (w *warp) ordered(lane int, s stamp) bool {
	c := &w.clock
	if s.warp() == w.gridIndex {
		from := int(s.thread() % warpSize)
		if s.time() <= c.synced ||
			s&stampSeveral == 0 && (from == lane || c.laneSeen != nil && uint64(s.time()) <= c.laneSeen[lane][from]) {
			return true
		}
	} else if peer := s.warp() - uint32(w.cta.number*len(c.peers)); peer < uint32(len(c.peers)) && s.time() <= c.peers[peer] {
		return true
	}
	return c.seen.covers(s) || c.lanes[lane].acquired.covers(s)
}

// syncLanes makes lanes see what each of them has done and seen: bar.warp.sync.
func (w *warp) syncLanes(lanes uint32) {
	c := &w.clock
	if !w.cta.grid.races {
		return
	}
	var acquired *vectorClock
	for l := range lanesOf(lanes) {
		acquired = join(acquired, c.lanes[l].acquired)
	}
	if lanes == w.live {
		c.synced = c.now
		c.seen = join(c.seen, acquired)
		for l := range c.lanes {
			c.lanes[l].acquired = nil
		}
	} else {
		if c.laneSeen == nil {
			c.laneSeen = new([warpSize]vec)
		}
		var seen vec // by any of the lanes
		for i := range lanesOf(lanes) {
			for j := range seen {
				seen[j] = max(seen[j], c.laneSeen[i][j])
			}
		}
		for i := range lanesOf(lanes) {
			seen[i] = uint64(c.now)
		}
		for i := range lanesOf(lanes) {
			c.laneSeen[i] = seen
			c.lanes[i].acquired = acquired
		}
	}
	c.now++
}

// syncWarps makes warps see what each of them has done and seen: a barrier.
func (c *cta) syncWarps(warps []*warp) {
	if !c.grid.races {
		return
	}
	peers := make([]uint32, len(c.warps))
	var seen *vectorClock
	for _, w := range warps {
		w.syncLanes(w.live)
		for i, t := range w.clock.peers {
			peers[i] = max(peers[i], t)
		}
		peers[w.index] = w.clock.synced
		seen = join(seen, w.clock.seen)
	}
	for _, w := range warps {
		copy(w.clock.peers, peers)
		w.clock.seen = seen
	}
}

// laneClock returns the vector clock of a lane, which a strong write releases.
func (w *warp) laneClock(lane int) *vectorClock {
	c := &w.clock
	k := &vectorClock{
		clockRange{uint32(w.cta.number * len(c.peers)), slices.Clone(c.peers)},
		clockRange{w.gridIndex*warpSize + uint32(lane), []uint32{c.now}},
	}
	k.warps.times[w.index] = c.synced
	if c.laneSeen != nil {
		seen := make([]uint32, warpSize)
		for j, t := range c.laneSeen[lane] {
			seen[j] = uint32(t)
		}
		seen[lane] = c.now
		k.threads = clockRange{w.gridIndex * warpSize, seen}
	}
	return join(k, join(c.seen, c.lanes[lane].acquired))
}

// fence acquires what relaxed reads have found, and sets what later strong writes release.
func (w *warp) fence(o *op, m uint32) {
	if !w.cta.grid.races {
		return
	}
	for l := range lanesOf(m) {
		c := &w.clock.lanes[l]
		c.acquired, c.unfenced = join(c.acquired, c.unfenced), nil
		c.fence, c.fenceTime, c.fenceCTA = w.laneClock(l), w.clock.now, o.order.cta
	}
	w.clock.now++
}

// releases are the clocks that strong writes released, by offset in an allocation.
type releases struct {
	sync.Mutex
	epoch uint64
	at    map[int]release
}

// release is what a strong write leaves for the reads of its value.
type release struct {
	clock   *vectorClock
	cta     int  // number of the writer's CTA
	ctaOnly bool // only that CTA may acquire it
}

// synchronize makes a strong access acquire and release at its address.
func (w *warp) synchronize(o *op, s *allocation, at, lane int, kind accessKind) {
	c := &w.clock.lanes[lane]
	all := &s.history.releases
	all.Lock()
	defer all.Unlock()
	epoch := w.epoch(s)
	if all.epoch != epoch || all.at == nil {
		all.epoch, all.at = epoch, map[int]release{}
	}
	old := all.at[at]
	if kind != accessWrite && (old.cta == w.cta.number || !old.ctaOnly && !o.order.cta) {
		if o.order.acquire {
			c.acquired = join(c.acquired, old.clock)
		} else {
			c.unfenced = join(c.unfenced, old.clock)
		}
	}
	if kind <= accessConstant {
		return
	}
	r := release{cta: w.cta.number, ctaOnly: o.order.cta}
	if o.order.release {
		r.clock = w.laneClock(lane)
		w.clock.now++
	} else if c.fenceTime != 0 {
		r.clock, r.ctaOnly = c.fence, c.fenceCTA
	}
	if kind == accessAtomic {
		// A read-modify-write continues the release sequence of the value that it replaces.
		r.clock = join(old.clock, r.clock)
		r.ctaOnly = r.ctaOnly && (old.ctaOnly || old.clock == nil)
	}
	all.at[at] = r
}
