package tokenizer

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Decode converts ids to text. Control tokens and ids outside the vocabulary have no
// text. Each invalid UTF-8 sequence becomes U+FFFD, one per maximal subpart (Unicode
// standard, section 3.9). Decode removes the space that Encode added before the text.
func (t *Tokenizer) Decode(ids []int) string {
	var text strings.Builder
	d := t.NewDecoder()
	for _, id := range ids {
		text.WriteString(d.Next(id))
	}
	text.WriteString(d.Flush())
	return text.String()
}

// Decoder decodes one token at a time. It returns valid UTF-8 only: it keeps the bytes
// of an incomplete character until the next token. A Decoder is not safe for concurrent
// use.
type Decoder struct {
	tokenizer *Tokenizer
	pending   []byte // an incomplete character
	trimSpace bool   // the next text begins with the space that Encode added
}

// NewDecoder returns a decoder of the ids that follow context. Without context the
// concatenated results equal those of Decode. After context, such as a prompt, the
// decoder keeps the space before the first word.
func (t *Tokenizer) NewDecoder(context ...int) *Decoder {
	d := &Decoder{tokenizer: t, trimSpace: t.spm != nil && t.spm.prefix}
	for _, id := range context {
		d.Next(id)
	}
	return d
}

// Next returns the text that token id completes, or "". Bytes that no later byte can complete
// to a character become U+FFFD at once.
func (d *Decoder) Next(id int) string {
	b := d.tokenizer.bytes.of(id)
	if d.trimSpace && len(b) > 0 {
		b = bytes.TrimPrefix(b, []byte(" "))
		d.trimSpace = false
	}
	d.pending = append(d.pending, b...)
	return d.take(false)
}

// Flush returns the pending bytes as U+FFFD and resets the decoder.
func (d *Decoder) Flush() string { return d.take(true) }

// take removes all complete characters from pending; at the end of the text, all bytes.
func (d *Decoder) take(end bool) string {
	var out []byte
	rest := d.pending
	for len(rest) > 0 && (end || utf8.FullRune(rest)) {
		n := characterLen(rest)
		if r, _ := utf8.DecodeRune(rest[:n]); r == utf8.RuneError {
			out = utf8.AppendRune(out, utf8.RuneError)
		} else {
			out = append(out, rest[:n]...)
		}
		rest = rest[n:]
	}
	d.pending = append(d.pending[:0], rest...)
	return string(out)
}

// characterLen returns the length of the first character of b, or of the longest prefix
// of b that begins some character.
func characterLen(b []byte) int {
	if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n == 3 {
		return n
	}
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}

// tokenBytes holds the bytes of all tokens in one slice: token i ends at ends[i].
type tokenBytes struct {
	all  []byte
	ends []int
}

func newTokenBytes(v *Vocab, raw bool) tokenBytes {
	size := 0
	for id, text := range v.Tokens {
		if v.hasBytes(id) {
			size += len(text) // an upper bound
		}
	}
	p := tokenBytes{make([]byte, 0, size), make([]int, len(v.Tokens))}
	for id, text := range v.Tokens {
		if v.hasBytes(id) {
			p.all = appendTokenBytes(p.all, text, v.kind(id), raw)
		}
		p.ends[id] = len(p.all)
	}
	return p
}

func appendTokenBytes(dst []byte, text string, kind int32, raw bool) []byte {
	switch {
	case !raw && kind == typeUserDefined:
		return append(dst, text...)
	case !raw:
		return appendByteLevel(dst, text)
	case kind == typeByte:
		b, _ := parseByteToken(text) // newCharacters has checked it
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

// of returns a read-only view of the bytes of a token, or nil for an id outside the
// vocabulary.
func (p *tokenBytes) of(id int) []byte {
	if id < 0 || id >= len(p.ends) {
		return nil
	}
	from := 0
	if id > 0 {
		from = p.ends[id-1]
	}
	return p.all[from:p.ends[id]:p.ends[id]]
}
