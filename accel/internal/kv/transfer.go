package kv

import (
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// layerPage is a page of one layer's keys or values, with its offset in host memory.
type layerPage struct {
	device    driver.Address
	positions int // that host memory holds
	host      int // offset in host memory, in bytes
}

// layerPages lists the layer pages for a copy of n positions between a table and host memory.
func (c *Cache) layerPages(pages []uint32, n int) []layerPage {
	var list []layerPage
	positionBytes := c.geometry.LayerPageBytes() / attention.PageTokens
	offset := 0
	for _, l := range c.layers {
		for _, base := range []ptx.Address{l.K, l.V} {
			for i := 0; i*attention.PageTokens < n; i++ {
				p := layerPage{c.address(base, pages[i]), min(n-i*attention.PageTokens, attention.PageTokens), offset}
				list = append(list, p)
				offset += p.positions * positionBytes
			}
		}
	}
	return list
}

// address returns the address of a page in a layer's keys or values.
func (c *Cache) address(base ptx.Address, page uint32) driver.Address {
	return driver.Address(base + ptx.Address(int(page)*c.geometry.LayerPageBytes()))
}

// eachHead calls do with each kv head's part of a page, on the device side and in host memory.
func (c *Cache) eachHead(p layerPage, page, host []byte, do func(page, host []byte)) {
	headBytes := c.geometry.HeadBytes()
	for h := range c.geometry.KVHeads {
		n := p.positions * headBytes
		do(page[h*attention.PageTokens*headBytes:][:n], host[p.host+h*n:][:n])
	}
}

// batches calls do with as many pages at a time as the staging buffer holds.
func (c *Cache) batches(list []layerPage, do func(list []layerPage) error) error {
	most := len(c.staging.Bytes()) / c.geometry.LayerPageBytes()
	for len(list) > 0 {
		n := min(len(list), most)
		if err := do(list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// staged returns the bytes of page i of a batch in the staging buffer.
func (c *Cache) staged(i int) []byte {
	size := c.geometry.LayerPageBytes()
	return c.staging.Bytes()[i*size:][:size]
}

// save copies pages to host memory.
func (c *Cache) save(list []layerPage, host []byte) error {
	size := c.geometry.LayerPageBytes()
	return c.batches(list, func(list []layerPage) error {
		for i, p := range list {
			if err := c.stream.ReadAsync(c.staging, i*size, p.device, size); err != nil {
				return err
			}
		}
		if err := c.stream.Synchronize(); err != nil {
			return err
		}
		for i, p := range list {
			c.eachHead(p, c.staged(i), host, func(page, host []byte) { copy(host, page) })
		}
		return nil
	})
}

// load copies pages from host memory. Positions of a page that host memory does not hold
// become undefined.
func (c *Cache) load(list []layerPage, host []byte) error {
	size := c.geometry.LayerPageBytes()
	return c.batches(list, func(list []layerPage) error {
		for i, p := range list {
			c.eachHead(p, c.staged(i), host, func(page, host []byte) { copy(page, host) })
			if err := c.stream.WriteAsync(p.device, c.staging, i*size, size); err != nil {
				return err
			}
		}
		return c.stream.Synchronize()
	})
}

// copyPage queues copying a page within the device, in all layers.
func (c *Cache) copyPage(to, from uint32) error {
	for _, l := range c.layers {
		for _, base := range []ptx.Address{l.K, l.V} {
			if err := c.stream.Copy(c.address(base, to), c.address(base, from), int64(c.geometry.LayerPageBytes())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read returns the keys or values of one position, [kv heads, head dim] in the cache's
// format. base is Layer.K or Layer.V.
func (c *Cache) Read(base ptx.Address, t *Table, position int) ([]byte, error) {
	headBytes := c.geometry.HeadBytes()
	data := make([]byte, c.geometry.KVHeads*headBytes)
	page := c.address(base, t.Pages[position/attention.PageTokens])
	for h := range c.geometry.KVHeads {
		at := page + driver.Address((h*attention.PageTokens+position%attention.PageTokens)*headBytes)
		if err := c.stream.Read(data[h*headBytes:][:headBytes], at); err != nil {
			return nil, err
		}
	}
	return data, nil
}
