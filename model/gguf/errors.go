package gguf

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/quant"
)

// Errors for errors.Is. Every refusal of a file wraps exactly one of them, with a
// message that says where and what; ErrVersion1 is also an ErrVersion,
// ErrUnsupportedFormat also a quant.ErrUnsupported, and ErrPartialBlock also a
// quant.ErrPartialBlock.
var (
	ErrNotRegular        = errors.New("not a regular file")
	ErrMagic             = errors.New("not a GGUF file")
	ErrVersion           = errors.New("unknown GGUF version")
	ErrVersion1          = fmt.Errorf("%w: version 1", ErrVersion)
	ErrEndian            = errors.New("big-endian file")
	ErrTruncated         = errors.New("the file ends too early")
	ErrLimit             = errors.New("too many keys or tensors")
	ErrKey               = errors.New("bad key")
	ErrName              = errors.New("bad tensor name")
	ErrDuplicate         = errors.New("duplicate")
	ErrType              = errors.New("wrong type")
	ErrNested            = errors.New("nested array")
	ErrBool              = errors.New("bool is not 0 or 1")
	ErrUTF8              = errors.New("invalid UTF-8")
	ErrAlignment         = errors.New("bad alignment")
	ErrShape             = errors.New("bad shape")
	ErrPartialBlock      = fmt.Errorf("gguf: %w", quant.ErrPartialBlock)
	ErrOverflow          = errors.New("overflow")
	ErrOverlap           = errors.New("overlapping tensors")
	ErrUnsupportedFormat = fmt.Errorf("gguf: %w", quant.ErrUnsupported)

	// ErrFault means a part of a mapped file that cannot be read, though the file
	// has not become shorter.
	ErrFault = errors.New("mapped file cannot be accessed")
	// ErrSize means a tensor that wrote more or fewer bytes than its shape says.
	ErrSize = errors.New("tensor size")
	// ErrClosed means a File that was closed.
	ErrClosed = errors.New("file is closed")
)

// refusal is an error whose kind is for errors.Is and whose message is for people:
// the message does not repeat the kind.
type refusal struct {
	kind error
	msg  string
}

func (r *refusal) Error() string { return r.msg }
func (r *refusal) Unwrap() error { return r.kind }

func refuse(kind error, format string, args ...any) error {
	return &refusal{kind, fmt.Sprintf(format, args...)}
}

// clip shortens text for a message: a hostile file must not choose its length.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// inKey and inTensor say where an error is.
func inKey(key string, err error) error     { return fmt.Errorf("key %q: %w", clip(key), err) }
func inTensor(name string, err error) error { return fmt.Errorf("tensor %q: %w", clip(name), err) }

// inFile puts the package and the file, if there is one, before an error.
func inFile(path string, err error) error {
	if path == "" {
		return fmt.Errorf("gguf: %w", err)
	}
	return fmt.Errorf("gguf: %s: %w", path, err)
}
