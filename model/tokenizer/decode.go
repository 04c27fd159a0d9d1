package tokenizer

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Decode turns ids into text. Control tokens and ids outside the vocabulary
// give nothing. Bytes that are not UTF-8 become U+FFFD, one for each maximal
// part of a character (the Unicode standard's recommended practice, section
// 3.9). The space that Encode put before the text is taken away again.
func (t *Tokenizer) Decode(ids []int) string {
	var text strings.Builder
	d := t.NewDecoder()
	for _, id := range ids {
		text.WriteString(d.Next(id))
	}
	text.WriteString(d.Flush())
	return text.String()
}

// A Decoder decodes one token at a time. What it gives is always whole UTF-8:
// the bytes of a character that is not complete wait for the next token.
// It is used by one goroutine at a time.
type Decoder struct {
	tokenizer *Tokenizer
	pending   []byte // the beginning of a character
	start     bool   // the next text begins the whole, where a space was added
}

// NewDecoder makes a decoder of the ids that follow context. Without context
// the ids begin a text, and the concatenation of all that the decoder gives is
// Decode's result. After context, such as the prompt of a generation, the space
// before the first word is kept.
func (t *Tokenizer) NewDecoder(context ...int) *Decoder {
	d := &Decoder{tokenizer: t, start: t.spm != nil && t.spm.prefix}
	for _, id := range context {
		d.Next(id)
	}
	return d
}

// Next gives the text that token id completes, "" when it completes none.
// Bytes that can no longer become a character become U+FFFD at once.
func (d *Decoder) Next(id int) string {
	piece := d.tokenizer.pieces.of(id)
	if d.start && len(piece) > 0 {
		piece = bytes.TrimPrefix(piece, []byte(" "))
		d.start = false
	}
	d.pending = append(d.pending, piece...)
	return d.take(false)
}

// Flush gives what still waits, as U+FFFD, and leaves the decoder empty.
func (d *Decoder) Flush() string { return d.take(true) }

// take removes the whole characters from pending, and at the end all of it.
func (d *Decoder) take(end bool) string {
	var out []byte
	rest := d.pending
	for len(rest) > 0 && (end || utf8.FullRune(rest)) {
		n := character(rest)
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

// character gives the length of the character that b begins with, or of the
// longest beginning of b that could have become one.
func character(b []byte) int {
	if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n == 3 {
		return n
	}
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}
