package gguf

import (
	"bufio"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
	"github.com/lockstep-go/lockstep/quant"
)

// TensorInfo describes a tensor for a Writer.
type TensorInfo struct {
	Name   string
	Format quant.Format
	Dims   []int // in the order of Tensor.Dims
	// Write writes the data: exactly the number of bytes that Format and Dims need. It
	// is called once per WriteTo or WriteFile.
	Write func(io.Writer) error
}

// Writer collects metadata and tensors and writes them as a version 3 file. It refuses
// what Open and Parse refuse, with the same errors, except for the values of split.no,
// split.count and split.tensors.count. Equal calls in equal order give equal bytes.
type Writer struct {
	keys    []string
	values  map[string]Value
	tensors []TensorInfo
	sizes   []int64 // bytes of tensor data, without padding
	names   map[string]struct{}
	head    int   // bytes of the header, without padding
	total   int64 // sum of sizes, each with the maximum padding
}

// NewWriter returns an empty Writer.
func NewWriter() *Writer {
	return &Writer{values: map[string]Value{}, names: map[string]struct{}{}, head: fixedBytes}
}

// Set sets a key to a bool, an integer or float of a fixed width, a string, a slice of
// one of these, or a Value of another file. Named types are stored as their underlying
// type. Setting a key again keeps its position.
//
// A plain int or uint is an ErrType, because readers expect a certain width, most often
// uint32.
func (w *Writer) Set(key string, value any) error {
	if err := w.set(key, value); err != nil {
		return inFile("", inKey(key, err))
	}
	return nil
}

func (w *Writer) set(key string, value any) error {
	if err := checkKey(len(key)); err != nil {
		return err
	}
	if !utf8.ValidString(key) {
		return refuse(errUTF8, "the key is not valid UTF-8")
	}
	v, err := encode(value)
	if err != nil {
		return err
	}
	if err := checkKnown(key, v); err != nil {
		return err
	}
	old, again := w.values[key]
	head := w.head + v.encodedLen()
	if again {
		head -= old.encodedLen()
	} else {
		head += lengthBytes + len(key)
		if err := checkCounts(len(w.keys)+1, 0); err != nil {
			return err
		}
	}
	if err := checkHeaderBytes(head); err != nil {
		return err
	}
	if !again {
		w.keys = append(w.keys, key)
	}
	w.values[key], w.head = v, head
	return nil
}

// Add appends a tensor. WriteTo and WriteFile call t.Write later.
func (w *Writer) Add(t TensorInfo) error {
	if t.Write == nil {
		panic("gguf: Writer.Add without TensorInfo.Write")
	}
	if err := w.add(t); err != nil {
		return inFile("", inTensor(t.Name, err))
	}
	return nil
}

func (w *Writer) add(t TensorInfo) error {
	if err := checkName(len(t.Name)); err != nil {
		return err
	}
	if !utf8.ValidString(t.Name) {
		return refuse(errUTF8, "the name is not valid UTF-8")
	}
	if _, twice := w.names[t.Name]; twice {
		return refuse(errDuplicate, "the tensor occurs twice")
	}
	if err := checkCounts(0, len(w.tensors)+1); err != nil {
		return err
	}
	size, err := sizeOf(t.Format, t.Dims)
	if err != nil {
		return err
	}
	if size > math.MaxInt64-maxAlignment-maxHeaderBytes-w.total {
		return refuse(errOverflow, "%d bytes after %d exceed the largest file", size, w.total)
	}
	head := w.head + tensorBytes(len(t.Name), len(t.Dims))
	if err := checkHeaderBytes(head); err != nil {
		return err
	}
	t.Dims = slices.Clone(t.Dims)
	w.head = head
	w.names[t.Name] = struct{}{}
	w.tensors, w.sizes = append(w.tensors, t), append(w.sizes, size)
	w.total += size + maxAlignment
	return nil
}

func (w *Writer) alignment() int64 {
	v, ok := w.values[keyAlignment]
	if !ok {
		return defaultAlignment
	}
	n, _ := v.Uint() // Set checked it
	return int64(n)
}

// header returns the bytes before the tensor data. It pads them if there are tensors.
func (w *Writer) header() []byte {
	b := []byte(magic)
	b = le.AppendUint32(b, maxVersion)
	b = le.AppendUint64(b, uint64(len(w.tensors)))
	b = le.AppendUint64(b, uint64(len(w.keys)))
	for _, key := range w.keys {
		b = appendString(b, key)
		b = w.values[key].appendTo(b)
	}
	align := w.alignment()
	offset := int64(0)
	for i, t := range w.tensors {
		b = appendString(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Dims)))
		for _, d := range t.Dims {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint32(b, uint32(t.Format))
		b = le.AppendUint64(b, uint64(offset))
		offset += alignUp(w.sizes[i], align)
	}
	if len(w.tensors) > 0 {
		b = append(b, make([]byte, alignUp(int64(len(b)), align)-int64(len(b)))...)
	}
	return b
}

// Size returns the number of bytes that WriteTo will write.
func (w *Writer) Size() int64 {
	n := int64(len(w.header()))
	for _, size := range w.sizes {
		n += alignUp(size, w.alignment())
	}
	return n
}

// WriteTo writes the file to dst and returns the number of bytes written. The error
// wraps ErrMalformed if a tensor writes more or fewer bytes than its shape needs;
// otherwise it is the error of dst or of TensorInfo.Write.
func (w *Writer) WriteTo(dst io.Writer) (int64, error) {
	n, err := w.writeTo(dst)
	if err != nil {
		return n, inFile("", err)
	}
	return n, nil
}

func (w *Writer) writeTo(dst io.Writer) (int64, error) {
	count := &counter{w: dst}
	out := bufio.NewWriterSize(count, 1<<18)
	_, err := out.Write(w.header())
	for i := 0; err == nil && i < len(w.tensors); i++ {
		err = w.writeTensor(out, i)
	}
	if err == nil {
		err = out.Flush()
	}
	return count.n, err
}

// writeTensor writes the data of tensor i and the padding after it. Other readers
// expect padding after the last tensor too.
func (w *Writer) writeTensor(out *bufio.Writer, i int) error {
	t, size := w.tensors[i], w.sizes[i]
	exact := &exactWriter{w: out, left: size}
	if err := t.Write(exact); err != nil {
		return inTensor(t.Name, err)
	}
	if exact.over != nil {
		return inTensor(t.Name, exact.over)
	}
	if exact.left > 0 {
		return inTensor(t.Name, refuse(errSize, "%d bytes were written, and the shape needs %d", size-exact.left, size))
	}
	_, err := out.Write(make([]byte, alignUp(size, w.alignment())-size))
	return err
}

// counter counts the bytes written to w.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// exactWriter refuses more than left bytes. It remembers its error in case the caller of
// Write ignores it.
type exactWriter struct {
	w    io.Writer
	left int64
	over error
}

func (e *exactWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > e.left {
		e.over = refuse(errSize, "more bytes are written than the shape needs")
		return 0, e.over
	}
	n, err := e.w.Write(p)
	e.left -= int64(n)
	return n, err
}

// WriteFile writes the file to path atomically: it writes a temporary file in the same
// directory, syncs it and renames it. On an error an existing file at path stays
// unchanged. Its permissions are kept. An existing path that is not a regular file is an
// error.
func (w *Writer) WriteFile(path string) error {
	err := atomicfile.Write(path, func(dst io.Writer) error {
		_, err := w.writeTo(dst)
		return err
	})
	if err != nil {
		return inFile(path, withoutPath(err))
	}
	return nil
}
