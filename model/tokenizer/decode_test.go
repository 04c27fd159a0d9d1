package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDecoder decodes one token per byte.
func TestDecoder(t *testing.T) {
	tok := mustNew(t, byteVocab())
	for _, c := range []struct {
		name, reason, bytes string
		want                []string // from each Next, then from Flush
	}{
		{"ASCII", "each byte is a character", "ab", []string{"a", "b", ""}},
		{"two bytes", "the first waits for the second", "\u00e9", []string{"", "\u00e9", ""}},
		{"four bytes", "three wait for the fourth", "\U0001f999", []string{"", "", "", "\U0001f999", ""}},
		{"joined emoji", "each of its characters comes when it is complete", "\u200d\ufe0f", []string{"", "", "\u200d", "", "", "\ufe0f", ""}},
		{"cut off", "Flush gives what is left, as one replacement", "a\xf0\x9f\xa6", []string{"a", "", "", "", "\ufffd"}},
		{"broken off", "the next byte shows that the first is lost", "\xc3a", []string{"", "\ufffda", ""}},
		{"broken off late", "a maximal part is one replacement", "\xf0\x9f\xa6a", []string{"", "", "", "\ufffda", ""}},
		{"broken off by another character", "which then waits itself", "\xe6\x88\xc3\xa9", []string{"", "", "\ufffd", "\u00e9", ""}},
		{"never a character", "replaced at once", "\xff\xc0\x80", []string{"\ufffd", "\ufffd", "\ufffd", ""}},
		{"surrogate", "its second byte makes it impossible", "\xed\xa0\x80", []string{"", "\ufffd\ufffd", "\ufffd", ""}},
		{"beyond Unicode", "its second byte makes it impossible", "\xf4\x90", []string{"", "\ufffd\ufffd", ""}},
		{"a replacement character", "is a character like any other", "\ufffd", []string{"", "", "\ufffd", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := tok.NewDecoder()
			var got []string
			for _, b := range []byte(c.bytes) {
				got = append(got, d.Next(int(b)))
			}
			got = append(got, d.Flush())
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", c.reason, got, c.want)
			}
			if d.Flush() != "" {
				t.Error("Flush leaves something")
			}
		})
	}
}

// Added tokens of gemma4 are runs of U+2581 and line ends.
func TestDecodeUserDefined(t *testing.T) {
	v := characterVocab("a\n" + spaceMark)
	id := v.add(spaceMark+spaceMark, typeUserDefined)
	if got := mustNew(t, v).Decode([]int{id}); got != "  " {
		t.Errorf("a user-defined token of two spaces becomes %q", got)
	}
}

func TestDecodeSpaces(t *testing.T) {
	v := scoreVocab(spaceMark+"a", spaceMark+"b", spaceMark, "a")
	v.add("<code>", typeUserDefined)
	v.Scores = append(v.Scores, 0)
	tok := mustNew(t, v)
	id := func(text string) int { return slices.Index(v.Tokens, text) }
	a, b := id(spaceMark+"a"), id(spaceMark+"b")
	for _, c := range []struct {
		name, reason string
		context, ids []int
		want         string
	}{
		{"a whole text", "the space that Encode added goes", nil, []int{a, b}, "a b"},
		{"after BOS", "BOS is no text: the space after it goes", nil, []int{v.BOS, a}, "a"},
		{"a real space", "only one goes", nil, []int{id(spaceMark), a}, " a"},
		{"no space", "there is none to take", nil, []int{id("a"), a}, "a a"},
		{"a continuation", "the space belongs to the text", []int{v.BOS, a}, []int{b, a}, " b a"},
		{"a byte of a space", "a byte token is text like any other", nil, []int{id("<0x20>"), a}, " a"},
		{"a user-defined token", "text", nil, []int{id("<code>"), a}, "<code> a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := tok.NewDecoder(c.context...)
			var got strings.Builder
			for _, id := range c.ids {
				got.WriteString(d.Next(id))
			}
			got.WriteString(d.Flush())
			if got.String() != c.want {
				t.Errorf("%s: %q, want %q", c.reason, got.String(), c.want)
			}
			if c.context == nil && tok.Decode(c.ids) != c.want {
				t.Errorf("Decode gives %q, want %q", tok.Decode(c.ids), c.want)
			}
		})
	}
}

// checkDecoder compares Decoder with Decode.
func checkDecoder(t *testing.T, tok *Tokenizer, ids []int) {
	t.Helper()
	d := tok.NewDecoder()
	var all strings.Builder
	var raw []byte
	for _, id := range ids {
		piece := d.Next(id)
		if !utf8.ValidString(piece) {
			t.Fatalf("Next gives %q", piece)
		}
		all.WriteString(piece)
		raw = append(raw, tok.Bytes(id)...)
	}
	tail := d.Flush()
	all.WriteString(tail)
	if tail != "" && tail != "\ufffd" {
		t.Fatalf("Flush gives %q: more than the beginning of a character has waited", tail)
	}
	if got := tok.Decode(ids); got != all.String() {
		t.Fatalf("Decode gives %q, a Decoder %q", got, all.String())
	}
	if tok.bpe != nil && utf8.Valid(raw) && all.String() != string(raw) {
		t.Fatalf("the bytes are %q, the text %q", raw, all.String())
	}
}

func FuzzDecoder(f *testing.F) {
	vocabularies := []struct {
		tok  *Tokenizer
		zero int // the token of byte 0
	}{
		{mustNew(f, byteVocab("a b", "\u00c3 \u00a9")), 0},
		{mustNew(f, scoreVocab(spaceMark+"a", "\u00e9", spaceMark)), 3},
	}
	f.Add([]byte("plain"))
	f.Add([]byte("\xf0\x9f\xa6\x99 \xe6\x88 \xff"))
	f.Add([]byte{0, 3, 3, 4, 200, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range vocabularies {
			var bytes, any []int
			for i, b := range data {
				bytes = append(bytes, v.zero+int(b))
				any = append(any, (int(b)+i/7*64)%(len(v.tok.vocab.Tokens)+2)-1)
			}
			bounded(t, len(data), func() { checkDecoder(t, v.tok, bytes) })
			bounded(t, len(data), func() { checkDecoder(t, v.tok, any) })
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	bpe := mustNew(f, byteVocab("a b", "ab c", "\u0120 a", "\u00c3 \u00a9", "1 2"))
	spm := mustNew(f, scoreVocab(spaceMark+"a", "ab", "a", "b", spaceMark, spaceMark+spaceMark, "\u00e9"))
	gemma := mustNew(f, characterVocab("ab\n\u00e9"+spaceMark, "a b", spaceMark+" a", spaceMark+" "+spaceMark))
	for _, text := range []string{"", "abc ab", "h\u00e9llo \U0001f999", "<s><code></s>", "  a  ", "12\n\n3 \t", "\u2581"} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, special bool) {
		var ids []int
		bounded(t, len(text), func() { ids = bpe.Encode(text, special) })
		want := text
		if !special && bpe.raw(ids) != text {
			t.Fatalf("the bytes of Encode(%q) are %q", text, bpe.raw(ids))
		}
		if special {
			want = strings.NewReplacer("<s>", "", "</s>", "").Replace(text)
		}
		if !utf8.ValidString(text) {
			checkDecoder(t, bpe, ids)
			return
		}
		if got := bpe.Decode(ids); got != want {
			t.Fatalf("Decode(Encode(%q)) = %q", text, got)
		}
		for _, tok := range []*Tokenizer{spm, gemma} {
			bounded(t, len(text), func() { ids = tok.Encode(text, false) })
			if got := tok.Decode(ids); got != strings.ReplaceAll(text, spaceMark, " ") {
				t.Fatalf("Decode(Encode(%q)) = %q", text, got)
			}
		}
	})
}
