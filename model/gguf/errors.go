package gguf

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/quant"
)

// Errors for errors.Is. Messages name the file, the key or tensor, and the reason.
var (
	// ErrMalformed reports a file that violates the GGUF specification or a limit of
	// this package.
	ErrMalformed = errors.New("malformed GGUF file")
	// ErrTruncated reports a file that ends too early, or that was cut short while it
	// is open. It is also an ErrMalformed.
	ErrTruncated = malformedKind("the file ends too early")
	// ErrType reports a value of another type than the reader wants. It is also an
	// ErrMalformed.
	ErrType = malformedKind("wrong type")
	// ErrUnsupported reports a version, a byte order or a tensor format that this
	// package does not read, or a part of a split model without the first part. For a tensor format it is also a quant.ErrUnsupported.
	ErrUnsupported = errors.New("unsupported GGUF file")
	// ErrFault reports a part of a mapped file that cannot be read although the file
	// did not shrink.
	ErrFault = errors.New("mapped file cannot be accessed")
	// ErrClosed reports the use of a closed File.
	ErrClosed = errors.New("file is closed")
)

// The kinds of refusal. Every refusal of a file wraps exactly one of these errors or of the
// exported ones. The exception is errVersion1, which also wraps errVersion.
var (
	errMagic             = malformedKind("not a GGUF file")
	errLimit             = malformedKind("above a limit")
	errKey               = malformedKind("bad key")
	errName              = malformedKind("bad tensor name")
	errDuplicate         = malformedKind("duplicate")
	errNested            = malformedKind("nested array")
	errBool              = malformedKind("bool is not 0 or 1")
	errUTF8              = malformedKind("invalid UTF-8")
	errAlignment         = malformedKind("bad alignment")
	errShape             = malformedKind("bad shape")
	errPartialBlock      = malformedKind("row does not fill whole blocks")
	errOverflow          = malformedKind("overflow")
	errOverlap           = malformedKind("overlapping tensors")
	errSize              = malformedKind("tensor size")
	errSplit             = malformedKind("bad split")
	errPart              = fmt.Errorf("%w: one part of a split model", ErrUnsupported)
	errVersion           = fmt.Errorf("%w: version", ErrUnsupported)
	errVersion1          = fmt.Errorf("%w 1", errVersion)
	errEndian            = fmt.Errorf("%w: big-endian", ErrUnsupported)
	errUnsupportedFormat = fmt.Errorf("%w: %w", ErrUnsupported, quant.ErrUnsupported)
	errNotRegular        = errors.New("not a regular file")
)

func malformedKind(kind string) error { return fmt.Errorf("%w: %s", ErrMalformed, kind) }

// refusal carries a kind for errors.Is. Its message does not repeat the kind.
type refusal struct {
	kind error
	msg  string
}

func (r *refusal) Error() string { return r.msg }
func (r *refusal) Unwrap() error { return r.kind }

func refuse(kind error, format string, args ...any) error {
	return &refusal{kind, fmt.Sprintf(format, args...)}
}

const maxClip = 80 // bytes

// clip shortens text from a file, so that a hostile file cannot make messages long.
func clip(s string) string {
	if len(s) <= maxClip {
		return s
	}
	cut := maxClip
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func inKey(key string, err error) error     { return fmt.Errorf("key %q: %w", clip(key), err) }
func inTensor(name string, err error) error { return fmt.Errorf("tensor %q: %w", clip(name), err) }

// inFile prefixes err with the package and, if path is not empty, with the path.
func inFile(path string, err error) error {
	if path == "" {
		return fmt.Errorf("gguf: %w", err)
	}
	return fmt.Errorf("gguf: %s: %w", path, err)
}
