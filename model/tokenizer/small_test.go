package tokenizer

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

// byteVocab returns a small byte-level vocabulary: 256 bytes, the results of the merges,
// and three special tokens.
func byteVocab(merges ...string) Vocab {
	v := Vocab{Model: "gpt2", Pre: "gpt-2", Merges: merges, EOT: -1, EOM: -1, UNK: -1}
	for _, r := range byteRunes {
		v.add(string(r), typeNormal)
	}
	for _, m := range merges {
		var left, right string
		fmt.Sscanf(m, "%s %s", &left, &right)
		v.add(left+right, typeNormal)
	}
	v.BOS = v.add("<s>", typeControl)
	v.EOS = v.add("</s>", typeControl)
	v.add("<code>", typeUserDefined)
	return v
}

// scoreVocab returns a small SentencePiece vocabulary: an unknown token, BOS, EOS, 256 byte
// tokens, and the texts with the scores -1, -2, …
func scoreVocab(texts ...string) Vocab {
	v := Vocab{Model: "llama", AddBOS: new(false), AddSpacePrefix: true, EOT: -1, EOM: -1}
	v.UNK = v.add("<unk>", typeUnknown)
	v.BOS = v.add("<s>", typeControl)
	v.EOS = v.add("</s>", typeControl)
	for b := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", b), typeByte)
	}
	v.Scores = make([]float32, len(v.Tokens))
	for i, text := range texts {
		v.add(text, typeNormal)
		v.Scores = append(v.Scores, float32(-1-i))
	}
	return v
}

// characterVocab returns a small vocabulary of the kind of gemma4: an unknown token, BOS, EOS,
// 256 byte tokens, the characters, and the results of the merges.
func characterVocab(characters string, merges ...string) Vocab {
	v := Vocab{Model: "gemma4", Merges: merges, EOT: -1, EOM: -1}
	v.UNK = v.add("<unk>", typeUnknown)
	v.BOS = v.add("<s>", typeControl)
	v.EOS = v.add("</s>", typeControl)
	for b := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", b), typeByte)
	}
	for _, r := range characters {
		v.add(string(r), typeNormal)
	}
	for _, m := range merges {
		v.add(strings.ReplaceAll(m, " ", ""), typeNormal)
	}
	return v
}

// add appends a token and returns its id.
func (v *Vocab) add(text string, kind int32) int {
	v.Tokens = append(v.Tokens, text)
	v.Types = append(v.Types, kind)
	return len(v.Tokens) - 1
}

func mustNew(t testing.TB, v Vocab) *Tokenizer {
	t.Helper()
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// texts returns the texts of tokens.
func (t *Tokenizer) texts(ids []int) []string {
	out := []string{}
	for _, id := range ids {
		out = append(out, t.text(id))
	}
	return out
}

// promptTexts returns the texts of the tokens of a prompt of any length.
func (t *Tokenizer) promptTexts(text string, special bool) []string {
	ids, _ := t.Prompt(text, special, math.MaxInt)
	return t.texts(ids)
}

// raw returns the bytes of tokens.
func (t *Tokenizer) raw(ids []int) string {
	var b []byte
	for _, id := range ids {
		b = append(b, t.Bytes(id)...)
	}
	return string(b)
}

// bounded fails if f, which works on an input of n bytes, takes more memory or time than any
// input of that size should. The bounds are about ten times as high as what a bad input takes.
func bounded(t testing.TB, n int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if took > 2*time.Second+time.Duration(n)*10*time.Microsecond {
		t.Errorf("%d bytes took %v", n, took)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20+uint64(n)<<11 {
		t.Errorf("%d bytes took %d bytes of memory", n, used)
	}
}
