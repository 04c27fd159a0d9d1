package accel

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/ptxgen"
)

// ErrKVFull is for errors.Is: see KVFullError.
var ErrKVFull = errors.New("KV cache is full")

// KVFullError says that the sequences together need more pages than the cache has. The
// one that asked is as it was; it may go on when another is closed or truncated.
type KVFullError struct {
	Need  int // pages that were asked for
	Free  int // pages that were free, or that snapshots could have made free
	Pages int // of the cache
}

func (e *KVFullError) Error() string {
	return fmt.Sprintf("KV cache is full: %d pages of %d positions are needed, and %d of %d can be had", e.Need, page, e.Free, e.Pages)
}

// Unwrap returns ErrKVFull.
func (e *KVFullError) Unwrap() error { return ErrKVFull }

// pool is the cache of all sequences: in each layer so many pages of keys, and of values,
// each [kv heads, 64, head dim]. A page has one number in all layers.
type pool struct {
	pages  int
	bytes  int // of a page of a layer's keys; of values as many
	layers []kvLayer

	mu       sync.Mutex
	fresh    int            // pages from this one on were never taken
	back     []uint32       // pages that were given back
	promises []promise      // of pages that are free
	extra    map[uint32]int // owners of a page beyond the first: it is shared, and not written
}

// free is how many pages can be taken. The lock is held.
func (p *pool) free() int { return p.pages - p.fresh + len(p.back) + len(p.promises) }

// take takes a page that is free: rather one that was used before, and one that is promised
// only when there is no other. The lock is held.
func (p *pool) take() uint32 {
	if n := len(p.back) - 1; n >= 0 {
		page := p.back[n]
		p.back = p.back[:n]
		return page
	}
	if p.fresh < p.pages {
		p.fresh++
		return uint32(p.fresh - 1)
	}
	last := len(p.promises) - 1
	page := p.promises[last].page
	p.promises = slices.Delete(p.promises, last, last+1)
	return page
}

// kvLayer is where a layer's keys and values are.
type kvLayer struct{ k, v ptxgen.Address }

func newPool(s *shape) *pool {
	return &pool{bytes: page * s.cfg.KVHeads * s.cfg.HeadDim * s.kvFormat.BlockBytes(), layers: make([]kvLayer, s.cfg.Layers), extra: map[uint32]int{}}
}

// pageBytes is what a page takes in all layers.
func (p *pool) pageBytes() int64 { return 2 * int64(len(p.layers)) * int64(p.bytes) }

// resize decides how many pages there are, before any is taken.
func (p *pool) resize(pages int, v *inventory) {
	p.pages = pages
	for i := range p.layers {
		l := &p.layers[i]
		v.add(cacheMemory, fmt.Sprintf("layer %d, keys", i), int64(pages)*int64(p.bytes), &l.k)
		v.add(cacheMemory, fmt.Sprintf("layer %d, values", i), int64(pages)*int64(p.bytes), &l.v)
	}
}

// grow appends pages to a table until it covers n positions, or leaves it as it is.
func (p *pool) grow(table []uint32, n int) ([]uint32, error) {
	need := ceilDiv(n, page) - len(table)
	if need <= 0 {
		return table, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if free := p.free(); need > free {
		return table, fmt.Errorf("accel: %w", &KVFullError{Need: need, Free: free, Pages: p.pages})
	}
	for range need {
		table = append(table, p.take())
	}
	return table, nil
}

// shrink gives up the pages of a table beyond n positions.
func (p *pool) shrink(table []uint32, n int) []uint32 {
	keep := ceilDiv(n, page)
	if keep >= len(table) {
		return table
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(table) - 1; i >= keep; i-- { // so that they are taken again in their order
		switch n := table[i]; p.extra[n] {
		case 0:
			p.back = append(p.back, n)
		case 1:
			delete(p.extra, n)
		default:
			p.extra[n]--
		}
	}
	return table[:keep]
}

// share gives pages one more owner.
func (p *pool) share(table []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range table {
		p.extra[n]++
	}
}

// owners is how many there are of a page that is in use.
func (p *pool) owners(n uint32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 1 + p.extra[n]
}

// shared reports whether a page has several owners.
func (p *pool) shared(n uint32) bool { return p.owners(n) > 1 }

// without is how many pages would be free if some snapshots gave up theirs, and the first
// of these that has a page which none but they hold.
func (p *pool) without(list []*snapshot) (free int, first *snapshot) {
	held := map[uint32]int{}
	for _, s := range list {
		for _, n := range s.kept.pages {
			held[n]++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	alone := func(n uint32) bool { return held[n] == 1+p.extra[n] }
	free = p.free()
	for n := range held {
		if alone(n) {
			free++
		}
	}
	if i := slices.IndexFunc(list, func(s *snapshot) bool { return slices.ContainsFunc(s.kept.pages, alone) }); i >= 0 {
		first = list[i]
	}
	return free, first
}

// inUse is how many pages sequences and snapshots hold.
func (p *pool) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pages - p.free()
}
