package kernelcases

import (
	"fmt"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/quant"
)

// appendCase is an attentionCase whose last positions are appended by the kernel of attention itself.
type appendCase struct {
	attentionCase
	rot        int // elements that are rotated
	neox       bool
	norm       bool // of queries, keys and values
	queryBlock int  // positions per factor of queries; 0: no factors
	queryFirst int  // is added to positions for it
	unseen     bool // rotated queries are not written
}

func appendCases() []harness.Case {
	common := appendCase{attentionCase: attentionCase{kv: quant.F16, headDim: 64, group: 2, lengths: []int{1, 63, 64, 65, 200}}, rot: 64}
	var all []harness.Case
	add := func(name, reason string, change func(*appendCase)) {
		c := common
		change(&c)
		c.name, c.reason, c.appended, c.compared, c.fresh = name, reason, true, true, 1
		c.attentionCase = c.filled()
		all = append(all, harness.Case{
			Operation: "attention append", Format: c.kv.String(), Name: c.name, Reason: c.reason,
			Run: func(r *harness.Fixture) { checkAppend(r, c) },
		})
	}
	for _, dim := range attentionDims {
		for _, f := range attentionFormats {
			add(fmt.Sprintf("%v/d=%d", f, dim), "the position is the first or last of a page, or alone", func(c *appendCase) {
				c.kv, c.headDim, c.rot, c.neox = f, dim, dim, true
			})
		}
	}
	for _, dim := range []int{8, 24, 40, 104, 224} {
		add(fmt.Sprintf("d=%d", dim), "lanes may have chunks beyond the row", func(c *appendCase) { c.headDim, c.rot, c.lengths = dim, dim, []int{1, 70} })
	}
	for _, page := range []int{16, 32, 128} {
		add(fmt.Sprintf("page=%d", page), "another page size", func(c *appendCase) { c.kv, c.page, c.lengths = quant.BF16, page, []int{1, 16, 17, 255} })
	}
	for _, sms := range []int{1, 3, 5} {
		add(fmt.Sprintf("%d SMs", sms), "CTAs have several splits; which one has the last depends on the length", func(c *appendCase) {
			c.sms, c.lengths = sms, []int{128, 400, 1, 129, 257, 600}
		})
	}
	for _, sms := range []int{9, 24} {
		add(fmt.Sprintf("heads in parts, %d SMs", sms), "CTAs share the query heads of a KV head; the first of them appends", func(c *appendCase) {
			c.sms, c.group, c.lengths = sms, 6, []int{70}
		})
	}
	add("rows", "the position is any of the rows of a page that a thread has", func(c *appendCase) { c.lengths = []int{10, 19, 28, 37, 46, 55} })
	add("group=12", "more heads than warps, in two iterations", func(c *appendCase) { c.group = 12 })
	add("window=64", "only the last positions are visible", func(c *appendCase) { c.window = 64 })
	add("window=1", "only the position itself is visible", func(c *appendCase) { c.window = 1 })
	add("chunks=64, sinks and softcap", "all options of scores", func(c *appendCase) { c.chunks, c.window, c.sinks, c.softcap = true, 64, true, 50 })
	add("norms", "the options of Qwen 3", func(c *appendCase) { c.norm, c.neox = true, true })
	add("partial", "elements beyond the rotated part are unchanged", func(c *appendCase) { c.rot, c.neox = 32, true })
	add("no rotation", "a layer without RoPE, whose queries have factors", func(c *appendCase) { c.rot, c.queryBlock, c.queryFirst = 0, 48, 1 })
	add("idle slots with factors", "no factor belongs to an idle slot", func(c *appendCase) { c.activeOnly, c.queryBlock = []int{1, 4}, 48 })
	add("idle slots", "a sequence of length 0 is not read or written", func(c *appendCase) { c.activeOnly = []int{1, 4} })
	add("idle slots, one CTA", "a CTA without blocks reads no page number", func(c *appendCase) { c.activeOnly, c.sms = []int{1, 4}, 1 })
	add("norms of large queries", "squares that overflow", func(c *appendCase) { c.norm, c.queryScale = true, 0x1p90 })
	add("unseen", "rotated queries stay in the kernel", func(c *appendCase) { c.unseen = true })
	return all
}

// appended is what a run of an appendCase gives.
type appended struct {
	out          [][]float32 // per sequence, nil for an inactive one
	queries      [][]float32 // after the rotation; nil if they are unseen
	keys, values [][]float32 // of the last position: [kvHeads × headDim]
}

// checkAppend demands the bits that rope.Append and then attention give.
func checkAppend(r *harness.Fixture, c appendCase) {
	d := c.data(r)
	weights := appendWeights{
		q: r.Vector(harness.Gaussian, c.headDim), k: r.Vector(harness.Gaussian, c.headDim), v: r.Vector(harness.Gaussian, c.headDim),
		scales: r.Vector(harness.Gaussian, 8),
	}
	want, got := c.run(r, d, weights, false), c.run(r, d, weights, true)
	sameOutputs(r, "out", got.out, want.out)
	sameOutputs(r, "key", got.keys, want.keys)
	sameOutputs(r, "value", got.values, want.values)
	if !c.unseen {
		sameOutputs(r, "query", got.queries, want.queries)
	}
}

type appendWeights struct{ q, k, v, scales []float32 }

// run runs the case by one kernel, or by rope.Append and a kernel of attention.
func (c appendCase) run(r *harness.Fixture, d attentionData, w appendWeights, together bool) appended {
	l := c.launch(r, d)
	width, wide, sequences := c.heads()*c.headDim, c.kvHeads*c.headDim, len(c.lengths)
	row := width + 2*wide + 4
	qkv := r.Input("qkv", 4*row*sequences)
	if !together {
		qkv = r.Scratch("qkv", 4*row*sequences)
	}
	positions, tokens := make([]uint32, sequences), make([]uint32, sequences)
	for s, n := range c.lengths {
		positions[s], tokens[s] = uint32(n-1), uint32(s)
		if !c.active(s) {
			continue
		}
		qkv.SetF32s(4*row*s, d.q[s][:width])
		for h := range c.kvHeads {
			at := (h*n + n - 1) * c.headDim
			qkv.SetF32s(4*(row*s+width+h*c.headDim), d.k[s][at:at+c.headDim])
			qkv.SetF32s(4*(row*s+width+wide+h*c.headDim), d.v[s][at:at+c.headDim])
		}
	}
	a := rope.AppendArgs{
		Q: qkv.Addr(), Key: qkv.At(4 * width), Value: qkv.At(4 * (width + wide)), QStride: row, KStride: row, VStride: row,
		Positions: r.U32s("positions", positions).Addr(), Sequences: r.U32s("sequences", tokens).Addr(), Lengths: l.cache.Lengths, Table: l.cache.Table,
		KCache: l.cache.K, VCache: l.cache.V, Tokens: sequences, Heads: c.heads(), KVHeads: c.kvHeads, HeadDim: c.headDim,
		Rot: c.rot, NeoX: c.neox, MaxPages: l.cache.MaxPages, Eps: 1e-6,
	}
	if c.rot > 0 {
		a.Freq = r.F64s("freq", ropeFrequencies(ropeCase{rot: c.rot})).Addr()
	}
	if c.norm {
		a.QNorm, a.KNorm, a.VNorm = r.F32s("q norm", w.q).Addr(), r.F32s("k norm", w.k).Addr(), r.F32s("v norm", w.v).Addr()
	}
	if c.queryBlock > 0 {
		a.QScales, a.QScaleBlock, a.QScaleOffset = r.F32s("query factors", w.scales).Addr(), c.queryBlock, c.queryFirst
	}
	shape, out := c.shape(), r.Output("out", 4*width*sequences)
	args := attention.DecodeArgs{
		Q: a.Q, Scratch: r.Scratch("scratch", int(shape.ScratchBytes(sequences, l.heads, l.cache.MaxPages))).Addr(), Out: out.Addr(),
		KV: l.cache, Scoring: l.scoring, Sequences: sequences, Heads: l.heads, QStride: row, OutStride: width, SMs: c.sms,
	}
	queries, stride := qkv, row
	var launches []ptx.Launch
	if together {
		shape.Append, args.Append = true, a
		if !c.unseen {
			queries, stride = r.Output("rotated", 4*width*sequences), width
			args.Rotated = queries.Addr()
		}
	} else {
		args.Fresh = 1
		launches = append(launches, launchOf(r, rope.Append(c.kv, c.page), a))
	}
	launches = append(launches, launchOf(r, attention.Decode(shape), args))
	if combine, needed := args.Combine(shape); needed {
		launches = append(launches, launchOf(r, attention.Combine(c.headDim), combine))
	}
	r.LaunchInTurn(launches...)

	result := appended{make([][]float32, sequences), make([][]float32, sequences), make([][]float32, sequences), make([][]float32, sequences)}
	for s, n := range c.lengths {
		if !c.active(s) {
			out.Untouched(4*width*s, 4*width)
			continue
		}
		result.out[s] = out.FloatsAt(quant.F32, 4*width*s, width)
		result.queries[s] = queries.FloatsAt(quant.F32, 4*stride*s, width)
		result.keys[s], result.values[s] = c.cached(l, l.keys, s, n-1), c.cached(l, l.values, s, n-1)
	}
	return result
}
