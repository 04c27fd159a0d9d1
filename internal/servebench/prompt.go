package servebench

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
)

// vocabularyWords are words that most vocabularies have as one token with a space before it.
var vocabularyWords = strings.Fields(`
	the of and to in is for on that by this with you it not or be are from at as your all have new more an was we will
	can about if my has but our one other do no time they he up may what which their out use any there see only so his
	when here who also now help get view first been would how were some these its like than find back top people had
	list name just over state year day into two world next used go work last most make them should product system her
	city add policy number such please available copyright support message after best software then good well where
	info rights public high school through each she review years order very book items company read group need
	many user said does set under general research university mail full map program life know`)

// prompts makes the prompts of a plan. Content depends on the seed of the load and the index
// of the request.
type prompts struct {
	load  Load
	plan  []Request
	vocab int // > 0: prompts are random token ids below it; 0: they are words

	// sizes are the lengths of the prompts behind their prefixes, prefixSizes those of the
	// prefixes. nil: one word per token.
	sizes, prefixSizes []size
}

// size is the length of a random text: words, and then short words. A short word is one token
// in almost every vocabulary.
type size struct{ words, short int }

// of returns the prompt of request i: a string, or a []int of token ids.
func (p *prompts) of(i int) any {
	r := p.plan[i]
	switch {
	case p.vocab > 0 && r.Prompt == "":
		ids := make([]int, 0, p.load.PrefixTokens+r.PromptTokens)
		if p.load.Prefixes > 0 {
			ids = p.appendIDs(ids, prefixStreams+uint64(r.prefix), p.load.PrefixTokens)
		}
		return p.appendIDs(ids, contentStreams+uint64(i), r.PromptTokens)
	case p.sizes != nil:
		return p.text(i, p.sizes[i])
	}
	return p.text(i, size{words: r.PromptTokens})
}

func (p *prompts) appendIDs(ids []int, stream uint64, n int) []int {
	r := p.load.random(stream)
	for range n {
		ids = append(ids, r.IntN(p.vocab))
	}
	return ids
}

// text returns the prompt of request i with a text of size n after its prefix.
func (p *prompts) text(i int, n size) string {
	var b strings.Builder
	r := p.plan[i]
	if p.load.Prefixes > 0 {
		b.WriteString(p.prefix(r.prefix))
	}
	if r.Prompt != "" {
		b.WriteString(r.Prompt)
	} else {
		writeWords(&b, p.load.random(contentStreams+uint64(i)), n)
	}
	return b.String()
}

// prefix returns shared prefix k.
func (p *prompts) prefix(k int) string {
	if p.prefixSizes != nil {
		return p.prefixOf(k, p.prefixSizes[k])
	}
	return p.prefixOf(k, size{words: p.load.PrefixTokens})
}

func (p *prompts) prefixOf(k int, n size) string {
	var b strings.Builder
	writeWords(&b, p.load.random(prefixStreams+uint64(k)), n)
	return b.String()
}

// writeWords writes a text of size n. Each word has a space before it.
func writeWords(b *strings.Builder, r *rand.Rand, n size) {
	for range n.words {
		b.WriteByte(' ')
		b.WriteString(vocabularyWords[r.IntN(len(vocabularyWords))])
	}
	for range n.short {
		b.WriteString(" a")
	}
}

// fit sets the sizes so that each prompt has the planned number of tokens by count.
func (p *prompts) fit(ctx context.Context, count func(ctx context.Context, text string) (int, error)) error {
	prefixSizes := make([]size, p.load.Prefixes)
	for k := range prefixSizes {
		n, err := fitSize(p.load.PrefixTokens, func(n size) (int, error) { return count(ctx, p.prefixOf(k, n)) })
		if err != nil {
			return err
		}
		prefixSizes[k] = n
	}
	p.prefixSizes = prefixSizes
	sizes := make([]size, len(p.plan))
	for i, r := range p.plan {
		if r.Prompt != "" {
			continue
		}
		want := r.PromptTokens
		if p.load.Prefixes > 0 {
			want += p.load.PrefixTokens
		}
		n, err := fitSize(want, func(n size) (int, error) { return count(ctx, p.text(i, n)) })
		if err != nil {
			return err
		}
		sizes[i] = n
	}
	p.sizes = sizes
	return nil
}

// fitSize returns the size with the number of tokens nearest to want. It expects that more
// words have no fewer tokens, and that a token has no more than four words.
func fitSize(want int, count func(n size) (int, error)) (size, error) {
	var best size
	bestError := math.MaxInt
	try := func(n size) (int, error) {
		got, err := count(n)
		if off := max(got-want, want-got); err == nil && off < bestError {
			best, bestError = n, off
		}
		return got, err
	}
	low, tokens := 0, 0 // the most words known to have fewer tokens than want, and their tokens
	high := 4 * want    // the fewest words known to have more
	for n := want; low+1 < high && bestError > 0; {
		got, err := try(size{words: n})
		if err != nil {
			return size{}, err
		}
		if got < want {
			low, tokens = n, got
		} else {
			high = n
		}
		n = int(float64(n) * float64(want) / float64(max(got, 1)))
		n = min(max(n, low+1), high-1)
	}
	for short := min(want-tokens, maxShort); short > 0 && bestError > 0; short-- {
		if _, err := try(size{low, short}); err != nil {
			return size{}, err
		}
	}
	return best, nil
}

// maxShort is the largest number of short words of a text. A word has fewer tokens.
const maxShort = 16
