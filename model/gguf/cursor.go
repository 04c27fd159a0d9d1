package gguf

import (
	"encoding/binary"
	"unicode/utf8"
)

// cursor walks over untrusted bytes. Every length is compared with what is left
// before it becomes an int.
type cursor struct {
	data []byte
	pos  int
}

func (c *cursor) left() uint64 { return uint64(len(c.data) - c.pos) }

// take returns the next n bytes, a view with no capacity to spare.
func (c *cursor) take(n uint64, what string) ([]byte, error) {
	if n > c.left() {
		return nil, refuse(ErrTruncated, "%s at byte %d takes %d bytes, and %d are left", what, c.pos, n, c.left())
	}
	end := c.pos + int(n)
	b := c.data[c.pos:end:end]
	c.pos = end
	return b, nil
}

func (c *cursor) u32(what string) (uint32, error) {
	b, err := c.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (c *cursor) u64(what string) (uint64, error) {
	b, err := c.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// count reads a number of things that take at least size bytes each.
func (c *cursor) count(what string, size int) (int, error) {
	n, err := c.u64(what)
	if err != nil {
		return 0, err
	}
	if n > c.left()/uint64(size) {
		return 0, refuse(ErrTruncated, "%s is %d, each of %d bytes or more, and %d bytes are left", what, n, size, c.left())
	}
	return int(n), nil
}

// str reads a string and checks that it is UTF-8.
func (c *cursor) str(what string) ([]byte, error) {
	n, err := c.u64(what)
	if err != nil {
		return nil, err
	}
	b, err := c.take(n, what)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, refuse(ErrUTF8, "%s is not valid UTF-8: %q", what, clip(string(b[:min(len(b), 81)])))
	}
	return b, nil
}
