package gguf

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lockstep-go/lockstep/quant"
)

func mustParse(t *testing.T, data []byte) *File {
	t.Helper()
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParse(t *testing.T) {
	for _, version := range []uint32{2, 3} {
		raw := good()
		raw.version = version
		data := raw.bytes()
		f := mustParse(t, data)
		if f.Version() != version || f.Path() != "" || f.Size() != int64(len(data)) {
			t.Errorf("version %d, path %q, size %d", f.Version(), f.Path(), f.Size())
		}
		checkGood(t, f, int64(len(data)-len(raw.data)))
		if err := readAll(f); err != nil {
			t.Error(err)
		}
	}
}

// checkGood compares f with good, whose data starts at byte start.
func checkGood(t *testing.T, f *File, start int64) {
	t.Helper()
	var keys []string
	for _, kv := range goodValues {
		keys = append(keys, kv.key)
		v, ok := f.Value(kv.key)
		if !ok || !cmp.Equal(v.Any(), kv.want) {
			t.Errorf("key %q: %v, want %v", kv.key, v.Any(), kv.want)
		}
	}
	if diff := cmp.Diff(keys, f.Keys()); diff != "" {
		t.Errorf("keys: %s", diff)
	}
	data := good().data
	want := []Tensor{
		{"a.weight", quant.F32, []int{4, 2}, start, data[:32]},
		{"b.weight", quant.Q8_0, []int{32, 2, 1}, start + 32, data[32:100]},
		{"c.bias", quant.F16, []int{3}, start + 128, data[128:134]},
	}
	if diff := cmp.Diff(want, f.Tensors()); diff != "" {
		t.Errorf("tensors: %s", diff)
	}
	if c, ok := f.Tensor("c.bias"); !ok || !cmp.Equal(c, want[2]) {
		t.Errorf("tensor c.bias: %v", c)
	}
	if n := want[1].Elements(); n != 64 {
		t.Errorf("%d elements", n)
	}
	if _, ok := f.Tensor("d"); ok {
		t.Error("a tensor that is not there was found")
	}
	if _, ok := f.Value("d"); ok {
		t.Error("a key that is not there was found")
	}
}

// What is unusual and allowed.
func TestParseAccepts(t *testing.T) {
	onlyKeys := func(keys ...[]byte) []byte { return (&rawFile{magic: magic, version: 3, keys: keys}).bytes() }
	tests := []struct {
		name, reason string
		data         []byte
		tensors      int
	}{
		{"nothing", "a file of no keys and no tensors is 24 bytes", onlyKeys(), 0},
		{"keys only", "a vocabulary: no data, so no padding", onlyKeys(kv("k", TypeUint8, u8(1))), 0},
		{"alignment 1", "a power of two", denseTwo(1), 2},
		{"alignment 1 MiB", "the largest", denseTwo(1 << 20), 2},
		{"gap between tensors", "the offsets say where data is", with(func(f *rawFile) {
			f.tensors = [][]byte{ten("a", idF32, 0, 1), ten("b", idF32, 128, 1)}
		}), 2},
		{"tensors in any order", "the offsets say where data is", with(func(f *rawFile) {
			f.tensors = [][]byte{ten("a", idF32, 64, 8), ten("b", idF32, 0, 8), ten("c", idF32, 32, 8)}
		}), 3},
		{"bytes behind the data", "ignored", with(func(f *rawFile) { f.data = append(f.data, make([]byte, 99)...) }), 3},
		{"last padding missing", "some writers leave it out", with(func(f *rawFile) { f.data = f.data[:134] }), 3},
		{"longest name", "64 bytes", withTensor(ten(strings.Repeat("n", MaxNameLen), idF32, 32, 4)), 3},
		{"longest key", "65,535 bytes", withKey(kv(strings.Repeat("k", MaxKeyLen), TypeUint8, u8(1))), 3},
		{"odd key", "not snake case, but harmless", withKey(kv("Żółć -1", TypeUint8, u8(1))), 3},
		{"file type of another width", "any integer will do", withKey(kv("general.file_type", TypeUint64, u64(1))), 3},
		{"token types unsigned", "the specification says so, writers do not", withKey(arr("tokenizer.ggml.token_type", TypeUint32, 1, u32(1))), 3},
		{"name like a key", "they are apart", withTensor(ten(KeyArchitecture, idF32, 32, 4)), 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse(tt.data)
			if err != nil {
				t.Fatalf("%v: %s", err, tt.reason)
			}
			if n := len(f.Tensors()); n != tt.tensors {
				t.Errorf("%d tensors", n)
			}
			if err := readAll(f); err != nil {
				t.Error(err)
			}
		})
	}
}

// denseTwo is a file of two tensors at some alignment.
func denseTwo(align int) []byte {
	f := &rawFile{magic: magic, version: 3, align: align, keys: [][]byte{kv(KeyAlignment, TypeUint32, u32(uint32(align)))}}
	next := uint64(max(align, 4))
	f.tensors = [][]byte{ten("a", idF32, 0, 1), ten("b", idF32, next, 1)}
	f.data = make([]byte, next+4)
	return f.bytes()
}

// Views must not let an append, or a shape changed by its user, reach another.
func TestViewsHaveNoRoom(t *testing.T) {
	for _, tensor := range mustParse(t, good().bytes()).Tensors() {
		if cap(tensor.Data) != len(tensor.Data) || cap(tensor.Dims) != len(tensor.Dims) {
			t.Errorf("%s: room for %d bytes and %d dimensions", tensor.Name, cap(tensor.Data), cap(tensor.Dims))
		}
	}
}

func TestLookups(t *testing.T) {
	f := mustParse(t, good().bytes())
	check := func(name string, got, want any, ok bool, err error) {
		t.Helper()
		if !ok || err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v, %v, %v, want %v", name, got, ok, err, want)
		}
	}
	u, ok, err := f.Uint("t.u64")
	check("Uint", u, uint64(math.MaxUint64), ok, err)
	i, ok, err := f.Int("t.i8")
	check("Int", i, int64(-2), ok, err)
	x, ok, err := f.Float("t.f32")
	check("Float", x, 1.5, ok, err)
	b, ok, err := f.Bool("t.bool")
	check("Bool", b, true, ok, err)
	s, ok, err := f.Str(KeyArchitecture)
	check("Str", s, "llama", ok, err)
	ss, ok, err := f.Strings("tokenizer.ggml.tokens")
	check("Strings", ss, []string{"<unk>", "", "▁ż"}, ok, err)
	is, ok, err := f.Ints("t.i16s")
	check("Ints", is, []int64{1, -32768}, ok, err)
	xs, ok, err := f.Floats("t.f32s")
	check("Floats", xs, []float64{0.5, math.Inf(1)}, ok, err)
	bs, ok, err := f.Bools("t.bools")
	check("Bools", bs, []bool{true, false, true}, ok, err)

	if _, ok, err := f.Uint("absent"); ok || err != nil {
		t.Errorf("absent key: %v, %v", ok, err)
	}
	_, ok, err = f.Uint("t.str")
	if want := `gguf: key "t.str": have string, want integer`; ok || !errors.Is(err, ErrType) || err.Error() != want {
		t.Errorf("wrong type: %v, %v, want %s", ok, err, want)
	}
	_, _, err = f.Int("t.u64")
	if want := `gguf: key "t.u64": 18446744073709551615 does not fit an int64`; !errors.Is(err, ErrOverflow) || err.Error() != want {
		t.Errorf("overflow: %v, want %s", err, want)
	}
}
