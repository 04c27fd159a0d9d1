package tokenizer

import (
	"fmt"
	"strings"
)

// bpe encodes by byte-level byte-pair encoding (Radford et al., "Language
// Models are Unsupervised Multitask Learners", 2019): a text is cut into
// pieces, each byte of a piece becomes a token, and neighbouring tokens are
// joined by the merges, the best ranked pair first and the leftmost of equals.
type bpe struct {
	scanners []scanner
	bytes    [256]int32        // the token of each byte; UNK where there is none
	merges   map[uint64]joined // by left id <<32 | right id
	whole    map[string]int32  // pieces that are a token as they stand; nil: none
}

// joined is what a pair of tokens becomes, and the place of the merge in the file.
type joined struct{ result, rank int32 }

func newBPE(v *Vocab, ids map[string]int32, pieces []string) (*bpe, error) {
	name := v.Pre
	if alias, ok := preAliases[name]; ok {
		name = alias
	}
	scanners, ok := preTokenisers[name]
	if !ok {
		return nil, fmt.Errorf("%w %q; known are %s", ErrUnknownPre, v.Pre, knownPre())
	}
	b := &bpe{scanners: scanners}
	if err := b.addBytes(v, ids); err != nil {
		return nil, err
	}
	if err := b.addMerges(v, ids); err != nil {
		return nil, err
	}
	if wholeWords[name] {
		b.whole = make(map[string]int32, len(pieces))
		for id, piece := range pieces {
			if v.matchable(id) {
				b.whole[piece] = int32(id)
			}
		}
	}
	return b, nil
}

func (b *bpe) addBytes(v *Vocab, ids map[string]int32) error {
	for i, r := range byteRunes {
		id, ok := ids[string(r)]
		if !ok {
			if v.UNK < 0 {
				return fmt.Errorf("%w: 0x%02X (%q), and there is no unknown token", ErrMissingByte, i, r)
			}
			id = int32(v.UNK)
		}
		b.bytes[i] = id
	}
	return nil
}

// addMerges builds the table of merges. Of a merge that is listed twice the
// first counts.
func (b *bpe) addMerges(v *Vocab, ids map[string]int32) error {
	b.merges = make(map[uint64]joined, len(v.Merges))
	var text []byte
	for rank, merge := range v.Merges {
		left, right, ok := strings.Cut(merge, " ")
		if !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return fmt.Errorf("%w %d %q: not two parts", ErrMerge, rank, merge)
		}
		l, ok := ids[left]
		if !ok {
			return fmt.Errorf("%w %d %q: %q is not in the vocabulary", ErrMerge, rank, merge, left)
		}
		r, ok := ids[right]
		if !ok {
			return fmt.Errorf("%w %d %q: %q is not in the vocabulary", ErrMerge, rank, merge, right)
		}
		text = append(append(text[:0], left...), right...)
		result, ok := ids[string(text)]
		if !ok {
			return fmt.Errorf("%w %d %q: its result is not in the vocabulary", ErrMerge, rank, merge)
		}
		key := uint64(l)<<32 | uint64(r)
		if _, ok := b.merges[key]; !ok {
			b.merges[key] = joined{result: result, rank: int32(rank)}
		}
	}
	return nil
}

// pair looks a merge up.
func (b *bpe) pair(left, right symbol) (result int32, rank float64, ok bool) {
	j, ok := b.merges[uint64(left.id)<<32|uint64(right.id)]
	return j.result, float64(j.rank), ok
}

func (b *bpe) encode(dst []int, text string) []int {
	m := merger{pair: b.pair}
	seen := memo{}
	cut(b.scanners, text, func(piece string) {
		if id, ok := b.whole[piece]; ok {
			dst = append(dst, int(id))
			return
		}
		dst = seen.encode(dst, piece, func(dst []int, piece string) []int {
			return b.piece(&m, dst, piece)
		})
	})
	return dst
}

// piece encodes one piece.
func (b *bpe) piece(m *merger, dst []int, piece string) []int {
	m.reset()
	for i := range len(piece) {
		m.add(b.bytes[piece[i]], 1)
	}
	m.run()
	for _, s := range m.symbols {
		if s.from < s.to {
			dst = append(dst, int(s.id))
		}
	}
	return dst
}
