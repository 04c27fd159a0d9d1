package plan

import (
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
}

// transformerBlock adds attention, or a Gated DeltaNet, and feed-forward network of a layer to x.
func (p *planner) transformerBlock(l *layer) {
	p.projectQKV(l)
	if p.model.ParallelFFN { // the feed-forward network reads x before attention is added to it
		p.ffnIn(l, l.attnNorm)
	}
	if l.net != nil {
		p.recur(l)
	} else {
		p.attend(l)
	}
	p.addTo("O", matrixProduct{w: &l.o, x: p.buf.attention, y: p.buf.x, residual: true}, l.attnPost)
	if !p.model.ParallelFFN {
		p.ffnIn(l, l.ffnNorm)
	}
	p.ffnOut(l)
	p.addView(View{Op: "layer", At: p.buf.x, Width: p.model.Hidden})
}

// projectQKV computes the queries, keys and values of each token, and what layer.qkv has beside them, into one row of qkv.
func (p *planner) projectQKV(l *layer) {
	p.product("QKV", p.segments(l.qkv, l.attnNorm, p.buf.qkv, p.layout.widths.qkv)...)
}

// segments returns the products of norm(x) with segments. Rows of y are stride elements apart.
func (p *planner) segments(segments []segment, n normWeights, y ptx.Address, stride int) (list []matrixProduct) {
	for i := range segments {
		s := &segments[i]
		list = append(list, matrixProduct{w: &s.w, x: p.buf.x, norm: n, y: y + ptx.Address(4*s.column), yStride: stride})
	}
	return list
}

// attend rotates queries and keys, appends keys and values to the cache, and computes attention.
func (p *planner) attend(l *layer) {
	c, stride := p.model, p.layout.widths.qkv
	cache := p.layout.KV[p.layer]
	headBytes := ptx.Address(4 * c.HeadDim)
	k := p.buf.qkv + ptx.Address(c.Heads)*headBytes
	args := rope.AppendArgs{
		Q: p.buf.qkv, K: k, V: k + ptx.Address(c.KVHeads)*headBytes, QStride: stride, KStride: stride, VStride: stride,
		QNorm: p.headNorm("Q norm", l.qNorm, p.buf.qkv, c.Heads), KNorm: p.headNorm("K norm", l.kNorm, k, c.KVHeads), Eps: c.NormEps,
		QScales: p.layout.weights.queryScales, QScaleBlock: c.QueryScale.Block,
		Positions: p.in.positions, Sequences: p.in.sequences, Lengths: p.in.lengths, Table: p.in.tables,
		KCache: cache.K, VCache: cache.V, Tokens: p.shape.Tokens, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, MaxPages: p.layout.MaxPages,
	}
	if r := l.rope; r != nil {
		args.Freq, args.Rot, args.NeoX, args.Factor = r.address(p.shape.LongRope), r.rope.Dim, !c.RopeInterleaved, float32(r.rope.Magnitude)
	}
	add(p, "RoPE and append", rope.Append(p.layout.config.KV, attention.PageTokens), args)
	p.addView(View{Op: "query", At: p.buf.qkv, Width: c.Heads * c.HeadDim, Stride: stride})
	p.addView(View{Op: "key", Cache: cache.K})
	p.addView(View{Op: "value", Cache: cache.V})
	paged := attention.PagedKV{K: cache.K, V: cache.V, Table: p.in.tables, Lengths: p.in.lengths, KVHeads: c.KVHeads, MaxPages: p.layout.MaxPages}
	scoring := attention.Scoring{Scale: float32(c.AttnScale), Softcap: float32(c.AttnSoftcap), Window: l.window, Sinks: l.sinks}
	if p.shape.Prefill() {
		p.attendPrefill(paged, scoring)
	} else {
		p.attendDecode(paged, scoring)
	}
	p.addView(View{Op: "attention", At: p.buf.attention, Width: c.Heads * c.HeadDim})
	if l.attnGate {
		p.gate(k+ptx.Address(2*c.KVHeads)*headBytes, elementwise.Sigmoid, c.Heads*c.HeadDim)
	}
}

// headNorm normalizes queries or keys at x in place and returns 0. If rope.Append can do it, headNorm only returns the
// weights: an RMS norm of each head, with weights that heads share.
func (p *planner) headNorm(op string, n normWeights, x ptx.Address, heads int) ptx.Address {
	dim := p.model.HeadDim
	if n.kind == norm.None || n.kind == norm.RMS && n.width == dim && !n.own {
		return n.weight
	}
	stride, weights := p.layout.widths.qkv, 0
	if n.own {
		weights = n.width
	}
	add(p, op, norm.Rows(n.kind, quant.F32), norm.RowsArgs{
		X: x, Weight: n.weight, Y: x, Tokens: p.shape.Tokens, Heads: heads * dim / n.width, Width: n.width, XStride: stride, YStride: stride,
		Eps: p.model.NormEps, WeightStride: weights,
	})
	return 0
}

// attendPrefill is the attention of a prompt chunk.
func (p *planner) attendPrefill(paged attention.PagedKV, s attention.Scoring) {
	c, props := p.model, p.layout.props
	args := attention.PrefillArgs{
		Q: p.buf.qkv, Out: p.buf.attention, Starts: p.in.starts, KV: paged, Scoring: s,
		Sequences: p.shape.Sequences, Heads: c.Heads, QStride: p.layout.widths.qkv, OutStride: c.Heads * c.HeadDim, MaxQueries: p.shape.Longest,
	}
	shape := attention.Shape{KV: p.layout.config.KV, HeadDim: c.HeadDim}
	add(p, "attention", attention.PrefillFor(shape, args, kernelcache.MaxTarget(props), props.SMs), args)
}

// attendDecode is the attention of a decode step, where each slot has its own length.
func (p *planner) attendDecode(paged attention.PagedKV, s attention.Scoring) {
	c, props, slots := p.model, &p.layout.props, p.shape.Tokens
	shape := attention.Shape{KV: p.layout.config.KV, HeadDim: c.HeadDim}
	args := attention.DecodeArgs{
		Q: p.buf.qkv, Scratch: p.buf.partial, Out: p.buf.attention, KV: paged, Scoring: s, Sequences: slots, Heads: c.Heads,
		QStride: p.layout.widths.qkv, OutStride: c.Heads * c.HeadDim, Pages: p.shape.Pages,
		SMs: props.SMs, Shared: props.SharedPerCTA, Fresh: slots,
	}
	add(p, "attention", attention.Decode(shape), args)
	if combine, needed := args.Combine(shape); needed {
		add(p, "attention", attention.Combine(c.HeadDim), combine)
	}
}

// ffnIn computes the inner activations of the feed-forward network. In a mixture of experts the router chooses
// experts first, and the shared expert is computed to its end, since all use buf.gate.
func (p *planner) ffnIn(l *layer, n normWeights) {
	if !l.mixture() {
		p.innerActivations("feed-forward", &l.ffn, n)
		return
	}
	p.route(l, n)
	if !l.ffn.up.empty() {
		p.innerActivations("shared expert", &l.ffn, n)
		p.product("shared expert down", matrixProduct{w: &l.ffn.down, x: p.buf.gate, y: p.buf.shared})
	}
	p.innerActivations("feed-forward", &l.experts, n)
}

var activationOf = map[model.Activation]elementwise.Activation{
	model.SiLU: elementwise.SiLU, model.GELU: elementwise.GELU, model.ClampedSwiGLU: elementwise.ClampedSwiGLU,
}

// innerActivations computes act(gate·norm(x)) ⊙ (up·norm(x)), or act(up·norm(x)) without a gate.
func (p *planner) innerActivations(op string, w *network, n normWeights) {
	act := activationOf[p.model.Activation]
	q := matrixProduct{w: &w.up, x: p.buf.x, norm: n, y: p.buf.gate, act: act, sharedX: true}
	if w.gate.empty() {
		p.product(op, q)
		return
	}
	q.w = &w.gate
	p.gateThenUp(op, q, &w.up)
}

// route chooses the experts of each token.
func (p *planner) route(l *layer, n normWeights) {
	c, tokens, x := p.model, p.shape.Tokens, &l.experts
	args := moe.RouteArgs{
		Logits: p.buf.routerLogits, Bias: l.routerBias, Weights: p.buf.expertWeights, Chosen: p.buf.experts,
		Tokens: tokens, Experts: c.Experts, Stride: l.routerColumns(), K: c.ExpertsUsed, Normalize: c.ExpertNorm, Scale: c.ExpertScale,
	}
	if l.sharedGate {
		args.Shared = p.buf.sharedWeights
	}
	p.product("router", p.segments(l.router, n, p.buf.routerLogits, args.Stride)...)
	add(p, "router", moe.Route(c.RouterSigmoid), args)
	if p.tiled(&x.gate, n) || p.tiled(&x.up, n) || p.tiled(&x.down, normWeights{}) {
		add(p, "group", moe.Group(), moe.GroupArgs{
			Chosen: p.buf.experts, Offsets: p.buf.expertOffsets, Order: p.buf.expertOrder, Tokens: tokens, K: c.ExpertsUsed, Experts: c.Experts,
		})
	}
}

// ffnOut multiplies the result of ffnIn by down and adds the product to x. Of a mixture, it adds
// the weighted products of the experts, and the shared expert's.
func (p *planner) ffnOut(l *layer) {
	if !l.mixture() {
		p.addTo("down", matrixProduct{w: &l.ffn.down, x: p.buf.gate, y: p.buf.x, residual: true}, l.ffnPost)
		return
	}
	p.product("down", matrixProduct{w: &l.experts.down, x: p.buf.gate, y: p.buf.out, rows: p.slots()})
	args := moe.CombineArgs{
		Weights: p.buf.expertWeights, Out: p.buf.out, Residual: p.buf.x, Y: p.buf.x, Tokens: p.shape.Tokens, K: p.model.ExpertsUsed, Width: p.model.Hidden,
	}
	if !l.ffn.up.empty() {
		args.Shared = p.buf.shared
	}
	if l.sharedGate {
		args.SharedWeights = p.buf.sharedWeights
	}
	add(p, "combine", moe.Combine(), args)
}

// addTo adds a product to q.y, normalized if the model has a norm after it. q.residual must be set.
func (p *planner) addTo(op string, q matrixProduct, post normWeights) {
	defer func() { p.normed, p.rounded = activations{}, activations{} }() // x may be q.y: its copies in these buffers are stale
	if post.kind == norm.None {
		p.product(op, q)
		return
	}
	y := q.y
	q.y, q.residual = p.buf.out, false
	p.product(op, q)
	add(p, op+" norm", norm.Rows(post.kind, quant.F32), norm.RowsArgs{
		X: p.buf.out, Weight: post.weight, Bias: post.bias, Residual: y, Y: y, Tokens: p.shape.Tokens, Width: p.model.Hidden, Eps: p.model.NormEps,
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
