package emu

import (
	"fmt"
	"maps"
	"math/bits"
)

// Class is a kind of instruction, for counting.
type Class uint8

// The classes of instructions.
const (
	ClassNone Class = iota
	ClassMove
	ClassInt
	ClassFloat
	ClassDouble
	ClassHalf
	ClassSpecial // approximations: ex2, rcp, …
	ClassConvert
	ClassControl
	ClassBarrier
	ClassWarpSync
	ClassFence
	ClassShuffle // shfl, vote, redux
	ClassGlobalLoad
	ClassGlobalStore
	ClassSharedLoad
	ClassSharedStore
	ClassAtomic
	ClassAsync
	ClassMatrixLoad
	ClassMMA
	numClasses
)

var classNames = [numClasses]string{
	"none", "move", "int", "float", "double", "half", "special", "convert", "control", "barrier", "warpsync", "fence",
	"shuffle", "globalload", "globalstore", "sharedload", "sharedstore", "atomic", "async", "matrixload", "mma",
}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// Work is what a kernel did, all its launches together.
type Work struct {
	Launches         uint64
	CTAs             uint64
	WarpInstructions uint64
	LaneInstructions uint64
	Classes          [numClasses]uint64 // warp instructions by Class

	LoadBytes    uint64 // of global memory, as the lanes asked for them; atomics are not counted
	StoreBytes   uint64
	LoadSectors  uint64 // 32-byte sectors of global memory that the accesses of warps touch
	StoreSectors uint64
	Wavefronts   uint64 // passes over shared memory that loads and stores take
	Conflicts    uint64 // of them, those that bank conflicts add
}

// Counters are what kernels did since the last reset, by their names.
type Counters map[string]Work

// traffic is what a worker counts of memory.
type traffic struct {
	loadBytes, storeBytes, loadSectors, storeSectors, wavefronts, conflicts uint64
}

// Counters gives a copy of what has been counted.
func (d *Device) Counters() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counters)
}

// ResetCounters begins anew.
func (d *Device) ResetCounters() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counters = Counters{}
}

// count adds what a worker did.
func (d *Device) count(p *program, wk *worker) {
	w := d.counters[p.name]
	for i := range p.ops {
		w.WarpInstructions += wk.hits[i]
		w.LaneInstructions += wk.lanes[i]
		w.Classes[p.ops[i].class] += wk.hits[i]
	}
	t := &wk.counts
	w.LoadBytes += t.loadBytes
	w.StoreBytes += t.storeBytes
	w.LoadSectors += t.loadSectors
	w.StoreSectors += t.storeSectors
	w.Wavefronts += t.wavefronts
	w.Conflicts += t.conflicts
	d.counters[p.name] = w
}

// access counts an access of a warp: n bytes in each lane of m.
func (wk *worker) access(o *op, m uint32, addrs *vec, n int) {
	if o.shared {
		wk.sharedAccess(m, addrs, n)
		return
	}
	wk.globalAccess(o.class == ClassGlobalStore, m, addrs, n*bits.OnesCount32(m))
}

// globalAccess counts an access of so many bytes by the lanes of m, none of which
// crosses a sector.
func (wk *worker) globalAccess(store bool, m uint32, addrs *vec, total int) {
	sectors, bytes := distinct(m, addrs, 5), uint64(total)
	if store {
		wk.counts.storeBytes += bytes
		wk.counts.storeSectors += sectors
	} else {
		wk.counts.loadBytes += bytes
		wk.counts.loadSectors += sectors
	}
}

// distinct counts the different values of addrs>>shift in the lanes of m.
func distinct(m uint32, addrs *vec, shift int) uint64 {
	var seen [warpSize]uint64
	n, rising := 0, true // rising: no later one can have been seen
next:
	for l := range lanesOf(m) {
		v := addrs[l] >> shift
		if n > 0 && (!rising || v <= seen[n-1]) {
			for i := n - 1; i >= 0; i-- {
				if seen[i] == v {
					continue next
				}
			}
			rising = false
		}
		seen[n] = v
		n++
	}
	return uint64(n)
}

// sharedAccess counts wavefronts. Shared memory has 32 banks of 4 bytes, and a
// wavefront takes one word from each. Accesses of 8 and 16 bytes go by half and by
// quarter warps.
func (wk *worker) sharedAccess(m uint32, addrs *vec, n int) {
	groups := max(1, n/4)
	per := warpSize / groups
	for g := range groups {
		part := m & uint32(ones(per)<<(g*per))
		if part == 0 {
			continue
		}
		took := bankPasses(part, addrs, n)
		wk.counts.wavefronts += took
		wk.counts.conflicts += took - 1
	}
}

// bankPasses is the largest number of different words that one bank must give.
func bankPasses(m uint32, addrs *vec, n int) uint64 {
	var words [32]uint64 // the first word of each bank, plus 1
	for l := range lanesOf(m) {
		for word := addrs[l] / 4; word <= (addrs[l]+uint64(n)-1)/4; word++ {
			if w := &words[word%32]; *w == 0 {
				*w = word + 1
			} else if *w != word+1 {
				return conflicts(m, addrs, n)
			}
		}
	}
	return 1
}

// conflicts is bankPasses where some bank must give several words.
func conflicts(m uint32, addrs *vec, n int) uint64 {
	var words [32][warpSize]uint64
	var counts [32]int
	most := 1
	for l := range lanesOf(m) {
	next:
		for word := addrs[l] / 4; word <= (addrs[l]+uint64(n)-1)/4; word++ {
			bank := word % 32
			for _, seen := range words[bank][:counts[bank]] {
				if seen == word {
					continue next
				}
			}
			words[bank][counts[bank]] = word
			counts[bank]++
			most = max(most, counts[bank])
		}
	}
	return uint64(most)
}
