package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/quant"
)

// sizes holds the shapes of all cases.
type sizes struct {
	formats []quant.Format // of weights
	// Common formats of prefill weights, expert weights and embeddings.
	products, experts, embeddings []quant.Format

	width, ffn, vocab int   // of a dense model
	columns           []int // batch sizes of matrix products, besides 1
	prompts           []int // prompt lengths of matrix products
	rows              int   // prompt length of other kernels
	batch             int   // sequences that decode together
	sampled           []int // rows that choose tokens together
	mixtures          []mixture
	net               deltanet.Shape
	decode            []decodeShape
	flash             []flashShape
}

// measured holds the sizes of an 8B model and of two mixtures of experts.
var measured = sizes{
	formats:    product.Formats(),
	products:   []quant.Format{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0, quant.Q4_K, quant.Q5_K, quant.Q6_K, quant.IQ4_XS},
	experts:    []quant.Format{quant.F16, quant.Q8_0, quant.Q4_K, quant.Q6_K, quant.MXFP4},
	embeddings: []quant.Format{quant.F16, quant.BF16, quant.Q8_0, quant.Q4_K, quant.Q6_K},
	width:      4096, ffn: 14336, vocab: 128256,
	columns:  []int{2, 4, 8, 16, 64},
	prompts:  []int{512, 2048, 8192},
	rows:     8192,
	batch:    16,
	sampled:  []int{1, 16, 64},
	net:      deltanet.Shape{KeyHeads: 16, ValueHeads: 32, Dim: 128, Taps: 4}, // Qwen3-Next 80B
	mixtures: []mixture{{"mixtral", 8, 2, matrix{14336, 4096}}, {"qwen3moe", 128, 8, matrix{768, 2048}}},
	decode: []decodeShape{
		{heads8B, 1, 40, quant.F16}, {heads8B, 16, 40, quant.F16}, {heads8B, 64, 40, quant.F16},
		{heads8B, 1, 512, quant.F16}, {heads8B, 1, 1024, quant.F16}, {heads8B, 1, 2048, quant.F16}, {heads8B, 1, 8192, quant.F16},
		{heads8B, 1, 8200, quant.F16}, {heads8B, 1, 32768, quant.F16},
		{heads8B, 1, 131072, quant.F16}, {heads8B, 16, 512, quant.F16}, {heads8B, 16, 8192, quant.F16}, {heads8B, 64, 2048, quant.F16},
		{heads8B, 16, 8192, quant.BF16}, {heads1B, 1, 8192, quant.F16}, {heads1B, 16, 8192, quant.F16},
	},
	flash: []flashShape{
		{heads8B, 1, 512, 512, quant.F16}, {heads8B, 8, 2048, 2048, quant.F16}, {heads8B, 2, 8192, 8192, quant.F16},
		{heads8B, 1, 16384, 16384, quant.F16}, {heads8B, 1, 512, 16384, quant.F16}, {heads8B, 2, 8192, 8192, quant.BF16},
		{heads1B, 2, 8192, 8192, quant.F16},
	},
}

// heads describes the attention heads of a model.
type heads struct{ q, kv, dim int }

var (
	heads8B = heads{32, 8, 128} // Llama-3.1-8B
	heads1B = heads{32, 8, 64}  // Llama-3.2-1B
)

// Cases returns the cases for a device.
func Cases(p driver.Properties) []Case { return measured.cases(p) }

func (s sizes) cases(p driver.Properties) []Case {
	var all []Case
	for _, list := range [][]Case{
		s.readCases(p), s.productCases(p), s.expertCases(p), s.decodeCases(), s.flashCases(p),
		s.normCases(), s.altUpCases(), s.deltaNetCases(), s.rowCases(), s.ropeCases(), s.embedCases(), s.logitsCases(),
	} {
		all = append(all, list...)
	}
	return all
}

func (m matrix) String() string { return fmt.Sprintf("%d×%d", m.rows, m.k) }

// up and down are matrices of the feed-forward network, lmHead is the output matrix.
func (s sizes) up() matrix     { return matrix{s.ffn, s.width} }
func (s sizes) down() matrix   { return matrix{s.width, s.ffn} }
func (s sizes) lmHead() matrix { return matrix{s.vocab, s.width} }
