package model

import (
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/quant"
)

// Errors for errors.Is.
var (
	// From Load. Each message names the key or the tensor.

	ErrUnsupportedArch   = errors.New("unsupported architecture")
	ErrUnsupportedFormat = quant.ErrUnsupported             // from gguf too
	ErrUnsupported       = errors.New("unsupported")        // a feature of the architecture that no engine computes
	ErrMissingKey        = errors.New("missing key")        // metadata that the architecture needs
	ErrBadKey            = errors.New("bad value")          // metadata of a wrong type or out of range
	ErrMissingTensor     = errors.New("missing tensor")     // a weight that the architecture needs
	ErrTensorShape       = errors.New("wrong tensor shape") // a weight that does not fit the metadata
	ErrSurplusTensor     = errors.New("unexpected tensor")  // a weight that the architecture would not use

	// From sessions and generation.

	ErrNoTokenizer  = errors.New("the model file has no vocabulary that can be used")
	ErrEmptyPrompt  = errors.New("empty prompt")
	ErrContextLimit = errors.New("context limit")
	ErrBadToken     = errors.New("token outside the vocabulary")
	ErrBadParams    = errors.New("bad parameter")
	ErrNoChoice     = errors.New("no token can be chosen: every logit is NaN or -Inf")
	ErrClosed       = errors.New("closed")
	ErrInUse        = errors.New("in use")
)

// ContextError says that a sequence needs more positions than there are.
// errors.Is(err, ErrContextLimit) holds.
type ContextError struct {
	Need  int // positions that the request needs
	Limit int // positions that there are
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("context limit: the request needs %d positions and there are %d", e.Need, e.Limit)
}

func (e *ContextError) Is(target error) bool { return target == ErrContextLimit }

// TokenError says that a token id is outside the vocabulary.
// errors.Is(err, ErrBadToken) holds.
type TokenError struct {
	Index int // place in the tokens given; -1: it has none
	ID    int
	Vocab int
}

func (e *TokenError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("token %d is outside the vocabulary of %d", e.ID, e.Vocab)
	}
	return fmt.Sprintf("token %d at index %d is outside the vocabulary of %d", e.ID, e.Index, e.Vocab)
}

func (e *TokenError) Is(target error) bool { return target == ErrBadToken }

// CheckTokens returns a *TokenError for the first id outside [0, vocab), and
// ErrEmptyPrompt when there are no tokens.
func CheckTokens(tokens []int, vocab int) error {
	if len(tokens) == 0 {
		return ErrEmptyPrompt
	}
	for i, id := range tokens {
		if id < 0 || id >= vocab {
			return &TokenError{Index: i, ID: id, Vocab: vocab}
		}
	}
	return nil
}
