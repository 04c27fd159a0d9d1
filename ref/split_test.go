package ref_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/ref"
)

// splitModel returns the parts of a tiny model: the first has no tensors, and the others cut
// its layers.
func splitModel(t *testing.T, arch string) (whole *gguf.File, parts []string) {
	t.Helper()
	whole = tiny.New(arch, 1).File()
	n := len(whole.Tensors())
	return whole, tiny.Split(whole, filepath.Join(t.TempDir(), "m"), 0, n/3, 1, n-n/3-1)
}

// A model of several files has the logits of the whole.
func TestSplitModel(t *testing.T) {
	for _, arch := range tiny.Architectures() {
		t.Run(arch, func(t *testing.T) {
			file, parts := splitModel(t, arch)
			whole, err := model.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			tokens := []int{1, 2, 3, 4}
			want := forward(t, newText(t, engine(t, whole, ref.Options{})), tokens, model.WantLogits)
			got := forward(t, newText(t, engine(t, open(t, parts[0]), ref.Options{})), tokens, model.WantLogits)
			if len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("logits %v, want %v", got, want)
			}
		})
	}
}

// A step finds that any part became shorter.
func TestSplitModelTruncated(t *testing.T) {
	_, parts := splitModel(t, "llama")
	s := newText(t, engine(t, open(t, parts[0]), ref.Options{}))
	forward(t, s, []int{1, 2}, model.WantNothing)
	for _, path := range slices.Backward(parts) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, info.Size()-1); err != nil {
			t.Skipf("this system does not cut a mapped file: %v", err)
		}
		if _, err := s.Forward(t.Context(), []int{3}, model.WantLogits); !errors.Is(err, gguf.ErrTruncated) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want gguf.ErrTruncated with %s", err, path)
		}
		if err := os.Truncate(path, info.Size()); err != nil {
			t.Fatal(err)
		}
	}
}
