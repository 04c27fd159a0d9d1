package emu

import (
	"sync"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Cache keeps the programs of texts that devices opened with it have loaded, so that none
// of them parses a text again. It only grows. A nil one keeps nothing.
type Cache struct{ texts sync.Map }

// compiled is what a text is parsed and decoded to. It is never changed.
type compiled struct {
	mod      *syntax.Module
	programs []*program
}

func (c *Cache) get(text []byte) (compiled, bool) {
	if c == nil {
		return compiled{}, false
	}
	found, ok := c.texts.Load(string(text))
	if !ok {
		return compiled{}, false
	}
	return found.(compiled), true
}

func (c *Cache) put(text []byte, p compiled) {
	if c != nil {
		c.texts.Store(string(text), p)
	}
}
