package modelbench

import (
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// Work is the least work of a forward pass: one read of every weight that takes part and of
// the cached keys and values, and two FLOP per matrix parameter and token. It leaves out
// embedding lookups and the FLOP of attention, so the share of a prompt falls as it grows.
type Work struct {
	bytes  float64 // of all weights except experts
	params float64 // of the matrices of all layers, except experts
	output float64 // parameters of the output matrix

	experts, used int
	expertBytes   float64 // of one expert per layer
	expertParams  float64 // of one expert per layer

	config model.Config // for the KV cache
}

// WorkOf returns the work of m.
func WorkOf(m *model.Model) Work {
	w := Work{experts: m.Config.Experts, used: m.Config.ExpertsUsed, config: m.Config}
	all := &m.Weights
	w.norm(all.OutputNorm)
	w.norm(all.InputNorm)
	for _, m := range slices.Concat([]model.Matrix{all.InputProjection}, all.StreamIn, all.StreamOut) {
		w.matrix(m)
	}
	w.floats(all.RopeFactors)
	w.output = size(all.Output.W)
	w.bytes += float64(len(all.Output.W.Data))
	w.floats(all.Output.Bias)
	for i := range all.Layers {
		w.layer(&all.Layers[i])
	}
	return w
}

func (w *Work) layer(l *model.Layer) {
	for _, n := range []model.Norm{
		l.AttnNorm, l.QNorm, l.KNorm, l.VNorm, l.AttnPostNorm, l.FFNNorm, l.FFNPostNorm,
		l.RouterNorm, l.ExpertNorm, l.SharedPostNorm, l.ExpertPostNorm, l.InputPostNorm, l.StreamNorm, l.LaurelPostNorm,
	} {
		w.norm(n)
	}
	if d := l.DeltaNet; d != nil {
		w.norm(d.Norm)
		w.floats(d.Conv)
		w.floats(d.DecayBias)
		w.floats(d.A)
	}
	for _, y := range l.Linears() {
		w.matrix(y.W)
		w.floats(y.Bias)
	}
	w.floats(l.RouterBias)
	w.floats(l.ExpertScales)
	w.floats(l.Sinks)
	w.floats(l.Predict)
	w.floats(l.Correct)
	w.floats(l.CorrectScale)
	for _, e := range l.Experts {
		for _, y := range []model.Linear{e.Gate, e.Up, e.Down} {
			w.expertParams += (size(y.W) + float64(len(y.Bias))) / float64(len(l.Experts))
			w.expertBytes += float64(len(y.W.Data)+4*len(y.Bias)) / float64(len(l.Experts))
		}
	}
}

func (w *Work) matrix(m model.Matrix) {
	w.params += size(m)
	w.bytes += float64(len(m.Data))
}

func (w *Work) norm(n model.Norm) {
	w.floats(n.Weight)
	w.floats(n.Bias)
}

func (w *Work) floats(x []float32) { w.bytes += float64(4 * len(x)) }

func size(m model.Matrix) float64 { return float64(m.Rows) * float64(m.Cols) }

// Bytes returns the bytes of weights that a forward pass over that many tokens reads. If
// the model has experts, it is the expected number for equally likely experts.
func (w Work) Bytes(tokens int) float64 {
	return w.bytes + w.expertBytes*w.distinct(tokens)
}

// distinct returns the expected number of different experts per layer that the tokens use.
func (w Work) distinct(tokens int) float64 {
	if w.experts == 0 {
		return 0
	}
	n := float64(w.experts)
	return n * (1 - math.Pow(1-float64(w.used)/n, float64(tokens)))
}

// CacheBytes returns the bytes of keys and values that the next token of a sequence reads, if that
// many positions are cached in format f. A layer with a window reads those inside it. A Gated DeltaNet reads and writes
// its state.
func (w Work) CacheBytes(positions int, f quant.Format) float64 {
	read, states := 0, 0 // elements
	for l := range w.config.Layers {
		if w.config.IsRecurrent(l) {
			states += w.config.DeltaNet.Values() * w.config.DeltaNet.Dim
			continue
		}
		n := positions - w.config.FirstVisible(l, positions) // without the current one
		s := w.config.LayerShape(l)
		read += n * s.KVHeads * (s.HeadDim + s.ValueDim)
	}
	return float64(read)*float64(f.BlockBytes()) + 2*4*float64(states) // states are float32
}

// FLOP returns the floating-point operations of a forward pass over that many tokens, which
// computes the logits of logitRows of them.
func (w Work) FLOP(tokens, logitRows int) float64 {
	return 2 * (float64(tokens)*(w.params+float64(w.used)*w.expertParams) + float64(logitRows)*w.output)
}

// setWork sets the work of a pass. kv is the format of the KV cache.
func (r *Result) setWork(w Work, kv quant.Format) {
	r.Bytes, r.FLOP = w.Bytes(r.tokens()), w.FLOP(r.tokens(), r.logits())
	cached := 0.0 // read by all passes, for one sequence
	for i := range r.Passes {
		cached += w.CacheBytes(r.fill()+r.untimed()+i, kv)
	}
	r.Bytes += float64(r.Sequences) * cached / float64(r.Passes)
}

// judge sets Limit and Share.
func (r *Result) judge(lim *kernelbench.Limits) {
	if lim == nil || lim.Read() <= 0 || lim.Matrix() <= 0 {
		return
	}
	least := r.Bytes / lim.Read()
	r.Limit = "read"
	if s := r.FLOP / lim.Matrix(); s > least {
		least, r.Limit = s, "matrix"
	}
	r.Share = least * r.Rate / float64(r.tokens())
}
