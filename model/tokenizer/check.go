package tokenizer

import "fmt"

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
	if len(v.Scores) != 0 && len(v.Scores) != n || len(v.Types) != 0 && len(v.Types) != n {
		return fmt.Errorf("%w: %d tokens, %d scores, %d types", ErrLengths, n, len(v.Scores), len(v.Types))
	}
	for id, kind := range v.Types {
		if kind < Normal || kind > Byte {
			return fmt.Errorf("%w: token %d %.80q has type %d", ErrTokenType, id, v.Tokens[id], kind)
		}
	}
	if err := v.checkIDs(); err != nil {
		return err
	}
	// Last: a caller may put up with a model that is merely unknown.
	if v.Model != "gpt2" && v.Model != "llama" {
		return fmt.Errorf("%w %.80q; known are gpt2, llama", ErrUnknownModel, v.Model)
	}
	return nil
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

// stops says of each token whether it ends generation.
func (v *Vocab) stops() []bool {
	stops := make([]bool, len(v.Tokens))
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
