package harness

import (
	"math"

	"github.com/lockstep-go/lockstep/quant"
)

// DotRef is Σ w[i]·x[i] in float64.
func Dot(w, x []float32) Ref { return sum(w, x, 0) }

// RefSum is bias + Σ w[i]·x[i] in float64.
func sum(w, x []float32, bias float64) Ref {
	var r Ref
	var squares float64
	for i := range w {
		p := float64(w[i]) * float64(x[i]) // exact
		r.Y += p
		r.S += math.Abs(p)
		r.P = max(r.P, math.Abs(r.Y))
		squares += float64(p * p)
	}
	return Ref{r.Y, r.S, max(r.P, math.Sqrt(squares))}.Plus(bias)
}

// Plus is the sum with one more term.
func (r Ref) Plus(x float64) Ref {
	r.Y += x
	r.S += math.Abs(x)
	r.P = max(r.P, math.Abs(r.Y), math.Hypot(r.P, x))
	return r
}

// Refs turns plain numbers, whose errors come from storing them alone, into Refs.
func plainRefs(y []float64) []Ref {
	list := make([]Ref, len(y))
	for i, v := range y {
		list[i] = Ref{v, math.Abs(v), math.Abs(v)}
	}
	return list
}

// MatVecRef is the product of a matrix of rows × k weights in a format with a
// vector: [rows].
func MatVec(f quant.Format, w []byte, rows, k int, x []float32) []Ref {
	return MatMul(f, w, rows, k, x)
}

// MatMulRef is the product of a matrix of rows × k weights in a format with each of
// the vectors in x, [n, k]: [n, rows].
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
