package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// splitter returns the length of the first word of a nonempty text. If a regular expression
// matches at the start, that is its match; otherwise it is the text before the first match.
type splitter func(text string) int

// preTokenizers maps the values of tokenizer.ggml.pre to splitters. Each splits the words of
// the previous one. The expressions are those of llama.cpp, which follow the tokenizer.json
// of each model.
var preTokenizers = map[string][]splitter{
	"gpt-2":     {gpt2Words.scan},
	"starcoder": {isolate(unicode.N, 1), gpt2Words.scan},
	"llama-bpe": {llama3Words.scan},
	"qwen2":     {qwen2Words.scan},
	"default":   {punctuationRuns, gpt2Words.scan, isolate(unicode.N, 0), threeDigits},
}

// preAliases maps other names to those of preTokenizers.
var preAliases = map[string]string{
	"":                 "default",
	"phi-2":            "gpt-2",
	"llama3":           "llama-bpe",
	"llama-v3":         "llama-bpe",
	"deepseek-r1-qwen": "qwen2",
	"smollm":           "starcoder",
}

// ignoresMerges lists the pre-tokenizers with ignore_merges in tokenizer.json: a word
// that is a token becomes that token, whatever the merges.
var ignoresMerges = map[string]bool{"llama-bpe": true}

// words holds the options of one regular expression of the GPT-2 family:
//
//	gpt2Words:   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//	llama3Words: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//	             ' '?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//	qwen2Words:  as llama3Words with \p{N} for \p{N}{1,3}
//
// The first alternative that matches wins. Contractions fold ASCII case only.
type words struct {
	fold   bool // contractions match in any case
	prefix bool // letters may follow any one character except \r, \n and digits; otherwise only a space
	lines  bool // punctuation includes the line ends after it; white space ends at its last line end
	digits int  // maximum digits per word, without a leading space; 0: any number, after an optional space
}

var (
	gpt2Words   = words{}
	llama3Words = words{fold: true, prefix: true, lines: true, digits: 3}
	qwen2Words  = words{fold: true, prefix: true, lines: true, digits: 1}
)

// scan returns the length of the match at the start of text.
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

// lineEnds extends a match of n bytes by [\r\n]* if w.lines is set.
func (w words) lineEnds(text string, n int) int {
	for w.lines && n < len(text) && (text[n] == '\r' || text[n] == '\n') {
		n++
	}
	return n
}

// whiteSpace matches \s*[\r\n]+|\s+(?!\S)|\s+ at leading white space: up to the last
// line end if w.lines is set, else everything at the end of the text, else all but the
// last character.
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

// isolate splits off runs of at most limit characters of a class, or of any number if
// limit is 0: \p{N} or \p{N}+.
func isolate(class *unicode.RangeTable, limit int) splitter {
	return func(text string) int {
		return runOf(text, limit, func(r rune) bool { return unicode.Is(class, r) })
	}
}

// punctuationRuns splits off [\p{P}\$\+<=>\^~\|]+.
func punctuationRuns(text string) int {
	return runOf(text, 0, func(r rune) bool {
		switch r {
		case '$', '+', '<', '=', '>', '^', '~', '|':
			return true
		}
		return unicode.IsPunct(r)
	})
}

// runOf returns the length of the longest prefix of text with only characters in the
// set, at most limit of them, or only characters outside the set.
func runOf(text string, limit int, in func(rune) bool) int {
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

// threeDigits splits off [0-9][0-9][0-9].
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

// class is the character class that the expressions of words distinguish.
type class uint8

const (
	other   class = iota // [^\s\p{L}\p{N}], and bytes that are not UTF-8
	letter               // \p{L}
	number               // \p{N}
	space                // \s: the Unicode property White_Space
	nothing              // the end of the text
)

// classAt returns the class and the length of the first character of text.
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

// run returns the end of the run of class c at text[at:], of at most limit characters
// unless limit is 0.
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

// split calls yield for each word of text after all splitters, until yield returns false.
// It returns whether it reached the end.
func split(splitters []splitter, text string, yield func(word string) bool) bool {
	if len(splitters) == 0 {
		return yield(text)
	}
	for len(text) > 0 {
		n := splitters[0](text)
		if !split(splitters[1:], text[:n], yield) {
			return false
		}
		text = text[n:]
	}
	return true
}
