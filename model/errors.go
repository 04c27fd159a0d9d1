package model

import (
	"errors"
	"fmt"
)

// Errors for errors.Is.
var (
	// ErrUnsupported means a model that no engine computes: an unknown architecture, or
	// a feature of a known one. Unknown block formats are quant.ErrUnsupported.
	ErrUnsupported = errors.New("unsupported")
	// ErrInvalid means a file whose metadata or tensors are missing, malformed or
	// contradictory.
	ErrInvalid = errors.New("invalid model")
	// ErrNoTokenizer means a model without a vocabulary that package tokenizer supports.
	ErrNoTokenizer = errors.New("the model file has no vocabulary that can be used")
	// ErrEmptyPrompt means a call without tokens.
	ErrEmptyPrompt = errors.New("empty prompt")
	// ErrContextLimit means more positions than a sequence or a model has.
	ErrContextLimit = errors.New("context limit")
	// ErrBadToken means a token id outside the vocabulary.
	ErrBadToken = errors.New("token outside the vocabulary")
	// ErrClosed means a sequence, an engine or a generator that is closed.
	ErrClosed = errors.New("closed")
	// ErrInUse means a model that cannot be closed yet.
	ErrInUse = errors.New("in use")
)

// problem is an error with a text of its own that wraps a sentinel.
type problem struct {
	text     string
	sentinel error
}

func (p *problem) Error() string { return p.text }
func (p *problem) Unwrap() error { return p.sentinel }

// The problems of files, each with the name of the key or tensor before it.
var (
	errUnsupportedArch error = &problem{"unsupported architecture", ErrUnsupported}
	errMissingKey      error = &problem{"missing key", ErrInvalid}
	errBadKey          error = &problem{"bad value", ErrInvalid}
	errMissingTensor   error = &problem{"missing tensor", ErrInvalid}
	errTensorShape     error = &problem{"wrong tensor shape", ErrInvalid}
	errSurplusTensor   error = &problem{"unexpected tensor", ErrInvalid}
)

// CheckTokens returns ErrEmptyPrompt if there are no tokens, and an ErrBadToken with the
// first id outside [0, vocab).
func CheckTokens(tokens []int, vocab int) error {
	if len(tokens) == 0 {
		return ErrEmptyPrompt
	}
	for i, id := range tokens {
		if id < 0 || id >= vocab {
			return &problem{fmt.Sprintf("token %d at index %d is outside the vocabulary of %d", id, i, vocab), ErrBadToken}
		}
	}
	return nil
}

// CheckCapacity returns an ErrContextLimit with both numbers if a request needs more than
// limit positions.
func CheckCapacity(need, limit int) error {
	if need > limit {
		return &problem{fmt.Sprintf("context limit: the request needs %d positions and there are %d", need, limit), ErrContextLimit}
	}
	return nil
}
