package constraint

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// automaton is a deterministic automaton over bytes. State 0 is the start. An accepting
// state is reachable from every state, so a text that has not failed can be completed.
type automaton struct {
	class   [256]uint8
	classes int
	next    []int32 // [state][class]; -1: no text goes on so
	accept  []bool  // [state]
	live    []bool  // [state]: some byte may follow
	masks   leafMasks
	shared  bool // by constraints of a vocabulary, which do not count its memory
}

func (a *automaton) states() int { return len(a.accept) }

// step returns the state after a byte, or -1.
func (a *automaton) step(state int32, b byte) int32 {
	return a.next[int(state)*a.classes+int(a.class[b])]
}

// The limits of what one automaton may cost.
const (
	maxStates = 20_000    // of one automaton
	maxTable  = 4_000_000 // elements of its table
)

// budget is the steps that a compilation may still take. It ends with its context.
type budget struct {
	ctx  context.Context
	left int
}

// maxWork is the budget of one structure: about a second.
const maxWork = 50_000_000

// spend takes n steps.
func (b *budget) spend(n int) error {
	if b.left -= n; b.left < 0 {
		return limitError{"steps to compile it", maxWork}
	}
	return b.ctx.Err()
}

// limitError means that a schema, an expression or a structure exceeds a limit of the compiler.
type limitError struct {
	what string
	most int
}

func (e limitError) Error() string { return fmt.Sprintf("more than %d %s", e.most, e.what) }

// classesOf sets the classes of bytes. Each class is a range of bytes; starts[b] says that one begins
// at b.
func (a *automaton) classesOf(starts *[257]bool) {
	c := -1
	for b := range 256 {
		if b == 0 || starts[b] {
			c++
		}
		a.class[b] = uint8(c)
	}
	a.classes = c + 1
}

// grow adds a state and returns it.
func (a *automaton) grow(accept bool) (int32, error) {
	if a.states() >= maxStates {
		return 0, limitError{"states", maxStates}
	}
	if len(a.next)+a.classes > maxTable {
		return 0, limitError{"elements of its table", maxTable}
	}
	for range a.classes {
		a.next = append(a.next, -1)
	}
	a.accept = append(a.accept, accept)
	return int32(a.states() - 1), nil
}

// trim removes the states from which no accepting state is reachable. It returns nil if
// the automaton accepts nothing.
func (a *automaton) trim() *automaton {
	n := a.states()
	before := make([][]int32, n)
	for s := range n {
		for _, to := range a.next[s*a.classes:][:a.classes] {
			if to >= 0 {
				if l := before[to]; len(l) == 0 || l[len(l)-1] != int32(s) {
					before[to] = append(l, int32(s))
				}
			}
		}
	}
	useful := slices.Clone(a.accept)
	var queue []int32
	for s, ok := range useful {
		if ok {
			queue = append(queue, int32(s))
		}
	}
	for len(queue) > 0 {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, p := range before[s] {
			if !useful[p] {
				useful[p] = true
				queue = append(queue, p)
			}
		}
	}
	if n == 0 || !useful[0] {
		return nil
	}
	names, kept := make([]int32, n), int32(0)
	for s := range n {
		if useful[s] {
			names[s] = kept
			kept++
		} else {
			names[s] = -1
		}
	}
	t := &automaton{class: a.class, classes: a.classes}
	for s := range n {
		if !useful[s] {
			continue
		}
		live := false
		for _, to := range a.next[s*a.classes:][:a.classes] {
			if to >= 0 {
				to = names[to]
			}
			live = live || to >= 0
			t.next = append(t.next, to)
		}
		t.accept = append(t.accept, a.accept[s])
		t.live = append(t.live, live)
	}
	t.masks = make(leafMasks, t.states())
	return t
}

// product returns the automaton of the texts for which keep is true, given whether a and b accept
// them; nil if there are none. keep must be false if a does not accept.
func product(a, b *automaton, work *budget, keep func(a, b bool) bool) (*automaton, error) {
	p := &automaton{}
	var starts [257]bool
	for c := 1; c < 256; c++ {
		starts[c] = a.class[c] != a.class[c-1] || b.class[c] != b.class[c-1]
	}
	p.classesOf(&starts)
	type pair struct{ a, b int32 }
	names := map[pair]int32{}
	var pairs []pair
	add := func(s pair) (int32, error) {
		if n, ok := names[s]; ok {
			return n, nil
		}
		n, err := p.grow(keep(a.accept[s.a], s.b >= 0 && b.accept[s.b]))
		if err != nil {
			return 0, err
		}
		names[s] = n
		pairs = append(pairs, s)
		return n, nil
	}
	if _, err := add(pair{}); err != nil {
		return nil, err
	}
	for n := 0; n < len(pairs); n++ {
		s := pairs[n]
		if err := work.spend(256); err != nil {
			return nil, err
		}
		for c := range 256 {
			if c > 0 && !starts[c] {
				continue
			}
			to := pair{a.step(s.a, byte(c)), -1}
			if to.a < 0 {
				continue
			}
			if s.b >= 0 {
				to.b = b.step(s.b, byte(c))
			}
			if to.b < 0 && !keep(true, false) {
				continue
			}
			t, err := add(to)
			if err != nil {
				return nil, err
			}
			p.next[n*p.classes+int(p.class[c])] = t
		}
	}
	return p.trim(), nil
}

// intersect returns the automaton of the texts that both accept; nil if there are none.
func intersect(a, b *automaton, work *budget) (*automaton, error) {
	return product(a, b, work, func(a, b bool) bool { return a && b })
}

// minus returns the automaton of the texts that a accepts and b does not; nil if there are none.
func minus(a, b *automaton, work *budget) (*automaton, error) {
	return product(a, b, work, func(a, b bool) bool { return a && !b })
}

// literals returns the automaton of the given texts, at least one.
func literals(texts []string) (*automaton, error) {
	a := &automaton{}
	var starts [257]bool
	for _, t := range texts {
		for i := range len(t) {
			starts[t[i]], starts[int(t[i])+1] = true, true
		}
	}
	a.classesOf(&starts)
	if _, err := a.grow(false); err != nil {
		return nil, err
	}
	for _, t := range texts {
		s := int32(0)
		for i := range len(t) {
			at := int(s)*a.classes + int(a.class[t[i]])
			if a.next[at] < 0 {
				n, err := a.grow(false)
				if err != nil {
					return nil, err
				}
				a.next[at] = n
			}
			s = a.next[at]
		}
		a.accept[s] = true
	}
	return a.trim(), nil
}

// setKey returns a map key for a sorted set and whether it accepts.
func setKey(set []int32, accept bool) string {
	b := make([]byte, 0, 4*len(set)+1)
	for _, s := range set {
		b = binary.LittleEndian.AppendUint32(b, uint32(s))
	}
	if accept {
		b = append(b, 1)
	}
	return string(b)
}
