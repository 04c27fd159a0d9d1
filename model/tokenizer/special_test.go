package tokenizer

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestFindMatchesDefinition finds random special tokens over two letters in random texts of
// the same letters. Many tokens are prefixes of others.
func TestFindMatchesDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	word := func(most int) string {
		b := make([]byte, 1+rng.IntN(most))
		for i := range b {
			b[i] = "ab"[rng.IntN(2)]
		}
		return string(b)
	}
	total := 0
	for range 500 {
		v := Vocab{Model: "llama"}
		for range rng.IntN(12) {
			v.add(word(5), []int32{typeNormal, typeControl, typeUserDefined, typeUnknown}[rng.IntN(4)])
		}
		v.add("ab", typeControl)
		text, parse := word(20), rng.IntN(2) == 0
		type place struct{ from, id int }
		var want, got []place
		for from := range text {
			seen := map[string]bool{}
			for id, token := range v.Tokens {
				if v.kind(id) == typeNormal || seen[token] || !strings.HasPrefix(text[from:], token) {
					continue
				}
				seen[token] = true // the lowest id of equal texts wins
				if parse || v.kind(id) == typeUserDefined {
					want = append(want, place{from, id})
				}
			}
		}
		for _, m := range newSpecials(&v).find(text, parse) {
			got = append(got, place{m.from, int(m.token.id)})
		}
		order := func(a, b place) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.id, b.id)) }
		slices.SortFunc(want, order)
		slices.SortFunc(got, order)
		if !slices.Equal(got, want) {
			t.Fatalf("%q of types %v in %q: %v, want %v", v.Tokens, v.Types, text, got, want)
		}
		total += len(want)
	}
	if total < 1000 {
		t.Errorf("only %d tokens were there to be found", total)
	}
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
