// Package tokenizer turns text into token ids and back, and conversations into
// prompts, by the vocabulary of a model file.
//
// Two families are understood: byte-level BPE ("gpt2" in GGUF files) and
// SentencePiece-style BPE ("llama"). Special tokens are cut out of a text first:
// user-defined ones always, control and unknown ones only when asked for, so
// that a user's text cannot steer the model by accident.
package tokenizer

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tokenizer encodes and decodes by one vocabulary.
// It is safe for concurrent use.
type Tokenizer struct {
	vocab    Vocab
	specials *specials
	pieces   spellings
	stops    []bool // by token
	bpe      *bpe   // one of the two is set
	spm      *spm
	chat     chat
}

// New checks a vocabulary and makes a tokenizer of it. The slices of v are kept
// and must not be changed. A vocabulary that contradicts itself is refused with
// one of this package's errors.
func New(v Vocab) (*Tokenizer, error) {
	t, err := build(v)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

func build(v Vocab) (*Tokenizer, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	ids, err := newIndex(&v)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{vocab: v}
	switch v.Model {
	case "gpt2":
		t.bpe, err = newBPE(&v, ids)
	case "llama":
		t.spm, err = newSPM(&v, ids)
	}
	if err != nil {
		return nil, err
	}
	t.pieces, t.stops, t.specials = newSpellings(&v), v.stops(), newSpecials(&v)
	t.chat.source = v.ChatTemplate
	return t, nil
}

// Len is the number of tokens.
func (t *Tokenizer) Len() int { return len(t.vocab.Tokens) }

// Encode turns text into ids, without BOS or EOS. special says whether the text
// of control tokens becomes those tokens; otherwise it is text like any other.
// Bytes that are not UTF-8 are kept when the vocabulary has tokens for bytes.
func (t *Tokenizer) Encode(text string, special bool) []int {
	return t.encode(nil, text, special)
}

// Prompt is Encode with the BOS and EOS tokens that the vocabulary asks for.
// A text that brings its own BOS, as chat templates do, gets no second one.
func (t *Tokenizer) Prompt(text string, special bool) []int {
	bos, eos := t.vocab.BOS, t.vocab.EOS
	var ids []int
	if t.vocab.AddBOS {
		ids = append(ids, bos)
	}
	ids = t.encode(ids, text, special)
	if t.vocab.AddBOS && len(ids) > 1 && ids[1] == bos {
		ids = ids[1:]
	}
	if t.vocab.AddEOS {
		ids = append(ids, eos)
	}
	return ids
}

func (t *Tokenizer) encode(dst []int, text string, special bool) []int {
	first := true
	for _, f := range t.specials.split(text, special) {
		switch {
		case f.token >= 0:
			dst = append(dst, f.token)
		case t.bpe != nil:
			dst = t.bpe.encode(dst, f.text)
		default:
			dst = t.spm.encode(dst, f.text, first)
		}
		first = f.token >= 0
	}
	return dst
}

// Token is the text of a token as the vocabulary writes it, "" for an id
// outside the vocabulary.
func (t *Tokenizer) Token(id int) string {
	if id < 0 || id >= len(t.vocab.Tokens) {
		return ""
	}
	return t.vocab.Tokens[id]
}

// Bytes are the bytes that a token stands for: none for control, unknown and
// unused tokens and for ids outside the vocabulary.
func (t *Tokenizer) Bytes(id int) []byte { return bytes.Clone(t.pieces.of(id)) }

// Stops reports whether a token ends generation: EOS, EOT, EOM, and the tokens
// that are known to end a turn or a text whatever the file says.
func (t *Tokenizer) Stops(id int) bool { return id >= 0 && id < len(t.stops) && t.stops[id] }

// BOS is the token that begins a text.
func (t *Tokenizer) BOS() (id int, ok bool) { return t.vocab.BOS, t.vocab.BOS >= 0 }

// EOS is the token that ends a text.
func (t *Tokenizer) EOS() (id int, ok bool) { return t.vocab.EOS, t.vocab.EOS >= 0 }

// knownPre lists the names of the pre-tokenizers.
func knownPre() string {
	names := slices.Collect(maps.Keys(preTokenizers))
	for name := range preAliases {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
