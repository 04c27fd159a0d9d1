package plan

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/accel/internal/memory"
	"github.com/lockstep-go/lockstep/accel/internal/upload"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// matrix is a packed weight matrix [rows, k] in device memory, or one per expert.
type matrix struct {
	format      quant.Format
	rows, k     int
	at          ptx.Address
	bias        ptx.Address // f32 [rows], or 0
	interleaved bool        // gate and up in one: see product.Epilogue.Gated
	experts     int         // 0: a single matrix
	expertBytes int         // from one expert's matrix to the next
}

func (m *matrix) empty() bool { return m.rows == 0 }

// normWeights is a normalization's gain and bias in device memory. kind is norm.None if the
// model has no such norm.
type normWeights struct {
	kind         norm.Kind
	weight, bias ptx.Address
	width        int     // elements that are normalized together
	own          bool    // runs of width elements have weights of their own
	scale        float32 // of the sum of its result and the residual stream; 0: 1
}

// weights are the weights of a model in device memory. The memory list holds pointers to their
// addresses, so the struct must not be copied.
type weights struct {
	embedding, position matrix
	// Of the per-layer inputs. inputNorm and inputScale include the factor 1/√2; inputScale multiplies inputEmbedding.
	inputEmbedding, inputProjection matrix
	inputNorm                       normWeights
	inputScale                      float32
	streamIn, streamOut             []matrix // of AltUp, for each stream but the first
	layers                          []layer
	norm                            normWeights
	output                          *matrix     // &embedding if they are tied
	stateFloats                     int         // elements of the states of all Gated DeltaNets of a sequence
	queryScales                     ptx.Address // f32, the factors of model.QueryScale, one per block; 0: none
}

// network is a feed-forward network, or one per expert. If it is absent, its matrices are empty.
type network struct {
	up   matrix // or gate and up, interleaved
	gate matrix // empty if there is none, or if it is interleaved with up
	down matrix

	sparsity float32 // see model.Config.Sparsity
}

func (n *network) matrices() []*matrix { return []*matrix{&n.gate, &n.up, &n.down} }

// layer is a transformer block.
type layer struct {
	shape                                model.LayerShape
	attnNorm, attnPost, ffnNorm, ffnPost normWeights
	qNorm, kNorm, vNorm                  normWeights
	qkv                                  []segment // also gates of attention's heads; or the inputs of a Gated DeltaNet
	o                                    matrix
	attnGate                             bool
	net                                  *deltaNet   // in place of attention; nil: attention
	ffn                                  network     // dense, or the shared expert of a mixture
	sinks                                ptx.Address // f32 [heads], or 0
	rope                                 *ropeTable
	window                               int

	inputGate, inputProjection matrix // empty if layers have no inputs
	inputPost                  normWeights
	altUp                      *altUp // nil: none

	// Of a mixture of experts.
	router       []segment // with a last row for the gate of the shared expert, if it has one
	routerBias   ptx.Address
	expertScales ptx.Address
	sharedGate   bool
	experts      network // absent in a dense layer
	// Absent if the router and the experts read ffnNorm, and no norm follows.
	routerNorm, expertNorm, sharedPost, expertPost normWeights
}

// mixture reports whether a layer is a mixture of experts.
func (l *layer) mixture() bool { return !l.experts.up.empty() }

// normedMixture reports whether a layer has norms after its experts.
func (w *weights) normedMixture() bool {
	return slices.ContainsFunc(w.layers, func(l layer) bool { return l.mixture() && l.ffnPost.kind != norm.None })
}

// or returns n, or other if the model has no such norm.
func (n normWeights) or(other normWeights) normWeights {
	if n.kind == norm.None {
		return other
	}
	return n
}

// routerColumns is the number of the router's results per token.
func (l *layer) routerColumns() int {
	last := &l.router[len(l.router)-1]
	return last.column + last.w.rows
}

// segment is one fused matrix of neighbors in a list of matrices, such as Q, K and V, that have
// the same format. Its results begin at element column of a row.
type segment struct {
	w      matrix
	column int
}

// matrices returns the matrices of a layer. Some may be empty.
func (l *layer) matrices() []*matrix {
	list := slices.Concat([]*matrix{&l.o, &l.inputGate, &l.inputProjection}, l.ffn.matrices(), l.experts.matrices())
	if a := l.altUp; a != nil {
		list = append(list, &a.router, &a.laurelIn, &a.laurelOut)
	}
	for _, segments := range [][]segment{l.qkv, l.router} {
		for i := range segments {
			list = append(list, &segments[i].w)
		}
	}
	return list
}

// matrices returns all matrices that are not empty.
func (w *weights) matrices() []*matrix {
	list := []*matrix{&w.embedding, &w.position, &w.inputEmbedding, &w.inputProjection, w.output}
	for _, streams := range [][]matrix{w.streamIn, w.streamOut} {
		for i := range streams {
			list = append(list, &streams[i])
		}
	}
	for i := range w.layers {
		list = append(list, w.layers[i].matrices()...)
	}
	return slices.DeleteFunc(list, (*matrix).empty)
}

// newWeights plans the memory of a model's weights.
func newWeights(m *model.Model, list *memory.List) *weights {
	in := &m.Weights
	w := &weights{layers: make([]layer, len(in.Layers))}
	b := weightBuilder{list, &m.Config}
	b.matrix(&w.embedding, "embedding", in.Embedding)
	if in.Position.Rows > 0 {
		b.matrix(&w.position, "positions", in.Position)
	}
	if c := &m.Config; c.LayerInput > 0 {
		b.matrix(&w.inputEmbedding, "layer input embedding", withMissingRows(in.InputEmbedding, c.Vocab)...)
		b.matrix(&w.inputProjection, "layer input projection", in.InputProjection)
		n := in.InputNorm
		n.Weight = slices.Clone(n.Weight)
		for i := range n.Weight {
			n.Weight[i] = float32(float64(n.Weight[i]) / math.Sqrt2)
		}
		b.norm(&w.inputNorm, "layer input norm", n)
		w.inputScale = float32(math.Sqrt(float64(c.LayerInput) / 2))
	}
	w.streamIn, w.streamOut = b.matrices("stream in", in.StreamIn), b.matrices("stream out", in.StreamOut)
	rope := ropeTables{m, list, map[model.Rope]*ropeTable{}}
	w.addQueryScales(&m.Config, list)
	for i := range in.Layers {
		w.layers[i].rope = rope.layer(i)
		w.layers[i].window, w.layers[i].shape = m.Config.LayerWindow(i), m.Config.LayerShape(i)
		if all := m.Config.Sparsity; all != nil {
			w.layers[i].ffn.sparsity = float32(all[i])
		}
		b.layer(&w.layers[i], &in.Layers[i], layerPrefix(i))
		if net := w.layers[i].net; net != nil {
			net.state = w.stateFloats
			w.stateFloats += deltaNetShape(&m.Config).StateFloats()
		}
	}
	b.norm(&w.norm, "output norm", in.OutputNorm)
	if sameMatrix(in.Output.W, in.Embedding) {
		w.output = &w.embedding
	} else {
		w.output = new(matrix)
		b.matrix(w.output, "output", in.Output.W)
	}
	b.floats(&w.output.bias, "output bias", in.Output.Bias)
	return w
}

// addQueryScales adds the factors of queries, if the model has any.
func (w *weights) addQueryScales(c *model.Config, list *memory.List) {
	s := c.QueryScale
	if s.Scale == 0 {
		return
	}
	factors := make([]float32, (c.Context-1+s.Offset)/s.Block+1)
	for i := range factors {
		factors[i] = float32(s.At(i*s.Block - s.Offset))
	}
	list.AddFilled(memory.Tables, "query scales", int64(4*len(factors)), &w.queryScales, func(u *upload.Uploader, at driver.Address) error {
		return upload.Values(u, at, factors)
	})
}

// layerPrefix returns the prefix of the names of a layer's allocations.
func layerPrefix(i int) string { return fmt.Sprintf("layer %d, ", i) }

// sameMatrix reports whether two matrices share their memory, as tied embeddings do.
func sameMatrix(a, b model.Matrix) bool {
	return a.Format == b.Format && a.Rows == b.Rows && a.Cols == b.Cols && &a.Data[0] == &b.Data[0]
}

// weightBuilder adds weights to a memory list.
type weightBuilder struct {
	memory *memory.List
	cfg    *model.Config
}

func (b weightBuilder) layer(to *layer, in *model.Layer, name string) {
	for _, n := range []struct {
		to   *normWeights
		name string
		in   model.Norm
	}{
		{&to.attnNorm, "attention norm", in.AttnNorm},
		{&to.attnPost, "attention post-norm", in.AttnPostNorm},
		{&to.ffnNorm, "feed-forward norm", in.FFNNorm},
		{&to.ffnPost, "feed-forward post-norm", in.FFNPostNorm},
		{&to.qNorm, "Q norm", in.QNorm},
		{&to.kNorm, "K norm", in.KNorm},
		{&to.vNorm, "V norm", in.VNorm},
		{&to.routerNorm, "router norm", in.RouterNorm},
		{&to.expertNorm, "expert norm", in.ExpertNorm},
		{&to.sharedPost, "shared expert post-norm", in.SharedPostNorm},
		{&to.expertPost, "expert post-norm", in.ExpertPostNorm},
		{&to.inputPost, "layer input post-norm", in.InputPostNorm},
	} {
		b.norm(n.to, name+n.name, n.in)
	}
	if in.Sinks != nil {
		b.floats(&to.sinks, name+"sinks", in.Sinks)
	}
	if in.DeltaNet != nil {
		b.deltaNet(to, in.DeltaNet, name)
	} else {
		b.attention(to, in, name)
	}
	if in.StreamRouter.Rows > 0 {
		b.altUp(to, in, name)
	}
	last := &to.ffnPost
	if in.InputGate.Rows > 0 {
		last = &to.inputPost
		b.matrix(&to.inputGate, name+"layer input gate", in.InputGate)
		b.matrix(&to.inputProjection, name+"layer input projection", in.InputProjection)
	}
	last.scale = in.OutputScale
	if len(in.Experts) > 0 {
		b.mixture(to, in, name)
		name += "shared expert "
	}
	if in.Up.W.Rows > 0 {
		b.network(&to.ffn, in, name)
	}
}

// attention adds the projections of attention.
func (b weightBuilder) attention(to *layer, in *model.Layer, name string) {
	qkv := []model.Linear{in.Q, in.K, in.V}
	if in.K.W.Rows == 0 { // the layer uses the keys and values of another
		qkv = qkv[:1]
	}
	if to.attnGate = in.AttnGate.W.Rows > 0; to.attnGate {
		qkv = append(qkv, in.AttnGate)
	}
	to.qkv = b.segments(name+"QKV", qkv...)
	b.linear(&to.o, name+"O", in.O)
}

// network adds a dense network or a shared expert.
func (b weightBuilder) network(to *network, in *model.Layer, name string) {
	switch {
	case !b.cfg.Gated:
		b.linear(&to.up, name+"up", in.Up)
	case to.sparsity == 0 && canInterleave(in.Gate, in.Up):
		b.linear(&to.up, name+"gate and up", interleave(in.Gate, in.Up)...)
		to.up.interleaved = true
	default:
		b.linear(&to.gate, name+"gate", in.Gate)
		b.linear(&to.up, name+"up", in.Up)
	}
	b.linear(&to.down, name+"down", in.Down)
}

// mixture adds the router and the experts.
func (b weightBuilder) mixture(to *layer, in *model.Layer, name string) {
	router := []model.Linear{in.Router}
	if to.sharedGate = in.SharedGate.Rows > 0; to.sharedGate {
		router = append(router, model.Linear{W: in.SharedGate})
	}
	to.router = b.segments(name+"router", router...)
	b.floats(&to.routerBias, name+"router bias", in.RouterBias)
	b.floats(&to.expertScales, name+"expert scales", in.ExpertScales)
	x := &to.experts
	if canInterleave(in.Experts[0].Gate, in.Experts[0].Up) {
		b.experts(&x.up, name+"expert gates and ups", in.Experts, func(e model.Expert) []model.Linear { return interleave(e.Gate, e.Up) })
		x.up.interleaved = true
	} else {
		b.experts(&x.gate, name+"expert gates", in.Experts, func(e model.Expert) []model.Linear { return []model.Linear{e.Gate} })
		b.experts(&x.up, name+"expert ups", in.Experts, func(e model.Expert) []model.Linear { return []model.Linear{e.Up} })
	}
	b.experts(&x.down, name+"expert downs", in.Experts, func(e model.Expert) []model.Linear { return []model.Linear{e.Down} })
}

// interleavedRows is the number of rows of gate that precede as many rows of up.
const interleavedRows = 8

// canInterleave reports whether gate and up can be one matrix.
func canInterleave(gate, up model.Linear) bool {
	return gate.W.Format == up.W.Format && gate.W.Rows == up.W.Rows && gate.W.Rows%interleavedRows == 0
}

// interleave returns the rows of gate and up in the order of one matrix.
func interleave(gate, up model.Linear) (parts []model.Linear) {
	size := len(gate.W.Data) / gate.W.Rows
	for row := 0; row < gate.W.Rows; row += interleavedRows {
		for _, y := range []model.Linear{gate, up} {
			part := model.Linear{W: model.Matrix{Format: y.W.Format, Rows: interleavedRows, Cols: y.W.Cols, Data: y.W.Data[row*size:][:interleavedRows*size]}}
			if y.Bias != nil {
				part.Bias = y.Bias[row:][:interleavedRows]
			}
			parts = append(parts, part)
		}
	}
	return parts
}

// segments joins matrices that are adjacent and have one format.
func (b weightBuilder) segments(name string, parts ...model.Linear) []segment {
	var groups [][]model.Linear
	for i, p := range parts {
		if n := len(groups); i > 0 && p.W.Format == parts[i-1].W.Format {
			groups[n-1] = append(groups[n-1], p)
		} else {
			groups = append(groups, []model.Linear{p})
		}
	}
	list := make([]segment, len(groups))
	column := 0
	for i, g := range groups {
		list[i].column = column
		b.linear(&list[i].w, fmt.Sprintf("%s segment %d", name, i), g...)
		column += list[i].w.rows
	}
	return list
}

// linear adds several matrices of one format as one, with their biases.
func (b weightBuilder) linear(to *matrix, name string, parts ...model.Linear) {
	b.matrix(to, name, matricesOf(parts)...)
	b.biases(to, name, parts)
}

func matricesOf(parts []model.Linear) (list []model.Matrix) {
	for _, p := range parts {
		list = append(list, p.W)
	}
	return list
}

// biases adds the biases of all parts, if any has one.
func (b weightBuilder) biases(to *matrix, name string, parts []model.Linear) {
	var all []float32
	biased := false
	for _, p := range parts {
		bias := p.Bias
		if bias == nil {
			bias = make([]float32, p.W.Rows)
		} else {
			biased = true
		}
		all = append(all, bias...)
	}
	if biased {
		b.floats(&to.bias, name+" bias", all)
	}
}

func (b weightBuilder) matrix(to *matrix, name string, parts ...model.Matrix) {
	*to = matrix{format: parts[0].Format, rows: upload.Rows(parts), k: parts[0].Cols}
	bytes := product.Packing{Format: to.format, K: to.k}.Bytes(to.rows)
	b.memory.AddFilled(memory.Weights, name, int64(bytes), &to.at, func(u *upload.Uploader, at driver.Address) error { return u.Matrix(at, parts) })
}

// withMissingRows returns a matrix and, below it, its row 0 for each row that it lacks: see model.Weights.InputEmbedding.
func withMissingRows(m model.Matrix, rows int) []model.Matrix {
	if m.Rows == rows {
		return []model.Matrix{m}
	}
	missing := m
	missing.Rows, missing.Data = rows-m.Rows, bytes.Repeat(m.Data[:len(m.Data)/m.Rows], rows-m.Rows)
	return []model.Matrix{m, missing}
}

// matrices adds a list of matrices.
func (b weightBuilder) matrices(name string, in []model.Matrix) []matrix {
	list := make([]matrix, len(in))
	for i := range list {
		b.matrix(&list[i], fmt.Sprintf("%s %d", name, i), in[i])
	}
	return list
}

// experts adds one matrix per expert, of the parts that of returns, and their biases.
func (b weightBuilder) experts(to *matrix, name string, experts []model.Expert, of func(model.Expert) []model.Linear) {
	var all []model.Linear
	for _, e := range experts {
		all = append(all, of(e)...)
	}
	first := matricesOf(of(experts[0]))
	*to = matrix{format: first[0].Format, rows: upload.Rows(first), k: first[0].Cols, experts: len(experts)}
	to.expertBytes = product.Packing{Format: to.format, K: to.k}.Bytes(to.rows)
	b.memory.AddFilled(memory.Weights, name, int64(len(experts)*to.expertBytes), &to.at, func(u *upload.Uploader, at driver.Address) error {
		for i, e := range experts {
			if err := u.Matrix(at+driver.Address(i*to.expertBytes), matricesOf(of(e))); err != nil {
				return err
			}
		}
		return nil
	})
	b.biases(to, name, all)
}

func (b weightBuilder) norm(to *normWeights, name string, in model.Norm) {
	if in.Weight == nil {
		return
	}
	if to.kind = norm.RMS; b.cfg.LayerNorm {
		to.kind = norm.Layer
	}
	to.width, to.own = in.Width, len(in.Weight) > in.Width
	b.floats(&to.weight, name, in.Weight)
	b.floats(&to.bias, name+" bias", in.Bias)
}

func (b weightBuilder) floats(to *ptx.Address, name string, x []float32) {
	b.memory.AddFilled(memory.Weights, name, int64(4*len(x)), to, func(u *upload.Uploader, at driver.Address) error { return upload.Values(u, at, x) })
}
