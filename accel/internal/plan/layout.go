// Package plan turns a model into device memory (Layout) and a forward pass over a batch
// into kernel launches (Layout.Segments). Commands are data: they can be launched, captured,
// timed, tapped, or listed without a device.
package plan

import (
	"github.com/lockstep-go/lockstep/accel/internal/kv"
	"github.com/lockstep-go/lockstep/accel/internal/memory"
	"github.com/lockstep-go/lockstep/accel/internal/upload"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/sizeclass"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/quant"
)

// Config holds the engine's options that determine how much memory it needs. The model and the
// device determine the rest.
type Config struct {
	Sequences int          // maximum number of sequences in a decode step
	Chunk     int          // maximum number of tokens in a prompt chunk
	KVPages   int          // pages of the KV cache; 0: what the budget leaves, at most one context per sequence
	KV        quant.Format // of keys and values
	Views     bool         // rotated queries are also stored, for their view
	Budget    int64        // bytes of device memory; used only if KVPages is 0
}

// PromptLogitRows is the maximum number of prompt tokens that one launch computes logits for.
const PromptLogitRows = 16

// Layout describes the device memory of an engine. NewLayout sets the sizes. Allocating Memory
// sets the addresses.
type Layout struct {
	Memory  memory.List
	Buffers Buffers
	KV      kv.Layers // those of Gated DeltaNets are empty
	Pages   int       // of the KV cache

	MaxTokens int // maximum number of tokens of a forward pass
	Slots     int // batch slots of a decode step, a size of package sizeclass
	LogitRows int // maximum number of tokens that one launch computes logits for
	MaxPages  int // maximum number of pages of a sequence

	model   *model.Config
	props   driver.Properties
	config  Config
	weights *weights
	widths  widths
}

// widths are elements per token of intermediate results.
type widths struct {
	qkv       int // results of layer.qkv
	attention int // inputs of layer.o
	rotated   int // attention with Config.Views, else 0
	ffn       int // hidden layer of the feed-forward network, of all experts that a token uses
	out       int // result of the feed-forward network, per expert
	router    int // logits of the experts, and of the gate of the shared expert
}

// NewLayout plans the memory of an engine.
func NewLayout(m *model.Model, props driver.Properties, config Config) (*Layout, error) {
	c := &m.Config
	l := &Layout{
		KV:       make(kv.Layers, c.Layers-c.SharedKVLayers),
		Slots:    sizeclass.Of(config.Sequences),
		MaxPages: ceilDiv(c.Context, attention.PageTokens),
		model:    c,
		props:    props,
		config:   config,
	}
	l.MaxTokens, l.LogitRows = max(l.Slots, config.Chunk), max(l.Slots, PromptLogitRows)
	l.weights = newWeights(m, &l.Memory)
	for i := range l.KV {
		if s := c.LayerShape(i); !c.IsRecurrent(i) {
			l.KV[i] = kv.Layer{KVHeads: s.KVHeads, HeadDim: s.HeadDim, Format: config.KV}
		}
	}
	l.widths = widths{ffn: max(c.LayerInput, c.LaurelRank), out: c.Hidden}
	for i := range l.weights.layers {
		w := &l.weights.layers[i]
		last := &w.qkv[len(w.qkv)-1]
		l.widths.qkv = max(l.widths.qkv, last.column+last.w.rows)
		l.widths.attention = max(l.widths.attention, w.o.k)
		l.widths.ffn = max(l.widths.ffn, w.ffn.down.k, w.experts.down.k*c.ExpertsUsed)
		if w.mixture() {
			l.widths.out = max(l.widths.out, c.Hidden*c.ExpertsUsed)
			l.widths.router = max(l.widths.router, w.routerColumns())
		}
	}
	l.widths.qkv = ceilDiv(l.widths.qkv, 4) * 4 // rows begin at multiples of 16 bytes
	if config.Views {
		l.widths.rotated = l.widths.attention
	}
	l.addBuffers()
	l.setPages()
	l.addPaged()
	l.addKV()
	return l, nil
}

// setPages sets the number of pages of the KV cache, and limits MaxPages to it.
func (l *Layout) setPages() {
	if l.Pages = l.config.KVPages; l.Pages == 0 {
		left := l.config.Budget
		for _, n := range l.Memory.Bytes() {
			left -= n
		}
		// Each layer's keys and values are rounded up, and so are the buffers of addPaged.
		left -= memory.PageAlign * int64(2*len(l.KV)+3)
		left -= int64(4 * l.chunkListLen(l.MaxTokens))
		page, context := l.KV.PageBytes(), int64(l.MaxPages)
		// scratch is what addPaged needs per page that one sequence can have: attention's scratch memory and page tables. A split
		// has several pages, so the memory of a first page is subtracted before.
		splits := func(pages int) int64 {
			return attention.Shape{KV: l.config.KV, HeadDim: l.model.HeadDim}.ScratchBytes(l.Slots, l.model.Heads, pages)
		}
		left -= splits(1)
		scratch := (splits(l.MaxPages)+context-1)/context + int64(4*2*l.Slots)
		n := left / (page + scratch)
		if page > 0 && n > context { // without attention, pages take no memory
			n = (left - context*scratch) / page
		}
		l.Pages = int(max(1, min(n, int64(l.config.Sequences)*context)))
	}
	l.MaxPages = min(l.MaxPages, l.Pages)
}

// addKV adds the KV cache to the memory list.
func (l *Layout) addKV() {
	for i := range l.KV {
		if c := &l.KV[i]; !c.Empty() {
			bytes := int64(l.Pages) * int64(c.PageBytes())
			l.Memory.Add(memory.KVCache, layerPrefix(i)+"keys", bytes, &c.K)
			l.Memory.Add(memory.KVCache, layerPrefix(i)+"values", bytes, &c.V)
		}
	}
}

// roundedBytes returns the sizes of the largest rounded activations of any forward pass, and of the largest routes.
func (l *Layout) roundedBytes() (rounded, routes int64) {
	all := max(l.MaxTokens, l.LogitRows)
	for tokens := 1; ; tokens = min(sizeclass.Of(tokens+1), all) { // of one size class, the most tokens need the most
		activations, ofExperts := l.roundedBytesOf(tokens)
		rounded, routes = max(rounded, activations), max(routes, ofExperts)
		if tokens == all {
			return rounded, routes
		}
	}
}

// roundedBytesOf returns the sizes of the largest rounded activations and routes of a forward pass of a number of tokens.
func (l *Layout) roundedBytesOf(tokens int) (rounded, routes int64) {
	p := l.planner(Shape{Tokens: tokens}, nil)
	of := func(parts ...matrixProduct) {
		if len(parts) > 0 && !parts[0].w.empty() {
			activations, ofExperts := p.roundedBytes(parts...)
			rounded, routes = max(rounded, int64(activations)), max(routes, int64(ofExperts))
		}
	}
	for i := range l.weights.layers {
		b := &l.weights.layers[i]
		in := b.ffnNorm
		if l.model.ParallelFFN {
			in = b.attnNorm
		}
		of(p.segments(b.qkv, b.attnNorm, 0, 0, 0)...)
		of(p.segments(b.router, b.routerNorm.or(in), 0, 0, 0)...)
		for _, n := range []struct {
			w  *network
			in normWeights
		}{{&b.ffn, in}, {&b.experts, b.expertNorm.or(in)}} {
			of(matrixProduct{w: &n.w.gate, norm: n.in})
			of(matrixProduct{w: &n.w.up, norm: n.in})
			of(matrixProduct{w: &n.w.down})
		}
		of(matrixProduct{w: &b.o})
		of(matrixProduct{w: &b.inputGate})
		of(matrixProduct{w: &b.inputProjection})
		if a := b.altUp; a != nil {
			of(matrixProduct{w: &a.router, norm: a.norm, softcap: 1})
			of(matrixProduct{w: &a.laurelIn, norm: b.attnNorm})
			of(matrixProduct{w: &a.laurelOut})
		}
	}
	for _, list := range [][]matrix{l.weights.streamIn, l.weights.streamOut} {
		for i := range list {
			of(matrixProduct{w: &list[i]})
		}
	}
	of(p.inputProjection())
	if p.shape.Tokens <= l.LogitRows {
		of(matrixProduct{w: l.weights.output, norm: l.weights.norm})
	}
	return rounded, routes
}

// PagesFor returns the number of pages that attention covers in a decode step. positions is
// the length of the longest sequence. The result is a power of two or MaxPages, so that few
// graphs serve all lengths.
func (l *Layout) PagesFor(positions int) int {
	return min(ceilPow2(ceilDiv(positions, attention.PageTokens)), l.MaxPages)
}

// StagingBytes returns the bytes of the pinned buffer for reading logits and for copying KV
// pages. It holds at least one row of logits and at least one layer page.
func (l *Layout) StagingBytes() int {
	const most = 32 << 20
	row := 4 * l.model.Vocab
	return max(row, l.KV.LargestPage(), min(row*l.LogitRows, most))
}

// UploadBytes returns the size of a staging buffer of the upload: large enough for fast
// copies and at least one tile of a matrix, but not more than there is to upload.
func (l *Layout) UploadBytes() int {
	const enough = 8 << 20
	tile := 0
	for _, m := range l.weights.matrices() {
		tile = max(tile, product.Packing{Format: m.format, K: m.k}.TileBytes(upload.TileRows))
	}
	return max(int(min(enough, l.Memory.UploadBytes())), tile)
}

// ceilPow2 returns the smallest power of two that is at least n.
func ceilPow2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
