package tokenizer

import (
	"fmt"
	"strings"
)

// endings are control tokens that end generation in the models that have them,
// by the names that model families gave them.
var endings = map[string]bool{
	"<|endoftext|>": true, "<|end_of_text|>": true, "</s>": true, "<EOT>": true,
	"<|eot_id|>": true, "<|eom_id|>": true, // Llama 3
	"<|im_end|>":    true, // ChatML
	"<|end|>":       true, // Phi
	"<end_of_turn>": true, // Gemma
}

// check refuses what contradicts itself regardless of the algorithm.
func (v *Vocab) check() error {
	n := len(v.Tokens)
	if n == 0 {
		return ErrEmptyVocab
	}
	if v.Model != "gpt2" && v.Model != "llama" {
		return fmt.Errorf("%w %q; known are gpt2, llama", ErrUnknownModel, v.Model)
	}
	if len(v.Scores) != 0 && len(v.Scores) != n || len(v.Types) != 0 && len(v.Types) != n {
		return fmt.Errorf("%w: %d tokens, %d scores, %d types", ErrLengths, n, len(v.Scores), len(v.Types))
	}
	for id, kind := range v.Types {
		if kind < Normal || kind > Byte {
			return fmt.Errorf("%w: token %d %q has type %d", ErrTokenType, id, v.Tokens[id], kind)
		}
	}
	return v.checkIDs()
}

func (v *Vocab) checkIDs() error {
	for _, special := range []struct {
		name   string
		id     int
		needed bool
	}{
		{"BOS", v.BOS, v.AddBOS}, {"EOS", v.EOS, v.AddEOS},
		{"EOT", v.EOT, false}, {"EOM", v.EOM, false}, {"UNK", v.UNK, false}, {"PAD", v.PAD, false},
	} {
		if special.id < -1 || special.id >= len(v.Tokens) {
			return fmt.Errorf("%w: %s is %d of %d", ErrTokenID, special.name, special.id, len(v.Tokens))
		}
		if special.needed && special.id < 0 {
			return fmt.Errorf("%w: %s", ErrMissingToken, special.name)
		}
	}
	return nil
}

// ids maps the texts that merging works on to tokens. Two such tokens of one
// text are refused: an encoder could never make one of them.
func (v *Vocab) ids() (map[string]int32, error) {
	ids := make(map[string]int32, len(v.Tokens))
	for id, text := range v.Tokens {
		if !v.matchable(id) {
			continue
		}
		if first, ok := ids[text]; ok {
			return nil, fmt.Errorf("%w: %d and %d are %q", ErrDuplicateToken, first, id, text)
		}
		ids[text] = int32(id)
	}
	return ids, nil
}

// pieces gives the bytes that each token stands for, as parts of one string.
func (v *Vocab) pieces() []string {
	var all []byte
	ends := make([]int, len(v.Tokens))
	for id, text := range v.Tokens {
		switch kind := v.kind(id); {
		case kind == Control, kind == Unknown, kind == Unused:
		case kind == UserDefined:
			all = append(all, text...)
		case v.Model == "gpt2":
			all = appendByteLevel(all, text)
		case kind == Byte:
			b, _ := parseByteToken(text) // newSPM refuses what is none
			all = append(all, b)
		default:
			all = append(all, strings.ReplaceAll(text, spaceMark, " ")...)
		}
		ends[id] = len(all)
	}
	text, from := string(all), 0
	pieces := make([]string, len(ends))
	for id, end := range ends {
		pieces[id] = text[from:end]
		from = end
	}
	return pieces
}

// stops lists the tokens that end generation.
func (v *Vocab) stops() map[int]bool {
	stops := map[int]bool{}
	for _, id := range []int{v.EOS, v.EOT, v.EOM} {
		if id >= 0 {
			stops[id] = true
		}
	}
	for id, text := range v.Tokens {
		if v.kind(id) == Control && endings[text] {
			stops[id] = true
		}
	}
	return stops
}
