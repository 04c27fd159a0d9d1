package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// slowMerge is the definition of merging: merge the pair of lowest rank, the leftmost of
// equal ranks, and repeat.
func slowMerge(m *merger) []int32 {
	symbols := append([]symbol(nil), m.symbols...)
	for {
		best, at := candidate{}, -1
		for i := range len(symbols) - 1 {
			result, rank, ok := m.pair(symbols[i], symbols[i+1])
			if ok && (at < 0 || rank < best.rank) {
				best, at = candidate{result: result, rank: rank}, i
			}
		}
		if at < 0 {
			break
		}
		symbols[at].id, symbols[at].to = best.result, symbols[at+1].to
		symbols = append(symbols[:at+1], symbols[at+2:]...)
	}
	ids := []int32{}
	for _, s := range symbols {
		ids = append(ids, s.id)
	}
	return ids
}

// TestMergerMatchesDefinition merges random words of few letters by random merges, which
// gives many equal ranks and stale candidates.
func TestMergerMatchesDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		table := map[[2]int32]merge{}
		next := int32(3)
		for range 12 {
			key := [2]int32{rng.Int32N(next), rng.Int32N(next)}
			if _, ok := table[key]; !ok {
				table[key] = merge{result: next, rank: rng.Int32N(6)}
				next++
			}
		}
		m := merger{pair: func(left, right symbol) (int32, float64, bool) {
			j, ok := table[[2]int32{left.id, right.id}]
			return j.result, float64(j.rank), ok
		}}
		for range 1 + rng.IntN(20) {
			m.add(rng.Int32N(3), 1)
		}
		want := slowMerge(&m)
		m.run()
		got := []int32{}
		for _, s := range m.symbols {
			if s.from < s.to {
				got = append(got, s.id)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("merged to %v, want %v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("merged to %v, want %v", got, want)
			}
		}
	}
}

// TestMergingWork encodes a word of a megabyte and counts operations. At most one candidate
// per initial pair and two per merge are pushed, which bounds the time by O(n log n).
func TestMergingWork(t *testing.T) {
	const size = 1 << 20
	doubling := func(s string) (texts, merges []string) {
		for range 6 {
			merges = append(merges, s+" "+s)
			s += s
			texts = append(texts, s)
		}
		return texts, merges
	}
	_, letters := doubling("a")
	_, spaces := doubling("\u0120")
	letterTexts, _ := doubling("a")
	spaceTexts, _ := doubling(spaceMark)
	score := func(texts []string, more ...string) *spm {
		return mustNew(t, scoreVocab(append(texts, more...)...)).spm
	}
	for _, c := range []struct {
		name, reason, text string
		spm                *spm
		bpe                *bpe
	}{
		{"letters by merges", "every merge makes an equal neighbor", strings.Repeat("a", size), nil, mustNew(t, byteVocab(letters...)).bpe},
		{"spaces by merges", "white space is one word too", strings.Repeat(" ", size), nil, mustNew(t, byteVocab(spaces...)).bpe},
		{"letters by scores", "no space parts them", strings.Repeat("a", size), score(letterTexts, "a"), nil},
		{"spaces by scores", "spaces are not parted", strings.Repeat(spaceMark, size/3), score(spaceTexts, spaceMark), nil},
		{"a token across spaces", "then words are not parted", strings.Repeat("a"+spaceMark, size/4), score(nil, "a"+spaceMark, "a", spaceMark), nil},
		{"nothing to merge", "no candidates", strings.Repeat("b", size), nil, mustNew(t, byteVocab(letters...)).bpe},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := merger{}
			if c.bpe != nil {
				if n := len(pieces("gpt-2", c.text)); n != 1 {
					t.Fatalf("%d pieces: not one word", n)
				}
				m.pair = c.bpe.pair
				c.bpe.encodeWord(&m, nil, c.text)
			} else {
				c.spm.merge(&m, nil, c.text)
			}
			n := len(m.symbols)
			if n < size/4 {
				t.Fatalf("only %d symbols", n)
			}
			if m.merges > n-1 || m.pushes > n-1+2*m.merges {
				t.Errorf("%s: %d symbols took %d merges and %d candidates", c.reason, n, m.merges, m.pushes)
			}
		})
	}
}
