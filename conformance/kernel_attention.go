package conformance

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// attentionCase is an attention over the caches of a few sequences. Each has a
// length, of which the last queries positions are computed: one by the incremental
// kernels, any number by FlashAttention.
type attentionCase struct {
	name, reason   string
	kv             quant.Format
	headDim        int
	kvHeads, group int // 0: 2 and 1
	page           int // 0: 64
	blockQ, blockK int // 0: the kernel's own
	lengths        []int
	queries        []int   // nil: one each
	scale          float64 // times 1/√headDim; 0: 1
	softcap        float32
	window         int
	dist           Distribution
	loud           float64 // multiplies the queries and divides the scale; 0: 1
	spare          int     // pages that the table has beyond the longest sequence
	seed           uint64  // orders the pages in memory
	only           []int   // the sequences that are active; nil: all
	sms            int     // that the incremental kernels' CTAs are for; 0: a CTA for each page
	fresh          int     // last positions that they may not read early; 0: none may be read early
	long           bool
	spoil          func(*attentionLaunch) // plants a fault
}

// attentionLaunch is what a planted fault may change.
type attentionLaunch struct {
	ptxgen.PagedKV
	ptxgen.Scoring
	heads, rowBytes int
	lengths         *Mem
	cut             []uint32
}

func (c attentionCase) filled() attentionCase {
	for p, n := range map[*int]int{&c.kvHeads: 2, &c.group: 1, &c.page: 64} {
		if *p == 0 {
			*p = n
		}
	}
	if c.queries == nil {
		for range c.lengths {
			c.queries = append(c.queries, 1)
		}
	}
	for p, x := range map[*float64]float64{&c.scale: 1, &c.loud: 1} {
		if *p == 0 {
			*p = x
		}
	}
	return c
}

func (c attentionCase) heads() int { return c.kvHeads * c.group }

func (c attentionCase) scoring() ptxgen.Scoring {
	scale := float32(c.scale / c.loud / math.Sqrt(float64(c.headDim)))
	return ptxgen.Scoring{Scale: scale, Softcap: c.softcap, Window: c.window}
}

func (c attentionCase) active(sequence int) bool {
	for _, s := range c.only {
		if s == sequence {
			return true
		}
	}
	return c.only == nil
}

// from is the first position that a sequence's queries see. What lies before it may
// have been given to somebody else.
func (c attentionCase) from(sequence int) int {
	if c.window == 0 {
		return 0
	}
	return max(0, c.lengths[sequence]-c.queries[sequence]+1-c.window)
}

// attentionData are the numbers of a case, as the cache's format has them.
type attentionData struct {
	q    [][]float32 // of a sequence: [queries][heads][headDim]
	k, v [][]float32 // of a sequence: [kvHeads][length][headDim]
}

func (c attentionCase) data(r *KernelRig) attentionData {
	var d attentionData
	for s, n := range c.lengths {
		q := r.Vector(c.dist, c.queries[s]*c.heads()*c.headDim)
		for i := range q {
			q[i] *= float32(c.loud)
		}
		d.q = append(d.q, q)
		d.k = append(d.k, c.rounded(r.Vector(c.dist, c.kvHeads*n*c.headDim)))
		d.v = append(d.v, c.rounded(r.Vector(c.dist, c.kvHeads*n*c.headDim)))
	}
	return d
}

func (c attentionCase) rounded(x []float32) []float32 {
	b := make([]byte, c.kv.BlockBytes()*len(x))
	if err := c.kv.Encode(b, x); err != nil {
		panic(err)
	}
	quant.Decode(c.kv, x, b)
	return x
}

// cacheOf puts keys and values into pages in a random order. Whatever no query may
// see stays poison.
func (c attentionCase) cacheOf(r *KernelRig, d attentionData) (ptxgen.PagedKV, *Mem) {
	maxPages := c.spare
	for _, n := range c.lengths {
		maxPages = max(maxPages, (n+c.page-1)/c.page+c.spare)
	}
	order := newRand(c.seed).Perm(len(c.lengths) * maxPages)
	row := c.headDim * c.kv.BlockBytes()
	k := r.Input("k", len(order)*c.kvHeads*c.page*row)
	v := r.Input("v", len(order)*c.kvHeads*c.page*row)
	table := r.Input("table", 4*len(order))
	lengths := make([]uint32, len(c.lengths))
	for s, n := range c.lengths {
		if !c.active(s) {
			continue
		}
		lengths[s] = uint32(n)
		for first := c.from(s) / c.page * c.page; first < n; first += c.page {
			entry := s*maxPages + first/c.page
			table.SetU32s(4*entry, []uint32{uint32(order[entry])})
			begin, end := max(first, c.from(s)), min(first+c.page, n)
			for h := range c.kvHeads {
				to := ((order[entry]*c.kvHeads+h)*c.page + begin%c.page) * row
				k.SetFloats(to, c.kv, d.k[s][(h*n+begin)*c.headDim:(h*n+end)*c.headDim])
				v.SetFloats(to, c.kv, d.v[s][(h*n+begin)*c.headDim:(h*n+end)*c.headDim])
			}
		}
	}
	l := r.U32s("lengths", lengths)
	return ptxgen.PagedKV{
		K: k.Addr(), V: v.Addr(), Table: table.Addr(), Lengths: l.Addr(), KVHeads: c.kvHeads, MaxPages: maxPages,
	}, l
}

// launch is what the kernels are given, with the planted fault.
func (c attentionCase) launch(r *KernelRig, d attentionData) attentionLaunch {
	l := attentionLaunch{Scoring: c.scoring(), heads: c.heads(), rowBytes: c.headDim * c.kv.BlockBytes()}
	l.PagedKV, l.lengths = c.cacheOf(r, d)
	l.cut = []uint32{0}
	for s := range c.lengths {
		n := uint32(c.queries[s])
		if !c.active(s) {
			n = 0
		}
		l.cut = append(l.cut, l.cut[s]+n)
	}
	if c.spoil != nil {
		c.spoil(&l)
	}
	return l
}

// decode runs the incremental kernels and returns the outputs, [sequences][heads ×
// headDim]; nil for those that are not active.
func (c attentionCase) decode(r *KernelRig, d attentionData) [][]float32 {
	l := c.launch(r, d)
	width, sequences := c.heads()*c.headDim, len(c.lengths)
	stride := width + 4
	q := r.Input("q", 4*stride*sequences)
	for s := range c.lengths {
		if c.active(s) {
			q.SetF32s(4*stride*s, d.q[s][:width])
		}
	}
	spec := ptxgen.AttentionDecode{KV: c.kv, HeadDim: c.headDim, Page: c.page}
	scratch := r.Output("scratch", int(spec.ScratchBytes(sequences, l.heads, l.MaxPages)))
	out := r.Output("out", 4*stride*sequences)
	r.Launch(spec.Launch(r.Kernel(spec), ptxgen.AttentionDecodeArgs{
		Q: q.Addr(), Scratch: scratch.Addr(), PagedKV: l.PagedKV, Scoring: l.Scoring,
		Sequences: sequences, Heads: l.heads, QStride: stride, Pages: l.MaxPages - c.spare/2, SMs: c.sms, Fresh: c.fresh,
	}))
	combine := ptxgen.AttentionCombine{HeadDim: c.headDim}
	r.Launch(combine.Launch(r.Kernel(combine), ptxgen.AttentionCombineArgs{
		Scratch: scratch.Addr(), Lengths: l.Lengths, Out: out.Addr(), Sequences: sequences, Heads: l.heads,
		OutStride: stride, MaxPages: l.MaxPages, Page: c.page, Window: l.Window,
	}))
	result := make([][]float32, sequences)
	for s := range result {
		at := 4 * stride * s
		if !c.active(s) {
			out.Untouched(at, 4*stride)
			continue
		}
		out.Untouched(at+4*width, 4*(stride-width))
		result[s] = decodeFloats(quant.F32, out.Range(at, 4*width))
	}
	return result
}

func (c attentionCase) flashSpec() ptxgen.FlashAttention {
	return ptxgen.FlashAttention{KV: c.kv, HeadDim: c.headDim, Page: c.page, BlockQ: c.blockQ, BlockK: c.blockK}
}

// flash runs FlashAttention and returns the outputs of each sequence, [queries]
// [heads × headDim].
func (c attentionCase) flash(r *KernelRig, d attentionData) [][]float32 {
	l := c.launch(r, d)
	width := c.heads() * c.headDim
	qStride, outStride := width+8, width+4
	total, most := int(l.cut[len(l.cut)-1]), 1
	q, out := r.Input("q", 4*qStride*total), r.Output("out", 4*outStride*total)
	for s, n := range c.queries {
		for i := range int(l.cut[s+1] - l.cut[s]) {
			q.SetF32s(4*qStride*(int(l.cut[s])+i), d.q[s][i*width:(i+1)*width])
		}
		most = max(most, n)
	}
	spec := c.flashSpec()
	r.Launch(spec.Launch(r.Kernel(spec), ptxgen.FlashAttentionArgs{
		Q: q.Addr(), Out: out.Addr(), Starts: r.U32s("starts", l.cut).Addr(), PagedKV: l.PagedKV, Scoring: l.Scoring,
		Sequences: len(c.lengths), Heads: l.heads, QStride: qStride, OutStride: outStride, MaxQueries: most,
	}))
	result := make([][]float32, len(c.lengths))
	for s := range result {
		for i := l.cut[s]; i < l.cut[s+1]; i++ {
			at := 4 * outStride * int(i)
			result[s] = append(result[s], decodeFloats(quant.F32, out.Range(at, 4*width))...)
			out.Untouched(at+4*width, 4*(outStride-width))
		}
	}
	return result
}

func (c attentionCase) kernelCase(operation string, run func(r *KernelRig, c attentionCase)) KernelCase {
	c = c.filled()
	return KernelCase{
		Operation: operation, Format: c.kv.String(), Name: c.name, Reason: c.reason, Long: c.long,
		Run: func(r *KernelRig) { run(r, c) },
	}
}

func attentionCases() []KernelCase {
	var all []KernelCase
	for _, c := range decodeCases() {
		all = append(all, c.kernelCase("attention decode", checkDecode))
	}
	for _, c := range flashCases() {
		all = append(all, c.kernelCase("attention prefill", checkFlash))
	}
	return append(all, attentionInvariants()...)
}
