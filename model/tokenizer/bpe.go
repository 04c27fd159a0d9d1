package tokenizer

import (
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// bpe implements byte-pair encoding (Radford et al., "Language Models are Unsupervised
// Multitask Learners", 2019). The pre-tokenizer splits the text into words. Each byte of a
// word becomes a token, or each character if the tokens are UTF-8. Merges join neighboring
// tokens, the lowest rank first, and of equal ranks the leftmost.
type bpe struct {
	pre        preTokenizer
	bytes      [256]int32       // token of each byte, or UNK; not used if pre.raw
	characters *characters      // nil unless pre.raw
	merges     map[uint64]merge // key: left id <<32 | right id
	ids        *index
}

// merge is the token that a pair becomes, and the rank of the merge in the file.
type merge struct{ result, rank int32 }

func newBPE(v *Vocab, ids *index, pre preTokenizer) (b *bpe, err error) {
	b = &bpe{ids: ids, pre: pre}
	if pre.raw {
		b.characters, err = newCharacters(v, ids)
	} else {
		err = b.addBytes(v)
	}
	if err != nil {
		return nil, err
	}
	if err := b.addMerges(v); err != nil {
		return nil, err
	}
	// This check is last, because a caller may accept an unknown pre-tokenizer.
	if len(pre.splitters) == 0 {
		return nil, fmt.Errorf("%w: tokenizer.ggml.pre is %.80q", errUnknownPre, v.Pre)
	}
	return b, nil
}

func (b *bpe) addBytes(v *Vocab) error {
	for i, r := range byteRunes {
		id, ok := b.ids.get(string(r))
		if !ok {
			if v.UNK < 0 {
				return fmt.Errorf("%w: 0x%02X (%q), and there is no unknown token", errMissingByte, i, r)
			}
			id = int32(v.UNK)
		}
		b.bytes[i] = id
	}
	return nil
}

// addMerges builds the table of merges. The first of two equal merges counts.
func (b *bpe) addMerges(v *Vocab) error {
	b.merges = make(map[uint64]merge, len(v.Merges))
	var text []byte
	for rank, line := range v.Merges {
		left, right, ok := strings.Cut(line, " ")
		if !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return fmt.Errorf("%w %d %.80q: not two parts", errMerge, rank, line)
		}
		l, ok := b.ids.get(left)
		if !ok {
			return fmt.Errorf("%w %d %.80q: %.80q is not in the vocabulary", errMerge, rank, line, left)
		}
		r, ok := b.ids.get(right)
		if !ok {
			return fmt.Errorf("%w %d %.80q: %.80q is not in the vocabulary", errMerge, rank, line, right)
		}
		text = append(append(text[:0], left...), right...)
		result, ok := b.ids.get(string(text))
		if !ok {
			return fmt.Errorf("%w %d %.80q: its result is not in the vocabulary", errMerge, rank, line)
		}
		key := uint64(l)<<32 | uint64(r)
		if _, ok := b.merges[key]; !ok {
			b.merges[key] = merge{result: result, rank: int32(rank)}
		}
	}
	return nil
}

// pair looks up the merge of two neighbors.
func (b *bpe) pair(left, right symbol) (result int32, rank float64, ok bool) {
	p, ok := b.merges[uint64(left.id)<<32|uint64(right.id)]
	return p.result, float64(p.rank), ok
}

// encode appends the tokens of text. It stops after the word that makes more than limit ids.
func (b *bpe) encode(dst []int, text string, limit int) []int {
	if b.pre.nfc {
		text = norm.NFC.String(text)
	}
	if b.pre.raw {
		text = strings.ReplaceAll(text, " ", spaceMark)
	}
	m := merger{pair: b.pair}
	cache := wordCache{}
	var token []byte
	split(b.pre.splitters, text, func(word string) bool {
		dst = cache.encode(dst, word, func(dst []int, word string) []int {
			if b.pre.ignoreMerges {
				token = appendByteRunes(token[:0], word)
				if id, ok := b.ids.get(string(token)); ok {
					return append(dst, int(id))
				}
			}
			return b.encodeWord(&m, dst, word)
		})
		return len(dst) <= limit
	})
	return dst
}

func (b *bpe) encodeWord(m *merger, dst []int, word string) []int {
	if b.pre.raw {
		return b.characters.encode(m, dst, word)
	}
	m.reset()
	for i := range len(word) {
		m.add(b.bytes[word[i]], 1)
	}
	m.run()
	for _, s := range m.symbols {
		if s.from < s.to {
			dst = append(dst, int(s.id))
		}
	}
	return dst
}
