package conformance

import (
	"slices"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// RoundedWeights is a model whose layers multiply with weights rounded to a format, F16
// or BF16, as tensor cores do that decode weights to float32 and round them. The
// embedding and the output are as they were: those are multiplied otherwise. It shares
// the rest with m.
func RoundedWeights(m *model.Model, f quant.Format) (*model.Model, error) {
	out := *m
	out.Weights.Layers = slices.Clone(m.Weights.Layers)
	for i := range out.Weights.Layers {
		l := &out.Weights.Layers[i]
		list := []*model.Matrix{&l.Q.W, &l.K.W, &l.V.W, &l.O.W, &l.Gate.W, &l.Up.W, &l.Down.W, &l.Router}
		l.Experts = slices.Clone(l.Experts)
		for j := range l.Experts {
			e := &l.Experts[j]
			list = append(list, &e.Gate, &e.Up, &e.Down)
		}
		for _, w := range list {
			if err := roundMatrix(w, f); err != nil {
				return nil, err
			}
		}
	}
	return &out, nil
}

func roundMatrix(w *model.Matrix, f quant.Format) error {
	if w.Empty() {
		return nil
	}
	x := make([]float32, w.Rows*w.Cols)
	quant.Decode(w.Format, x, w.Data)
	w.Format, w.Data = f, make([]byte, len(x)*f.BlockBytes())
	return f.Encode(w.Data, x)
}
