package tokenizer

import (
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/model/tokenizer/internal/jinja"
)

// Errors for errors.Is.
var (
	// ErrVocab reports an inconsistent vocabulary.
	ErrVocab = errors.New("malformed vocabulary")
	// ErrUnsupported reports a valid vocabulary of an unknown algorithm or
	// pre-tokenizer.
	ErrUnsupported = errors.New("unsupported tokenizer")
	// ErrNoChatTemplate reports a file without a chat template.
	ErrNoChatTemplate = errors.New("the vocabulary has no chat template")
	// ErrTemplate reports a chat template that does not parse, that fails, or that
	// exceeds the limits on nesting, steps, memory and output.
	ErrTemplate = errors.New("chat template")
	// ErrTemplateRaised reports that the template refused the messages by
	// raise_exception. The message of the error comes from the template.
	ErrTemplateRaised = jinja.ErrRaised
)

// The reasons for which New refuses a vocabulary.
var (
	errEmptyVocab     = fmt.Errorf("%w: no tokens", ErrVocab)
	errLengths        = fmt.Errorf("%w: tokens, scores and types differ in number", ErrVocab)
	errTokenType      = fmt.Errorf("%w: unknown token type", ErrVocab)
	errTokenID        = fmt.Errorf("%w: token id out of range", ErrVocab)
	errMissingToken   = fmt.Errorf("%w: missing special token", ErrVocab)
	errDuplicateToken = fmt.Errorf("%w: two tokens have the same text", ErrVocab)
	errByteToken      = fmt.Errorf("%w: bad byte token", ErrVocab)
	errMissingByte    = fmt.Errorf("%w: a byte has no token", ErrVocab)
	errSpecials       = fmt.Errorf("%w: the special tokens are too many or too long", ErrVocab)
	errScore          = fmt.Errorf("%w: score is NaN", ErrVocab)
	errMerge          = fmt.Errorf("%w: bad merge", ErrVocab)
	errUnknownModel   = fmt.Errorf("%w: unknown algorithm", ErrUnsupported)
	errUnknownPre     = fmt.Errorf("%w: unknown pre-tokenizer", ErrUnsupported)
)
