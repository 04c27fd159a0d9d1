package tokenizer

// TokenType says what a token is for, with the numbers that GGUF files carry
// in tokenizer.ggml.token_type.
type TokenType int32

// The token types.
const (
	Normal      TokenType = 1 // text
	Unknown     TokenType = 2 // stands for what cannot be encoded
	Control     TokenType = 3 // steers the model, stands for no text
	UserDefined TokenType = 4 // text that is always one token
	Unused      TokenType = 5
	Byte        TokenType = 6 // one byte, written <0xNN>
)

// Vocab is a vocabulary as a model file states it. New checks it.
type Vocab struct {
	// Model is the algorithm: "gpt2" for byte-level BPE by merges, "llama" for
	// SentencePiece-style BPE by scores.
	Model string
	// Pre names the pre-tokenizer of a "gpt2" vocabulary; "" means "default".
	Pre string

	Tokens []string    // token texts; a token's id is its index
	Scores []float32   // "llama": merge priorities, one a token; else empty or one a token
	Types  []TokenType // one a token, or empty when every token is Normal
	Merges []string    // "gpt2": "left right", best first

	BOS, EOS, EOT, EOM, UNK, PAD int // ids; -1: none

	AddBOS         bool   // Prompt begins with BOS
	AddEOS         bool   // Prompt ends with EOS
	AddSpacePrefix bool   // "llama": text gets a leading space
	ChatTemplate   string // Jinja source; "" when there is none
}

// kind is the type of token id, Normal when the vocabulary states no types.
func (v *Vocab) kind(id int) TokenType {
	if len(v.Types) == 0 {
		return Normal
	}
	return v.Types[id]
}

// matchable reports whether plain text may turn into token id through merging.
// Control and unknown tokens are never text, and byte tokens only stand in for
// characters that have no token of their own.
func (v *Vocab) matchable(id int) bool {
	switch v.kind(id) {
	case Control, Unknown, Byte:
		return false
	}
	return v.Tokens[id] != ""
}
