package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// chunk bounds what is allocated ahead of the bytes that have really come.
const chunk = 1 << 20

// Read reads one array to the reader's end. The reader is not trusted: memory
// grows with the bytes that arrive, whatever the header claims. Bytes after the
// array are an error.
func Read(r io.Reader) (shape []int, data []float32, err error) {
	text, err := readHeader(r)
	if err != nil {
		return nil, nil, err
	}
	shape, err = parseHeader(text)
	if err != nil {
		return nil, nil, err
	}
	n, err := elements(shape)
	if err != nil {
		return nil, nil, err
	}
	data, err = readFloats(r, n)
	if err != nil {
		return nil, nil, err
	}
	switch _, err := io.ReadFull(r, make([]byte, 1)); {
	case err == nil:
		return nil, nil, fmt.Errorf("npy: %w: bytes after the array", ErrFormat)
	case !errors.Is(err, io.EOF):
		return nil, nil, fmt.Errorf("npy: %w", err)
	}
	return shape, data, nil
}

func readHeader(r io.Reader) (string, error) {
	prefix := make([]byte, prefixLen)
	if err := readFull(r, prefix, "header"); err != nil {
		return "", err
	}
	if string(prefix[:len(magic)]) != magic {
		return "", fmt.Errorf("npy: %w: wrong magic", ErrFormat)
	}
	if major, minor := prefix[6], prefix[7]; major != 1 || minor != 0 {
		return "", fmt.Errorf("npy: %w: version %d.%d, only 1.0 is read", ErrUnsupported, major, minor)
	}
	text := make([]byte, binary.LittleEndian.Uint16(prefix[8:]))
	if err := readFull(r, text, "header"); err != nil {
		return "", err
	}
	return string(text), nil
}

// readFloats reads n numbers.
func readFloats(r io.Reader, n int) ([]float32, error) {
	data := make([]float32, 0, min(n, chunk/4))
	buf := make([]byte, min(n*4, chunk))
	for len(data) < n {
		part := buf[:min((n-len(data))*4, len(buf))]
		if err := readFull(r, part, "array"); err != nil {
			return nil, err
		}
		for ; len(part) > 0; part = part[4:] {
			data = append(data, math.Float32frombits(binary.LittleEndian.Uint32(part)))
		}
	}
	return data, nil
}

func readFull(r io.Reader, buf []byte, what string) error {
	_, err := io.ReadFull(r, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("npy: %w: the %s is cut short", ErrTruncated, what)
	}
	if err != nil {
		return fmt.Errorf("npy: %w", err)
	}
	return nil
}

// parseHeader reads the header's Python dictionary literal: exactly the keys
// descr, fortran_order and shape, in any order.
func parseHeader(text string) ([]int, error) {
	p := &parser{rest: strings.TrimRight(text, " \n")}
	seen := map[string]bool{}
	var shape []int
	p.expect("{")
	for p.err == nil && !p.accept("}") {
		key := p.str()
		if seen[key] {
			p.fail("key %q twice", key)
		}
		seen[key] = true
		p.expect(":")
		switch key {
		case "descr":
			if d := p.str(); d != "<f4" && p.err == nil {
				p.err = fmt.Errorf("npy: %w: numbers of type %q, only float32 (<f4) is read", ErrUnsupported, d)
			}
		case "fortran_order":
			if p.boolean() && p.err == nil {
				p.err = fmt.Errorf("npy: %w: Fortran order", ErrUnsupported)
			}
		case "shape":
			shape = p.tuple()
		default:
			p.fail("unknown key %q", key)
		}
		if !p.accept(",") {
			p.expect("}")
			break
		}
	}
	if p.err == nil && (len(seen) != 3 || p.rest != "") {
		p.fail("want exactly the keys descr, fortran_order and shape")
	}
	return shape, p.err
}

// parser eats the header from the left and keeps the first error.
type parser struct {
	rest string
	err  error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("npy: %w: header: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
}

// accept eats tok, with the blanks before it, when it is next.
func (p *parser) accept(tok string) bool {
	p.rest = strings.TrimLeft(p.rest, " ")
	if p.err != nil || !strings.HasPrefix(p.rest, tok) {
		return false
	}
	p.rest = p.rest[len(tok):]
	return true
}

func (p *parser) expect(tok string) {
	if !p.accept(tok) {
		p.fail("want %q", tok)
	}
}

// str eats a string in either kind of quotes, without escapes.
func (p *parser) str() string {
	quote := "'"
	if !p.accept(quote) {
		quote = `"`
		p.expect(quote)
	}
	s, rest, ok := strings.Cut(p.rest, quote)
	if !ok {
		p.fail("a string does not end")
	}
	if p.err != nil {
		return ""
	}
	p.rest = rest
	return s
}

func (p *parser) boolean() bool {
	if p.accept("True") {
		return true
	}
	p.expect("False")
	return false
}

// tuple eats a tuple of non-negative integers.
func (p *parser) tuple() []int {
	p.expect("(")
	dims := []int{}
	for p.err == nil && !p.accept(")") {
		p.rest = strings.TrimLeft(p.rest, " ")
		digits := p.rest[:len(p.rest)-len(strings.TrimLeft(p.rest, "0123456789"))]
		d, err := strconv.Atoi(digits)
		if err != nil {
			p.fail("a dimension is not a number that fits")
			break
		}
		p.rest = p.rest[len(digits):]
		dims = append(dims, d)
		if !p.accept(",") {
			if len(dims) == 1 {
				p.fail("shape is not a tuple") // (3) is the number 3 in Python
			}
			p.expect(")")
			break
		}
	}
	return dims
}
