package tokenizer

// A symbol is a stretch of a word under merging: a node of a doubly linked
// list kept in a slice, so that a neighbor is found and a merge done in
// constant time.
type symbol struct {
	id         int32 // token, -1: none
	prev, next int32 // neighbors, -1: none
	from, to   int32 // the bytes it covers; empty once it is merged into its left neighbor
}

// A candidate is a pair of neighbors that could be merged.
type candidate struct {
	left   int32   // index of the left symbol
	size   int32   // bytes that the pair covers: a smaller pair is outdated
	result int32   // token that the pair becomes
	rank   float64 // the lower the earlier
}

// before orders candidates: by rank, then from left to right.
func (c candidate) before(d candidate) bool {
	if c.rank != d.rank {
		return c.rank < d.rank
	}
	return c.left < d.left
}

// merger joins neighboring symbols, the best pair first, until no pair can be
// joined. Its buffers are reused from word to word.
//
// n symbols make at most n-1 merges and 3n candidates, each pushed and popped
// once, so a word costs O(n log n) whatever it is.
type merger struct {
	symbols []symbol
	heap    []candidate

	// pair looks up what two neighboring symbols become.
	pair func(left, right symbol) (result int32, rank float64, ok bool)

	merges, pushes int // done since the merger was made
}

// reset empties the merger for a new word.
func (m *merger) reset() {
	m.symbols = m.symbols[:0]
	m.heap = m.heap[:0]
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

// run merges until nothing is left to merge.
func (m *merger) run() {
	for i := range len(m.symbols) - 1 {
		m.propose(int32(i))
	}
	for len(m.heap) > 0 {
		c := m.pop()
		left := &m.symbols[c.left]
		if left.from == left.to || left.next < 0 || m.symbols[left.next].to-left.from != c.size {
			continue // one of the two has been merged since
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

// propose pushes symbol i and its right neighbor if they can be merged.
func (m *merger) propose(i int32) {
	left := m.symbols[i]
	if left.next < 0 {
		return
	}
	right := m.symbols[left.next]
	if result, rank, ok := m.pair(left, right); ok {
		m.push(candidate{left: i, size: right.to - left.from, result: result, rank: rank})
	}
}

// push and pop keep heap a binary heap, written out because container/heap
// boxes every element.
func (m *merger) push(c candidate) {
	m.pushes++
	m.heap = append(m.heap, c)
	i := len(m.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(m.heap[parent]) {
			break
		}
		m.heap[i] = m.heap[parent]
		i = parent
	}
	m.heap[i] = c
}

func (m *merger) pop() candidate {
	top := m.heap[0]
	n := len(m.heap) - 1
	last := m.heap[n]
	m.heap = m.heap[:n]
	if n == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && m.heap[child+1].before(m.heap[child]) {
			child++
		}
		if !m.heap[child].before(last) {
			break
		}
		m.heap[i] = m.heap[child]
		i = child
	}
	m.heap[i] = last
	return top
}

// A memo remembers what short pieces became: natural text repeats its words.
// Each call of Encode has its own.
type memo map[string][]int

// The most pieces that a memo remembers, and the most bytes of one.
const memoPieces, memoBytes = 1 << 14, 32

// encode appends the ids of piece, which encode finds out the first time.
func (m memo) encode(dst []int, piece string, encode func(dst []int, piece string) []int) []int {
	if ids, ok := m[piece]; ok {
		return append(dst, ids...)
	}
	from := len(dst)
	dst = encode(dst, piece)
	if len(piece) <= memoBytes && len(m) < memoPieces {
		m[piece] = append([]int(nil), dst[from:]...)
	}
	return dst
}
