package gguf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/quant"
)

// readAll calls every accessor of an accepted File and reads all data.
func readAll(f *File) error {
	for _, key := range f.Keys() {
		v, ok := f.Value(key)
		if !ok {
			return fmt.Errorf("key %q is listed and not there", key)
		}
		if err := readValue(v); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
	}
	for _, t := range f.Tensors() {
		if err := checkTensor(f, t); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	for part := range max(1, len(f.Paths())) {
		others := func(t Tensor) bool { return t.Part != part }
		if err := checkOverlap(slices.DeleteFunc(f.Tensors(), others)); err != nil {
			return err
		}
	}
	return nil
}

// readValue calls every accessor of v. Those of other types must return ErrType.
func readValue(v Value) error {
	if v.Any() == nil || v.String() == "" {
		return errors.New("no value")
	}
	errs := make([]error, 7)
	_, errs[0] = v.Uint()
	_, errs[1] = v.Float()
	_, errs[2] = v.Bool()
	_, errs[3] = v.Str()
	_, errs[4] = v.Strings()
	_, errs[5] = v.Ints()
	_, errs[6] = v.Floats()
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrType) && !errors.Is(err, errOverflow) {
			return fmt.Errorf("accessor: %w", err)
		}
	}
	return nil
}

// checkTensor reads the data of a tensor and compares its size with the shape.
func checkTensor(f *File, t Tensor) error {
	if same, ok := f.Tensor(t.Name); !ok || same.Offset != t.Offset {
		return errors.New("is listed and not found by name")
	}
	blocks := t.Elements() / t.Format.BlockLen()
	if len(t.Data) != blocks*t.Format.BlockBytes() || len(t.Data) == 0 {
		return fmt.Errorf("%d bytes of data for %d blocks of %v", len(t.Data), blocks, t.Format)
	}
	if t.Offset%f.alignment() != 0 || t.Offset+int64(len(t.Data)) > f.Size() {
		return fmt.Errorf("data at %d", t.Offset)
	}
	sum(t.Data)
	return nil
}

// sum reads data. It is not inlined, so that the compiler keeps the reads.
//
//go:noinline
func sum(data []byte) (s byte) {
	for _, b := range data {
		s += b
	}
	return s
}

func TestEveryTruncation(t *testing.T) {
	whole, header := good().bytes(), len(good().header())
	for n := range header {
		bounded(t, n, func() {
			if _, err := Parse(whole[:n:n]); !errors.Is(err, ErrTruncated) {
				t.Errorf("the first %d bytes: error %v", n, err)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "cut.gguf")
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	for n := len(whole); n >= 0; n-- {
		if err := os.Truncate(path, int64(n)); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		switch padding := n >= len(whole)-26; { // the padding of the last tensor may be missing
		case padding && err != nil:
			t.Errorf("%d bytes: %v", n, err)
		case padding:
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, ErrTruncated):
			t.Errorf("%d bytes: error %v", n, err)
		}
	}
}

func TestEveryBitFlip(t *testing.T) {
	for _, version := range []uint32{2, 3} {
		f := good()
		f.version = version
		data, header := f.bytes(), len(f.header())
		loaded := 0
		for bit := range 8 * header {
			data[bit/8] ^= 1 << (bit % 8)
			bounded(t, len(data), func() {
				f, err := Parse(data)
				switch {
				case err != nil && len(kinds(err)) != 1:
					t.Errorf("version %d, bit %d: %v: wraps %q", version, bit, err, kinds(err))
				case err == nil:
					loaded++
					if err := readAll(f); err != nil {
						t.Errorf("version %d, bit %d: %v", version, bit, err)
					}
				}
			})
			data[bit/8] ^= 1 << (bit % 8)
		}
		if loaded == 0 || loaded == 8*header {
			t.Errorf("version %d: %d of %d files with a flipped bit were loaded", version, loaded, 8*header)
		}
	}
}

// The most keys and tensors, and arrays of the smallest elements, stay within the bounds.
func TestDenseFiles(t *testing.T) {
	tests := []struct {
		name, reason  string
		data          []byte
		keys, tensors int
	}{
		{"keys", "the most keys, each as small as distinct keys can be", denseKeys(), maxKeys, 0},
		{"tensors", "the most tensors, each one number", denseTensors(), 1, maxTensors},
		{"empty strings", "2 million strings of 8 bytes", endingIn(arr("k", typeString, 1<<21, make([]byte, 1<<24))), 1, 0},
		{"bools", "the longest array", endingIn(arr("k", typeBool, maxElements, make([]byte, maxElements))), 1, 0},
		{"long string", "16 MiB", endingIn(kv("k", typeString, str(string(make([]byte, 1<<24))))), 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "dense.gguf")
			if err := os.WriteFile(path, tt.data, 0o600); err != nil {
				t.Fatal(err)
			}
			bounded(t, len(tt.data), func() { checkDense(t, Parse, tt.data, tt.keys, tt.tensors) })
			bounded(t, len(tt.data), func() { checkDense(t, Open, path, tt.keys, tt.tensors) })
		})
	}
}

func checkDense[T any](t *testing.T, load func(T) (*File, error), from T, keys, tensors int) {
	t.Helper()
	f, err := load(from)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.keys) != keys || len(f.tensors) != tensors {
		t.Errorf("%d keys and %d tensors", len(f.keys), len(f.tensors))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestHeaderLimits opens sparse files, which claim gigabytes and take a few blocks on disk.
// They are refused before memory is allocated for their contents.
func TestHeaderLimits(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files are not sparse")
	}
	const size = 3 << 30
	array := func(key string, elem valueType, n uint64) []byte { return arr(key, elem, n, nil) }
	var long, texts [][]byte // together, each within its own limit
	for i := range 5 {
		long = append(long, array(fmt.Sprint("long", i), typeFloat64, maxElements))
		texts = append(texts, kv(fmt.Sprint("text", i), typeString, u64(maxStringBytes)))
	}
	tests := []struct {
		name, reason string
		keys         [][]byte // without the bytes of their arrays and strings
		gap          int64    // bytes of each array or string
		want         string
	}{
		{"bytes", "the whole file in one array", [][]byte{array("k", typeUint8, size-100)}, 0,
			`key "k": 3221225372 elements of array are more than 4194304`},
		{"elements", "one too many", [][]byte{array("k", typeUint8, maxElements+1)}, 0,
			`key "k": 4194305 elements of array are more than 4194304`},
		{"empty strings", "8 bytes of file and 16 of memory each", [][]byte{array("k", typeString, maxElements+1)}, 0,
			`key "k": 4194305 elements of array are more than 4194304`},
		{"string", "the whole file in one string", [][]byte{kv("k", typeString, u64(size-100))}, 0,
			`key "k": 3221225372 bytes of string are more than 67108864`},
		{"string in an array", "the second", [][]byte{array("k", typeString, 2), u64(0), u64(maxStringBytes + 1)}, 0,
			`key "k": element 1: 67108865 bytes of string are more than 67108864`},
		{"arrays", "the fourth ends beyond the limit", long, maxElements * 8,
			`key "long3": 134217868 bytes of header are more than 134217728`},
		{"strings", "the second ends beyond the limit", texts, maxStringBytes,
			`key "text1": 134217802 bytes of header are more than 134217728`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sparse.gguf")
			keys := uint64(len(tt.keys))
			head := (&rawFile{magic: magic, version: 3, nKeys: &keys}).header()
			if tt.gap == 0 {
				head, tt.keys = append(head, slices.Concat(tt.keys...)...), nil
			}
			writeSparse(t, path, size, tt.gap, append([][]byte{head}, tt.keys...))
			bounded(t, 0, func() {
				_, err := Open(path)
				if want := "gguf: " + path + ": " + tt.want; !errors.Is(err, errLimit) || err.Error() != want {
					t.Errorf("%s: error %v, want %s", tt.reason, err, want)
				}
			})
		})
	}
}

// writeSparse writes a file with a gap of zeros after each part but the first.
func writeSparse(t *testing.T, path string, size, gap int64, parts [][]byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(0)
	for i, part := range parts {
		if _, err := f.WriteAt(part, at); err != nil {
			t.Fatal(err)
		}
		at += int64(len(part))
		if i > 0 {
			at += gap
		}
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

func denseKeys() []byte {
	f := &rawFile{magic: magic, version: 3}
	for i := range maxKeys {
		f.keys = append(f.keys, kv(fmt.Sprintf("%x", i), typeUint8, u8(0)))
	}
	return f.bytes()
}

func denseTensors() []byte {
	f := &rawFile{magic: magic, version: 3, align: 1, keys: [][]byte{kv(keyAlignment, typeUint32, u32(1))}}
	size := quant.F16.BlockBytes()
	for i := range maxTensors { // in reverse, a bad case for sorting
		f.tensors = append(f.tensors, ten(fmt.Sprintf("%x", i), idF16, uint64((maxTensors-1-i)*size), 1))
	}
	f.data = make([]byte, maxTensors*size)
	return f.bytes()
}
