package accel

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// matrix is a weight matrix [rows, k] in device memory, packed, with its bias. Of a
// mixture it is that of each expert, expertBytes apart.
type matrix struct {
	format      quant.Format
	rows, k     int
	at          ptxgen.Address
	bias        ptxgen.Address // f32 [rows], or 0
	experts     int            // 0: it is one
	expertBytes int
}

func (m *matrix) empty() bool { return m.rows == 0 }

// norm is a normalization's gain and bias in device memory; kind NoNorm where the model
// has none.
type norm struct {
	kind         ptxgen.NormKind
	weight, bias ptxgen.Address
}

// weights are the model's, in device memory. The inventory points into it, so that it
// stays where it is.
type weights struct {
	embedding, position matrix
	layers              []layer
	norm                norm
	output              *matrix // the embedding when tied
}

// layer is one block.
type layer struct {
	attnNorm, attnPost, ffnNorm, ffnPost norm
	qNorm, kNorm                         norm
	qkv                                  []band
	o, gate, up, down, router            matrix
	rope                                 *rotation
	window                               int
}

// band is some neighbors of Q, K and V of one format, as one matrix; its results begin
// at column from of a row that holds all three.
type band struct {
	matrix
	from int
}

// matrices are all of a layer, some of which may be empty.
func (l *layer) matrices() []*matrix {
	list := []*matrix{&l.o, &l.gate, &l.up, &l.down, &l.router}
	for i := range l.qkv {
		list = append(list, &l.qkv[i].matrix)
	}
	return list
}

// quantized reports whether any matrix that every token is multiplied by is.
func (w *weights) quantized() bool {
	of := func(m *matrix) bool { return !m.empty() && m.format.BlockLen() > 1 }
	if w.output != nil && of(w.output) {
		return true
	}
	return slices.ContainsFunc(w.layers, func(l layer) bool { return slices.ContainsFunc(l.matrices(), of) })
}

// newWeights lists the memory of a model's weights.
func newWeights(m *model.Model, v *inventory) *weights {
	in := &m.Weights
	w := &weights{layers: make([]layer, len(in.Layers))}
	v.matrix(&w.embedding, "the embedding", in.Embedding)
	if !in.Position.Empty() {
		v.matrix(&w.position, "positions", in.Position)
	}
	tables := newRotations(m, v)
	for i := range in.Layers {
		w.layers[i].rope = tables.of(i)
		w.layers[i].window = m.Config.LayerWindow(i)
		v.layer(&w.layers[i], &in.Layers[i], &m.Config, fmt.Sprintf("layer %d, ", i))
	}
	v.norm(&w.norm, "output norm", in.OutputNorm, &m.Config)
	if sameMatrix(in.Output.W, in.Embedding) {
		w.output = &w.embedding
	} else {
		w.output = new(matrix)
		v.matrix(w.output, "output", in.Output.W)
	}
	v.floats(&w.output.bias, "output bias", in.Output.Bias)
	return w
}

// sameMatrix reports whether two are the same bytes, as those of tied embeddings are.
func sameMatrix(a, b model.Matrix) bool {
	return a.Format == b.Format && a.Rows == b.Rows && a.Cols == b.Cols && &a.Data[0] == &b.Data[0]
}

func (v *inventory) layer(to *layer, in *model.Layer, cfg *model.Config, name string) {
	for _, n := range []struct {
		to   *norm
		name string
		in   model.Norm
	}{
		{&to.attnNorm, "attention norm", in.AttnNorm}, {&to.attnPost, "norm behind attention", in.AttnPostNorm},
		{&to.ffnNorm, "feed-forward norm", in.FFNNorm}, {&to.ffnPost, "norm behind feed-forward", in.FFNPostNorm},
		{&to.qNorm, "Q norm", in.QNorm}, {&to.kNorm, "K norm", in.KNorm},
	} {
		v.norm(n.to, name+n.name, n.in, cfg)
	}
	v.bands(to, []model.Linear{in.Q, in.K, in.V}, name)
	v.linear(&to.o, name+"O", in.O)
	if len(in.Experts) > 0 {
		v.matrix(&to.router, name+"router", in.Router)
		v.stack(&to.gate, name+"experts' gates", in.Experts, func(e model.Expert) model.Matrix { return e.Gate })
		v.stack(&to.up, name+"experts' ups", in.Experts, func(e model.Expert) model.Matrix { return e.Up })
		v.stack(&to.down, name+"experts' downs", in.Experts, func(e model.Expert) model.Matrix { return e.Down })
		return
	}
	if cfg.Gated {
		v.linear(&to.gate, name+"gate", in.Gate)
	}
	v.linear(&to.up, name+"up", in.Up)
	v.linear(&to.down, name+"down", in.Down)
}

// bands joins neighbors of one format, so that one product serves them.
func (v *inventory) bands(to *layer, parts []model.Linear, name string) {
	var groups [][]model.Linear
	for i, p := range parts {
		if n := len(groups); i > 0 && p.W.Format == parts[i-1].W.Format {
			groups[n-1] = append(groups[n-1], p)
		} else {
			groups = append(groups, []model.Linear{p})
		}
	}
	to.qkv = make([]band, len(groups))
	from := 0
	for i, g := range groups {
		to.qkv[i].from = from
		v.linear(&to.qkv[i].matrix, fmt.Sprintf("%sQKV, part %d", name, i), g...)
		from += to.qkv[i].rows
	}
}

// linear adds several layers of one format as one, their biases too.
func (v *inventory) linear(to *matrix, name string, parts ...model.Linear) {
	var list []model.Matrix
	var bias []float32
	biased := false
	for _, p := range parts {
		list = append(list, p.W)
		b := p.Bias
		if b == nil {
			b = make([]float32, p.W.Rows)
		} else {
			biased = true
		}
		bias = append(bias, b...)
	}
	v.matrix(to, name, list...)
	if biased {
		v.floats(&to.bias, name+"'s bias", bias)
	}
}

func (v *inventory) matrix(to *matrix, name string, parts ...model.Matrix) {
	*to = matrix{format: parts[0].Format, rows: rowsIn(parts), k: parts[0].Cols}
	bytes := ptxgen.Packing{Format: to.format, K: to.k}.Bytes(to.rows)
	v.fill(weightMemory, name, int64(bytes), &to.at, func(u *uploader, at driver.Address) error { return u.matrix(at, parts) })
}

// stack adds one matrix of each expert, each packed by itself.
func (v *inventory) stack(to *matrix, name string, experts []model.Expert, of func(model.Expert) model.Matrix) {
	first := of(experts[0])
	*to = matrix{format: first.Format, rows: first.Rows, k: first.Cols, experts: len(experts)}
	to.expertBytes = ptxgen.Packing{Format: to.format, K: to.k}.Bytes(to.rows)
	v.fill(weightMemory, name, int64(len(experts)*to.expertBytes), &to.at, func(u *uploader, at driver.Address) error {
		for i, e := range experts {
			if err := u.matrix(at+driver.Address(i*to.expertBytes), []model.Matrix{of(e)}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (v *inventory) norm(to *norm, name string, in model.Norm, cfg *model.Config) {
	if in.Weight == nil {
		return
	}
	if to.kind = ptxgen.RMSNorm; cfg.LayerNorm {
		to.kind = ptxgen.LayerNorm
	}
	v.floats(&to.weight, name, in.Weight)
	v.floats(&to.bias, name+"'s bias", in.Bias)
}

// floats adds numbers; none at all where there are none.
func (v *inventory) floats(to *ptxgen.Address, name string, x []float32) {
	v.fill(weightMemory, name, int64(4*len(x)), to, func(u *uploader, at driver.Address) error { return u.f32s(at, x) })
}
