package gguf

import (
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
		if f.Version() != version || f.path != "" || f.Size() != int64(len(data)) {
			t.Errorf("version %d, path %q, size %d", f.Version(), f.path, f.Size())
		}
		checkGood(t, f, int64(len(data)-len(raw.data)))
		if err := readAll(f); err != nil {
			t.Error(err)
		}
	}
}

// checkGood compares f with good. The data section starts at byte start.
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
		{"a.weight", quant.F32, []int{4, 2}, 0, start, data[:32]},
		{"b.weight", quant.Q8_0, []int{32, 2, 1}, 0, start + 32, data[32:100]},
		{"c.bias", quant.F16, []int{3}, 0, start + 128, data[128:134]},
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

// Unusual files that are allowed.
func TestParseAccepts(t *testing.T) {
	onlyKeys := func(keys ...[]byte) []byte { return (&rawFile{magic: magic, version: 3, keys: keys}).bytes() }
	tests := []struct {
		name, reason string
		data         []byte
		tensors      int
	}{
		{"nothing", "a file of no keys and no tensors is 24 bytes", onlyKeys(), 0},
		{"keys only", "a vocabulary: no data, so no padding", onlyKeys(kv("k", typeUint8, u8(1))), 0},
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
		{"longest name", "64 bytes", withTensor(ten(strings.Repeat("n", maxNameLen), idF32, 32, 4)), 3},
		{"longest key", "65,535 bytes", withKey(kv(strings.Repeat("k", maxKeyLen), typeUint8, u8(1))), 3},
		{"odd key", "not snake case, but harmless", withKey(kv("Żółć -1", typeUint8, u8(1))), 3},
		{"file type of another width", "any integer will do", withKey(kv("general.file_type", typeUint64, u64(1))), 3},
		{"token types unsigned", "the specification says so, writers do not", withKey(arr("tokenizer.ggml.token_type", typeUint32, 1, u32(1))), 3},
		{"name like a key", "they are apart", withTensor(ten("general.architecture", idF32, 32, 4)), 3},
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

// denseTwo is a file of two tensors without a gap.
func denseTwo(align int) []byte {
	f := &rawFile{magic: magic, version: 3, align: align, keys: [][]byte{kv(keyAlignment, typeUint32, u32(uint32(align)))}}
	next := uint64(max(align, 4))
	f.tensors = [][]byte{ten("a", idF32, 0, 1), ten("b", idF32, next, 1)}
	f.data = make([]byte, next+4)
	return f.bytes()
}

// An append to a view must not write to another one.
func TestViewsHaveNoRoom(t *testing.T) {
	for _, tensor := range mustParse(t, good().bytes()).Tensors() {
		if cap(tensor.Data) != len(tensor.Data) || cap(tensor.Dims) != len(tensor.Dims) {
			t.Errorf("%s: capacity for %d bytes and %d dimensions", tensor.Name, cap(tensor.Data), cap(tensor.Dims))
		}
	}
}
