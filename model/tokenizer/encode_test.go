package tokenizer

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestMerging(t *testing.T) {
	spaced := scoreVocab(spaceMark+"ab", "ab", "bc", spaceMark+"a", "a", "b", "c", spaceMark, spaceMark+spaceMark)
	plain := spaced
	plain.AddSpacePrefix = false
	crossing := scoreVocab("a"+spaceMark+"b", "a"+spaceMark, "a", "b", spaceMark)
	whole := byteVocabWith([]string{"a b"}, "ab", "abc")
	whole.Pre = "llama-bpe"
	composed := byteVocab("\u00c3 \u00a9") // the bytes of U+00E9
	composed.Pre = "qwen2"
	characters := characterVocab("ab\u00e9\n"+spaceMark, spaceMark+" a", spaceMark+"a b", "b "+spaceMark, "\n \n", "b \n")
	space := spaceMark
	for _, c := range []struct {
		name, reason string
		vocab        Vocab
		text         string
		want         []string
	}{
		{"rank before place", "the better ranked merge comes first, wherever it is", byteVocab("b c", "a b"), "abc", []string{"a", "bc"}},
		{"place among equals", "the leftmost of equal merges comes first", byteVocab("a a"), "aaa", []string{"aa", "a"}},
		{"merge of merges", "results are merged again", byteVocab("a b", "c d", "ab cd"), "abcd", []string{"abcd"}},
		{"no merge across words", "a space begins a new word", byteVocab("b c", "a b"), "ab c", []string{"ab", "\u0120", "c"}},
		{"outdated candidates", "a pair is gone once one of it is merged", byteVocab("a b", "b a", "ab a"), "abab", []string{"ab", "ab"}},
		{"whole word", "llama-bpe encodes a word that is a token without merges", whole, "abc", []string{"abc"}},
		{"part of a word", "only the whole word", whole, "abcd", []string{"ab", "c", "d"}},
		{"bytes", "every byte has a token", byteVocab(), "\u00e9\xff", []string{"\u00c3", "\u00a9", "\u00ff"}},
		{"normalization", "NFC joins a letter and its accent", composed, "e\u0301", []string{"\u00c3\u00a9"}},

		{"spaces as characters", "U+2581 stands for them, and no space is added", characters, "a ab", []string{"a", space + "ab"}},
		{"merges across spaces", "a line is one word", characters, "b  b", []string{"b" + space, space, "b"}},
		{"no merge across lines", "line ends are words of their own", characters, "b\n\nb", []string{"b", "\n\n", "b"}},
		{"bytes of characters", "a character without a token becomes its bytes", characters, "\u00e9\u00e8\xff", []string{"\u00e9", "<0xC3>", "<0xA8>", "<0xFF>"}},

		{"space prefix", "a text begins with a space", spaced, "ab", []string{spaceMark + "ab"}},
		{"no space prefix", "only where the vocabulary says so", plain, "ab", []string{"ab"}},
		{"score before place", "the higher score comes first", plain, "abc", []string{"ab", "c"}},
		{"two spaces", "spaces merge among themselves when that scores higher", spaced, " b", []string{spaceMark + spaceMark, "b"}},
		{"byte fallback", "a character without a token becomes its bytes", plain, "a\u00e9", []string{"a", "<0xC3>", "<0xA9>"}},
		{"bytes that are not UTF-8", "they become themselves", plain, "a\xff\xe2\x96", []string{"a", "<0xFF>", "<0xE2>", "<0x96>"}},
		{"empty", "no text, no prefix", spaced, "", []string{}},
		{"token across a space", "then words cannot be taken apart", crossing, "a b", []string{spaceMark, "a" + spaceMark + "b"}},
		{"control token's text", "text never becomes a control token by merging", scoreVocab("</", "s>", "<", "/", "s", ">", spaceMark), "</s>", []string{spaceMark, "</", "s>"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, c.vocab)
			if got := tok.texts(tok.Encode(c.text, false)); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q becomes %q, want %q", c.reason, c.text, got, c.want)
			}
		})
	}
}

func TestSpecialTokens(t *testing.T) {
	bpe := byteVocab("< s", "<s >")
	bpe.Tokens[slices.Index(bpe.Tokens, "<s>")] = "merged" // the result of the merge; <s> stays the control token
	bpe.Merges = bpe.Merges[:1]
	long := byteVocab()
	long.add("<s><s>", typeControl)
	long.add("b<s", typeUserDefined)
	phi := scoreVocab("a", "b", spaceMark, "\n", spaceMark+"a", spaceMark+"b")
	for _, special := range []string{"<|assistant|>", "<|end|>", "<|placeholder1|>", "<|endoftext|>"} {
		phi.add(special, typeControl)
		phi.Scores = append(phi.Scores, 0)
	}
	zero := Vocab{
		Model: "llama", Tokens: []string{"<code>", "a", "<unk>"}, Scores: []float32{0, 0, 0},
		Types: []int32{typeUserDefined, typeNormal, typeUnknown}, BOS: -1, EOS: -1, EOT: -1, EOM: -1, UNK: 2,
	}
	space := spaceMark
	for _, c := range []struct {
		name, reason string
		vocab        Vocab
		text         string
		special      bool
		want         []string
	}{
		{"control parsed", "special: the text of a control token is the token", bpe, "a<s>b", true, []string{"a", "<s>", "b"}},
		{"control not parsed", "otherwise it is text", bpe, "a<s>b", false, []string{"a", "<", "s", ">", "b"}},
		{"user-defined, special", "user-defined tokens are taken always", bpe, "a<code>b", true, []string{"a", "<code>", "b"}},
		{"user-defined, not special", "user-defined tokens are taken always", bpe, "a<code>b", false, []string{"a", "<code>", "b"}},
		{"only a special token", "nothing is left around it", bpe, "<s>", true, []string{"<s>"}},
		{"special tokens side by side", "nothing is between them", bpe, "<s></s><s>", true, []string{"<s>", "</s>", "<s>"}},
		{"longest first", "of two that begin at one place", long, "<s><s><s>", true, []string{"<s><s>", "<s>"}},
		{"longest first from the right", "also when a shorter one begins before it", long, "b<s><s>", true, []string{"b", "<s><s>"}},
		{"equally long", "the one with the lower id", long, "b<s>", true, []string{"b", "<s>"}},
		{"what is left", "is looked through for shorter ones", long, "b<s<s><s>", true, []string{"b<s", "<s><s>"}},
		{"half a special token", "text", bpe, "<s", true, []string{"<", "s"}},

		{"prefix after a special token", "the text after a special token gets a space too", phi, "a<|end|>b", true, []string{space + "a", "<|end|>", space + "b"}},
		{"white space after a special token", "Phi-3's tokens swallow it", phi, "<|end|> \n a", true, []string{"<|end|>", space + "a"}},
		{"white space only", "nothing is left of it", phi, "<|end|> \n", true, []string{"<|end|>"}},
		{"white space after the exceptions", "<|endoftext|>, <s> and <unk> leave it", phi, "<|endoftext|>\na", true, []string{"<|endoftext|>", space, "\n", "a"}},
		{"prefix after token 0", "it is a special token like any other", phi, "a<unk>b<|end|><unk>a", true, []string{space + "a", "<unk>", space + "b", "<|end|>", "<unk>", space + "a"}},
		{"user-defined token 0", "it is matched always", zero, "a<code>a", false, []string{"a", "<code>", "a"}},
		{"white space not parsed", "a token that is not taken swallows nothing", phi, "a \n", false, []string{space + "a", space, "\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, c.vocab)
			if got := tok.texts(tok.Encode(c.text, c.special)); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q becomes %q, want %q", c.reason, c.text, got, c.want)
			}
		})
	}
}

func TestPrompt(t *testing.T) {
	both := byteVocab()
	both.AddBOS, both.AddEOS = new(true), true
	bos := byteVocab()
	bos.AddBOS = new(true)
	gemma := characterVocab("a")
	gemma.AddBOS = new(false)
	for _, c := range []struct {
		name, reason string
		vocab        Vocab
		text         string
		special      bool
		want         []string
	}{
		{"neither", "the vocabulary asks for nothing", byteVocab(), "a", true, []string{"a"}},
		{"BOS", "at the beginning", bos, "a", true, []string{"<s>", "a"}},
		{"BOS and EOS", "at both ends", both, "a", true, []string{"<s>", "a", "</s>"}},
		{"empty text", "BOS alone", bos, "", true, []string{"<s>"}},
		{"BOS in the text", "chat templates write it themselves: once is enough", bos, "<s>a", true, []string{"<s>", "a"}},
		{"gemma4", "BOS, whatever the file says", gemma, "a", false, []string{"<s>", "a"}},
		{"BOS as text", "not parsed, it is no BOS", bos, "<s>", false, []string{"<s>", "<", "s", ">"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, c.vocab)
			if got := tok.promptTexts(c.text, c.special); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q becomes %q, want %q", c.reason, c.text, got, c.want)
			}
		})
	}
}

// TestPromptLimit compares the smallest possible limit with the one below it, and encodes
// longer texts, which must not take more memory than the limit allows.
func TestPromptLimit(t *testing.T) {
	long := strings.Repeat("x", 1<<11) // the longest token
	bos := byteVocab("a a")
	bos.AddBOS = new(true)
	bos.add(long, typeNormal)
	both := byteVocab("a a")
	both.AddBOS, both.AddEOS = new(true), true
	both.add("\n\n", typeUserDefined)
	both.add(long, typeNormal)
	words := scoreVocab(spaceMark+"a", "a", spaceMark, long)
	crossing := scoreVocab("a"+spaceMark+"a", "a", spaceMark)
	normalized := byteVocab()
	normalized.Pre = "qwen2"
	normalized.Merges = []string{"\u00ce \u0132"} // the bytes of U+0390
	normalized.add("\u00ce\u0132", typeNormal)
	lines := characterVocab("a\n"+spaceMark, "a a")
	lines.add(long, typeNormal)
	phi := scoreVocab("a", spaceMark)
	for _, token := range []string{"<|assistant|>", "<|end|>", "<|placeholder1|>"} {
		phi.add(token, typeControl)
		phi.Scores = append(phi.Scores, 0)
	}
	for _, c := range []struct {
		name, reason string
		vocab        Vocab
		text         string
		want         int    // tokens
		more         string // makes the text longer
		stops        bool   // encoding ends at the limit, inside of a text that longer tokens could encode
	}{
		{"words", "BOS and EOS count", both, "aa a", 5, " b", true},
		{"a word", "it is not merged", both, "aaa", 4, "b", false},
		{"BOS in the text", "the second BOS does not count", bos, "<s>a", 2, " b", true},
		{"BOS and EOS", "the second BOS does not count", both, "<s>", 2, "<s>", false},
		{"nothing", "BOS and EOS", both, "", 2, "\n\n", false},
		{"user-defined tokens", "runs of them are one part", both, "\n\n\n\n", 4, "\n\n", false},
		{"SentencePiece", "word by word", words, "a a", 2, " a", true},
		{"SentencePiece, one word", "it is not merged", words, "aa", 2, "a", false},
		{"a token across words", "the text is not merged", crossing, "aa", 3, "a", false},
		{"normalization", "seven bytes become a token of two", normalized, strings.Repeat("\u1fbe\u0308\u0301", 40), 40, "b", false},
		{"lines", "line by line", lines, "aa\na", 4, "\na", true},
		{"Phi-3", "white space behind a special token has no token of its own", phi, "<|end|>  a<|end|> ", 4, "<|end|> a", true},
		{"Phi-3, white space", "white space before a special token is text", phi, "a ", 3, " ", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, c.vocab)
			ids, ok := tok.Prompt(c.text, true, c.want)
			if len(ids) != c.want || !ok {
				t.Errorf("%s: %q becomes %q, %v; want %d tokens", c.reason, c.text, tok.texts(ids), ok, c.want)
			}
			if ids, ok := tok.Prompt(c.text, true, c.want-1); ok || ids != nil {
				t.Errorf("%s: %q becomes %q within a limit of %d", c.reason, c.text, tok.texts(ids), c.want-1)
			}
			const limit = 100
			sizes := []int{1 << 22}
			if c.stops {
				sizes = append(sizes, limit*len(long))
			}
			for _, size := range sizes {
				text := c.text + strings.Repeat(c.more, size/len(c.more))
				bounded(t, limit, func() {
					if _, ok := tok.Prompt(text, true, limit); ok {
						t.Errorf("%s: %d bytes become %d tokens", c.reason, len(text), limit)
					}
				})
			}
		})
	}
}

func TestTokens(t *testing.T) {
	v := byteVocab("a b")
	v.EOT = v.add("<turn>", typeControl)
	v.add("<|im_end|>", typeControl)
	v.add("<|eot_id|>", typeNormal)
	v.add("<unused>", typeUnused)
	tok := mustNew(t, v)
	for _, c := range []struct {
		name, reason, text, bytes string
		stops                     bool
	}{
		{"letter", "a byte-level token stands for its bytes", "ab", "ab", false},
		{"space", "in the alphabet of bytes", "\u0120", " ", false},
		{"EOS", "control tokens stand for no text", "</s>", "", true},
		{"BOS", "it ends nothing", "<s>", "", false},
		{"EOT", "named by the file", "<turn>", "", true},
		{"known ending", "a control token of that name", "<|im_end|>", "", true},
		{"known ending as text", "not if it is no control token", "<|eot_id|>", "<|eot_id|>", false},
		{"user-defined", "its text as it stands", "<code>", "<code>", false},
		{"unused", "no text", "<unused>", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := slices.Index(v.Tokens, c.text)
			if got := string(tok.Bytes(id)); got != c.bytes {
				t.Errorf("%s: Bytes gives %q, want %q", c.reason, got, c.bytes)
			}
			if got := tok.Stops(id); got != c.stops {
				t.Errorf("%s: Stops gives %v, want %v", c.reason, got, c.stops)
			}
		})
	}
	for _, id := range []int{-1, len(tok.vocab.Tokens), math.MaxInt} {
		if tok.text(id) != "" || len(tok.Bytes(id)) != 0 || tok.Stops(id) || tok.Decode([]int{id}) != "" {
			t.Errorf("id %d is outside the vocabulary and stands for something", id)
		}
	}
	v.BOS = -1
	if id, ok := mustNew(t, v).BOS(); ok {
		t.Errorf("BOS gives %d where there is none", id)
	}
}

// TestEndOfTurn has the control tokens that end a turn in published vocabularies whose files
// do not all name them.
func TestEndOfTurn(t *testing.T) {
	for text, want := range map[string]bool{
		"<|endoftext|>": true, "<|end_of_text|>": true, "</s>": true, "<EOT>": true, "<|eot_id|>": true,
		"<|eom_id|>": true, "<|im_end|>": true, "<|end|>": true, "<end_of_turn>": true, "<turn|>": true,
		"<|return|>": true, "<|call|>": true, "<|turn>": false,
		"<|start_header_id|>": false, "<|im_start|>": false, "<start_of_turn>": false, "<|python_tag|>": false,
	} {
		v := byteVocab()
		v.EOS = -1
		id := v.add(text, typeControl)
		if got := mustNew(t, v).Stops(id); got != want {
			t.Errorf("%s ends a text: %v, want %v", text, got, want)
		}
	}
	v := byteVocab()
	end := v.add("<|end|>", typeControl)
	v.add("<|return|>", typeControl)
	if mustNew(t, v).Stops(end) {
		t.Error("<|end|> ends a text of GPT-OSS")
	}
}

// TestConcurrent encodes and decodes from many goroutines, for the race detector.
func TestConcurrent(t *testing.T) {
	v := byteVocab("a b", "ab c")
	v.ChatTemplate = "{% for m in messages %}{{ m.content }}{% endfor %}"
	tok := mustNew(t, v)
	text := strings.Repeat("abc <s>\u00e9 ", 20)
	want := tok.Encode(text, true)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if !slices.Equal(tok.Encode(text, true), want) || tok.Decode(want) != strings.ReplaceAll(text, "<s>", "") {
					t.Error("the result depends on other goroutines")
				}
				if got, err := tok.rendered([]Message{{Role: "user", Content: "x"}}, true); err != nil || got != "x" {
					t.Errorf("Chat gives %q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}
