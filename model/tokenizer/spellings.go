package tokenizer

import "strings"

// spellings holds the bytes that each token stands for, one after the other.
type spellings struct {
	text []byte
	ends []int // by token
}

func newSpellings(v *Vocab) spellings {
	size := 0
	for id, text := range v.Tokens {
		if v.spells(id) {
			size += len(text) // no piece is longer than its token
		}
	}
	p := spellings{make([]byte, 0, size), make([]int, len(v.Tokens))}
	for id, text := range v.Tokens {
		if v.spells(id) {
			p.text = appendPiece(p.text, v, id, text)
		}
		p.ends[id] = len(p.text)
	}
	return p
}

// spells reports whether a token stands for bytes at all.
func (v *Vocab) spells(id int) bool {
	switch v.kind(id) {
	case Control, Unknown, Unused:
		return false
	}
	return true
}

func appendPiece(dst []byte, v *Vocab, id int, text string) []byte {
	switch kind := v.kind(id); {
	case kind == UserDefined:
		return append(dst, text...)
	case v.Model == "gpt2":
		return appendByteLevel(dst, text)
	case kind == Byte:
		b, _ := parseByteToken(text) // newSPM refuses what is none
		return append(dst, b)
	}
	for {
		before, after, found := strings.Cut(text, spaceMark)
		dst = append(dst, before...)
		if !found {
			return dst
		}
		dst, text = append(dst, ' '), after
	}
}

// of is the piece of a token, none for an id outside the vocabulary. It must not
// be changed.
func (p *spellings) of(id int) []byte {
	if id < 0 || id >= len(p.ends) {
		return nil
	}
	from := 0
	if id > 0 {
		from = p.ends[id-1]
	}
	return p.text[from:p.ends[id]:p.ends[id]]
}
