package gguf

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The keys of a part of a split model, as llama.cpp's gguf-split writes them. Each part is a
// GGUF file with these keys and with its own tensors. The first part also has the metadata.
const (
	keySplitCount   = "split.count"         // number of parts; 0 or 1: the model is not split
	keySplitNo      = "split.no"            // of this part, from 0
	keySplitTensors = "split.tensors.count" // number of tensors in all parts
)

// maxParts bounds the number of files that Open maps. Models that are published with one
// tensor per part have more than a thousand.
const maxParts = 1 << 12

// split holds the keys of a part. The count of a model that is not split is 0.
type split struct{ count, no, tensors int }

// suffix returns the end of the part's name.
func (s split) suffix() string { return fmt.Sprintf("-%05d-of-%05d.gguf", s.no+1, s.count) }

// String names the part in messages.
func (s split) String() string { return fmt.Sprintf("part %d of %d", s.no+1, s.count) }

func (f *File) split() (s split, err error) {
	v, ok := f.Value(keySplitCount)
	if n, err := v.Uint(); !ok || err == nil && n <= 1 {
		return split{}, nil
	}
	if s.count, err = f.splitKey(keySplitCount, maxParts); err == nil {
		s.no, err = f.splitKey(keySplitNo, s.count-1)
	}
	if err == nil {
		s.tensors, err = f.splitKey(keySplitTensors, maxTensors)
	}
	return s, err
}

// splitKey returns the value of a key that every part must have.
func (f *File) splitKey(key string, limit int) (int, error) {
	v, ok := f.Value(key)
	if !ok {
		return 0, inKey(key, refuse(errSplit, "the key of a split model is missing"))
	}
	n, err := v.Uint()
	if err == nil && n > uint64(limit) {
		err = refuse(errLimit, "%d is above %d", n, limit)
	}
	if err != nil {
		return 0, inKey(key, err)
	}
	return int(n), nil
}

// refusePart refuses a part in memory.
func (f *File) refusePart() error {
	s, err := f.split()
	if err != nil || s.count == 0 {
		return err
	}
	return inKey(keySplitCount, refuse(errPart, "this is %v, and only Open finds the others", s))
}

// openParts opens the other parts if f is the first part of a split model. Then f has the
// tensors of all parts, and no longer has the keys of a part.
func (f *File) openParts() error {
	s, err := f.split()
	if err != nil {
		return inFile(f.path, err)
	}
	if s.count == 0 {
		return nil
	}
	name, ok := strings.CutSuffix(f.path, s.suffix())
	if !ok {
		return inFile(f.path, inKey(keySplitCount, refuse(errSplit, "the name of %v must end in %s", s, s.suffix())))
	}
	if s.no > 0 {
		first := split{count: s.count}
		return inFile(f.path, inKey(keySplitNo, refuse(errPart, "this is %v: open the first, %s", s, name+first.suffix())))
	}
	for s.no = 1; s.no < s.count; s.no++ {
		path := name + s.suffix()
		if err := f.openPart(path, s); err != nil {
			return inFile(path, fmt.Errorf("%v: %w", s, err))
		}
	}
	if n := len(f.tensors); n != s.tensors {
		return inFile(f.path, inKey(keySplitTensors, refuse(errSplit, "%d, and all parts have %d tensors", s.tensors, n)))
	}
	f.removeKeys(keySplitCount, keySplitNo, keySplitTensors)
	return nil
}

// openPart adds the tensors of the part at path, whose keys must be s.
func (f *File) openPart(path string, s split) error {
	part, err := open(path)
	if err != nil {
		return err
	}
	f.mapped = append(f.mapped, part.mapped...)
	f.size += part.size
	for _, key := range []struct {
		name string
		want int
	}{{keySplitCount, s.count}, {keySplitNo, s.no}, {keySplitTensors, s.tensors}} {
		n, err := part.splitKey(key.name, math.MaxInt)
		if err != nil {
			return err
		}
		if n != key.want {
			return inKey(key.name, refuse(errSplit, "%d, want %d", n, key.want))
		}
	}
	if err := checkCounts(0, len(f.tensors)+len(part.tensors)); err != nil {
		return err
	}
	for _, t := range part.tensors {
		if i, twice := f.tensorAt[t.Name]; twice {
			return inTensor(t.Name, refuse(errDuplicate, "the tensor is also in %s", f.mapped[f.tensors[i].Part].path))
		}
		t.Part = s.no
		f.tensorAt[t.Name] = int32(len(f.tensors))
		f.tensors = append(f.tensors, t)
	}
	return nil
}

func (f *File) removeKeys(names ...string) {
	for i := len(f.keys) - 1; i >= 0; i-- {
		if slices.Contains(names, f.keys[i]) {
			f.keys, f.values = slices.Delete(f.keys, i, i+1), slices.Delete(f.values, i, i+1)
		}
	}
	clear(f.keyAt)
	for i, key := range f.keys {
		f.keyAt[key] = int32(i)
	}
}
