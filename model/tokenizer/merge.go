package tokenizer

// symbol is a part of a word during merging: a node of a doubly linked list in a slice,
// so that a merge takes constant time.
type symbol struct {
	id         int32 // token, or -1
	prev, next int32 // indices of the neighbors, or -1
	from, to   int32 // byte range in the word; empty after merging into the left neighbor
}

// merger merges neighboring symbols, the lowest rank first, until no pair can be merged.
// It reuses its buffers for each word.
//
// n symbols make at most n-1 merges and 3n candidates. Each candidate is pushed and
// popped once, so a word takes O(n log n) time.
type merger struct {
	symbols    []symbol
	candidates candidates

	// pair returns the token that two neighbors become.
	pair func(left, right symbol) (result int32, rank float64, ok bool)

	merges, pushes int // counts since creation, for tests
}

// reset starts a new word.
func (m *merger) reset() {
	m.symbols = m.symbols[:0]
	m.candidates = m.candidates[:0]
}

// add appends a symbol that covers the next n bytes of the word.
func (m *merger) add(id int32, n int) {
	i := int32(len(m.symbols))
	s := symbol{id: id, prev: i - 1, next: -1}
	if i > 0 {
		m.symbols[i-1].next = i
		s.from = m.symbols[i-1].to
	}
	s.to = s.from + int32(n)
	m.symbols = append(m.symbols, s)
}

// run merges until no pair can be merged.
func (m *merger) run() {
	for i := range len(m.symbols) - 1 {
		m.propose(int32(i))
	}
	for len(m.candidates) > 0 {
		c := m.candidates.pop()
		left := &m.symbols[c.left]
		if left.from == left.to || left.next < 0 || m.symbols[left.next].to-left.from != c.size {
			continue // stale: one of the two has been merged
		}
		right := &m.symbols[left.next]
		left.id, left.to, left.next = c.result, right.to, right.next
		right.from = right.to
		if left.next >= 0 {
			m.symbols[left.next].prev = c.left
		}
		m.merges++
		if left.prev >= 0 {
			m.propose(left.prev)
		}
		m.propose(c.left)
	}
}

// propose pushes symbol i with its right neighbor if they can be merged.
func (m *merger) propose(i int32) {
	left := m.symbols[i]
	if left.next < 0 {
		return
	}
	right := m.symbols[left.next]
	if result, rank, ok := m.pair(left, right); ok {
		m.pushes++
		m.candidates.push(candidate{left: i, size: right.to - left.from, result: result, rank: rank})
	}
}

// wordCache caches the ids of short words during one call of Encode.
type wordCache map[string][]int

const maxCachedWords, maxCachedBytes = 1 << 14, 32

// encode appends the ids of word to the result. It calls the function encode only if the
// cache lacks the word.
func (c wordCache) encode(dst []int, word string, encode func(dst []int, word string) []int) []int {
	if ids, ok := c[word]; ok {
		return append(dst, ids...)
	}
	from := len(dst)
	dst = encode(dst, word)
	if len(word) <= maxCachedBytes && len(c) < maxCachedWords {
		c[word] = append([]int(nil), dst[from:]...)
	}
	return dst
}
