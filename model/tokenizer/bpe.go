package tokenizer

import (
	"fmt"
	"strings"
)

// bpe encodes by byte-level byte-pair encoding (Radford et al., "Language
// Models are Unsupervised Multitask Learners", 2019): a text is cut into
// pieces, each byte of a piece becomes a token, and neighboring tokens are
// joined by the merges, the best ranked pair first and the leftmost of equals.
type bpe struct {
	scanners []scanner
	bytes    [256]int32        // the token of each byte; UNK where there is none
	merges   map[uint64]joined // by left id <<32 | right id
	ids      *index
	whole    bool // a piece that is a token as it stands becomes it without merges
}

// joined is what a pair of tokens becomes, and the place of the merge in the file.
type joined struct{ result, rank int32 }

func newBPE(v *Vocab, ids *index) (*bpe, error) {
	b := &bpe{ids: ids}
	if err := b.addBytes(v); err != nil {
		return nil, err
	}
	if err := b.addMerges(v); err != nil {
		return nil, err
	}
	// Last: a caller may put up with a pre-tokenizer that is merely unknown.
	name := v.Pre
	if alias, ok := preAliases[name]; ok {
		name = alias
	}
	scanners, ok := preTokenizers[name]
	if !ok {
		return nil, fmt.Errorf("%w %.80q; known are %s", ErrUnknownPre, v.Pre, knownPre())
	}
	b.scanners, b.whole = scanners, wholeWords[name]
	return b, nil
}

func (b *bpe) addBytes(v *Vocab) error {
	for i, r := range byteRunes {
		id, ok := b.ids.get(string(r))
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
func (b *bpe) addMerges(v *Vocab) error {
	b.merges = make(map[uint64]joined, len(v.Merges))
	var text []byte
	for rank, merge := range v.Merges {
		left, right, ok := strings.Cut(merge, " ")
		if !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return fmt.Errorf("%w %d %.80q: not two parts", ErrMerge, rank, merge)
		}
		l, ok := b.ids.get(left)
		if !ok {
			return fmt.Errorf("%w %d %.80q: %.80q is not in the vocabulary", ErrMerge, rank, merge, left)
		}
		r, ok := b.ids.get(right)
		if !ok {
			return fmt.Errorf("%w %d %.80q: %.80q is not in the vocabulary", ErrMerge, rank, merge, right)
		}
		text = append(append(text[:0], left...), right...)
		result, ok := b.ids.get(string(text))
		if !ok {
			return fmt.Errorf("%w %d %.80q: its result is not in the vocabulary", ErrMerge, rank, merge)
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
	var spelled []byte
	cut(b.scanners, text, func(piece string) {
		dst = seen.encode(dst, piece, func(dst []int, piece string) []int {
			if b.whole {
				spelled = appendByteRunes(spelled[:0], piece)
				if id, ok := b.ids.get(string(spelled)); ok {
					return append(dst, int(id))
				}
			}
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
