package ref_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// A token beyond the rows of the embedding for layers has row 0 of it.
func TestTokenWithoutLayerInput(t *testing.T) {
	const rows = 5
	tokens := []int{1, rows - 1, rows, 63}
	logits := func(change func(w *model.Matrix, rowBytes int)) []float32 {
		m := open(t, filepath.Join("..", "golden", "arch", "gemma4.gguf"))
		w := &m.Weights.InputEmbedding
		size, _ := w.Format.RowBytes(w.Cols)
		change(w, size)
		return forward(t, newText(t, engine(t, m, ref.Options{})), tokens, model.WantAll)
	}
	got := logits(func(w *model.Matrix, size int) { w.Rows, w.Data = rows, w.Data[:rows*size] })
	want := logits(func(w *model.Matrix, size int) {
		w.Data = slices.Concat(w.Data[:rows*size], bytes.Repeat(w.Data[:size], w.Rows-rows))
	})
	if !slices.Equal(got, want) {
		t.Error("the logits differ from those of a model that has row 0 for these tokens")
	}
	if slices.Equal(got, logits(func(*model.Matrix, int) {})) {
		t.Error("the rows do not change the logits")
	}
}
