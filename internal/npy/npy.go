// Package npy reads and writes NumPy's .npy files of float32 arrays: format version 1.0,
// little-endian, C order. It refuses everything else by name. The format is documented
// in numpy.lib.format.
package npy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Errors for errors.Is. An error of Read wraps one of them, or the error of the reader.
var (
	// ErrFormat reports a malformed .npy file.
	ErrFormat = errors.New("not a valid .npy file")
	// ErrUnsupported reports a valid .npy file that this package does not read.
	ErrUnsupported = errors.New("unsupported .npy file")
	// ErrShape reports a shape that is negative, too large or unequal to the data.
	ErrShape = errors.New("bad shape")
	// ErrTruncated reports a file that ends too early.
	ErrTruncated = errors.New("truncated .npy file")
)

const (
	magic = "\x93NUMPY"
	// prefixLen counts the magic, two version bytes and the length of the header.
	prefixLen = len(magic) + 2 + 2
	// align is the alignment of the array, to which NumPy pads the header.
	align = 64
)

// Write writes data as an array of that shape in C order. An empty shape is a scalar.
// The error wraps ErrShape unless len(data) is the product of the shape.
func Write(w io.Writer, shape []int, data []float32) error {
	if n, err := elements(shape); err != nil {
		return err
	} else if n != len(data) {
		return fmt.Errorf("npy: %w: %v holds %d numbers, not %d", ErrShape, shape, n, len(data))
	}
	head, err := header(shape)
	if err != nil {
		return err
	}
	buf := bufio.NewWriterSize(w, 1<<16)
	buf.Write(head)
	var word [4]byte
	for _, v := range data {
		binary.LittleEndian.PutUint32(word[:], math.Float32bits(v))
		buf.Write(word[:])
	}
	return buf.Flush() // returns the first error of the writes too
}

// header returns the bytes before the array.
func header(shape []int) ([]byte, error) {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = strconv.Itoa(d)
	}
	tuple := strings.Join(dims, ", ")
	if len(dims) == 1 {
		tuple += "," // Python's one-element tuple
	}
	dict := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", tuple)
	total := (prefixLen + len(dict) + 1 + align - 1) / align * align
	if total-prefixLen > math.MaxUint16 {
		return nil, fmt.Errorf("npy: %w: %d dimensions do not fit the header", ErrShape, len(shape))
	}
	head := make([]byte, 0, total)
	head = append(head, magic...)
	head = append(head, 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(total-prefixLen))
	head = append(head, dict...)
	head = append(head, strings.Repeat(" ", total-len(head)-1)...)
	return append(head, '\n'), nil
}

// elements returns the product of a shape, and an error if the bytes of the array would
// overflow an int.
func elements(shape []int) (int, error) {
	n, empty := 1, false
	for _, d := range shape {
		switch {
		case d < 0:
			return 0, fmt.Errorf("npy: %w: negative dimension %d", ErrShape, d)
		case d == 0:
			empty = true
		case n > math.MaxInt/4/d:
			return 0, fmt.Errorf("npy: %w: %v is too large", ErrShape, shape)
		default:
			n *= d
		}
	}
	if empty {
		return 0, nil
	}
	return n, nil
}

// chunk is how many bytes Read allocates at most before it has read the previous ones.
const chunk = 1 << 20

// Read reads one array up to the end of r; bytes after the array are an error. The data
// is not trusted: memory grows with the bytes read, whatever the header says.
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

// parseHeader parses the Python dictionary in the header. It must have exactly the keys
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

// parser consumes the header from the left and keeps the first error.
type parser struct {
	rest string
	err  error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("npy: %w: header: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
}

// accept consumes tok, and the blanks before it, if it is next.
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

// str consumes a string in single or double quotes, without escapes.
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

// tuple consumes a tuple of non-negative integers.
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
