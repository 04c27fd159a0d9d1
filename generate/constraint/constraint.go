// Package constraint restricts generated text to a JSON Schema, to any JSON object, or to
// a regular expression.
//
// A Constraint is compiled against the Vocabulary of a model. A Matcher follows one text:
// before each token it gives the mask of the tokens that keep the text extendable to a
// complete one. Inside, a constraint is a grammar whose leaves are deterministic automata
// over bytes, so tokens may begin and end anywhere, also within a character.
//
// What a schema may say, and the limits, are in docs/structured-output.md.
package constraint

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Constraint is a compiled schema or regular expression. It is safe for concurrent use.
type Constraint struct {
	vocab *Vocabulary
	base  *terms

	mu      sync.Mutex
	table   *table
	kept    int      // bytes of the masks of leaves
	scratch []uint32 // a mask, zero between uses
}

// JSON returns the constraint of JSON mode: the text is one JSON object.
func (v *Vocabulary) JSON() *Constraint {
	c, err := v.Schema([]byte(`{"type": "object"}`))
	if err != nil {
		panic(err) // the schema is ours
	}
	return c
}

// Schema returns the constraint that the text is one JSON value that satisfies a JSON
// Schema, as the field of Structure describes it.
func (v *Vocabulary) Schema(schema []byte) (*Constraint, error) {
	return v.Compile(context.Background(), Structure{Schema: schema})
}

// Regexp returns the constraint that expr matches the whole text, as the field of
// Structure describes it.
func (v *Vocabulary) Regexp(expr string) (*Constraint, error) {
	return v.Compile(context.Background(), Structure{Regexp: expr})
}

// Masks returns the masks of one text: the function takes the tokens so far, which only
// grow from call to call, and returns what Matcher.Mask does. The method value c.Masks can
// be generate.Params.Mask.
func (c *Constraint) Masks() func(generated []int) ([]uint32, error) {
	m, accepted := c.Begin(), 0
	return func(generated []int) ([]uint32, error) {
		for ; accepted < len(generated); accepted++ {
			if err := m.Accept(generated[accepted]); err != nil {
				return nil, err
			}
		}
		return m.Mask()
	}
}

// Matcher follows one text. One goroutine at a time may use it.
type Matcher struct {
	c     *Constraint
	table *table
	state stateID
	mask  []uint32
	fresh bool // mask is that of state
	ended bool // by an end token
}

// Begin returns a matcher of an empty text.
func (c *Constraint) Begin() *Matcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Matcher{c: c, table: c.table, state: c.table.start(c.table.grammar.start), mask: make([]uint32, len(c.vocab.ends))}
}

// Mask returns the tokens that may come next: bit id%32 of element id/32 is 1 for each.
// End tokens are among them if the text is complete. The matcher owns the mask, which is
// valid until the next call of a method.
//
// Mask returns an error if no token of the vocabulary spells what must come next, if the
// text has ended, or if a limit of memory is reached.
func (m *Matcher) Mask() ([]uint32, error) {
	if m.ended {
		return nil, errors.New("constraint: mask: the text has ended")
	}
	if m.fresh {
		return m.mask, nil
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.enter()
	clear(m.mask)
	if err := m.c.fill(m.table, m.state, m.mask); err != nil {
		return nil, fmt.Errorf("constraint: mask: %w", err)
	}
	if m.table.states[m.state].complete {
		for i, w := range m.c.vocab.ends {
			m.mask[i] |= w
		}
	} else if empty(m.mask) {
		return nil, errors.New("constraint: mask: no token of the vocabulary spells what must come next")
	}
	m.fresh = true
	return m.mask, nil
}

func empty(mask []uint32) bool {
	for _, w := range mask {
		if w != 0 {
			return false
		}
	}
	return true
}

// Accept appends a token to the text. If the token is not permitted, it returns an error
// and changes nothing.
func (m *Matcher) Accept(token int) error {
	v := m.c.vocab
	refused := func(why string) error { return fmt.Errorf("constraint: accept: token %d: %s", token, why) }
	switch {
	case token < 0 || token >= len(v.bytes):
		return refused("outside the vocabulary")
	case m.ended:
		return refused("the text has ended")
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.enter()
	if v.ends[token/32]>>(token%32)&1 != 0 {
		if !m.table.states[m.state].complete {
			return refused("the text is not complete")
		}
		m.ended, m.fresh = true, false
		return nil
	}
	s := m.state
	for _, b := range v.bytes[token] {
		if s = m.table.step(s, b); s == dead {
			break
		}
	}
	switch {
	case m.table.full:
		m.c.replace()
		return refused(errFull.Error())
	case s == dead || len(v.bytes[token]) == 0:
		return refused("not permitted here")
	}
	m.state, m.fresh = s, false
	return nil
}

// Done reports whether the text has ended: it is complete and nothing can follow it, or an
// end token was accepted.
func (m *Matcher) Done() bool {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	s := &m.table.states[m.state]
	return m.ended || s.complete && len(s.configs) == 0
}

// enter brings the matcher to the current table. If that is too large, enter replaces it first.
func (m *Matcher) enter() {
	if m.c.table.size() > softTable {
		m.c.replace()
	}
	if m.table != m.c.table {
		m.state = m.c.table.adopt(m.table, m.state)
		m.table = m.c.table
	}
}

// replace starts an empty table. Matchers move to it one by one.
func (c *Constraint) replace() {
	c.table = newTable(c.table.grammar, c.base, c.vocab)
}
