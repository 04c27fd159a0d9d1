package jinja

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// Span is a part of a text: the bytes [From, To).
type Span struct{ From, To int }

// spanBytes is the cost in bytes of a span.
const spanBytes = 16

// text is a string value of which some bytes come from the template: those of own, which
// are sorted and neither empty nor adjacent. All other bytes are data, that is, they come
// from the variables of Render or are computed, such as digits and quotes.
//
// The same characters are equal whatever their origin. In a value, a string that is data
// alone is a Go string, and any other is a text.
type text struct {
	s   string
	own []Span
}

// Own returns a value for Render: a string that counts as part of the template.
func Own(s string) any {
	if s == "" {
		return s
	}
	return text{s, []Span{{0, len(s)}}}
}

// textOf returns the text of a string value.
func textOf(v any) (t text, ok bool) {
	switch v := v.(type) {
	case string:
		return text{s: v}, true
	case text:
		return v, true
	}
	return text{}, false
}

// value returns t as a value.
func (t text) value() any {
	if len(t.own) == 0 {
		return t.s
	}
	return t
}

// spans returns the spans of t that begin before to and end after from.
func (t text) spans(from, to int) []Span {
	i := sort.Search(len(t.own), func(i int) bool { return t.own[i].To > from })
	j := sort.Search(len(t.own), func(j int) bool { return t.own[j].From >= to })
	return t.own[min(i, j):j]
}

// cut returns the bytes [from, to) of t.
func (in *interp) cut(t text, from, to int) text {
	out := text{s: t.s[from:to]}
	if spans := t.spans(from, to); len(spans) > 0 {
		in.pay(spanBytes * len(spans))
		out.own = slices.Clone(spans)
		for i := range out.own {
			s := &out.own[i]
			s.From, s.To = max(s.From, from)-from, min(s.To, to)-from
		}
	}
	return out
}

// origin returns a function that reports whether all bytes [from, to) come from the
// template. Its calls must be in the order of the text.
func (t text) origin() func(from, to int) bool {
	own := t.own
	return func(from, to int) bool {
		for len(own) > 0 && own[0].To <= from {
			own = own[1:]
		}
		return len(own) > 0 && own[0].From <= from && to <= own[0].To
	}
}

// builder concatenates texts.
type builder struct {
	in  *interp
	b   strings.Builder
	own []Span
}

func (b *builder) text() text { return text{b.b.String(), b.own} }

// grow takes n bytes from the budget and makes room for them. Room is doubled; appending
// would enlarge a long text by a quarter, and allocate five times its length.
func (b *builder) grow(n int) {
	b.in.pay(n)
	b.b.Grow(n)
}

// put appends data and takes its bytes from the budget.
func (b *builder) put(s string) {
	b.grow(len(s))
	b.b.WriteString(s)
}

// add appends bytes of t, for which there must be room.
func (b *builder) add(t text, from, to int) {
	at := b.b.Len()
	b.b.WriteString(t.s[from:to])
	for _, s := range t.spans(from, to) {
		b.mark(at+max(s.From, from)-from, at+min(s.To, to)-from)
	}
}

// mark notes that the bytes [from, to) come from the template. No span is after them.
func (b *builder) mark(from, to int) {
	if from == to {
		return
	}
	if n := len(b.own); n > 0 && b.own[n-1].To == from {
		b.own[n-1].To = to
		return
	}
	if n := max(1, len(b.own)); len(b.own) == cap(b.own) {
		b.in.pay(2 * n * spanBytes)
		b.own = slices.Grow(b.own, n)
	}
	b.own = append(b.own, Span{from, to})
}

// each calls write for each character of t. What it writes comes from the template if the
// character does. There must be room for it.
func (b *builder) each(t text, write func(r rune)) {
	own := t.origin()
	for i, r := range t.s {
		from := b.b.Len()
		write(r)
		if len(t.own) > 0 {
			_, n := utf8.DecodeRuneInString(t.s[i:])
			if own(i, i+n) {
				b.mark(from, b.b.Len())
			}
		}
	}
}

// mapped is strings.Map: it replaces each character by one.
func (in *interp) mapped(t text, f func(r rune) rune) text {
	in.pay(3 * len(t.s))
	if len(t.own) == 0 {
		return text{s: strings.Map(f, t.s)}
	}
	b := builder{in: in}
	b.b.Grow(len(t.s))
	b.each(t, func(r rune) { b.b.WriteRune(f(r)) })
	return b.text()
}
