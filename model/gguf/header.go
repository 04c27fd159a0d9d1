package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

const (
	magic      = "GGUF"
	minVersion = 2
	maxVersion = 3
)

// Limits. The specification sets maxKeyLen, maxNameLen and maxDims. The others bound the
// memory that a hostile file can claim. Large published headers have some 20 MB: lists of
// 262,144 tokens and 514,906 merges. The largest string is a tokenizer.json of some 35 MB.
const (
	maxKeys        = 1 << 16
	maxTensors     = 1 << 18
	maxHeaderBytes = 1 << 27 // up to the last tensor entry
	maxElements    = 1 << 22 // of an array
	maxStringBytes = 1 << 26
	maxKeyLen      = 1<<16 - 1 // bytes
	maxNameLen     = 64        // bytes
	maxDims        = 4
)

// fixedBytes is the size of the header before the first key.
const fixedBytes = 4 + 4 + 8 + 8

// The minimum sizes of a key with its value and of a tensor entry.
const (
	minKeyBytes    = lengthBytes + 1 + 4 + 1
	minTensorBytes = lengthBytes + 1 + 4 + 8 + 4 + 8
)

// tensorBytes is the size of a tensor entry.
func tensorBytes(nameLen, dims int) int { return lengthBytes + nameLen + 4 + 8*dims + 4 + 8 }

// header is the fixed part of a file.
type header struct {
	version       uint32
	tensors, keys int
}

// entry is a tensor as the header describes it. Its shape is not checked yet.
type entry struct {
	name   []byte
	dims   [maxDims]uint64
	n      int // number of dimensions
	format uint32
	offset uint64 // bytes from the start of the data section
}

func (c *cursor) header() (header, error) {
	var h header
	m, err := c.take(uint64(len(magic)), "magic")
	if err != nil {
		return h, err
	}
	if string(m) != magic {
		return h, refuse(errMagic, "not a GGUF file: it starts with %q", m)
	}
	if h.version, err = c.u32("version"); err != nil {
		return h, err
	}
	if err := checkVersion(h.version); err != nil {
		return h, err
	}
	if h.tensors, err = c.count("tensor count", minTensorBytes); err != nil {
		return h, err
	}
	if h.keys, err = c.count("key count", minKeyBytes); err != nil {
		return h, err
	}
	return h, checkCounts(h.keys, h.tensors)
}

func checkVersion(v uint32) error {
	switch {
	case v >= minVersion && v <= maxVersion:
		return nil
	case v == 1:
		return refuse(errVersion1, "GGUF version 1 is not supported: convert the file to version %d", maxVersion)
	case v != 0 && v&0xffff == 0: // a small number in big-endian order
		return refuse(errEndian, "big-endian GGUF (version %d) is not supported: convert the file to little-endian", bits.ReverseBytes32(v))
	}
	return refuse(errVersion, "GGUF version %d is not supported: %d and %d are", v, minVersion, maxVersion)
}

func checkCounts(keys, tensors int) error {
	if err := checkLimit("keys", keys, maxKeys); err != nil {
		return err
	}
	return checkLimit("tensors", tensors, maxTensors)
}

func checkLimit(what string, n, limit int) error {
	if n > limit {
		return refuse(errLimit, "%d %s are more than %d", n, what, limit)
	}
	return nil
}

func checkHeaderBytes(n int) error { return checkLimit("bytes of header", n, maxHeaderBytes) }
func checkStringBytes(n int) error { return checkLimit("bytes of string", n, maxStringBytes) }
func checkElements(n int) error    { return checkLimit("elements of array", n, maxElements) }

// pair reads key i and its value. Both are slices of the header.
func (c *cursor) pair(i int) ([]byte, Value, error) {
	key, err := c.str("key")
	if err == nil {
		err = checkKey(len(key))
	}
	if err != nil {
		return nil, Value{}, fmt.Errorf("key %d: %w", i, err)
	}
	v, err := c.value()
	if err != nil {
		return nil, Value{}, inKey(string(key), err)
	}
	return key, v, nil
}

func checkKey(n int) error {
	if n == 0 {
		return refuse(errKey, "the key is empty")
	}
	if n > maxKeyLen {
		return refuse(errKey, "the key has %d bytes, more than %d", n, maxKeyLen)
	}
	return nil
}

func checkName(n int) error {
	if n == 0 {
		return refuse(errName, "the name is empty")
	}
	if n > maxNameLen {
		return refuse(errName, "the name has %d bytes, more than %d", n, maxNameLen)
	}
	return nil
}

// value reads a type and a value.
func (c *cursor) value() (Value, error) {
	id, err := c.u32("value type")
	if err != nil {
		return Value{}, err
	}
	t := valueType(id)
	switch {
	case !t.valid():
		return Value{}, refuse(ErrType, "value type %d is unknown", id)
	case t == typeArray:
		return c.array()
	case t == typeString:
		raw, err := c.str("string")
		return Value{typ: t, n: 1, raw: raw}, err
	}
	raw, err := c.take(uint64(types[t].size), t.String())
	if err != nil {
		return Value{}, err
	}
	return Value{typ: t, n: 1, raw: raw}, checkBools(t, raw)
}

func (c *cursor) array() (Value, error) {
	id, err := c.u32("element type")
	if err != nil {
		return Value{}, err
	}
	elem := valueType(id)
	switch {
	case !elem.valid():
		return Value{}, refuse(ErrType, "element type %d is unknown", id)
	case elem == typeArray:
		return Value{}, refuse(errNested, "arrays of arrays are not supported")
	case elem == typeString:
		return c.stringArray()
	}
	size := types[elem].size
	n, err := c.elements(size)
	if err != nil {
		return Value{}, err
	}
	raw, err := c.take(uint64(n)*uint64(size), "array") // cannot overflow: count checked the product
	if err != nil {
		return Value{}, err
	}
	return Value{typ: typeArray, elem: elem, n: n, raw: raw}, checkBools(elem, raw)
}

// stringArray checks every string now, so that decoding them later cannot fail.
func (c *cursor) stringArray() (Value, error) {
	n, err := c.elements(lengthBytes)
	if err != nil {
		return Value{}, err
	}
	start := c.pos
	for i := range n {
		if _, err := c.str("string"); err != nil {
			return Value{}, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return Value{typ: typeArray, elem: typeString, n: n, raw: c.data[start:c.pos:c.pos]}, nil
}

// checkBools refuses bytes other than 0 and 1 if t is bool.
func checkBools(t valueType, raw []byte) error {
	if t != typeBool {
		return nil
	}
	for i, b := range raw {
		if b > 1 {
			return refuse(errBool, "bool %d is %d, neither 0 nor 1", i, b)
		}
	}
	return nil
}

// tensor reads the entry of tensor i.
func (c *cursor) tensor(i int) (entry, error) {
	var e entry
	name, err := c.str("name")
	if err == nil {
		err = checkName(len(name))
	}
	if err != nil {
		return e, fmt.Errorf("tensor %d: %w", i, err)
	}
	e.name = name
	if err := c.shape(&e); err != nil {
		return e, inTensor(string(name), err)
	}
	return e, nil
}

func (c *cursor) shape(e *entry) error {
	n, err := c.u32("dimension count")
	if err != nil {
		return err
	}
	if n == 0 || n > maxDims {
		return refuse(errShape, "%d dimensions, not 1 to %d", n, maxDims)
	}
	e.n = int(n)
	for i := range e.n {
		if e.dims[i], err = c.u64("dimension"); err != nil {
			return err
		}
	}
	if e.format, err = c.u32("format"); err != nil {
		return err
	}
	e.offset, err = c.u64("offset")
	return err
}

// measure parses the header and returns its length.
func measure(data []byte) (int, error) {
	c := cursor{data: data}
	h, err := c.header()
	if err != nil {
		return 0, err
	}
	for i := range h.keys {
		if _, _, err := c.pair(i); err != nil {
			return 0, err
		}
	}
	for i := range h.tensors {
		if _, err := c.tensor(i); err != nil {
			return 0, err
		}
	}
	return c.pos, nil
}

// copyHeader copies the header from the start of data, which may be a mapped file.
func copyHeader(data []byte) ([]byte, error) {
	n, err := measure(data)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(data[:n]), nil
}

// cursor reads untrusted bytes. It compares every length with the bytes left before
// converting it to an int.
type cursor struct {
	data []byte
	pos  int
}

func (c *cursor) left() uint64 { return uint64(len(c.data) - c.pos) }

// take returns the next n bytes as a slice of the header with capacity n.
func (c *cursor) take(n uint64, what string) ([]byte, error) {
	if n > c.left() {
		return nil, refuse(ErrTruncated, "%s at byte %d takes %d bytes, and %d are left", what, c.pos, n, c.left())
	}
	end := c.pos + int(n)
	if err := checkHeaderBytes(end); err != nil {
		return nil, err
	}
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

// count reads a number of items, each of at least size bytes.
func (c *cursor) count(what string, size int) (int, error) {
	n, err := c.u64(what)
	if err != nil {
		return 0, err
	}
	if n > c.left()/uint64(size) {
		return 0, refuse(ErrTruncated, "%s is %d, each of at least %d bytes, and %d bytes are left", what, n, size, c.left())
	}
	return int(n), nil
}

// elements reads the length of an array whose elements have at least size bytes each.
func (c *cursor) elements(size int) (int, error) {
	n, err := c.count("element count", size)
	if err != nil {
		return 0, err
	}
	return n, checkElements(n)
}

// str reads a string of valid UTF-8.
func (c *cursor) str(what string) ([]byte, error) {
	n, err := c.u64(what)
	if err == nil && n <= c.left() { // else take reports the truncated file
		err = checkStringBytes(int(n))
	}
	if err != nil {
		return nil, err
	}
	b, err := c.take(n, what)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, refuse(errUTF8, "%s is not valid UTF-8: %s", what, quote(b))
	}
	return b, nil
}
