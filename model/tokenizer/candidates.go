package tokenizer

// candidate is a pair of neighbors that can be merged, or a place where a special token
// can be matched.
type candidate struct {
	left   int32   // index of the left symbol, or of the first byte
	size   int32   // bytes; if the symbols of a pair have other sizes now, the candidate is stale
	result int32   // token that the pair becomes, or which special token (see matcher.propose)
	rank   float64 // lower ranks come first
}

// before orders candidates by rank, then from left to right.
func (c candidate) before(d candidate) bool {
	if c.rank != d.rank {
		return c.rank < d.rank
	}
	return c.left < d.left
}

// candidates is a binary heap. container/heap would allocate each element.
type candidates []candidate

func (h *candidates) push(c candidate) {
	heap := append(*h, c)
	i := len(heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(heap[parent]) {
			break
		}
		heap[i] = heap[parent]
		i = parent
	}
	heap[i] = c
	*h = heap
}

// pop removes and returns the first candidate. There must be one.
func (h *candidates) pop() candidate {
	heap := *h
	top := heap[0]
	n := len(heap) - 1
	last := heap[n]
	heap = heap[:n]
	*h = heap
	if n == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && heap[child+1].before(heap[child]) {
			child++
		}
		if !heap[child].before(last) {
			break
		}
		heap[i] = heap[child]
		i = child
	}
	heap[i] = last
	return top
}
