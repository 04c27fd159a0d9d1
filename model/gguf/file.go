package gguf

import (
	"errors"
	"slices"
	"sync"
)

// File is a parsed GGUF file, or all files of a split model. You must call Close on a File
// from Open. After Close the metadata stays readable, and the tensor data does not. Methods
// are safe for concurrent use, but do not call Close while another goroutine reads tensor
// data.
type File struct {
	path    string     // given to Open; "" when parsed from memory
	mapped  []*mapping // the parts of the model; empty when parsed from memory
	size    int64      // of all parts
	version uint32

	keys     []string
	values   []Value          // values[i] belongs to keys[i]
	keyAt    map[string]int32 // index in keys
	tensorAt map[string]int32 // index in tensors

	mu      sync.RWMutex // guards the fields below
	tensors []Tensor
	closed  bool
}

// Parse reads a file in memory, which must not be a part of a split model. It does not copy
// data, which must not change while the File is in use. Errors wrap ErrMalformed or
// ErrUnsupported.
func Parse(data []byte) (*File, error) {
	f, err := parse(data, data)
	if err == nil {
		err = f.refusePart()
	}
	if err != nil {
		return nil, inFile("", err)
	}
	return f, nil
}

// parse parses the header, a copy of the start of data. data is the whole file: parse slices
// it but does not read it.
func parse(header, data []byte) (*File, error) {
	c := cursor{data: header}
	h, err := c.header()
	if err != nil {
		return nil, err
	}
	f := &File{size: int64(len(data)), version: h.version}
	if err := f.readKeys(&c, h.keys); err != nil {
		return nil, err
	}
	if err := f.readTensors(&c, h.tensors, data); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) readKeys(c *cursor, n int) error {
	f.keys, f.values = make([]string, 0, n), make([]Value, 0, n)
	f.keyAt = make(map[string]int32, n)
	for i := range n {
		raw, v, err := c.pair(i)
		if err != nil {
			return err
		}
		key := string(raw)
		if _, twice := f.keyAt[key]; twice {
			return inKey(key, refuse(errDuplicate, "the key occurs twice"))
		}
		if err := checkKnown(key, v); err != nil {
			return inKey(key, err)
		}
		f.keyAt[key] = int32(i)
		f.keys, f.values = append(f.keys, key), append(f.values, v)
	}
	return nil
}

// readTensors reads the tensor entries twice, because the data section starts after the last
// entry.
func (f *File) readTensors(c *cursor, n int, data []byte) error {
	entries := *c
	for i := range n {
		if _, err := c.tensor(i); err != nil {
			return err
		}
	}
	align := f.alignment()
	start := alignUp(int64(c.pos), align)
	f.tensors = make([]Tensor, 0, n)
	f.tensorAt = make(map[string]int32, n)
	dims := make([]int, 0, n*maxDims) // one allocation for all shapes
	for i := range n {
		e, err := entries.tensor(i)
		if err != nil {
			return err
		}
		if dims, err = f.addTensor(e, data, start, align, dims); err != nil {
			return inTensor(string(e.name), err)
		}
	}
	return checkOverlap(f.tensors)
}

// addTensor adds the tensor of e and returns dims with its dimensions appended.
func (f *File) addTensor(e entry, data []byte, start, align int64, dims []int) ([]int, error) {
	if _, twice := f.tensorAt[string(e.name)]; twice {
		return nil, refuse(errDuplicate, "the tensor occurs twice")
	}
	from := len(dims)
	dims, err := e.ints(dims)
	if err != nil {
		return nil, err
	}
	t, err := e.tensor(data, start, align, slices.Clip(dims[from:]))
	if err != nil {
		return nil, err
	}
	f.tensorAt[t.Name] = int32(len(f.tensors))
	f.tensors = append(f.tensors, t)
	return dims, nil
}

// alignment returns the alignment of tensor data, which readKeys has checked.
func (f *File) alignment() int64 {
	v, ok := f.Value(keyAlignment)
	if !ok {
		return defaultAlignment
	}
	n, _ := v.Uint()
	return int64(n)
}

// Version returns the GGUF version, 2 or 3. Of a split model it is that of the first part.
func (f *File) Version() uint32 { return f.version }

// Size returns the size of the file, or of all parts of a split model, in bytes.
func (f *File) Size() int64 { return f.size }

// Paths returns the path given to Open, and for a split model those of the other parts. It
// returns none after Parse.
func (f *File) Paths() []string {
	paths := make([]string, len(f.mapped))
	for i, m := range f.mapped {
		paths[i] = m.path
	}
	return paths
}

// Keys returns the metadata keys in file order. Of a split model they are those of the first
// part, without split.no, split.count and split.tensors.count.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Value returns the value of a key, and whether the file has the key.
func (f *File) Value(key string) (Value, bool) {
	i, ok := f.keyAt[key]
	if !ok {
		return Value{}, false
	}
	return f.values[i], true
}

// Tensors returns the tensors in file order, part after part. After Close their Data is nil.
func (f *File) Tensors() []Tensor {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Clone(f.tensors)
}

// Tensor returns the tensor of that name, and whether the file has it. After Close its
// Data is nil.
func (f *File) Tensor(name string) (Tensor, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.tensorAt[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// Close unmaps the file. Reading a Tensor.Data obtained before crashes the process.
// Closing twice is not an error.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	for i := range f.tensors {
		f.tensors[i].Data = nil
	}
	var errs []error
	for _, m := range f.mapped {
		if err := m.close(); err != nil {
			errs = append(errs, inFile(m.path, err))
		}
	}
	return errors.Join(errs...)
}
