package harness

import (
	"math"

	"github.com/lockstep-go/lockstep/quant"
)

// Ref is the exact value of an element Σ aᵢ·bᵢ, and the magnitudes that bound the error of
// computing it.
type Ref struct {
	Y float64
	S float64 // Σ|aᵢ·bᵢ|
	P float64 // the larger of ‖a∘b‖₂ and the largest |partial sum|
}

// Dot returns Σ w[i]·x[i].
func Dot(w, x []float32) Ref {
	var r Ref
	var squares float64
	for i := range w {
		p := float64(w[i]) * float64(x[i]) // exact
		r.Y += p
		r.S += math.Abs(p)
		r.P = max(r.P, math.Abs(r.Y))
		squares += float64(p * p)
	}
	r.P = max(r.P, math.Sqrt(squares))
	return r
}

// Plus returns the sum with one more term.
func (r Ref) Plus(x float64) Ref {
	r.Y += x
	r.S += math.Abs(x)
	r.P = max(r.P, math.Abs(r.Y), math.Hypot(r.P, x))
	return r
}

// Times returns the sum times a factor.
func (r Ref) Times(factor float64) Ref {
	return Ref{Y: r.Y * factor, S: r.S * math.Abs(factor), P: r.P * math.Abs(factor)}
}

// MatMul multiplies each vector of x, [n, k], with a matrix w of rows × k weights in format
// f: [n, rows].
func MatMul(f quant.Format, w []byte, rows, k int, x []float32) []Ref {
	n := len(x) / k
	out := make([]Ref, n*rows)
	row, bytes := make([]float32, k), len(w)/rows
	for i := range rows {
		quant.Decode(f, row, w[i*bytes:(i+1)*bytes])
		for j := range n {
			out[j*rows+i] = Dot(row, x[j*k:(j+1)*k])
		}
	}
	return out
}
