package gguf

import (
	"bytes"
	"fmt"
	"math/bits"
)

const (
	magic      = "GGUF"
	minVersion = 2
	maxVersion = 3
)

// Limits of what a file may hold. The longest key and name are the
// specification's; the counts keep the memory of a hostile file's index small,
// far above what models need.
const (
	MaxKeys    = 1 << 16
	MaxTensors = 1 << 18
	MaxKeyLen  = 1<<16 - 1 // bytes
	MaxNameLen = 64        // bytes
	MaxDims    = 4
)

// The fewest bytes that a key with its value and a tensor's entry can take.
const (
	minKeyBytes    = stringHead + 1 + 4 + 1
	minTensorBytes = stringHead + 1 + 4 + 8 + 4 + 8
)

// header is the fixed part of a file.
type header struct {
	version       uint32
	tensors, keys int
}

// entry is a tensor as the header describes it, with the shape yet to be checked.
type entry struct {
	name   []byte
	dims   [MaxDims]uint64
	n      int // dimensions in use
	format uint32
	offset uint64 // from the start of the data
}

func (c *cursor) header() (header, error) {
	var h header
	m, err := c.take(uint64(len(magic)), "magic")
	if err != nil {
		return h, err
	}
	if string(m) != magic {
		return h, refuse(ErrMagic, "not a GGUF file: it starts with %q", m)
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
		return refuse(ErrVersion1, "GGUF version 1 is not supported: convert the file to version %d", maxVersion)
	case v != 0 && v&0xffff == 0: // a small number with its bytes the other way round
		return refuse(ErrEndian, "big-endian GGUF (version %d) is not supported: convert the file to little-endian", bits.ReverseBytes32(v))
	}
	return refuse(ErrVersion, "GGUF version %d is not supported: %d and %d are", v, minVersion, maxVersion)
}

func checkCounts(keys, tensors int) error {
	if keys > MaxKeys {
		return refuse(ErrLimit, "%d keys are more than %d", keys, MaxKeys)
	}
	if tensors > MaxTensors {
		return refuse(ErrLimit, "%d tensors are more than %d", tensors, MaxTensors)
	}
	return nil
}

// pair reads the i-th key and its value, both as views, and checks them as far as
// they can be without the others.
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
		return refuse(ErrKey, "the key is empty")
	}
	if n > MaxKeyLen {
		return refuse(ErrKey, "the key has %d bytes, more than %d", n, MaxKeyLen)
	}
	return nil
}

func checkName(n int) error {
	if n == 0 {
		return refuse(ErrName, "the name is empty")
	}
	if n > MaxNameLen {
		return refuse(ErrName, "the name has %d bytes, more than %d", n, MaxNameLen)
	}
	return nil
}

// value reads a type and a value of it.
func (c *cursor) value() (Value, error) {
	id, err := c.u32("value type")
	if err != nil {
		return Value{}, err
	}
	t := Type(id)
	switch {
	case !t.Valid():
		return Value{}, refuse(ErrType, "value type %d is unknown", id)
	case t == TypeArray:
		return c.array()
	case t == TypeString:
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
	elem := Type(id)
	switch {
	case !elem.Valid():
		return Value{}, refuse(ErrType, "element type %d is unknown", id)
	case elem == TypeArray:
		return Value{}, refuse(ErrNested, "arrays of arrays are not supported")
	case elem == TypeString:
		return c.stringArray()
	}
	size := types[elem].size
	n, err := c.count("element count", size)
	if err != nil {
		return Value{}, err
	}
	raw, err := c.take(uint64(n)*uint64(size), "array") // no overflow: count compared it with what is left
	if err != nil {
		return Value{}, err
	}
	return Value{typ: TypeArray, elem: elem, n: n, raw: raw}, checkBools(elem, raw)
}

// stringArray walks over the strings now, so that cutting them out later cannot fail.
func (c *cursor) stringArray() (Value, error) {
	n, err := c.count("element count", stringHead)
	if err != nil {
		return Value{}, err
	}
	start := c.pos
	for i := range n {
		if _, err := c.str("string"); err != nil {
			return Value{}, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return Value{typ: TypeArray, elem: TypeString, n: n, raw: c.data[start:c.pos:c.pos]}, nil
}

// checkBools refuses what is neither true nor false, when t is bool.
func checkBools(t Type, raw []byte) error {
	if t != TypeBool {
		return nil
	}
	for i, b := range raw {
		if b > 1 {
			return refuse(ErrBool, "bool %d is %d, neither 0 nor 1", i, b)
		}
	}
	return nil
}

// tensor reads the i-th tensor's entry.
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
	if n == 0 || n > MaxDims {
		return refuse(ErrShape, "%d dimensions, not 1 to %d", n, MaxDims)
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

// measure finds where the header ends, checking what it passes over.
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

// copyHeader copies the header out of data, which may be a mapped file.
func copyHeader(data []byte) ([]byte, error) {
	n, err := measure(data)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(data[:n]), nil
}
