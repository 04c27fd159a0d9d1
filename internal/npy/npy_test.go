package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestRoundTrip(t *testing.T) {
	tests := []struct {
		name, reason string
		shape        []int
	}{
		{"scalar", "an empty shape is one number", []int{}},
		{"vector", "a one-element tuple needs its comma", []int{5}},
		{"matrix", "the usual case", []int{3, 4}},
		{"four axes", "more than two axes", []int{2, 1, 3, 2}},
		{"empty", "a zero axis holds nothing", []int{0, 7}},
		{"over a chunk", "the array is read in several chunks", []int{3, chunk / 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := elements(tt.shape)
			if err != nil {
				t.Fatal(err)
			}
			want := make([]float32, n)
			for i := range want {
				want[i] = float32(i)*0.1 - 7
			}
			var buf bytes.Buffer
			if err := Write(&buf, tt.shape, want); err != nil {
				t.Fatal(err)
			}
			if at := buf.Len() - 4*n; at%align != 0 {
				t.Errorf("the array begins at byte %d, not a multiple of %d", at, align)
			}
			shape, got, err := Read(&buf)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.shape, shape); d != "" {
				t.Errorf("shape (-want +got):\n%s", d)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("data (-want +got):\n%s", d)
			}
		})
	}
}

// All bits survive: signed zeros, NaN payloads, subnormal numbers.
func TestRoundTripBits(t *testing.T) {
	bits := []uint32{0, 1 << 31, 0x7fc00001, 0xffc12345, 0x7f800000, 0xff800000, 1, 0x007fffff}
	data := make([]float32, len(bits))
	for i, b := range bits {
		data[i] = math.Float32frombits(b)
	}
	var buf bytes.Buffer
	if err := Write(&buf, []int{len(bits)}, data); err != nil {
		t.Fatal(err)
	}
	_, got, err := Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if math.Float32bits(v) != bits[i] {
			t.Errorf("number %d: bits %#x, want %#x", i, math.Float32bits(v), bits[i])
		}
	}
}

// The header has the bytes that NumPy 2 writes.
func TestHeaderBytes(t *testing.T) {
	var buf bytes.Buffer
	if err := Write(&buf, []int{19, 160}, make([]float32, 19*160)); err != nil {
		t.Fatal(err)
	}
	dict := "{'descr': '<f4', 'fortran_order': False, 'shape': (19, 160), }"
	want := "\x93NUMPY\x01\x00\x76\x00" + dict + strings.Repeat(" ", 128-10-len(dict)-1) + "\n"
	if d := cmp.Diff(want, string(buf.Bytes()[:128])); d != "" {
		t.Errorf("header (-want +got):\n%s", d)
	}
}

// file returns a .npy file with that header text and array.
func file(dict string, array int) []byte {
	b := append([]byte(magic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)))
	return append(append(b, dict...), make([]byte, array)...)
}

func TestReadAccepts(t *testing.T) {
	tests := []struct {
		name, reason, dict string
	}{
		{"no trailing commas", "Python needs none", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\n"},
		{"double quotes", "Python knows both", `{"descr": "<f4", "fortran_order": False, "shape": (2, 3,), }`},
		{"other order, no blanks", "a dictionary has no order", "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			shape, data, err := Read(iotest.OneByteReader(bytes.NewReader(file(tt.dict, 24))))
			if err != nil || len(data) != 6 || !cmp.Equal(shape, []int{2, 3}) {
				t.Errorf("Read = %v, %v, %v", shape, data, err)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	good := func(shape string) string {
		return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }"
	}
	replace := func(b []byte, at int, v byte) []byte { b[at] = v; return b }
	tests := []struct {
		name, reason string
		data         []byte
		want         error
		text         string // must be in the message
	}{
		{"nothing", "an empty file", nil, ErrTruncated, "header"},
		{"half a magic", "shorter than the prefix", []byte("\x93NUM"), ErrTruncated, "header"},
		{"magic", "another kind of file", []byte("GGUF\x03\x00\x00\x00\x00\x00\x00\x00"), ErrFormat, "magic"},
		{"version 2", "its header length is four bytes", replace(file(good("(1,)"), 4), 6, 2), ErrUnsupported, "2.0"},
		{"version 1.1", "no such version", replace(file(good("(1,)"), 4), 7, 1), ErrUnsupported, "1.1"},
		{"short header", "the length promises more", file(good("(1,)"), 0)[:40], ErrTruncated, "header"},
		{"short array", "one byte is missing", file(good("(2, 3)"), 23), ErrTruncated, "array"},
		{"no array", "nothing after the header", file(good("(1,)"), 0), ErrTruncated, "array"},
		{"long array", "one byte too many", file(good("(2, 3)"), 25), ErrFormat, "after"},
		{"float64", "another type", file("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", 8), ErrUnsupported, "<f8"},
		{"big-endian", "another byte order", file("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 4), ErrUnsupported, ">f4"},
		{"pickled objects", "never executed", file("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 4), ErrUnsupported, "|O"},
		{"Fortran order", "columns first", file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24), ErrUnsupported, "Fortran"},
		{"overflow", "4·n is over an int", file(good(fmt.Sprintf("(%d, 2)", math.MaxInt/2+1)), 0), ErrShape, "too large"},
		{"overflow in bytes", "n fits and 4·n does not", file(good(fmt.Sprintf("(%d,)", math.MaxInt/2+1)), 0), ErrShape, "too large"},
		{"dimension over int", "not even one number fits", file(good("(99999999999999999999,)"), 0), ErrFormat, "dimension"},
		{"huge and absent", "memory follows the bytes, not the claim", file(good(fmt.Sprintf("(%d,)", math.MaxInt/8)), 100), ErrTruncated, "array"},
		{"negative", "a minus is no digit", file(good("(-1,)"), 0), ErrFormat, "dimension"},
		{"number for shape", "(3) is no tuple", file(good("(3)"), 12), ErrFormat, "tuple"},
		{"list for shape", "[3] is no tuple", file(good("[3]"), 12), ErrFormat, `"("`},
		{"open tuple", "the tuple does not end", file("{'shape': (1, ", 0), ErrFormat, "dimension"},
		{"open string", "the string does not end", file("{'descr", 0), ErrFormat, "end"},
		{"open dictionary", "the dictionary does not end", file("{'descr': '<f4'", 4), ErrFormat, `"}"`},
		{"no dictionary", "blanks only", file("      \n", 4), ErrFormat, `"{"`},
		{"key missing", "no shape", file("{'descr': '<f4', 'fortran_order': False, }", 4), ErrFormat, "exactly"},
		{"key twice", "which one counts?", file("{'descr': '<f4', 'descr': '<f4', }", 4), ErrFormat, "twice"},
		{"key unknown", "a newer writer", file("{'order': 'C', }", 4), ErrFormat, "order"},
		{"bool as number", "0 is not False", file("{'fortran_order': 0, }", 4), ErrFormat, "False"},
		{"after the dictionary", "trailing text", file(good("(1,)")+" x", 4), ErrFormat, "exactly"},
		{"no colon", "a set, not a dictionary", file("{'descr'}", 4), ErrFormat, `":"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Read(bytes.NewReader(tt.data))
			if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.text) {
				t.Errorf("%s: error %v, want %v with %q", tt.reason, err, tt.want, tt.text)
			}
		})
	}
}

func TestReadPassesErrorsOn(t *testing.T) {
	broken := errors.New("disk on fire")
	whole := file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8)
	for cut := range len(whole) + 1 {
		_, _, err := Read(io.MultiReader(bytes.NewReader(whole[:cut]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Fatalf("error after %d bytes: %v", cut, err)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	tests := []struct {
		name, reason string
		shape        []int
		n            int
	}{
		{"too few numbers", "the file would lie", []int{2, 3}, 5},
		{"too many numbers", "the file would lie", []int{2, 3}, 7},
		{"negative", "no such axis", []int{-1}, 1},
		{"header too long", "its length is 16 bits", make([]int, 40000), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var buf bytes.Buffer
			err := Write(&buf, tt.shape, make([]float32, tt.n))
			if !errors.Is(err, ErrShape) || buf.Len() != 0 {
				t.Errorf("%s: wrote %d bytes, error %v", tt.reason, buf.Len(), err)
			}
		})
	}
}

// failAfter is a writer that fails after n bytes.
type failAfter int

func (f *failAfter) Write(p []byte) (int, error) {
	if *f < failAfter(len(p)) {
		return 0, io.ErrShortWrite
	}
	*f -= failAfter(len(p))
	return len(p), nil
}

func TestWriteReportsAFullDisk(t *testing.T) {
	for _, limit := range []failAfter{0, 100, 1 << 17} {
		if err := Write(&limit, []int{1 << 20}, make([]float32, 1<<20)); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("error %v", err)
		}
	}
}

// Files of NumPy and other programs.
func TestOracleFiles(t *testing.T) {
	paths, err := filepath.Glob("../../golden/arch/*.npy")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files, error %v", len(paths), err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		shape, data, err := Read(bytes.NewReader(raw))
		if err != nil || len(shape) != 2 || shape[0] < 19 {
			t.Errorf("%s: shape %v, error %v", path, shape, err)
			continue
		}
		var again bytes.Buffer
		if err := Write(&again, shape, data); err != nil || !bytes.Equal(again.Bytes(), raw) {
			t.Errorf("%s: written again it differs, error %v", path, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24))
	f.Add(file("{'shape':(),'fortran_order':False,'descr':'<f4'}", 4))
	f.Add(file(fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }", math.MaxInt/8), 9))
	f.Add([]byte("GGUF"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		shape, data, err := Read(bytes.NewReader(raw))
		if err != nil {
			return
		}
		if n, err := elements(shape); err != nil || n != len(data) || 4*n > len(raw) {
			t.Fatalf("shape %v with %d numbers from %d bytes (%v)", shape, len(data), len(raw), err)
		}
		var buf bytes.Buffer
		if err := Write(&buf, shape, data); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Read(&buf); err != nil {
			t.Fatalf("cannot read what was written: %v", err)
		}
	})
}
