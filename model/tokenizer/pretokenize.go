package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// A scanner gives the length of the first piece of a text that is not empty:
// what one match of a pre-tokenizer's regular expression would take, or the
// stretch before that match when the expression can skip text.
type scanner func(text string) int

// preTokenizers lists, under each name that files use, the scanners that cut
// text into the pieces that BPE then works on, one by one. Each scanner cuts
// the pieces of the one before it and sees nothing beyond its piece. The
// expressions are those of llama.cpp, which follow each model's tokenizer.json.
var preTokenizers = map[string][]scanner{
	"gpt-2":     {gpt2Words.scan},
	"starcoder": {isolate(unicode.N, 1), gpt2Words.scan},
	"llama-bpe": {llama3Words.scan},
	"qwen2":     {qwen2Words.scan},
	"default":   {punctuationRuns, gpt2Words.scan, isolate(unicode.N, 0), threeDigits},
}

// preAliases maps further names to those of preTokenizers.
var preAliases = map[string]string{
	"":                 "default",
	"phi-2":            "gpt-2",
	"llama3":           "llama-bpe",
	"llama-v3":         "llama-bpe",
	"deepseek-r1-qwen": "qwen2",
	"smollm":           "starcoder",
}

// wholeWords names the pre-tokenizers whose vocabularies take a piece that is a
// token as that token, whatever the merges say (ignore_merges in tokenizer.json).
var wholeWords = map[string]bool{"llama-bpe": true}

// words is the rule set of one expression of the GPT-2 family:
//
//	gpt2Words:   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//	llama3Words: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//	             ' '?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//	qwen2Words:  as llama3Words with \p{N} for \p{N}{1,3}
//
// At every position the alternatives are tried in this order. The contractions
// fold ASCII case only.
type words struct {
	fold   bool // contractions in any case
	prefix bool // a word takes any one character before it but \r, \n and digits; else one space
	lines  bool // punctuation takes the line ends after it, and white space ends with the last line end
	digits int  // most digits a piece, without a space before them; 0: any number, one space before them
}

var (
	gpt2Words   = words{}
	llama3Words = words{fold: true, prefix: true, lines: true, digits: 3}
	qwen2Words  = words{fold: true, prefix: true, lines: true, digits: 1}
)

// scan gives the length of the match at the start of text.
func (w words) scan(text string) int {
	if n := w.contraction(text); n > 0 {
		return n
	}
	first, size := classAt(text)
	second, _ := classAt(text[size:])
	spaced := text[0] == ' '

	switch {
	case first == letter:
		return run(text, 0, letter, 0)
	case second == letter && (spaced || w.prefix && first != number && text[0] != '\r' && text[0] != '\n'):
		return run(text, size, letter, 0)
	case first == number:
		return run(text, 0, number, w.digits)
	case spaced && second == number && w.digits == 0:
		return run(text, size, number, 0)
	case first == other:
		return w.lineEnds(text, run(text, 0, other, 0))
	case spaced && second == other:
		return w.lineEnds(text, run(text, size, other, 0))
	}
	return w.whiteSpace(text)
}

// contraction matches 's|'t|'re|'ve|'m|'ll|'d.
func (w words) contraction(text string) int {
	if text[0] != '\'' || len(text) < 2 {
		return 0
	}
	lower := func(i int) byte {
		if w.fold && i < len(text) && text[i] >= 'A' && text[i] <= 'Z' {
			return text[i] + 'a' - 'A'
		}
		if i < len(text) {
			return text[i]
		}
		return 0
	}
	switch lower(1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if lower(2) == 'e' {
			return 3
		}
	case 'l':
		if lower(2) == 'l' {
			return 3
		}
	}
	return 0
}

// lineEnds extends a match of n bytes by [\r\n]* where the rules say so.
func (w words) lineEnds(text string, n int) int {
	for w.lines && n < len(text) && (text[n] == '\r' || text[n] == '\n') {
		n++
	}
	return n
}

// whiteSpace matches \s*[\r\n]+|\s+(?!\S)|\s+ at a text that begins with white
// space: up to the last line end, or all at the end of the text, or all but the
// last character, which then may go with a word.
func (w words) whiteSpace(text string) int {
	end, last, afterLine := 0, 0, 0
	for end < len(text) {
		c, size := classAt(text[end:])
		if c != space {
			break
		}
		last = end
		if text[end] == '\r' || text[end] == '\n' {
			afterLine = end + 1
		}
		end += size
	}
	switch {
	case w.lines && afterLine > 0:
		return afterLine
	case end == len(text) || last == 0:
		return end
	}
	return last
}

// isolate matches runs of at most limit characters of a class, or of any
// number when limit is 0, and the stretches between them: \p{N} or \p{N}+.
func isolate(class *unicode.RangeTable, limit int) scanner {
	return func(text string) int {
		return stretch(text, limit, func(r rune) bool { return unicode.Is(class, r) })
	}
}

// punctuationRuns matches [\p{P}\$\+<=>\^~\|]+ and the stretches between.
func punctuationRuns(text string) int {
	return stretch(text, 0, func(r rune) bool {
		switch r {
		case '$', '+', '<', '=', '>', '^', '~', '|':
			return true
		}
		return unicode.IsPunct(r)
	})
}

// stretch gives the length of the longest beginning of text whose characters
// all are in the set, at most limit of them, or all are not.
func stretch(text string, limit int, in func(rune) bool) int {
	var want bool
	count := 0
	for i, r := range text {
		if i == 0 {
			want = in(r)
		} else if in(r) != want || want && count == limit && limit > 0 {
			return i
		}
		count++
	}
	return len(text)
}

// threeDigits matches [0-9][0-9][0-9] and the stretches between.
func threeDigits(text string) int {
	digits := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			digits = 0
			continue
		}
		if digits++; digits == 3 {
			if i == 2 {
				return 3
			}
			return i - 2
		}
	}
	return len(text)
}

// class divides the characters for the expressions of words.
type class uint8

const (
	other   class = iota // [^\s\p{L}\p{N}], and bytes that are not UTF-8
	letter               // \p{L}
	number               // \p{N}
	space                // \s: the Unicode property White_Space
	nothing              // the end of the text
)

// classAt gives the class and the length of the first character of text.
func classAt(text string) (class, int) {
	if text == "" {
		return nothing, 0
	}
	if c := text[0]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, size := utf8.DecodeRuneInString(text)
	return classOf(r), size
}

func classOf(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

var asciiClass = func() (table [utf8.RuneSelf]class) {
	for r := range table {
		table[r] = classOf(rune(r))
	}
	return table
}()

// run gives the end of the characters of class c from position at on, at most
// limit of them unless limit is 0.
func run(text string, at int, c class, limit int) int {
	for n := 0; at < len(text) && (limit == 0 || n < limit); n++ {
		got, size := classAt(text[at:])
		if got != c {
			break
		}
		at += size
	}
	return at
}

// cut calls yield for each piece that the scanners, the one after the other,
// cut text into.
func cut(scanners []scanner, text string, yield func(piece string)) {
	if len(scanners) == 0 {
		yield(text)
		return
	}
	for len(text) > 0 {
		n := scanners[0](text)
		cut(scanners[1:], text[:n], yield)
		text = text[n:]
	}
}
