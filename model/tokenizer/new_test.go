package tokenizer

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestNewRefuses applies one change to a good vocabulary.
func TestNewRefuses(t *testing.T) {
	bpe := func(change func(v *Vocab)) Vocab {
		v := byteVocab("a b", "ab c")
		change(&v)
		return v
	}
	spm := func(change func(v *Vocab)) Vocab {
		v := scoreVocab("a", "b", "ab", spaceMark)
		change(&v)
		return v
	}
	for _, c := range []struct {
		name, reason string
		vocab        Vocab
		want         error
		says         string
	}{
		{"no tokens", "nothing can be encoded", Vocab{Model: "gpt2"}, errEmptyVocab, ""},
		{"unknown model", "the known ones are listed", bpe(func(v *Vocab) { v.Model = "bert" }), errUnknownModel, `tokenizer.ggml.model is "bert": want gpt2, gemma4 or llama`},
		{"unknown pre-tokenizer", "the key and its value are named", bpe(func(v *Vocab) { v.Pre = "gpt-22" }), errUnknownPre, `tokenizer.ggml.pre is "gpt-22"`},
		{"a type too few", "types go by index", bpe(func(v *Vocab) { v.Types = v.Types[1:] }), errLengths, ""},
		{"a type too many", "types go by index", bpe(func(v *Vocab) { v.Types = append(v.Types, typeNormal) }), errLengths, ""},
		{"a score too few", "scores go by index", spm(func(v *Vocab) { v.Scores = v.Scores[1:] }), errLengths, ""},
		{"no scores", "merging by scores needs them", spm(func(v *Vocab) { v.Scores = nil }), errLengths, "needs scores"},
		{"type 0", "GGUF's undefined type", bpe(func(v *Vocab) { v.Types[0] = 0 }), errTokenType, "type 0"},
		{"type 7", "there are six types", bpe(func(v *Vocab) { v.Types[0] = 7 }), errTokenType, "type 7"},
		{"BOS beyond the vocabulary", "ids are indices", bpe(func(v *Vocab) { v.BOS = len(v.Tokens) }), errTokenID, "BOS"},
		{"EOS beyond the vocabulary", "ids are indices", bpe(func(v *Vocab) { v.EOS = math.MaxInt }), errTokenID, "EOS"},
		{"EOT beyond the vocabulary", "ids are indices", bpe(func(v *Vocab) { v.EOT = len(v.Tokens) }), errTokenID, "EOT"},
		{"EOM beyond the vocabulary", "ids are indices", bpe(func(v *Vocab) { v.EOM = len(v.Tokens) }), errTokenID, "EOM"},
		{"UNK beyond the vocabulary", "ids are indices", bpe(func(v *Vocab) { v.UNK = len(v.Tokens) }), errTokenID, "UNK"},
		{"EOM below none", "only -1 is none", bpe(func(v *Vocab) { v.EOM = -2 }), errTokenID, "EOM"},
		{"BOS to be added but none", "Prompt could not begin", bpe(func(v *Vocab) { v.BOS, v.AddBOS = -1, new(true) }), errMissingToken, "BOS"},
		{"EOS to be added but none", "Prompt could not end", bpe(func(v *Vocab) { v.EOS, v.AddEOS = -1, true }), errMissingToken, "EOS"},
		{"two tokens of one text", "one of them could never be made", bpe(func(v *Vocab) { v.Tokens[5] = v.Tokens[6] }), errDuplicateToken, "5 and 6"},
		{"a byte without a token", "text with it could not be encoded", bpe(func(v *Vocab) { v.Tokens[0x41] = "long" }), errMissingByte, "0x41"},
		{"merge of one part", "a merge joins two", bpe(func(v *Vocab) { v.Merges[1] = "abc" }), errMerge, "two parts"},
		{"merge of three parts", "a merge joins two", bpe(func(v *Vocab) { v.Merges[1] = "a b c" }), errMerge, "two parts"},
		{"merge with an empty part", "a merge joins two", bpe(func(v *Vocab) { v.Merges[1] = " ab" }), errMerge, "two parts"},
		{"merge of nothing", "a merge joins two", bpe(func(v *Vocab) { v.Merges[1] = "" }), errMerge, "two parts"},
		{"merge of an unknown left", "it could never apply", bpe(func(v *Vocab) { v.Merges[1] = "zz c" }), errMerge, `"zz" is not`},
		{"merge of an unknown right", "it could never apply", bpe(func(v *Vocab) { v.Merges[1] = "a zz" }), errMerge, `"zz" is not`},
		{"merge into nothing known", "its result would have no id", bpe(func(v *Vocab) { v.Merges[1] = "b a" }), errMerge, "result"},
		{"merge into a control token", "text must not become one", bpe(func(v *Vocab) {
			v.Types[slices.Index(v.Tokens, "abc")] = typeControl
		}), errMerge, "result"},
		{"a special token of megabytes", "each prefix takes memory", bpe(func(v *Vocab) { v.add(strings.Repeat("x", maxNodes), typeControl) }), errSpecials, "at most 2097152"},
		{"score NaN", "it has no place in an order", spm(func(v *Vocab) { v.Scores[3] = float32(math.NaN()) }), errScore, "token 3"},
		{"byte token misspelled", "its byte is unknown", spm(func(v *Vocab) { v.Tokens[3] = "<0x0>" }), errByteToken, "<0xNN>"},
		{"byte token without hex", "its byte is unknown", spm(func(v *Vocab) { v.Tokens[3] = "<0xGG>" }), errByteToken, "<0xNN>"},
		{"byte token twice", "one of them could never be made", spm(func(v *Vocab) { v.Tokens[3] = "<0x01>" }), errByteToken, "0x01"},
		{"byte token missing", "some characters could not be encoded", spm(func(v *Vocab) { v.Tokens[3], v.Types[3] = "x", typeNormal }), errMissingByte, "0x00"},
		{"gemma4 with a byte token missing", "some characters could not be encoded", func() Vocab {
			v := characterVocab("a")
			v.Tokens[3], v.Types[3] = "x", typeNormal
			return v
		}(), errMissingByte, "0x00"},
		{"no byte tokens and no unknown", "most characters could not be encoded", spm(func(v *Vocab) {
			*v = Vocab{Model: "llama", Tokens: []string{"a"}, Scores: []float32{0}, BOS: -1, EOS: -1, EOT: -1, EOM: -1, UNK: -1}
		}), errMissingByte, "0x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok, err := New(c.vocab)
			if !errors.Is(err, c.want) || tok != nil {
				t.Fatalf("%s: New gives %v, want %v", c.reason, err, c.want)
			}
			if !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "tokenizer: ") {
				t.Errorf("the error %q does not say %q", err, c.says)
			}
		})
	}
}

// TestNewAccepts has unusual vocabularies that exist in files.
func TestNewAccepts(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		vocab        func() Vocab
		text         string
		want         []string
	}{
		{"no types", "all are normal", func() Vocab {
			v := byteVocab("a b")
			v.Types = nil
			return v
		}, "abc", []string{"ab", "c"}},
		{"no pre-tokenizer", "old files: it is default", func() Vocab {
			v := byteVocab("a b")
			v.Pre = ""
			return v
		}, "ab1234", []string{"ab", "1", "2", "3", "4"}},
		{"a missing byte and an unknown token", "the unknown token stands in", func() Vocab {
			v := byteVocab()
			v.Tokens['b'] = "long"
			v.UNK = v.add("<unk>", typeUnknown)
			return v
		}, "abc", []string{"a", "<unk>", "c"}},
		{"a merge listed twice", "the first counts", func() Vocab {
			return byteVocabWith([]string{"a b", "b c", "a b"}, "ab", "bc")
		}, "abc", []string{"ab", "c"}},
		{"control tokens of one text", "reserved tokens are never made from text", func() Vocab {
			v := byteVocab()
			v.add("<s>", typeControl)
			return v
		}, "a", []string{"a"}},
		{"empty token", "padding of the embedding", func() Vocab {
			v := byteVocab()
			v.add("", typeNormal)
			v.add("", typeNormal)
			return v
		}, "a", []string{"a"}},
		{"SentencePiece without byte tokens", "unknown characters become the unknown token", func() Vocab {
			return Vocab{
				Model: "llama", Tokens: []string{"<unk>", "a"}, Scores: []float32{0, 0},
				Types: []int32{typeUnknown, typeNormal}, BOS: -1, EOS: -1, EOT: -1, EOM: -1,
			}
		}, "a\u00e9a", []string{"a", "<unk>", "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, c.vocab())
			if got := tok.texts(tok.Encode(c.text, false)); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q becomes %q, want %q", c.reason, c.text, got, c.want)
			}
		})
	}
}

// byteVocabWith returns byteVocab with merges and separate results.
func byteVocabWith(merges []string, results ...string) Vocab {
	v := byteVocab()
	v.Merges = merges
	for _, r := range results {
		v.add(r, typeNormal)
	}
	return v
}
