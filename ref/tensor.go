package ref

import "slices"

// tensor is a row-major matrix of activations [rows, cols], one row per position.
type tensor struct {
	rows, cols int
	data       []float64
}

func newTensor(rows, cols int) tensor {
	return tensor{rows, cols, make([]float64, rows*cols)}
}

func (t tensor) row(i int) []float64 { return t.data[i*t.cols : (i+1)*t.cols : (i+1)*t.cols] }

// last returns the last row as a tensor of one row.
func (t tensor) last() tensor { return tensor{1, t.cols, t.row(t.rows - 1)} }

// add is the residual connection: t ← t + u.
func (t tensor) add(u tensor) {
	for i, v := range u.data {
		t.data[i] += v
	}
}

func (t tensor) clone() tensor { return tensor{t.rows, t.cols, slices.Clone(t.data)} }

// scale multiplies all elements.
func (t tensor) scale(factor float64) {
	for i := range t.data {
		t.data[i] *= factor
	}
}

// addBias adds b [cols] to every row; a nil b adds nothing.
func (t tensor) addBias(b []float32) {
	if b == nil {
		return
	}
	for i := range t.rows {
		row := t.row(i)
		for j := range row {
			row[j] += float64(b[j])
		}
	}
}

// float32s returns the elements rounded to float32.
func (t tensor) float32s() []float32 {
	out := make([]float32, len(t.data))
	for i, v := range t.data {
		out[i] = float32(v)
	}
	return out
}
