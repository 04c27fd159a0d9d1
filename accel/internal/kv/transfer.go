package kv

import (
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// layerPage is a page of one layer's keys or values, with its offset in host memory.
type layerPage struct {
	layer     *Layer
	device    driver.Address
	positions int // that host memory holds
	host      int // offset in host memory, in bytes
}

// layerPages lists the layer pages for a copy of n positions between a table and host memory.
func (c *Cache) layerPages(pages []uint32, n int) []layerPage {
	var list []layerPage
	offset := 0
	for i := range c.layers {
		l := &c.layers[i]
		if l.Empty() {
			continue
		}
		for _, base := range []ptx.Address{l.K, l.V} {
			for i := 0; i*attention.PageTokens < n; i++ {
				p := layerPage{l, l.address(base, pages[i]), min(n-i*attention.PageTokens, attention.PageTokens), offset}
				list = append(list, p)
				offset += p.positions * l.KVHeads * l.HeadBytes()
			}
		}
	}
	return list
}

// address returns the address of a page in the layer's keys or values, which begin at base.
func (l *Layer) address(base ptx.Address, page uint32) driver.Address {
	return driver.Address(base + ptx.Address(int(page)*l.PageBytes()))
}

// eachHead calls do with each kv head's part of a page, on the device side and in host memory.
func (p layerPage) eachHead(page, host []byte, do func(page, host []byte)) {
	headBytes := p.layer.HeadBytes()
	for h := range p.layer.KVHeads {
		n := p.positions * headBytes
		do(page[h*attention.PageTokens*headBytes:][:n], host[p.host+h*n:][:n])
	}
}

// batches calls do with as many pages at a time as the staging buffer holds.
func (c *Cache) batches(list []layerPage, do func(list []layerPage) error) error {
	for len(list) > 0 {
		n := min(len(list), len(c.staging.Bytes())/c.layers.LargestPage())
		if err := do(list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// staged returns the bytes of page i of a batch in the staging buffer.
func (c *Cache) staged(i int) []byte {
	size := c.layers.LargestPage()
	return c.staging.Bytes()[i*size:][:size]
}

// save copies pages to host memory.
func (c *Cache) save(list []layerPage, host []byte) error {
	size := c.layers.LargestPage()
	return c.batches(list, func(list []layerPage) error {
		for i, p := range list {
			if err := c.stream.ReadAsync(c.staging, i*size, p.device, p.layer.PageBytes()); err != nil {
				return err
			}
		}
		if err := c.stream.Synchronize(); err != nil {
			return err
		}
		for i, p := range list {
			p.eachHead(c.staged(i), host, func(page, host []byte) { copy(host, page) })
		}
		return nil
	})
}

// load copies pages from host memory. Positions of a page that host memory does not hold
// become undefined.
func (c *Cache) load(list []layerPage, host []byte) error {
	size := c.layers.LargestPage()
	return c.batches(list, func(list []layerPage) error {
		for i, p := range list {
			p.eachHead(c.staged(i), host, func(page, host []byte) { copy(page, host) })
			if err := c.stream.WriteAsync(p.device, c.staging, i*size, p.layer.PageBytes()); err != nil {
				return err
			}
		}
		return c.stream.Synchronize()
	})
}

// copyPage queues copying a page within the device, in all layers.
func (c *Cache) copyPage(to, from uint32) error {
	for i := range c.layers {
		l := &c.layers[i]
		if l.Empty() {
			continue
		}
		for _, base := range []ptx.Address{l.K, l.V} {
			if err := c.stream.Copy(l.address(base, to), l.address(base, from), int64(l.PageBytes())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read returns the keys or values of one position in a layer, [kv heads, head dim] in the cache's
// format. base is Layer.K or Layer.V.
func (c *Cache) Read(layer int, base ptx.Address, t *Table, position int) ([]byte, error) {
	l := &c.layers[layer]
	headBytes := l.HeadBytes()
	data := make([]byte, l.KVHeads*headBytes)
	page := l.address(base, t.Pages[position/attention.PageTokens])
	for h := range l.KVHeads {
		at := page + driver.Address((h*attention.PageTokens+position%attention.PageTokens)*headBytes)
		if err := c.stream.Read(data[h*headBytes:][:headBytes], at); err != nil {
			return nil, err
		}
	}
	return data, nil
}
