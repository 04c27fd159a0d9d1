package plan

import (
	"math"

	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
	"github.com/lockstep-go/lockstep/quant"
)

// embed looks up the embedding of each token and, if positions are learned, adds that of its
// position.
func (p *planner) embed() {
	w, c, tokens := p.layout.weights, p.model, p.shape.Tokens
	lookUp := func(op string, e *matrix, a product.EmbedArgs) {
		a.W, a.Rows, a.K, a.Out, a.Count = e.at, e.rows, e.k, p.buf.x, tokens
		add(p, op, product.Embed(e.format), a)
	}
	args := product.EmbedArgs{Tokens: p.in.tokens, Scale: c.EmbedScale}
	if !w.position.empty() {
		lookUp("positions", &w.position, product.EmbedArgs{Tokens: p.in.positions})
		args.Residual = p.buf.x
	}
	lookUp("embed", &w.embedding, args)
	p.addView(View{Op: "embed", At: p.buf.x, Width: c.Hidden})
	if c.LayerInput > 0 {
		p.product("layer inputs", p.inputProjection())
		add(p, "layer inputs norm", norm.Rows(w.inputNorm.kind, quant.F32), norm.RowsArgs{
			X: p.buf.inputs, Weight: w.inputNorm.weight, Y: p.buf.inputs, Tokens: tokens, Heads: c.Layers, Width: c.LayerInput, Eps: c.NormEps,
		})
		e := &w.inputEmbedding
		add(p, "layer inputs", product.Embed(e.format), product.EmbedArgs{
			W: e.at, Rows: e.rows, K: e.k, Tokens: p.in.tokens, Scale: w.inputScale, Residual: p.buf.inputs, Out: p.buf.inputs, Count: tokens,
		})
	}
	if c.Streams > 0 {
		p.startStreams()
	}
}

// inputProjection is the product of the embedding for the inputs of all layers.
func (p *planner) inputProjection() matrixProduct {
	return matrixProduct{w: &p.layout.weights.inputProjection, x: p.buf.x, y: p.buf.inputs, scale: float32(1 / math.Sqrt(float64(p.model.Hidden)))}
}

// transformerBlock adds attention, or a Gated DeltaNet, and feed-forward network of a layer to x.
func (p *planner) transformerBlock(l *layer) {
	if l.altUp != nil {
		p.predictStreams(l.altUp)
	}
	p.projectQKV(l)
	if l.altUp != nil {
		p.addLaurel(l)
	}
	if p.model.ParallelFFN { // the feed-forward network reads x before attention is added to it
		p.ffnIn(l, l.attnNorm)
	}
	if l.net != nil {
		p.recur(l)
	} else {
		p.attend(l)
	}
	p.addTo("O", matrixProduct{w: &l.o, x: p.buf.attention, y: p.sum(), residual: true}, l.attnPost)
	if !p.model.ParallelFFN {
		p.ffnIn(l, l.ffnNorm)
	}
	p.ffnOut(l)
	if l.altUp != nil {
		p.correctStreams(l.altUp)
	}
	p.addInput(l)
	p.addView(View{Op: "layer", At: p.buf.x, Width: p.model.Hidden})
	p.addStreamViews()
}

// addInput adds the projection of the per-layer input, if the layer has one: to x, or with AltUp to all streams but the first.
func (p *planner) addInput(l *layer) {
	if l.inputGate.empty() {
		return
	}
	c := p.model
	p.product("layer input gate", matrixProduct{w: &l.inputGate, x: p.sum(), y: p.buf.gate})
	add(p, "layer input", elementwise.Fused(), elementwise.FusedArgs{
		X: p.buf.gate, Up: p.buf.inputs + ptx.Address(4*p.layer*c.LayerInput), UpStride: c.Layers * c.LayerInput, Y: p.buf.gate,
		Rows: p.shape.Tokens, Width: c.LayerInput, Activation: activationOf[c.Activation],
	})
	projection := matrixProduct{w: &l.inputProjection, x: p.buf.gate, y: p.buf.x, residual: true}
	if l.altUp == nil {
		p.addTo("layer input projection", projection, l.inputPost)
		return
	}
	projection.y, projection.residual = p.buf.out, false
	p.product("layer input projection", projection)
	p.addToStreams(l.inputPost)
}

// projectQKV computes the queries of each token, its keys and values if the layer has its own, and what layer.qkv has
// beside them, into one row of qkv.
func (p *planner) projectQKV(l *layer) {
	p.product("QKV", p.segments(l.qkv, l.attnNorm, p.buf.x, p.buf.qkv, p.layout.widths.qkv)...)
}

// segments returns the products of norm(x) with segments. Rows of y are stride elements apart.
func (p *planner) segments(segments []segment, n normWeights, x, y ptx.Address, stride int) (list []matrixProduct) {
	for i := range segments {
		s := &segments[i]
		list = append(list, matrixProduct{w: &s.w, x: x, norm: n, y: y + ptx.Address(4*s.column), yStride: stride})
	}
	return list
}

// attend rotates queries and keys, appends keys and values to the cache, and computes attention. A layer without keys
// and values of its own only rotates queries. In a decode step with one token per sequence, attention.Decode does
// all of this for layers that have keys and values of their own.
func (p *planner) attend(l *layer) {
	c, stride := p.model, p.layout.widths.qkv
	cacheLayer := c.CacheLayer(p.layer)
	cache := p.layout.KV[cacheLayer]
	args := rope.AppendArgs{
		Q: p.buf.qkv, QStride: stride, QNorm: p.headNorm("Q norm", l, l.qNorm, p.buf.qkv, c.Heads), Eps: c.NormEps,
		Positions: p.in.positions, Sequences: p.in.sequences, Lengths: p.in.lengths,
		Tokens: p.shape.Tokens, Heads: c.Heads, HeadDim: l.shape.HeadDim, MaxPages: p.layout.MaxPages,
	}
	if cacheLayer == p.layer {
		headBytes := ptx.Address(4 * cache.HeadDim)
		args.Key = p.buf.qkv + ptx.Address(c.Heads)*headBytes
		args.Value = args.Key + ptx.Address(cache.KVHeads)*headBytes
		args.KNorm = p.headNorm("K norm", l, l.kNorm, args.Key, cache.KVHeads)
		args.VNorm = p.headNorm("V norm", l, l.vNorm, args.Value, cache.KVHeads)
		args.KStride, args.VStride, args.KVHeads = stride, stride, cache.KVHeads
		args.Table, args.KCache, args.VCache = p.in.tables, cache.K, cache.V
	}
	if s := c.LayerQueryScale(p.layer); s.Scale > 0 {
		args.QScales, args.QScaleBlock, args.QScaleOffset = p.layout.weights.queryScales, s.Block, s.Offset
	}
	if r := l.rope; r != nil {
		args.Freq, args.Rot, args.NeoX, args.Factor = r.address(p.shape.LongRope), r.rope.Dim, !c.RopeInterleaved, float32(r.rope.Magnitude)
	}
	views := []View{{Op: "query", At: p.buf.qkv, Width: c.Heads * l.shape.HeadDim, Stride: stride}}
	if cacheLayer == p.layer {
		views = append(views, View{Op: "key", Cache: cache.K}, View{Op: "value", Cache: cache.V})
	}
	paged := attention.PagedKV{K: cache.K, V: cache.V, Table: p.in.tables, Lengths: p.in.lengths, KVHeads: cache.KVHeads, MaxPages: p.layout.MaxPages}
	scoring := attention.Scoring{
		Scale: float32(c.AttnScale), Softcap: float32(c.AttnSoftcap), Window: l.window, Chunks: l.window > 0 && c.WindowChunks, Sinks: l.sinks,
	}
	if !p.shape.Prefill() && cacheLayer == p.layer {
		views[0].At, views[0].Stride = p.buf.rotated, 0
		p.attendDecode(l.shape.HeadDim, paged, scoring, &args)
		p.addView(views...)
	} else {
		add(p, "RoPE and append", rope.Append(p.layout.config.KV, attention.PageTokens), args)
		p.addView(views...)
		if p.shape.Prefill() {
			p.attendPrefill(l.shape.HeadDim, paged, scoring)
		} else {
			p.attendDecode(l.shape.HeadDim, paged, scoring, nil)
		}
	}
	p.addView(View{Op: "attention", At: p.buf.attention, Width: c.Heads * l.shape.HeadDim})
	if l.attnGate {
		column := (c.Heads + 2*l.shape.KVHeads) * l.shape.HeadDim // behind queries, keys and values
		add(p, "gate", elementwise.Fused(), elementwise.FusedArgs{
			X: p.buf.qkv + ptx.Address(4*column), XStride: stride, Up: p.buf.attention, Y: p.buf.attention,
			Rows: p.shape.Tokens, Width: c.Heads * l.shape.HeadDim, Activation: elementwise.Sigmoid,
		})
	}
}

// headNorm normalizes queries, keys or values at x in place, if n is a norm, and returns 0. If rope.Append can do it,
// headNorm only returns the weights: an RMS norm of each head, with weights that heads share.
func (p *planner) headNorm(op string, l *layer, n normWeights, x ptx.Address, heads int) ptx.Address {
	if n.kind == norm.RMS && n.width == l.shape.HeadDim && !n.own {
		return n.weight
	}
	if n.kind == norm.None {
		return 0
	}
	stride, weights := p.layout.widths.qkv, 0
	if n.own {
		weights = n.width
	}
	add(p, op, norm.Rows(n.kind, quant.F32), norm.RowsArgs{
		X: x, Weight: n.weight, Y: x, Tokens: p.shape.Tokens, Heads: heads * l.shape.HeadDim / n.width, Width: n.width, XStride: stride, YStride: stride,
		Eps: p.model.NormEps, WeightStride: weights,
	})
	return 0
}

// attendPrefill is the attention of a prompt chunk.
func (p *planner) attendPrefill(headDim int, paged attention.PagedKV, s attention.Scoring) {
	c, props := p.model, p.layout.props
	args := attention.PrefillArgs{
		Q: p.buf.qkv, Out: p.buf.attention, Starts: p.in.starts, KV: paged, Scoring: s,
		Sequences: p.shape.Sequences, Heads: c.Heads, QStride: p.layout.widths.qkv, OutStride: c.Heads * headDim, MaxQueries: p.shape.Longest,
	}
	shape := attention.Shape{KV: p.layout.config.KV, HeadDim: headDim}
	add(p, "attention", attention.PrefillFor(shape, args, kernelcache.MaxTarget(props), props.SMs), args)
}

// attendDecode is the attention of a decode step, where each slot has its own length. With appended, its kernel also rotates
// queries and appends keys and values.
func (p *planner) attendDecode(headDim int, paged attention.PagedKV, s attention.Scoring, appended *rope.AppendArgs) {
	c, props, slots := p.model, &p.layout.props, p.shape.Tokens
	shape := attention.Shape{KV: p.layout.config.KV, HeadDim: headDim}
	args := attention.DecodeArgs{
		Q: p.buf.qkv, Scratch: p.buf.partial, Out: p.buf.attention, KV: paged, Scoring: s, Sequences: slots, Heads: c.Heads,
		QStride: p.layout.widths.qkv, OutStride: c.Heads * headDim, Pages: p.shape.Pages,
		SMs: props.SMs, Shared: props.SharedPerCTA, Fresh: slots,
	}
	if appended != nil {
		shape.Append, args.Append, args.Rotated, args.Fresh = true, *appended, p.buf.rotated, 0
	}
	add(p, "attention", attention.Decode(shape), args)
	if combine, needed := args.Combine(shape); needed {
		add(p, "attention", attention.Combine(headDim), combine)
	}
}

// ffnIn computes the inner activations of the feed-forward network of x, which n normalizes. In a mixture of experts the
// router chooses experts first, and the shared expert is computed to its end, since all use buf.gate.
func (p *planner) ffnIn(l *layer, n normWeights) {
	if !l.mixture() {
		p.innerActivations("feed-forward", &l.ffn, n)
		return
	}
	p.route(l, l.routerNorm.or(n), l.expertNorm.or(n))
	if !l.ffn.up.empty() {
		p.innerActivations("shared expert", &l.ffn, n)
		p.product("shared expert down", matrixProduct{w: &l.ffn.down, x: p.buf.gate, y: p.buf.shared})
	}
	p.innerActivations("feed-forward", &l.experts, l.expertNorm.or(n))
}

var activationOf = map[model.Activation]elementwise.Activation{
	model.SiLU: elementwise.SiLU, model.GELU: elementwise.GELU, model.ClampedSwiGLU: elementwise.ClampedSwiGLU,
}

// innerActivations computes act(gate·norm(x)) ⊙ (up·norm(x)), or act(up·norm(x)) without a gate, of x at planner.sum.
func (p *planner) innerActivations(op string, w *network, n normWeights) {
	act := activationOf[p.model.Activation]
	q := matrixProduct{w: &w.up, x: p.sum(), norm: n, y: p.buf.gate, act: act, sharedX: true}
	if p.model.ExpertInputs && w.up.experts > 0 {
		q.slotFactors = p.buf.expertWeights
	}
	if w.gate.empty() {
		p.product(op, q)
		return
	}
	q.w = &w.gate
	p.gateThenUp(op, q, &w.up, w.sparsity)
}

// route chooses the experts of each token. n is the norm of the router, ofExperts that of the experts.
func (p *planner) route(l *layer, n, ofExperts normWeights) {
	c, tokens, x := p.model, p.shape.Tokens, &l.experts
	args := moe.RouteArgs{
		Logits: p.buf.routerLogits, Bias: l.routerBias, Scales: l.expertScales, Weights: p.buf.expertWeights, Chosen: p.buf.experts,
		Tokens: tokens, Experts: c.Experts, Stride: l.routerColumns(), K: c.ExpertsUsed, Normalize: c.ExpertNorm, Scale: c.ExpertScale,
	}
	if l.sharedGate {
		args.Shared = p.buf.sharedWeights
	}
	p.product("router", p.segments(l.router, n, p.sum(), p.buf.routerLogits, args.Stride)...)
	add(p, "router", moe.Route(c.RouterSigmoid), args)
	if p.tiled(&x.gate, ofExperts) || p.tiled(&x.up, ofExperts) || p.tiled(&x.down, normWeights{}) {
		add(p, "group", moe.Group(), moe.GroupArgs{
			Chosen: p.buf.experts, Offsets: p.buf.expertOffsets, Order: p.buf.expertOrder, Tokens: tokens, K: c.ExpertsUsed, Experts: c.Experts,
		})
	}
}

// ffnOut multiplies the result of ffnIn by down and adds the product to x. Of a mixture, it adds
// the weighted products of the experts, and the shared expert's.
func (p *planner) ffnOut(l *layer) {
	defer p.xChanged()
	if !l.mixture() {
		p.addTo("down", matrixProduct{w: &l.ffn.down, x: p.buf.gate, y: p.sum(), residual: true}, l.ffnPost)
		return
	}
	p.product("down", matrixProduct{w: &l.experts.down, x: p.buf.gate, y: p.buf.out, rows: p.slots()})
	weights := p.buf.expertWeights
	if p.model.ExpertInputs { // the weights are in the experts' inputs
		weights = 0
	}
	if l.ffnPost.kind != norm.None {
		add(p, "combine and norm", moe.CombineNormed(), moe.CombineNormedArgs{
			Weights: weights, Out: p.buf.out, Shared: p.buf.shared, ExpertNorm: l.expertPost.weight, SharedNorm: l.sharedPost.weight, Weight: l.ffnPost.weight,
			Residual: p.sum(), Mixed: p.buf.mixed, Y: p.sum(),
			Tokens: p.shape.Tokens, K: p.model.ExpertsUsed, Width: p.model.Hidden, Eps: p.model.NormEps, Scale: l.ffnPost.scale,
		})
		return
	}
	args := moe.CombineArgs{
		Weights: weights, Out: p.buf.out, Residual: p.sum(), Y: p.sum(), Tokens: p.shape.Tokens, K: p.model.ExpertsUsed, Width: p.model.Hidden,
	}
	if !l.ffn.up.empty() {
		args.Shared = p.buf.shared
	}
	if l.sharedGate {
		args.SharedWeights = p.buf.sharedWeights
	}
	add(p, "combine", moe.Combine(), args)
}

// xChanged says that copies of x in other buffers are stale.
func (p *planner) xChanged() { p.normed, p.rounded = activations{}, activations{} }

// addTo adds a product to q.y, normalized if the model has a norm after it. q.residual must be set.
func (p *planner) addTo(op string, q matrixProduct, post normWeights) {
	defer p.xChanged()
	if post.kind == norm.None {
		p.product(op, q)
		return
	}
	y := q.y
	q.y, q.residual = p.buf.out, false
	p.product(op, q)
	add(p, op+" norm", norm.Rows(post.kind, quant.F32), norm.RowsArgs{
		X: p.buf.out, Weight: post.weight, Bias: post.bias, Residual: y, Y: y, Tokens: p.shape.Tokens, Width: p.model.Hidden, Eps: p.model.NormEps,
		Scale: post.scale,
	})
}

// logits computes the logits of the rows of x and chooses their tokens: with Shape.Sample by sampling
// states, else the largest. A decode step also writes these tokens and the next positions to the
// inputs of the next step.
func (p *planner) logits(x ptx.Address) {
	c, w, rows := p.model, p.layout.weights, p.shape.Tokens
	p.product("logits", matrixProduct{w: w.output, x: x, norm: w.norm, y: p.buf.Logits, scale: c.OutputScale, softcap: float32(c.OutputSoftcap), rows: rows})
	p.addView(View{Op: "logits", At: p.buf.Logits, Width: c.Vocab})
	if p.shape.Sample {
		p.sample(p.buf.Logits)
		return
	}
	add(p, "argmax", sample.Argmax(), sample.ArgmaxArgs{Logits: p.buf.Logits, Best: p.buf.argmax, Rows: rows, Vocab: c.Vocab})
	add(p, "argmax", sample.ArgmaxMerge(), sample.ArgmaxMergeArgs{
		Best: p.buf.argmax, Token: p.in.chosen, Rows: rows, Vocab: c.Vocab,
		Next: p.in.tokens, Positions: p.in.positions, Lengths: p.in.lengths,
	})
}

// sample chooses tokens from logits by the sampling states of the rows.
func (p *planner) sample(logits ptx.Address) {
	for _, k := range sample.Kernels() {
		add(p, "sample", k, sample.Args{
			Logits: logits, States: p.in.states, Params: p.buf.SampleParams, Counts: p.buf.SampleCounts, Biases: p.buf.SampleBiases, Masks: p.in.masks,
			Scratch: p.buf.sampleScratch, Token: p.in.chosen, Results: p.in.results,
			Next: p.in.tokens, Positions: p.in.positions, Lengths: p.in.lengths,
			Rows: p.shape.Tokens, Vocab: p.model.Vocab, MaxBiases: MaxBiases,
		})
	}
}
