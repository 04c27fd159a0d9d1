package accel

import "github.com/lockstep-go/lockstep/driver"

// span is a page of a layer's keys or values, and its place in a snapshot.
type span struct {
	at   uint64 // in device memory
	take int    // positions of it that are copied
	held int    // positions of it that the snapshot has
	from int    // where they begin in the snapshot
}

// spans are the pages of a table, from the given one on, that hold positions up to n: as
// host memory has them that holds those pages' positions up to length, by layer, keys
// before values, by page, by head.
func (e *Engine) spans(table []uint32, first, n, length int) []span {
	var list []span
	position := e.pool.bytes / page
	from := 0
	for _, l := range e.pool.layers {
		for _, cache := range []uint64{l.k, l.v} {
			for i := first; i*page < length; i++ {
				p := span{take: min(n-i*page, page), held: min(length-i*page, page), from: from}
				if p.take > 0 {
					p.at = cache + uint64(int(table[i])*e.pool.bytes)
					list = append(list, p)
				}
				from += p.held * position
			}
		}
	}
	return list
}

// heads pairs what a page has of each head with what a snapshot has of it.
func (e *Engine) heads(p span, inPage, inSnapshot []byte, do func(inPage, inSnapshot []byte)) {
	vector := e.pool.bytes / page / e.cfg.KVHeads
	for h := range e.cfg.KVHeads {
		do(inPage[h*page*vector:][:p.take*vector], inSnapshot[p.from+h*p.held*vector:][:p.take*vector])
	}
}

// batches calls do for as many spans at a time as the pinned memory holds pages.
func (e *Engine) batches(list []span, do func(list []span) error) error {
	most := len(e.host.Bytes()) / e.pool.bytes
	for len(list) > 0 {
		n := min(len(list), most)
		if err := do(list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// staged is page i of the pinned memory.
func (e *Engine) staged(i int) []byte { return e.host.Bytes()[i*e.pool.bytes:][:e.pool.bytes] }

// save copies pages into a snapshot.
func (e *Engine) save(list []span, data []byte) error {
	return e.batches(list, func(list []span) error {
		for i, p := range list {
			if err := e.stream.ReadAsync(e.host, i*e.pool.bytes, driver.Address(p.at), e.pool.bytes); err != nil {
				return err
			}
		}
		if err := e.stream.Synchronize(); err != nil {
			return err
		}
		for i, p := range list {
			e.heads(p, e.staged(i), data, func(inPage, inSnapshot []byte) { copy(inSnapshot, inPage) })
		}
		return nil
	})
}

// load copies a snapshot into pages. Positions of a page beyond are whatever they are.
func (e *Engine) load(list []span, data []byte) error {
	return e.batches(list, func(list []span) error {
		for i, p := range list {
			e.heads(p, e.staged(i), data, func(inPage, inSnapshot []byte) { copy(inPage, inSnapshot) })
			if err := e.stream.WriteAsync(driver.Address(p.at), e.host, i*e.pool.bytes, e.pool.bytes); err != nil {
				return err
			}
		}
		return e.stream.Synchronize()
	})
}

// copyPage copies a page within the device, in all layers.
func (e *Engine) copyPage(to, from uint32) error {
	at := func(cache uint64, n uint32) driver.Address {
		return driver.Address(cache + uint64(int(n)*e.pool.bytes))
	}
	for _, l := range e.pool.layers {
		for _, cache := range []uint64{l.k, l.v} {
			if err := e.stream.Copy(at(cache, to), at(cache, from), int64(e.pool.bytes)); err != nil {
				return err
			}
		}
	}
	return nil
}
