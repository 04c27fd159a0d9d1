package accel

import (
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// shape is what the sizes of an engine's buffers follow from.
type shape struct {
	cfg      *model.Config
	o        Options
	props    driver.Properties
	kvFormat quant.Format // of the cache
	maxRows  int          // of any pass
	stepRows int          // of a pass with the kernels of decoding
	headRows int          // whose logits are computed together
	maxPages int          // of a sequence
	qkvWidth int          // of a row of Q, K and V
	ffnWidth int          // of a row of the feed-forward network; of a mixture, of all experts used
	outWidth int          // of a row of what it gives; of a mixture, by expert
}

// headColumns is how many rows of a prompt get their logits together.
const headColumns = 16

func newShape(m *model.Model, w *weights, props driver.Properties, o Options) shape {
	c := &m.Config
	s := shape{cfg: c, o: o, props: props, kvFormat: o.KV.Format(quant.F16), stepRows: rowsOf(o.MaxSequences), qkvWidth: (c.Heads + 2*c.KVHeads) * c.HeadDim, outWidth: c.Hidden}
	if o.Prefill == PrefillExact {
		s.stepRows = max(s.stepRows, stepwiseRows)
		s.maxRows, s.headRows = s.stepRows, s.stepRows
	} else {
		s.maxRows, s.headRows = max(s.stepRows, o.Chunk), max(s.stepRows, headColumns)
	}
	s.maxPages = ceilDiv(c.Context, page)
	if o.KVPages > 0 {
		s.maxPages = min(s.maxPages, o.KVPages)
	}
	for i := range w.layers {
		l := &w.layers[i]
		s.ffnWidth = max(s.ffnWidth, l.up.rows*s.copies(l))
		s.outWidth = max(s.outWidth, c.Hidden*s.copies(l))
	}
	return s
}

// copies is how many feed-forward networks a row goes through.
func (s *shape) copies(l *layer) int {
	if l.up.experts > 0 {
		return s.cfg.ExpertsUsed
	}
	return 1
}

// buffers are the activations, and what a pass is told of its rows.
type buffers struct {
	x         ptxgen.Address // f32 [rows, hidden]: what goes through the layers
	qkv       ptxgen.Address // f32 [rows, qkvWidth]
	attention ptxgen.Address // f32 [rows, heads·head dim]
	gate, up  ptxgen.Address // f32 [rows, ffnWidth] each
	out       ptxgen.Address // f32 [rows, outWidth]: what is normalized or combined before it is added to x
	narrow    ptxgen.Address // F16 or BF16 [rows, …]: what tensor cores multiply
	scale     ptxgen.Address // f32, one a row of narrow

	scores, chosenWeights, chosen ptxgen.Address // of the router: f32 [rows, experts], f32 and u32 [rows, used]
	offsets, order                ptxgen.Address // of the rows by expert

	logits ptxgen.Address // f32 [headRows, vocab]
	best   ptxgen.Address // of Argmax

	stepTokens, promptTokens ptxgen.Address // u32 [headRows, 2] each, of Argmax: in pinned memory

	partial   ptxgen.Address // of AttentionDecode
	workspace ptxgen.Address // of Gemv and GemvWide
	digits    ptxgen.Address // of Digits

	sequences  ptxgen.Address // u32 [stepRows]: 0, 1, …
	stepTables ptxgen.Address // u32 [stepRows, maxPages]
	stepInput  ptxgen.Address // u32 [3, stepRows]: tokens, positions, lengths
	chunk      ptxgen.Address // u32: maxPages pages, one length, two starts, then tokens and positions of the rows
}

// newBuffers lists them. The workspace is what the largest product needs, and its rows' digits
// so many bytes.
func newBuffers(s *shape, workspace, digits int64, v *inventory) *buffers {
	b := new(buffers)
	c := s.cfg
	rows, head := int64(s.maxRows), int64(s.headRows)
	attention := c.Heads * c.HeadDim
	for _, r := range []struct {
		to       *ptxgen.Address
		name     string
		rows     int64
		elements int // of 4 bytes
	}{
		{&b.x, "hidden state", rows, c.Hidden}, {&b.qkv, "QKV", rows, s.qkvWidth}, {&b.attention, "attention", rows, attention},
		{&b.gate, "gate", rows, s.ffnWidth}, {&b.up, "up", rows, s.ffnWidth}, {&b.out, "out", rows, s.outWidth},
		{&b.scores, "router", rows, c.Experts}, {&b.chosenWeights, "weights of experts", rows, c.ExpertsUsed},
		{&b.chosen, "chosen experts", rows, c.ExpertsUsed},
		{&b.logits, "logits", head, c.Vocab}, {&b.best, "argmax", head, 2 * ptxgen.Argmax{}.Slices(c.Vocab)},
	} {
		v.add(activationMemory, r.name, r.rows*int64(4*r.elements), r.to)
	}
	decode := s.attentionDecode()
	v.add(workspaceMemory, "attention's pages", decode.ScratchBytes(s.stepRows, c.Heads, s.maxPages), &b.partial)
	v.add(workspaceMemory, "products", workspace, &b.workspace)
	v.add(workspaceMemory, "digits", digits, &b.digits)
	b.addTables(s, v)
	if s.o.Prefill == PrefillF16 {
		b.addPrefill(s, v)
	}
	return b
}

func (b *buffers) addTables(s *shape, v *inventory) {
	v.fill(tableMemory, "sequences", int64(4*s.stepRows), &b.sequences, func(u *uploader, at driver.Address) error {
		return u.u32s(at, iota32(s.stepRows))
	})
	v.add(tableMemory, "pages of rows", int64(4*s.stepRows*s.maxPages), &b.stepTables)
	v.add(tableMemory, "rows", int64(4*3*s.stepRows), &b.stepInput)
}

// addPrefill lists what prompts need that go through tensor cores.
func (b *buffers) addPrefill(s *shape, v *inventory) {
	c, n := s.cfg, ptxgen.Narrow{}
	width, copies := max(n.Padded(c.Hidden), n.Padded(c.Heads*c.HeadDim), n.Padded(s.ffnWidth)), 1
	if c.Experts > 0 {
		copies = c.ExpertsUsed
		width = max(width, copies*n.Padded(s.ffnWidth/copies))
		v.add(activationMemory, "offsets of experts", int64(4*(c.Experts+1)), &b.offsets)
		v.add(activationMemory, "rows by expert", int64(4*s.maxRows*copies), &b.order)
	}
	v.add(activationMemory, "narrow rows", int64(2*s.maxRows*width), &b.narrow)
	v.add(activationMemory, "scales", int64(4*s.maxRows*copies), &b.scale)
	v.add(tableMemory, "a chunk", int64(4*(s.maxPages+chunkHead+2*s.maxRows)), &b.chunk)
}

func iota32(n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = uint32(i)
	}
	return list
}

// rowInputs are where kernels find what a pass is about.
type rowInputs struct {
	tokens, positions, lengths, tables, sequences, starts ptxgen.Address

	choices ptxgen.Address // where it leaves the tokens that it chooses
}

// stepInputs are those of passes with the kernels of decoding: each row has a length and
// a table of its own.
func (b *buffers) stepInputs(s *shape) rowInputs {
	array := func(i int) ptxgen.Address { return b.stepInput + ptxgen.Address(4*i*s.stepRows) }
	return rowInputs{tokens: array(0), positions: array(1), lengths: array(2), tables: b.stepTables, sequences: b.sequences, choices: b.stepTokens}
}

// chunkHead is how many numbers of a chunk lie between the pages and the tokens: a
// length and two starts.
const chunkHead = 3

// chunkInputs are those of a chunk of so many rows, which are all of one sequence.
func (b *buffers) chunkInputs(s *shape, rows int) rowInputs {
	at := func(i int) ptxgen.Address { return b.chunk + ptxgen.Address(4*i) }
	tokens := s.maxPages + chunkHead
	return rowInputs{tables: at(0), lengths: at(s.maxPages), starts: at(s.maxPages + 1), tokens: at(tokens), positions: at(tokens + rows)}
}
