package tokenizer

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/model/tokenizer/internal/jinja"
)

// slowSplit is the definition of splitting: the longest token first, of equal lengths the
// lowest id, and each token from left to right wherever its bytes are free. User-defined
// tokens match everywhere, others inside of one part of x.special.
func slowSplit(v *Vocab, x Text) (out []fragment) {
	text := x.s
	special := func(from, to int) bool {
		return slices.ContainsFunc(x.special, func(s jinja.Span) bool { return s.From <= from && to <= s.To })
	}
	ids := map[string]int{} // the lowest id of each text
	for id := len(v.Tokens) - 1; id >= 0; id-- {
		if v.special(id) {
			ids[v.Tokens[id]] = id
		}
	}
	rstrip := phi3Strips(v)
	at := make([]int, len(text)) // 1 + id of the token that begins here, or -1 inside of one
	for _, id := range slices.SortedFunc(maps.Values(ids), func(a, b int) int {
		return cmp.Or(cmp.Compare(len(v.Tokens[b]), len(v.Tokens[a])), cmp.Compare(a, b))
	}) {
		token := v.Tokens[id]
		taken := func(state int) bool { return state != 0 }
		for i := range len(text) {
			if v.kind(id) != typeUserDefined && !special(i, i+len(token)) || !strings.HasPrefix(text[i:], token) || slices.ContainsFunc(at[i:i+len(token)], taken) {
				continue
			}
			end := i + len(token)
			for rstrip(token) && end < len(text) && at[end] == 0 && strings.ContainsRune(" \t\n\v\f\r", rune(text[end])) {
				end++
			}
			for j := i; j < end; j++ {
				at[j] = -1
			}
			at[i] = 1 + id
		}
	}
	free := 0 // text after the last token
	for i := range len(text) + 1 {
		if i < len(text) && at[i] == 0 {
			continue
		}
		if i > free {
			out = append(out, fragment{token: -1, text: text[free:i]})
		}
		if i < len(text) && at[i] > 0 {
			out = append(out, fragment{token: at[i] - 1})
		}
		free = i + 1
	}
	return out
}

// checkSplit compares the fragments of text with those of slowSplit.
func checkSplit(t *testing.T, v *Vocab, s *specials, x Text) []fragment {
	t.Helper()
	want, got := slowSplit(v, x), slices.Collect(s.split(x))
	if !slices.Equal(want, got) {
		t.Fatalf("%q of types %v in %q, special %v: %v, want %v", v.Tokens, v.Types, x.s, x.special, got, want)
	}
	return got
}

// TestSplitMatchesDefinition splits random texts of two letters and white space at random
// tokens of the same letters. Many tokens are prefixes or suffixes of others.
func TestSplitMatchesDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	word := func(letters string, most int) string {
		b := make([]byte, 1+rng.IntN(most))
		for i := range b {
			b[i] = letters[rng.IntN(len(letters))]
		}
		return string(b)
	}
	total := 0
	for range 3000 {
		v := Vocab{Model: "llama"}
		letters := []string{"a", "ab", "ab ", "aab \n"}[rng.IntN(4)]
		if rng.IntN(2) == 0 { // white space after a token
			for _, token := range []string{"<|assistant|>", "<|end|>", "<|placeholder1|>"} {
				v.add(token, typeControl)
			}
		}
		for range rng.IntN(16) {
			kinds := []int32{typeNormal, typeControl, typeUserDefined, typeUnknown, typeUnused}
			v.add(word(letters, 1+rng.IntN(12)), kinds[rng.IntN(len(kinds))])
		}
		s, err := newSpecials(&v)
		if err != nil {
			t.Fatal(err)
		}
		text := word(letters, 40)
		for _, mask := range []uint64{0, ^uint64(0), rng.Uint64(), rng.Uint64() | rng.Uint64(), rng.Uint64() | rng.Uint64() | rng.Uint64()} {
			total += len(checkSplit(t, &v, s, masked(text, mask)))
		}
	}
	if total < 10000 {
		t.Errorf("only %d fragments", total)
	}
}

// masked returns a text of which byte i may be special if bit i%64 of mask is set.
func masked(s string, mask uint64) Text {
	x := Text{s: s}
	for i := range len(s) {
		if mask>>(i%64)&1 == 0 {
			continue
		}
		if n := len(x.special); n > 0 && x.special[n-1].To == i {
			x.special[n-1].To++
		} else {
			x.special = append(x.special, jinja.Span{From: i, To: i + 1})
		}
	}
	return x
}

// nested returns tokens of one to n times the same text.
func nested(text string, n int) (tokens []string) {
	for i := range n {
		tokens = append(tokens, strings.Repeat(text, i+1))
	}
	return tokens
}

// TestSplitWork splits long texts that many tokens match everywhere, and counts candidates.
func TestSplitWork(t *testing.T) {
	const size = 1 << 17
	var blocked []string // tokens that begin inside of a longer one and reach beyond it
	for b := range 40 {
		for _, a := range nested("a", 40) {
			blocked = append(blocked, strings.Repeat("b", 1+b)+a)
		}
	}
	for _, c := range []struct {
		name, reason string
		tokens       []string
		text         string
	}{
		{"newlines", "runs of 2 to 31 newlines", nested("\n", 31)[1:], "\n"},
		{"nested", "every token begins and ends everywhere", nested("x", 300), "x"},
		{"nested, broken", "runs are shorter than the longest token", nested("x", 300), strings.Repeat("x", 299) + "y"},
		{"blocked", "a longer token takes the first byte of many", append(blocked, strings.Repeat("b", 81)), strings.Repeat("b", 81) + strings.Repeat("a", 40)},
		{"one byte", "every byte is a token", []string{"x"}, "x"},
		{"nothing", "every byte might begin a token", []string{strings.Repeat("x", 300)}, strings.Repeat("x", 299) + "y"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Vocab{}
			longest := 0
			for _, token := range c.tokens {
				v.add(token, typeUserDefined)
				longest = max(longest, len(token))
			}
			s, err := newSpecials(&v)
			if err != nil {
				t.Fatal(err)
			}
			x := newText(strings.Repeat(c.text, size/len(c.text)), true)
			for automata, m := range []matcher{
				{everywhere: s.all, text: x.s},
				{everywhere: s.all, within: s.all, special: x.special, text: x.s},
			} {
				bounded(t, size, func() { m.run(func(fragment) bool { return true }) })
				if log := bits.Len(uint(longest)); m.pushes > (1+automata)*size*log || m.steps > (automata*size+m.pushes)*3*log {
					t.Errorf("%s: %d bytes took %d candidates and %d steps", c.reason, size, m.pushes, m.steps)
				}
			}
		})
	}
}

// FuzzSplit encodes text by a vocabulary of special tokens: a list of texts after a
// character each that selects the type.
func FuzzSplit(f *testing.F) {
	list := func(kind string, tokens []string) string { return kind + strings.Join(tokens, ","+kind) }
	f.Add(list("D", nested("\n", 31)), strings.Repeat("\n", 100), true, ^uint64(0))
	f.Add(list("C", nested("x", 20)), strings.Repeat("x", 50), true, uint64(0))
	f.Add("D<s><s>,Db<s", "b<s<s><s>b<s><s>", false, ^uint64(0))
	f.Add("D ,C\n", "<|end|> \n \na<|assistant|>", true, ^uint64(1<<5))
	f.Add("D\xb9", "\u2e79", false, ^uint64(0))
	f.Add("Dab,Cabc,Dbcd", "abcabcdabcd h\u00e9\xff", false, uint64(0xF7))
	f.Fuzz(func(t *testing.T, tokens, text string, phi3 bool, mask uint64) {
		bpe := byteVocab("a b", "ab c", "\u0120 a")
		spm := scoreVocab(spaceMark+"a", "ab", spaceMark, spaceMark+spaceMark)
		add := func(token string, kind int32) {
			bpe.add(token, kind)
			spm.add(token, kind)
			spm.Scores = append(spm.Scores, 0)
		}
		for token := range strings.SplitSeq(tokens, ",") {
			if token != "" {
				add(token[1:], []int32{typeUnknown, typeControl, typeUserDefined}[int(token[0])%3])
			}
		}
		if phi3 {
			for _, token := range []string{"<|assistant|>", "<|end|>", "<|placeholder1|>"} {
				add(token, typeControl)
			}
		}
		x := masked(text, mask)
		for _, v := range []Vocab{bpe, spm} {
			tok, err := New(v)
			if err != nil {
				if !errors.Is(err, ErrVocab) {
					t.Fatal(err)
				}
				continue
			}
			var ids []int
			bounded(t, len(text), func() { ids, _ = tok.PromptText(x, math.MaxInt) })
			for _, limit := range []int{len(ids) - 1, len(ids)} {
				got, ok := tok.PromptText(x, limit)
				if ok != (limit == len(ids)) || ok && !slices.Equal(got, ids) {
					t.Fatalf("%q: at most %d of %v: %v, %v", text, limit, ids, got, ok)
				}
			}
			if len(text) > 500 { // slowSplit would take long
				continue
			}
			want := ""
			for _, part := range checkSplit(t, &tok.vocab, tok.specials, x) {
				switch {
				case part.token >= 0:
					want += string(tok.Bytes(part.token))
				case tok.spm != nil:
					want += strings.ReplaceAll(" "+part.text, spaceMark, " ")
				default:
					want += part.text
				}
			}
			if got := tok.raw(ids); got != want && !strings.Contains(tokens, spaceMark) {
				t.Fatalf("%q becomes %q, the bytes of which are %q, want %q", text, tok.texts(ids), got, want)
			}
		}
	})
}

func TestByteToken(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		b            byte
		want         string
	}{
		{"letter", "it prints", 'a', "a"},
		{"space", "the 33rd that does not print", ' ', "\u0120"},
		{"zero", "the first that does not print", 0, "\u0100"},
		{"soft hyphen", "the last that does not print", 0xAD, "\u0143"},
		{"last", "it prints in Latin-1", 0xFF, "\u00FF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ByteToken(c.b); got != c.want {
				t.Errorf("%s: 0x%02X is %q, want %q", c.reason, c.b, got, c.want)
			}
		})
	}
}
