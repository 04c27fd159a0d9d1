package tokenizer

import (
	"errors"

	"github.com/lockstep-go/lockstep/model/tokenizer/internal/jinja"
)

// Reasons for which New refuses a vocabulary; for errors.Is.
var (
	ErrEmptyVocab     = errors.New("the vocabulary has no tokens")
	ErrUnknownModel   = errors.New("unknown tokenizer model")
	ErrUnknownPre     = errors.New("unknown pre-tokenizer")
	ErrLengths        = errors.New("tokens, scores and types differ in number")
	ErrTokenType      = errors.New("unknown token type")
	ErrTokenID        = errors.New("token id beyond the vocabulary")
	ErrMissingToken   = errors.New("a token that the vocabulary asks for is missing")
	ErrDuplicateToken = errors.New("two tokens have the same text")
	ErrByteToken      = errors.New("bad byte token")
	ErrMissingByte    = errors.New("a byte has no token")
	ErrScore          = errors.New("score is not a number")
	ErrMerge          = errors.New("bad merge")
)

// Reasons for which Chat fails; for errors.Is.
var (
	// ErrNoChatTemplate means that the file carries no chat template.
	ErrNoChatTemplate = errors.New("the vocabulary has no chat template")
	// ErrTemplateSyntax means that the template is not the Jinja that this
	// package understands.
	ErrTemplateSyntax = jinja.ErrSyntax
	// ErrTemplate means that the template computes something impossible.
	ErrTemplate = jinja.ErrEval
	// ErrTemplateLimit means that the template needs more nesting, steps,
	// memory or output than a chat template may have.
	ErrTemplateLimit = jinja.ErrLimit
	// ErrTemplateRaised means that the template itself refused the messages by
	// raise_exception; the error's text is the template's.
	ErrTemplateRaised = jinja.ErrRaised
)
