package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

// loader reads the tensors of a file. It records the first error and which tensors it
// used.
type loader struct {
	f        *gguf.File
	a        architecture
	c        *Config
	used     map[string]bool
	elements int // of all vectors decoded so far
	copied   int // bytes of all matrices whose rows were copied so far
	err      error
}

// maxElements limits the elements of all norms, biases and RoPE factors, which Load copies
// into memory. The biases of the experts of gpt-oss-120b are more than half as many.
const maxElements = 1 << 26

// maxCopied limits the bytes of the matrices that Load copies to put their rows in order. Those of Qwen3-Next 80B in
// BF16 are less.
const maxCopied = 1 << 31

// loadWeights reads every tensor of the architecture. Any other tensor in the file is an
// error, because the model would ignore it. If the file has no RoPE factors for long
// contexts, loadWeights clears c.LongContext.
func loadWeights(f *gguf.File, a architecture, c *Config) (Weights, error) {
	l := &loader{f: f, a: a, c: c, used: map[string]bool{}}
	var w Weights
	w.Embedding = l.matrix(embeddingName, c.Vocab, c.Hidden)
	if n := c.Layers * c.LayerInput; n > 0 {
		w.InputEmbedding = l.layerEmbedding(n)
		w.InputProjection = l.matrix("per_layer_model_proj.weight", n, c.Hidden)
		w.InputNorm = l.norm("per_layer_proj_norm", c.LayerInput)
	}
	w.StreamIn, w.StreamOut = l.streamMatrices("altup_proj.weight"), l.streamMatrices("altup_unembd_proj.weight")
	if a.rope == ropeNone {
		w.Position = l.matrix("position_embd.weight", c.Context, c.Hidden)
	} else {
		l.ropeFactors(&w)
	}
	for i := 0; i < c.Layers && l.err == nil; i++ {
		w.Layers = append(w.Layers, l.layer(i))
	}
	w.OutputNorm = l.norm("output_norm", c.Hidden)
	w.Output = Linear{W: w.Embedding}
	if l.has("output.weight") {
		w.Output.W = l.matrix("output.weight", c.Vocab, c.Hidden)
	}
	w.Output.Bias = l.bias("output.bias", c.Vocab, a.outputBias)
	l.refuseSurplus()
	return w, l.err
}

// maxMissingRows bounds how many tokens have no row in the per-layer embedding. Gemma 3n has 256 such tokens.
const maxMissingRows = 1024

// layerEmbedding reads the per-layer embedding, in rows of n numbers. In some architectures the last tokens may have no row.
func (l *loader) layerEmbedding(n int) Matrix {
	const name = "per_layer_token_embd.weight"
	rows := l.c.Vocab
	if t, ok := l.f.Tensor(l.resolve(name)); ok && l.a.fewerLayerInputs && len(t.Dims) == 2 && t.Dims[0] == n && rows-t.Dims[1] <= maxMissingRows {
		rows = min(rows, t.Dims[1])
	}
	return l.matrix(name, rows, n)
}

// streamMatrices reads a tensor of one matrix for each stream of AltUp but the first.
func (l *loader) streamMatrices(name string) (list []Matrix) {
	if l.c.Streams == 0 {
		return nil
	}
	n := l.c.Hidden
	t := l.tensor(name, n, n, l.c.Streams-1)
	all := Matrix{Name: name, Format: t.Format, Rows: n * (l.c.Streams - 1), Cols: n, Data: t.Data}
	if l.err != nil {
		return nil
	}
	for j := range l.c.Streams - 1 {
		list = append(list, all.rows(j*n, n))
	}
	return list
}

// streams reads what AltUp and LAuReL have in a layer.
func (l *loader) streams(y *Layer, p string) {
	c := l.c
	if n := c.Streams; n > 0 {
		y.StreamNorm = l.norm(p+"altup_router_norm", c.Hidden)
		for i := range y.StreamNorm.Weight {
			y.StreamNorm.Weight[i] /= float32(c.Hidden)
		}
		y.StreamRouter = l.matrix(p+"altup_router.weight", n, c.Hidden)
		y.Predict = l.vector(p+"altup_predict_coef.weight", n, n*n)
		y.Correct = l.vector(p+"altup_correct_coef.weight", n, n)
		y.CorrectScale = l.vector(p+"altup_correct_scale.weight", c.Hidden)
	}
	if c.LaurelRank > 0 {
		y.LaurelIn = l.matrix(p+"laurel_l.weight", c.LaurelRank, c.Hidden)
		y.LaurelOut = l.matrix(p+"laurel_r.weight", c.Hidden, c.LaurelRank)
		y.LaurelPostNorm = l.norm(p+"laurel_post_norm", c.Hidden)
	}
}

// ropeFactors reads the divisors of the RoPE frequencies: one list (Llama 3), or one for
// short and one for long contexts (LongRoPE of Phi-3).
func (l *loader) ropeFactors(w *Weights) {
	const short, long, freqs = "rope_factors_short.weight", "rope_factors_long.weight", "rope_freqs.weight"
	n := l.c.Rope.Dim / 2
	kind, _ := l.f.Value(l.c.Arch + ".rope.scaling.type")
	scaling, _ := kind.Str()
	switch {
	case scaling == "longrope" || l.has(short) || l.has(long):
		w.RopeFactors, w.LongRopeFactors = l.divisors(short, n), l.divisors(long, n)
		return
	case l.a.localHeads || l.has(freqs):
		w.RopeFactors = l.divisors(freqs, n)
	}
	l.c.LongContext = 0
}

func (l *loader) divisors(name string, n int) []float32 {
	v := l.vector(name, n)
	for i, x := range v {
		if !(x > 0) || math.IsInf(float64(x), 1) {
			l.fail(name, errBadKey, "factor %d is %v, want a finite number above 0", i, x)
			break
		}
	}
	return v
}

// layer reads the tensors of block i.
func (l *loader) layer(i int) Layer {
	c, p := l.c, fmt.Sprintf("blk.%d.", i)
	all := l.a.biases == biasAll
	shape := c.LayerShape(i)
	var y Layer
	if l.a.norms != normsAfter {
		y.AttnNorm = l.norm(p+"attn_norm", c.Hidden)
	}
	if c.IsRecurrent(i) {
		y.DeltaNet = l.deltaNet(p)
	} else {
		l.attention(&y, i, p)
	}
	if l.a.norms != normsBefore {
		y.AttnPostNorm = l.norm(p+"post_attention_norm", c.Hidden)
		y.FFNPostNorm = l.norm(p+"post_ffw_norm", c.Hidden)
	}
	if l.a.norms != normsAfter && !c.ParallelFFN {
		y.FFNNorm = l.norm(p+cmp.Or(l.a.ffnNormName, "ffn_norm"), c.Hidden)
	}
	if c.LayerInput > 0 {
		y.InputGate = l.matrix(p+"inp_gate.weight", c.LayerInput, c.Hidden)
		y.InputProjection = l.matrix(p+"proj.weight", c.Hidden, c.LayerInput)
		y.InputPostNorm = l.norm(p+"post_norm", c.Hidden)
	}
	l.streams(&y, p)
	y.OutputScale = 1
	if name := p + "layer_output_scale.weight"; l.a.layerScale && l.has(name) {
		y.OutputScale = l.factor(name)
	}
	if c.isMixture(i) {
		l.mixture(&y, p)
	}
	if !c.isMixture(i) || l.a.shared == sharedDense {
		y.Gate, y.Up = l.gateUp(p, shape.FFN)
		y.Down = l.linear(p+"ffn_down", c.Hidden, shape.FFN, all)
	}
	return y
}

// factor reads a finite number other than 0.
func (l *loader) factor(name string) float32 {
	v := l.vector(name, 1)
	if v == nil {
		return 1
	}
	if x := float64(v[0]); x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		l.fail(name, errBadKey, "%v: want a finite number other than 0", x)
	}
	return v[0]
}

// attention reads the projections of attention in block i, and what belongs to its heads.
func (l *loader) attention(y *Layer, i int, p string) {
	c, shape := l.c, l.c.LayerShape(i)
	y.QNorm = l.headNorm(p+"attn_q_norm.weight", c.Heads, shape.HeadDim)
	switch {
	case c.CacheLayer(i) != i:
		y.Q = l.linear(p+"attn_q", c.Heads*shape.HeadDim, c.Hidden, false)
		for _, name := range []string{"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"} {
			l.used[p+name] = true // some files have them, without effect
		}
	case l.a.attnGate:
		y.Q, y.AttnGate, y.K, y.V = l.gatedQKV(p, shape)
	default:
		y.Q, y.K, y.V = l.qkv(p, shape)
	}
	if c.CacheLayer(i) == i {
		y.KNorm = l.headNorm(p+"attn_k_norm.weight", shape.KVHeads, shape.HeadDim)
		if l.a.valueNorm {
			y.VNorm = Norm{Weight: slices.Repeat([]float32{1}, shape.ValueDim), Width: shape.ValueDim}
		}
	}
	if l.a.unitQKNorm(c) && c.LayerRope(i).Dim > 0 {
		y.QNorm, y.KNorm = l.unitNorm(), l.unitNorm()
	}
	if l.a.sinks {
		y.Sinks = l.vector(p+"attn_sinks.weight", c.Heads)
	}
	y.O = l.linear(p+"attn_output", c.Hidden, c.Heads*shape.ValueDim, l.a.biases == biasAll)
}

// headNorm reads the norm of the queries or keys of a number of heads of dim elements, which has no bias. If norms are
// optional, the first layer says whether all layers have them.
func (l *loader) headNorm(name string, heads, dim int) Norm {
	weights := 1
	switch l.a.qkNorm {
	case qkNormNone, qkNormUnit:
		return Norm{}
	case qkNormAll:
		dim *= heads
	case qkNormHeadsOwn:
		weights = heads
		fallthrough
	case qkNormHeadOptional:
		if !l.has("blk.0.attn_q_norm.weight") && !l.has("blk.0.attn_k_norm.weight") {
			return Norm{}
		}
	}
	return Norm{Weight: l.vector(name, dim, weights), Width: dim}
}

// unitNorm returns the norm of queries or keys of qkNormUnit. RoPE keeps the length of a head, so a norm after it and
// one with weights of 1 before it are the same.
func (l *loader) unitNorm() Norm {
	dim := l.c.HeadDim
	return Norm{Weight: slices.Repeat([]float32{1}, dim), Width: dim}
}

// qkv reads the three projections. A fused tensor holds Q's rows, then K's, then V's.
func (l *loader) qkv(p string, s LayerShape) (q, k, v Linear) {
	c := l.c
	need := l.a.biases != biasOptional
	rows := [3]int{c.Heads * s.HeadDim, s.KVHeads * s.HeadDim, s.KVHeads * s.ValueDim}
	if l.has(p + "attn_qkv.weight") {
		all := l.linear(p+"attn_qkv", rows[0]+rows[1]+rows[2], c.Hidden, need)
		return all.rows(0, rows[0]), all.rows(rows[0], rows[1]), all.rows(rows[0]+rows[1], rows[2])
	}
	q = l.linear(p+"attn_q", rows[0], c.Hidden, need)
	k = l.linear(p+"attn_k", rows[1], c.Hidden, need)
	if l.a.optionalV && !l.has(p+"attn_v.weight") {
		return q, k, k
	}
	v = l.linear(p+"attn_v", rows[2], c.Hidden, need)
	return q, k, v
}

// gatedQKV reads the three projections of attention and the gates of its heads.
func (l *loader) gatedQKV(p string, s LayerShape) (q, gate, k, v Linear) {
	c := l.c
	parts := l.splitInterleaved(l.matrix(p+"attn_q.weight", 2*c.Heads*s.HeadDim, c.Hidden), c.Heads, s.HeadDim, s.HeadDim)
	k = l.linear(p+"attn_k", s.KVHeads*s.HeadDim, c.Hidden, false)
	v = l.linear(p+"attn_v", s.KVHeads*s.ValueDim, c.Hidden, false)
	return parts[0], parts[1], k, v
}

// deltaNet reads a Gated DeltaNet. Files of Qwen3-Next have alpha and beta of each key head's value heads in one
// tensor, and older ones the other projections of each key head in another.
func (l *loader) deltaNet(p string) *DeltaNet {
	c, s := l.c, &l.c.DeltaNet
	keys, values := s.Keys(), s.Values()
	y := &DeltaNet{
		Conv:      l.vector(p+"ssm_conv1d.weight", s.Taps, s.Channels()),
		DecayBias: l.vector(p+"ssm_dt.bias", s.ValueHeads),
		A:         l.vector(p+"ssm_a", s.ValueHeads),
		Norm:      Norm{Weight: l.vector(p+"ssm_norm.weight", s.Dim), Width: s.Dim},
		Out:       Linear{W: l.matrix(p+"ssm_out.weight", c.Hidden, values)},
	}
	group := s.ValueHeads / s.KeyHeads
	if in := p + "ssm_in.weight"; !s.Tiled && l.has(in) {
		parts := l.splitInterleaved(l.matrix(in, 2*(keys+values), c.Hidden), s.KeyHeads, s.Dim, s.Dim, group*s.Dim, group*s.Dim)
		y.Q, y.K, y.V, y.Z = parts[0], parts[1], parts[2], parts[3]
	} else {
		qkv := Linear{W: l.matrix(p+"attn_qkv.weight", s.Channels(), c.Hidden)}
		y.Q, y.K, y.V = qkv.rows(0, keys), qkv.rows(keys, keys), qkv.rows(2*keys, values)
		y.Z = Linear{W: l.matrix(p+"attn_gate.weight", values, c.Hidden)}
	}
	if s.Tiled {
		y.Beta = Linear{W: l.matrix(p+"ssm_beta.weight", s.ValueHeads, c.Hidden)}
		y.Alpha = Linear{W: l.matrix(p+"ssm_alpha.weight", s.ValueHeads, c.Hidden)}
	} else {
		parts := l.splitInterleaved(l.matrix(p+"ssm_ba.weight", 2*s.ValueHeads, c.Hidden), s.KeyHeads, group, group)
		y.Beta, y.Alpha = parts[0], parts[1]
	}
	return y
}

// splitInterleaved copies interleaved rows to separate matrices: each group has sizes[0] rows of the first, then sizes[1] of
// the second, and so on.
func (l *loader) splitInterleaved(m Matrix, groups int, sizes ...int) []Linear {
	list := make([]Linear, len(sizes))
	if l.copied += len(m.Data); l.err == nil && l.copied > maxCopied {
		l.fail(m.Name, ErrUnsupported, "%d bytes of rows to reorder up to it, more than %d", l.copied, maxCopied)
	}
	if l.err != nil {
		return list
	}
	rowBytes := len(m.Data) / m.Rows
	for i, n := range sizes {
		list[i].W = Matrix{Name: m.Name, Format: m.Format, Rows: groups * n, Cols: m.Cols, Data: make([]byte, 0, groups*n*rowBytes)}
	}
	rest := m.Data
	for range groups {
		for i, n := range sizes {
			list[i].W.Data = append(list[i].W.Data, rest[:n*rowBytes]...)
			rest = rest[n*rowBytes:]
		}
	}
	return list
}

// gateUp reads the first projections of a feed-forward network. Without a gate, the
// first is empty.
func (l *loader) gateUp(p string, width int) (gate, up Linear) {
	c := l.c
	all := l.a.biases == biasAll
	if l.a.fusedGate {
		both := l.linear(p+"ffn_up", 2*width, c.Hidden, all)
		return both.rows(0, width), both.rows(width, width)
	}
	if c.Gated {
		gate = l.linear(p+"ffn_gate", width, c.Hidden, all)
	}
	return gate, l.linear(p+"ffn_up", width, c.Hidden, all)
}

// mixture reads the tensors of a mixture of experts.
func (l *loader) mixture(y *Layer, p string) {
	c := l.c
	y.Router = l.linear(p+"ffn_gate_inp", c.Experts, c.Hidden, l.a.biases == biasAll)
	if l.a.router == routerSigmoid {
		y.RouterBias = l.vector(p+"exp_probs_b.bias", c.Experts)
	}
	y.Experts = l.experts(p)
	if l.a.shared == sharedDense {
		l.mixtureNorms(y, p)
		return
	}
	if c.SharedFFN == 0 {
		return
	}
	y.Gate = l.linear(p+"ffn_gate_shexp", c.SharedFFN, c.Hidden, false)
	y.Up = l.linear(p+"ffn_up_shexp", c.SharedFFN, c.Hidden, false)
	y.Down = l.linear(p+"ffn_down_shexp", c.Hidden, c.SharedFFN, false)
	if l.a.shared == sharedGated {
		y.SharedGate = l.matrix(p+"ffn_gate_inp_shexp.weight", 1, c.Hidden)
	}
}

// mixtureNorms reads the norms and scales of a mixture beside a dense network (Gemma 4). The router divides its normalized
// input by √hidden.
func (l *loader) mixtureNorms(y *Layer, p string) {
	c := l.c
	y.RouterNorm = Norm{Weight: l.vector(p+"ffn_gate_inp.scale", c.Hidden), Width: c.Hidden}
	for i, w := range y.RouterNorm.Weight {
		y.RouterNorm.Weight[i] = float32(float64(w) / math.Sqrt(float64(c.Hidden)))
	}
	y.ExpertNorm = l.norm(p+"pre_ffw_norm_2", c.Hidden)
	y.SharedPostNorm = l.norm(p+"post_ffw_norm_1", c.Hidden)
	y.ExpertPostNorm = l.norm(p+"post_ffw_norm_2", c.Hidden)
	if name := p + "ffn_down_exps.scale"; l.has(name) {
		y.ExpertScales = l.vector(name, c.Experts)
	}
}

// experts reads the stacked networks of a mixture and splits them.
func (l *loader) experts(p string) []Expert {
	c := l.c
	gates, ups := l.gateUpExperts(p)
	down := l.stack(p+"ffn_down_exps", c.Hidden, c.ExpertFFN)
	if l.err != nil {
		return nil
	}
	experts := make([]Expert, c.Experts)
	for e := range experts {
		experts[e] = Expert{
			Gate: gates(e),
			Up:   ups(e),
			Down: down.rows(e*c.Hidden, c.Hidden),
		}
	}
	return experts
}

// gateUpExperts returns functions that return the gate and the up projection of expert e. A fused tensor holds the rows of an expert's gate, then
// of its up.
func (l *loader) gateUpExperts(p string) (gates, ups func(e int) Linear) {
	n := l.c.ExpertFFN
	if l.has(p + "ffn_gate_up_exps.weight") {
		both := l.stack(p+"ffn_gate_up_exps", 2*n, l.c.Hidden)
		return func(e int) Linear { return both.rows(2*e*n, n) }, func(e int) Linear { return both.rows((2*e+1)*n, n) }
	}
	gate := l.stack(p+"ffn_gate_exps", n, l.c.Hidden)
	up := l.stack(p+"ffn_up_exps", n, l.c.Hidden)
	return func(e int) Linear { return gate.rows(e*n, n) }, func(e int) Linear { return up.rows(e*n, n) }
}

// stack reads tensors [experts, rows, cols] and [experts, rows] as one matrix [experts·rows, cols] with its bias.
func (l *loader) stack(name string, rows, cols int) Linear {
	weight, bias := name+".weight", name+".bias"
	t := l.tensor(weight, cols, rows, l.c.Experts)
	y := Linear{W: Matrix{Name: weight, Format: t.Format, Rows: rows * l.c.Experts, Cols: cols, Data: t.Data}}
	if l.a.biases == biasAll || l.has(bias) {
		y.Bias = l.vector(bias, rows, l.c.Experts)
	}
	return y
}

// refuseSurplus refuses tensors that were not used, except those of Config.MTPLayers and ignored ones.
func (l *loader) refuseSurplus() {
	blocks := l.c.Layers + l.c.MTPLayers
	for _, t := range l.f.Tensors() {
		if l.used[t.Name] || ignored(t.Name) {
			continue
		}
		if n, ok := blockOf(t.Name); ok && n >= l.c.Layers {
			if n >= blocks {
				l.fail(t.Name, errSurplusTensor, "%s.block_count is %d", l.c.Arch, blocks)
			}
			continue
		}
		l.fail(t.Name, errSurplusTensor, "%s does not use it", l.c.Arch)
	}
}

// blockOf returns the number N of a tensor named blk.N.….
func blockOf(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "blk.")
	number, _, dot := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	return n, ok && dot && err == nil
}

func (l *loader) has(name string) bool {
	_, ok := l.f.Tensor(l.resolve(name))
	return ok
}

// resolve returns the name of a tensor. If the file has only its alias, it returns the alias.
func (l *loader) resolve(name string) string {
	if _, ok := l.f.Tensor(name); ok {
		return name
	}
	if alias := tensorAlias(name); alias != "" {
		if _, ok := l.f.Tensor(alias); ok {
			return alias
		}
	}
	return name
}

func (l *loader) fail(name string, sentinel error, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("tensor %q: %w: %s", name, sentinel, fmt.Sprintf(format, args...))
	}
}

// tensor reads a tensor of the given dimensions, in GGUF's order: row length first.
// Trailing dimensions of 1 may be absent.
func (l *loader) tensor(name string, dims ...int) gguf.Tensor {
	name = l.resolve(name)
	t, ok := l.f.Tensor(name)
	l.used[name] = true
	if !ok {
		if l.err == nil {
			l.err = fmt.Errorf("tensor %q: %w", name, errMissingTensor)
		}
		return gguf.Tensor{}
	}
	if !slices.Equal(trimOnes(t.Dims), trimOnes(dims)) {
		l.fail(name, errTensorShape, "have %v, want %v", t.Dims, dims)
		return gguf.Tensor{}
	}
	return t
}

func trimOnes(dims []int) []int {
	for len(dims) > 1 && dims[len(dims)-1] == 1 {
		dims = dims[:len(dims)-1]
	}
	return dims
}

func (l *loader) matrix(name string, rows, cols int) Matrix {
	t := l.tensor(name, cols, rows)
	return Matrix{Name: name, Format: t.Format, Rows: rows, Cols: cols, Data: t.Data}
}

// vector decodes a tensor of the given dimensions. It refuses block formats, which no converter
// writes for vectors.
func (l *loader) vector(name string, dims ...int) []float32 {
	t, n := l.tensor(name, dims...), 1
	for _, d := range dims {
		n *= d
	}
	if t.Data == nil {
		return nil
	}
	switch t.Format {
	case quant.F32, quant.F16, quant.BF16:
	default:
		l.fail(name, quant.ErrUnsupported, "%v for a vector, want F32, F16 or BF16", t.Format)
		return nil
	}
	if l.elements += n; l.elements > maxElements {
		l.fail(name, ErrUnsupported, "norms, biases and RoPE factors up to it have %d numbers, more than %d", l.elements, maxElements)
		return nil
	}
	v := make([]float32, n)
	quant.Decode(t.Format, v, t.Data)
	return v
}

func (l *loader) bias(name string, n int, required bool) []float32 {
	if !required && !l.has(name) {
		return nil
	}
	return l.vector(name, n)
}

func (l *loader) norm(name string, n int) Norm {
	norm := Norm{Weight: l.vector(name+".weight", n), Width: n}
	if l.c.LayerNorm && !l.a.noNormBias {
		norm.Bias = l.vector(name+".bias", n)
	}
	return norm
}

func (l *loader) linear(name string, rows, cols int, bias bool) Linear {
	return Linear{
		W:    l.matrix(name+".weight", rows, cols),
		Bias: l.bias(name+".bias", rows, bias),
	}
}

// rows returns a view of rows at to at+n-1.
func (m Matrix) rows(at, n int) Matrix {
	size := 0
	if m.Rows > 0 {
		size = len(m.Data) / m.Rows
	}
	m.Data, m.Rows = m.Data[at*size:(at+n)*size], n
	return m
}

// rows returns a view of outputs at to at+n-1.
func (y Linear) rows(at, n int) Linear {
	y.W = y.W.rows(at, n)
	if y.Bias != nil {
		y.Bias = y.Bias[at : at+n]
	}
	return y
}
