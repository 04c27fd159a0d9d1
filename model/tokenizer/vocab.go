package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Token types: the values of tokenizer.ggml.token_type in the GGUF specification.
const (
	typeNormal      = 1
	typeUnknown     = 2 // replaces text that has no tokens
	typeControl     = 3 // has no text, for example BOS
	typeUserDefined = 4 // text that is always one token
	typeUnused      = 5
	typeByte        = 6 // one byte, written <0xNN>
)

// Vocab is the vocabulary of a model file. New checks it.
type Vocab struct {
	// Model is the algorithm: "gpt2" for BPE by merges, "gemma4" for the same with the
	// pre-tokenizer of that name, or "llama" for SentencePiece BPE by scores.
	Model string
	// Pre is the name of the pre-tokenizer of a "gpt2" vocabulary; "" means "default".
	Pre string

	Tokens []string  // [vocab]: the text of each token; its id is the index
	Scores []float32 // [vocab]: merge priorities of a "llama" vocabulary, higher first; may be empty for others
	Types  []int32   // [vocab]: tokenizer.ggml.token_type; empty if all tokens are normal
	Merges []string  // merges as "left right", highest priority first; not used for "llama"

	BOS, EOS, EOT, EOM, UNK int // ids, -1 if absent

	AddBOS         *bool  // Prompt begins with BOS; nil: if there is one and it usually does with this Model and Pre
	AddEOS         bool   // Prompt ends with EOS
	AddSpacePrefix bool   // text of a "llama" vocabulary gets a leading space
	ChatTemplate   string // Jinja source; "" if absent
	ToolTemplate   string // the chat template for conversations with tools; "" if it is ChatTemplate
}

// endOfTurn lists control and user-defined tokens that end generation even if the file does
// not name them as EOS, EOT or EOM.
var endOfTurn = map[string]bool{
	"<|endoftext|>": true, "<|end_of_text|>": true, "</s>": true, "<EOT>": true,
	"<|eot_id|>": true, "<|eom_id|>": true, // Llama 3
	"<|im_end|>":    true, // ChatML
	"<|end|>":       true, // Phi
	"<end_of_turn>": true, // Gemma
	"<turn|>":       true, // Gemma 4
	gemmaResponse:   true,
	"<|eot|>":       true, // Llama 4
	"<|eom|>":       true,
	harmonyReturn:   true, // GPT-OSS
	"<|call|>":      true,
}

// harmonyReturn ends an answer of GPT-OSS, whose <|end|> only ends a message before the answer.
const harmonyReturn = "<|return|>"

// gemmaResponse is what Gemma 4 generates after calls of tools, where their results begin. In its
// vocabulary </s> is a tag of HTML.
const gemmaResponse = "<|tool_response>"

// check refuses inconsistencies that do not depend on the algorithm.
func (v *Vocab) check() error {
	n := len(v.Tokens)
	if n == 0 {
		return errEmptyVocab
	}
	if len(v.Scores) != 0 && len(v.Scores) != n || len(v.Types) != 0 && len(v.Types) != n {
		return fmt.Errorf("%w: %d tokens, %d scores, %d types", errLengths, n, len(v.Scores), len(v.Types))
	}
	for id, kind := range v.Types {
		if kind < typeNormal || kind > typeByte {
			return fmt.Errorf("%w: token %d %.80q has type %d", errTokenType, id, v.Tokens[id], kind)
		}
	}
	if err := v.checkIDs(); err != nil {
		return err
	}
	// This check is last, because a caller may accept an unknown algorithm.
	if v.Model != "gpt2" && v.Model != "gemma4" && v.Model != "llama" {
		return fmt.Errorf("%w: tokenizer.ggml.model is %.80q: want gpt2, gemma4 or llama", errUnknownModel, v.Model)
	}
	return nil
}

// preTokenizer returns the pre-tokenizer, without splitters if its name is unknown. A
// SentencePiece vocabulary has none, but the same properties.
func (v *Vocab) preTokenizer() preTokenizer {
	name := v.Pre
	switch {
	case v.Model == "llama":
		return preTokenizer{addBOS: true, raw: true}
	case v.Model == "gemma4":
		name = "gemma4"
	case name == "":
		name = "default"
	}
	for _, p := range preTokenizers {
		if slices.Contains(strings.Fields(p.names), name) {
			return p
		}
	}
	return preTokenizer{}
}

func (v *Vocab) checkIDs() error {
	for _, special := range []struct {
		name   string
		id     int
		needed bool
	}{
		{"BOS", v.BOS, *v.AddBOS}, {"EOS", v.EOS, v.AddEOS},
		{"EOT", v.EOT, false}, {"EOM", v.EOM, false}, {"UNK", v.UNK, false},
	} {
		if special.id < -1 || special.id >= len(v.Tokens) {
			return fmt.Errorf("%w: %s is %d of %d", errTokenID, special.name, special.id, len(v.Tokens))
		}
		if special.needed && special.id < 0 {
			return fmt.Errorf("%w: %s", errMissingToken, special.name)
		}
	}
	return nil
}

// kind returns the type of token id.
func (v *Vocab) kind(id int) int32 {
	if len(v.Types) == 0 {
		return typeNormal
	}
	return v.Types[id]
}

// matchable reports whether merging plain text may produce token id. Control and
// unknown tokens are not text, and byte tokens only replace characters without a token.
func (v *Vocab) matchable(id int) bool {
	switch v.kind(id) {
	case typeControl, typeUnknown, typeByte:
		return false
	}
	return v.Tokens[id] != ""
}

// special reports whether token id is matched in a text before BPE runs.
func (v *Vocab) special(id int) bool {
	switch v.kind(id) {
	case typeControl, typeUnknown, typeUserDefined:
		return v.Tokens[id] != ""
	}
	return false
}

// longest returns a bound on the bytes of text that one token stands for. The unknown token
// may stand for a character. NFC makes a text less than four times shorter: of U+1FBE,
// U+0308 and U+0301, which have 7 bytes, it makes U+0390, which has 2.
func (v *Vocab) longest(nfc bool) int {
	n := utf8.UTFMax
	for _, text := range v.Tokens {
		n = max(n, len(text))
	}
	if nfc {
		n *= 4
	}
	return n
}

// hasBytes reports whether token id decodes to bytes.
func (v *Vocab) hasBytes(id int) bool {
	switch v.kind(id) {
	case typeControl, typeUnknown, typeUnused:
		return false
	}
	return true
}

// stops returns, for each token, whether it ends generation.
func (v *Vocab) stops() []bool {
	stops := make([]bool, len(v.Tokens))
	for _, id := range []int{v.EOS, v.EOT, v.EOM} {
		if id >= 0 {
			stops[id] = true
		}
	}
	no := map[string]bool{ // the token does not end generation in this vocabulary
		"<|end|>": slices.Contains(v.Tokens, harmonyReturn),
		"</s>":    slices.Contains(v.Tokens, gemmaResponse),
	}
	for id, text := range v.Tokens {
		kind := v.kind(id)
		if endOfTurn[text] && (kind == typeControl || kind == typeUserDefined) && !no[text] {
			stops[id] = true
		}
	}
	return stops
}

// controlStops makes control tokens of user-defined tokens that end generation, such as
// </s> in files of Phi-3. Otherwise the text of a user could end a turn.
func (v *Vocab) controlStops() {
	types := slices.Clone(v.Types)
	for id, stops := range v.stops() {
		if stops && v.kind(id) == typeUserDefined {
			types[id] = typeControl
		}
	}
	v.Types = types
}
