package accel

import (
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// project computes queries, keys and values into rows of all three.
func (b *planner) project(l *layer) {
	for i := range l.qkv {
		band := &l.qkv[i]
		b.product("QKV", product{w: &band.matrix, x: b.x, norm: l.attnNorm, y: b.qkv + ptxgen.Address(4*band.from), yStride: b.qkvWidth})
	}
}

// attend rotates queries and keys, appends to the cache and attends.
func (b *planner) attend(l *layer, i int) {
	c := b.cfg
	kv := b.kv.layers[i]
	head := ptxgen.Address(4 * c.HeadDim)
	k := b.qkv + ptxgen.Address(c.Heads)*head
	rope := ptxgen.RopeAppendArgs{
		Q: b.qkv, K: k, V: k + ptxgen.Address(c.KVHeads)*head, QStride: b.qkvWidth, KStride: b.qkvWidth, VStride: b.qkvWidth,
		QNorm: l.qNorm.weight, KNorm: l.kNorm.weight, Eps: c.NormEps,
		Positions: b.in.positions, Sequences: b.in.sequences, Lengths: b.in.lengths, Table: b.in.tables,
		KCache: kv.k, VCache: kv.v, Tokens: b.rows(), Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, MaxPages: b.maxPages,
	}
	if l.rope != nil {
		rope.Freq, rope.Rot, rope.NeoX, rope.Factor = l.rope.at(b.long), c.RopeDim, c.Rope == model.RopeNeoX, float32(c.RopeAttnFactor)
	}
	add(b, "rotate and append", ptxgen.RopeAppend{Cache: b.kvFormat}, rope)
	b.show(view{op: "query", at: b.qkv, width: c.Heads * c.HeadDim, stride: b.qkvWidth})
	b.show(view{op: "key", cache: kv.k})
	b.show(view{op: "value", cache: kv.v})
	paged := ptxgen.PagedKV{K: kv.k, V: kv.v, Table: b.in.tables, Lengths: b.in.lengths, KVHeads: c.KVHeads, MaxPages: b.maxPages}
	scoring := ptxgen.Scoring{Scale: float32(c.AttnScale), Softcap: float32(c.AttnSoftcap), Window: l.window}
	if b.fast {
		b.attendTiles(paged, scoring)
	} else {
		b.attendRows(paged, scoring)
	}
	b.show(view{op: "attention", at: b.attention, width: c.Heads * c.HeadDim})
}

// attendTiles is the attention of a chunk of one sequence.
func (b *planner) attendTiles(kv ptxgen.PagedKV, s ptxgen.Scoring) {
	c := b.cfg
	add(b, "attention", ptxgen.FlashAttention{KV: b.kvFormat, HeadDim: c.HeadDim}, ptxgen.FlashAttentionArgs{
		Q: b.qkv, Out: b.attention, Starts: b.in.starts, PagedKV: kv, Scoring: s,
		Sequences: 1, Heads: c.Heads, QStride: b.qkvWidth, OutStride: c.Heads * c.HeadDim, MaxQueries: b.rows(),
	})
}

// attentionDecode is the kernel for rows.
func (s *shape) attentionDecode() ptxgen.AttentionDecode {
	return ptxgen.AttentionDecode{KV: s.kvFormat, HeadDim: s.cfg.HeadDim}
}

// attendRows is the attention of rows that have a length each.
func (b *planner) attendRows(kv ptxgen.PagedKV, s ptxgen.Scoring) {
	c, width := b.cfg, b.cfg.Heads*b.cfg.HeadDim
	add(b, "attention", b.attentionDecode(), ptxgen.AttentionDecodeArgs{
		Q: b.qkv, Scratch: b.partial, PagedKV: kv, Scoring: s, Sequences: b.rows(), Heads: c.Heads, QStride: b.qkvWidth, Pages: b.pages,
		SMs: b.props.SMs, Shared: b.props.SharedPerCTA, Fresh: b.rows(),
	})
	add(b, "attention", ptxgen.AttentionCombine{HeadDim: c.HeadDim}, ptxgen.AttentionCombineArgs{
		Scratch: b.partial, Lengths: kv.Lengths, Out: b.attention, Sequences: b.rows(), Heads: c.Heads,
		OutStride: width, MaxPages: b.maxPages, Window: s.Window,
	})
}

// networkIn is the first half of the feed-forward network, for which a router chooses
// experts.
func (b *planner) networkIn(l *layer, n norm) {
	act := ptxgen.SiLU
	if b.cfg.Activation == model.GELU {
		act = ptxgen.GELU
	}
	p := product{w: &l.up, x: b.x, norm: n, y: b.gate, act: act, shared: true}
	if !l.gate.empty() {
		p.w, p.up = &l.gate, &l.up
	}
	if l.up.experts > 0 {
		b.route(l, n)
	}
	b.product("feed-forward", p)
}

// route chooses the experts of each row.
func (b *planner) route(l *layer, n norm) {
	used := b.cfg.ExpertsUsed
	b.product("router", product{w: &l.router, x: b.x, norm: n, y: b.scores})
	add(b, "router", ptxgen.Router{}, ptxgen.RouterArgs{
		Logits: b.scores, Weights: b.chosenWeights, Chosen: b.chosen, Tokens: b.rows(), Experts: l.up.experts, K: used, Normalize: true,
	})
	if b.fast {
		add(b, "group", ptxgen.Group{}, ptxgen.GroupArgs{
			Chosen: b.chosen, Offsets: b.offsets, Order: b.order, Tokens: b.rows(), K: used, Experts: l.up.experts,
		})
	}
}

// networkOut is the second half, added to x.
func (b *planner) networkOut(l *layer) {
	down := product{w: &l.down, x: b.gate, y: b.x, residual: true}
	if l.down.experts == 0 {
		b.into("down", down, l.ffnPost)
		return
	}
	down.y, down.residual, down.rows = b.out, false, b.rows()*b.cfg.ExpertsUsed
	b.product("down", down)
	add(b, "combine", ptxgen.Combine{}, ptxgen.CombineArgs{
		Weights: b.chosenWeights, Out: b.out, Residual: b.x, Y: b.x, Tokens: b.rows(), K: b.cfg.ExpertsUsed, Width: b.cfg.Hidden,
	})
}
