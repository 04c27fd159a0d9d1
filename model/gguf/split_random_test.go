package gguf_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// A model that is split at random tensors has the metadata and the tensors of the whole.
func TestSplitAnywhere(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, arch := range tiny.Architectures() {
		whole := tiny.New(arch, 1).File()
		for try := range 4 {
			sizes := make([]int, 2+random.IntN(5))
			for range whole.Tensors() {
				sizes[random.IntN(len(sizes))]++
			}
			if try%2 == 0 { // gguf-split --no-tensor-first-split
				sizes = append([]int{0}, sizes...)
			}
			t.Run(fmt.Sprintf("%s/%v", arch, sizes), func(t *testing.T) {
				paths := tiny.Split(whole, filepath.Join(t.TempDir(), "m"), sizes...)
				f, err := gguf.Open(paths[0])
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if diff := cmp.Diff(paths, f.Paths()); diff != "" {
					t.Errorf("paths: %s", diff)
				}
				compare(t, whole, f, sizes)
			})
		}
	}
}

// compare compares a whole model with its parts, which have sizes[i] tensors each.
func compare(t *testing.T, whole, parts *gguf.File, sizes []int) {
	t.Helper()
	if diff := cmp.Diff(whole.Keys(), parts.Keys()); diff != "" {
		t.Errorf("keys: %s", diff)
	}
	for _, key := range whole.Keys() {
		want, _ := whole.Value(key)
		if got, ok := parts.Value(key); !ok || !cmp.Equal(got.Any(), want.Any()) {
			t.Errorf("key %q: %v, want %v", key, got, want)
		}
	}
	have := make([]int, len(sizes))
	want, got := whole.Tensors(), parts.Tensors()
	if len(got) != len(want) {
		t.Fatalf("%d tensors, want %d", len(got), len(want))
	}
	for i, x := range want {
		y := got[i]
		if named, ok := parts.Tensor(x.Name); !ok || !cmp.Equal(named, y, cmp.Comparer(bytes.Equal)) {
			t.Errorf("tensor %q by name: %v", x.Name, named)
		}
		have[y.Part]++
		x.Part, x.Offset = y.Part, y.Offset
		if diff := cmp.Diff(x, y, cmp.Comparer(bytes.Equal)); diff != "" {
			t.Errorf("tensor %q: %s", x.Name, diff)
		}
	}
	if diff := cmp.Diff(sizes, have); diff != "" {
		t.Errorf("tensors per part: %s", diff)
	}
}
