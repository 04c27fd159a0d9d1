package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// preTokenizer splits a text into words before merges run.
type preTokenizer struct {
	names     string     // the values of tokenizer.ggml.pre, separated by spaces
	splitters []splitter // each splits the words of the one before

	ignoreMerges bool // a word that is a token becomes that token, whatever the merges
	addBOS       bool // a prompt begins with BOS unless the file says otherwise
	raw          bool // tokens are UTF-8 with U+2581 for spaces, and not in the alphabet of byteRunes
	nfc          bool // text gets Unicode's normalization form NFC first
}

// splitter returns the length of the first word of a nonempty text. If an expression
// matches at the start, that is its match; otherwise it is the text before the first match.
type splitter func(text string) int

// Parts of the expressions.
const (
	contraction = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	// In o200k, a word is capital letters and then small letters; one of the two may be missing.
	// Letters without case count as both.
	upper       = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lower       = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	smallWord   = `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+`
	capitalWord = `[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*`
	// Alternatives to append to those of words and numbers: each begins with |.
	symbols      = `| ?[^\s\p{L}\p{N}]+[\r\n]*`
	symbolsSlash = `| ?[^\s\p{L}\p{N}]+[\r\n/]*`
	spaces       = `|\s*[\r\n]+|\s+(?!\S)|\s+`

	llama3Words = contraction + `|[^\r\n\p{L}\p{N}]?\p{L}+`
	gpt4oWords  = smallWord + contraction + `?|` + capitalWord + contraction + `?`
)

// The expressions of several pre-tokenizers.
var (
	gpt2   = matching(`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`)
	llama3 = matching(llama3Words + `|\p{N}{1,3}` + symbols + spaces)
	qwen2  = matching(llama3Words + `|\p{N}` + symbols + spaces)
	qwen35 = matching(contraction + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + spaces)
	gpt4o  = matching(gpt4oWords + `|\p{N}{1,3}` + symbolsSlash + spaces)
	// bloom lists what ends a word: white space, and marks such as the danda of Devanagari. The published expression
	// has a group within the brackets, so (, | and ) end a word, too.
	bloom     = matching(` ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+`)
	deepseek3 = matching("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*` + spaces)

	digit       = matching(`\p{N}`)
	digits      = matching(`\p{N}+`)
	threeDigits = matching(`\p{N}{1,3}`)
	threeASCII  = matching(`[0-9][0-9][0-9]`)
	lines       = matching(`[^\n]+|[\n]+`)
)

// preTokenizers has the expressions of the tokenizer.json of each model, under the names of
// llama.cpp. Where llama.cpp approximates an expression, this is the original.
var preTokenizers = []preTokenizer{
	{names: "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion " +
		"granite-docling jina-v1-en jina-v2-code roberta-bpe", splitters: []splitter{gpt2}},
	{names: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", splitters: []splitter{llama3}, ignoreMerges: true, addBOS: true},
	{names: "dbrx smaug-bpe glm4 chatglm-bpe", splitters: []splitter{llama3}},
	{names: "qwen2 deepseek-r1-qwen f2llmv2", splitters: []splitter{qwen2}, nfc: true},
	{names: "kormo hunyuan solar-open grok-2 stablelm2 megrez", splitters: []splitter{qwen2}},
	{names: "starcoder refact codeshell exaone minerva-7b mellum2 command-r smollm", splitters: []splitter{digit, gpt2}},

	{names: "qwen35", splitters: []splitter{qwen35}, nfc: true},
	{names: "gpt-4o llama4", splitters: []splitter{gpt4o}, ignoreMerges: true},
	{names: "kanana2 talkie minimax-m2", splitters: []splitter{gpt4o}},
	{names: "granite-embed-multi-97m", splitters: []splitter{gpt4o}, ignoreMerges: true},
	{names: "tekken", splitters: []splitter{matching(smallWord + `|` + capitalWord + `|\p{N}` + symbolsSlash + spaces)}, ignoreMerges: true, addBOS: true},
	{names: "tiny_aya cohere2moe", splitters: []splitter{groupsFromRight(unicode.IsDigit, true), gpt4o}},
	{names: "youtu", splitters: []splitter{
		matching(`[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+` +
			`|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+` +
			`|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+`),
		matching(gpt4oWords + `|\p{N}` + symbolsSlash + spaces),
	}, ignoreMerges: true},
	{names: "deepseek-v3 hunyuan-dense joyai-llm", splitters: []splitter{
		threeDigits, matching(`[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+`), deepseek3,
	}},
	{names: "afmoe", splitters: []splitter{
		groupsFromRight(unicode.IsNumber, false), threeDigits,
		matching(`[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}` +
			`\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+`),
		deepseek3,
	}},
	{names: "gemma4", splitters: []splitter{lines}, addBOS: true, raw: true},
	{names: "granite-embed-multi-311m sarvam-moe", splitters: []splitter{lines}, raw: true},
	{names: "laguna", splitters: []splitter{lines, qwen2}},
	{names: "minicpm5", splitters: []splitter{threeDigits, matching(llama3Words + `|\p{N}+` + symbols + spaces)}, ignoreMerges: true},
	{names: "seed-coder", splitters: []splitter{matching(llama3Words + `|\p{N}| ?[^\s\p{L}\p{N}\r\n]+` + spaces)}},
	{names: "bailingmoe bailingmoe2 llada-moe", splitters: []splitter{
		matching(`'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + symbols + `|\s*[\r\n]|\s+(?!\S)|\s+`),
	}},
	{names: "exaone-moe", splitters: []splitter{
		matching(contraction + `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`),
	}},
	{names: "jais-2", splitters: []splitter{llama3, powersOfTwo}},

	{names: "default", splitters: []splitter{matching(`[\p{P}\$\+<=>\^~\|]+`), gpt2, digits, threeASCII}},
	{names: "falcon", splitters: []splitter{matching("[\\p{P}\\$\\+<=>\\^~\\|`]+"), gpt2, threeASCII}},
	{names: "deepseek-coder", splitters: []splitter{
		matching(`[\r\n]`), matching(`\s?\p{L}+`), matching(`\s?\p{P}+`),
		matching(`[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+`), digit,
	}},
	{names: "bloom poro-chat gpt3-finnish", splitters: []splitter{bloom}},
	{names: "viking", splitters: []splitter{bloom, digit}},
}

// groupsFromRight splits runs of digits so that groups of three from the left are groups of
// three from the right: it splits off the first one or two digits of a run if the others are a
// multiple of three. With atBoundary, runs that a letter or another word character follows are
// ordinary text, as in \d{1,3}(?=(?:\d{3})*\b).
func groupsFromRight(isDigit func(rune) bool, atBoundary bool) splitter {
	return func(text string) int {
		for from := 0; ; {
			digit := strings.IndexFunc(text[from:], isDigit)
			if digit < 0 {
				return len(text)
			}
			from += digit
			end, count, lead := len(text), 0, [3]int{} // lead[n]: where n digits end
			for i, r := range text[from:] {
				if !isDigit(r) {
					end = from + i
					break
				}
				if count < len(lead) {
					lead[count] = from + i
				}
				count++
			}
			next, _ := utf8.DecodeRuneInString(text[end:])
			switch {
			case atBoundary && end < len(text) && unicode.In(next, wordCharacters...):
				from = end
			case from > 0:
				return from
			case count%3 == 0 || count < 3:
				return end
			default:
				return lead[count%3]
			}
		}
	}
}

// wordCharacters are those of \w, from Unicode Technical Standard 18.
var wordCharacters = []*unicode.RangeTable{unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic}

// powersOfTwo splits a word of white space into 512, 256, 128, …, 2 or 1 characters, the most
// first. Words that end with a line end stay whole.
func powersOfTwo(word string) int {
	if strings.HasSuffix(word, "\n") || strings.HasSuffix(word, "\r") {
		return len(word)
	}
	length, count := 0, 0
	for i, r := range word {
		if !unicode.IsSpace(r) {
			return len(word)
		}
		if count++; count > 512 {
			break
		}
		if count&(count-1) == 0 {
			length = i + utf8.RuneLen(r)
		}
	}
	return length
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
