package gguf

import (
	"slices"
	"sync"
)

// File is a parsed file. Its metadata stays readable after Close; the data of its
// tensors does not. All methods are safe for concurrent use, but Close must not
// be called while tensor data is being read.
type File struct {
	path    string
	size    int64
	version uint32

	keys     []string
	values   []Value // by place in keys
	keyAt    map[string]int32
	tensorAt map[string]int32

	mu      sync.RWMutex // guards what Close changes
	tensors []Tensor
	mapped  *mapping // nil when parsed from memory, and after Close
	closed  bool
}

// Parse reads a file that is in memory. data is not copied and must not change
// while the File is in use. Errors wrap one of this package's Err values.
func Parse(data []byte) (*File, error) {
	f, err := parse(data, data)
	if err != nil {
		return nil, inFile("", err)
	}
	return f, nil
}

// parse reads a file whose header is at the start of header; data is the whole
// file, whose tensors are placed but not read.
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
			return inKey(key, refuse(ErrDuplicate, "the key is there twice"))
		}
		if err := checkKnown(key, v); err != nil {
			return inKey(key, err)
		}
		f.keyAt[key] = int32(i)
		f.keys, f.values = append(f.keys, key), append(f.values, v)
	}
	return nil
}

// readTensors reads all entries before placing any: where the data starts is
// known only after the last.
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
	dims := make([]int, 0, n*MaxDims) // all shapes in one allocation
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

// addTensor places e and returns dims with e's appended.
func (f *File) addTensor(e entry, data []byte, start, align int64, dims []int) ([]int, error) {
	if _, twice := f.tensorAt[string(e.name)]; twice {
		return nil, refuse(ErrDuplicate, "the tensor is there twice")
	}
	from := len(dims)
	dims, err := e.ints(dims)
	if err != nil {
		return nil, err
	}
	t, err := e.place(data, start, align, slices.Clip(dims[from:]))
	if err != nil {
		return nil, err
	}
	f.tensorAt[t.Name] = int32(len(f.tensors))
	f.tensors = append(f.tensors, t)
	return dims, nil
}

// alignment is general.alignment, which readKeys checked.
func (f *File) alignment() int64 {
	v, ok := f.Value(KeyAlignment)
	if !ok {
		return defaultAlignment
	}
	n, _ := v.Uint()
	return int64(n)
}

// Version is the version of the format, 2 or 3.
func (f *File) Version() uint32 { return f.version }

// Path is the path given to Open, "" for a file parsed from memory.
func (f *File) Path() string { return f.path }

// Size is the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// Keys lists the keys in file order.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Value is the value of a key, and whether there is one.
func (f *File) Value(key string) (Value, bool) {
	i, ok := f.keyAt[key]
	if !ok {
		return Value{}, false
	}
	return f.values[i], true
}

// Tensors lists the tensors in file order. After Close their Data is nil.
func (f *File) Tensors() []Tensor {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Clone(f.tensors)
}

// Tensor is the tensor of a name, and whether there is one. After Close its Data
// is nil.
func (f *File) Tensor(name string) (Tensor, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.tensorAt[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// Close unmaps the file: a Tensor.Data taken before must not be read any more.
// Metadata stays readable. Closing twice is no error.
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
	if f.mapped == nil {
		return nil
	}
	err := f.mapped.close()
	f.mapped = nil
	if err != nil {
		return inFile(f.path, err)
	}
	return nil
}
