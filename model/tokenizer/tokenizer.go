// Package tokenizer converts text to token ids and back, and conversations to prompts,
// by the vocabulary of a model file.
//
// It supports BPE by merges ("gpt2" and "gemma4" in GGUF files) and SentencePiece BPE
// ("llama").
// Special tokens are matched before BPE runs: user-defined ones always, control and
// unknown ones only on request, so that a user's text cannot inject control tokens.
package tokenizer

import (
	"bytes"
	"fmt"
	"math"
)

// Tokenizer encodes and decodes with one vocabulary. It is safe for concurrent use.
type Tokenizer struct {
	vocab    Vocab
	specials *specials
	bytes    tokenBytes
	longest  int    // bytes of text that a token of the vocabulary stands for, at most
	stops    []bool // [vocab]
	bpe      *bpe   // nil for a SentencePiece vocabulary
	spm      *spm   // nil for all others
	chat     chat
	toolChat chat // for conversations with tools; without a source chat is used
}

// New checks a vocabulary and returns its tokenizer. It keeps the slices of v, which
// must not change. Errors wrap ErrVocab or ErrUnsupported.
func New(v Vocab) (*Tokenizer, error) {
	t, err := build(v)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

func build(v Vocab) (*Tokenizer, error) {
	pre := v.preTokenizer()
	if v.AddBOS == nil || v.Model == "gemma4" { // some files of gemma4 say false
		v.AddBOS = new(pre.addBOS && v.BOS >= 0)
	}
	if err := v.check(); err != nil {
		return nil, err
	}
	v.controlStops()
	ids, err := newIndex(&v)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{vocab: v}
	switch v.Model {
	case "gpt2", "gemma4":
		t.bpe, err = newBPE(&v, ids, pre)
	case "llama":
		t.spm, err = newSPM(&v, ids)
	}
	if err != nil {
		return nil, err
	}
	if t.specials, err = newSpecials(&v); err != nil {
		return nil, err
	}
	t.bytes, t.stops, t.longest = newTokenBytes(&v, pre.raw), v.stops(), v.longest(pre.nfc)
	t.chat.source, t.toolChat.source = v.ChatTemplate, v.ToolTemplate
	return t, nil
}

// Encode converts text to ids, without BOS or EOS. If special is true, the text of
// control tokens becomes those tokens; otherwise it is ordinary text. Bytes that are not
// UTF-8 are kept if the vocabulary has byte tokens.
func (t *Tokenizer) Encode(text string, special bool) []int {
	ids, _ := t.encode(nil, newText(text, special), math.MaxInt)
	return ids
}

// Prompt is Encode with the BOS and EOS tokens that the vocabulary asks for. If the text
// itself begins with BOS, as the output of a chat template does, Prompt adds no second one.
//
// ok is false if the prompt has more than limit tokens. Then Prompt returns no ids, and has
// encoded no more text than limit tokens can stand for.
func (t *Tokenizer) Prompt(text string, special bool, limit int) (ids []int, ok bool) {
	return t.PromptText(newText(text, special), limit)
}

// PromptText is Prompt for a rendered conversation: only the template's text may become
// control tokens.
func (t *Tokenizer) PromptText(text Text, limit int) (ids []int, ok bool) {
	bos, eos := t.vocab.BOS, t.vocab.EOS
	if *t.vocab.AddBOS {
		ids = append(ids, bos)
	}
	most := min(limit, math.MaxInt-1) + 1 // the text may have a BOS of its own
	if ids, ok = t.encode(ids, text, most); !ok {
		return nil, false
	}
	if *t.vocab.AddBOS && len(ids) > 1 && ids[1] == bos {
		ids = ids[1:]
	}
	if t.vocab.AddEOS {
		ids = append(ids, eos)
	}
	if len(ids) > limit {
		return nil, false
	}
	return ids, true
}

// encode appends the tokens of text. It returns ok false as soon as there are more than
// limit ids.
func (t *Tokenizer) encode(dst []int, x Text, limit int) (ids []int, ok bool) {
	fits := func(text string) bool { return len(text)/t.longest <= limit-len(dst) }
	if !t.specials.rstrip && !fits(x.s) { // with rstrip, a token may stand for any number of spaces
		return nil, false
	}
	first := true
	for f := range t.specials.split(x) {
		if !fits(f.text) {
			return nil, false
		}
		switch {
		case f.token >= 0:
			dst = append(dst, f.token)
		case t.bpe != nil:
			dst = t.bpe.encode(dst, f.text, limit)
		default:
			dst = t.spm.encode(dst, f.text, first, limit)
		}
		first = f.token >= 0
	}
	return dst, len(dst) <= limit
}

// text returns the text of a token in the vocabulary, or "" for an id outside it.
func (t *Tokenizer) text(id int) string {
	if id < 0 || id >= len(t.vocab.Tokens) {
		return ""
	}
	return t.vocab.Tokens[id]
}

// Bytes returns a copy of the bytes that a token decodes to. Control, unknown and unused
// tokens and ids outside the vocabulary have none.
func (t *Tokenizer) Bytes(id int) []byte { return bytes.Clone(t.bytes.of(id)) }

// Stops reports whether a token ends generation: EOS, EOT, EOM, or a well-known
// end-of-turn token such as <|im_end|>.
func (t *Tokenizer) Stops(id int) bool { return id >= 0 && id < len(t.stops) && t.stops[id] }

// Control returns the text of a control token in the vocabulary, such as <|im_end|>, and ""
// for any other token. Decode gives control tokens no text.
func (t *Tokenizer) Control(id int) string {
	if id < 0 || id >= len(t.vocab.Tokens) || t.vocab.kind(id) != typeControl {
		return ""
	}
	return t.vocab.Tokens[id]
}

// BOS returns the id of the beginning-of-text token, and whether there is one.
func (t *Tokenizer) BOS() (id int, ok bool) { return t.vocab.BOS, t.vocab.BOS >= 0 }
