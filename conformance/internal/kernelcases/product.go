package kernelcases

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	definition "github.com/lockstep-go/lockstep/internal/product"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/quant"
)

// productCase is a product with float16 operands that several kernels compute. Their bits must be equal.
type productCase struct {
	name, reason    string
	stream          product.Stream // Tokens 0: none
	ctas            int            // of a launch, at most; 0: 1
	tile            product.Tile   // Tokens 0: none
	mma             product.Tile   // by mma.sync; Tokens 0: none
	tokens, rows, k int
	bias, residual  bool
	epilogue        product.Epilogue // of both kernels
	eps             float32          // if Norm
	fill            int              // if Gated: rows of gate, and rows of up, that fill up the last tile
	gap             int              // elements between rows of the results
	dist            harness.Distribution
	change          func(in *productInputs) // nil: nothing
}

// format is the format of the weights.
func (c productCase) format() quant.Format {
	for _, spec := range []product.Tile{c.tile, c.mma} {
		if spec.Tokens > 0 {
			return spec.Format
		}
	}
	return c.stream.Format
}

// operation returns an operation of its own for a case that launches elementwise.Fused, else nothing. Mutants change the
// kernel that most cases of an operation launch, and that should be a product.
func (c productCase) operation() string {
	if c.fused() {
		return "product_fused"
	}
	return ""
}

// fused reports whether elementwise.Fused computes a part of the epilogue for comparison.
func (c productCase) fused() bool { return c.epilogue != product.Epilogue{Norm: c.epilogue.Norm} }

// productOf makes the cases of an operation. The kernel that mutants change is the one that most cases of the
// operation launch.
func productOf(operation string, cases []productCase) []harness.Case {
	var all []harness.Case
	for _, c := range cases {
		f := c.format().String()
		all = append(all, harness.Case{
			Operation: cmp.Or(c.operation(), operation), Format: f, Name: f + "/" + c.name, Reason: c.reason,
			Run: func(r *harness.Fixture) { checkProduct(r, c) },
		})
	}
	return append(append(all, longRows(operation, cases)...), eachCount(operation, cases)...)
}

// longRows returns cases for each Stream of some cases, without an epilogue or with a norm alone.
func longRows(operation string, cases []productCase) (all []harness.Case) {
	seen := map[product.Stream]bool{}
	for _, c := range cases {
		s := c.stream
		if s.Epilogue = c.epilogue; s.Tokens == 0 || c.fused() || seen[s] {
			continue
		}
		seen[s] = true
		add := func(name, reason string, tiles, segments, ctas int) {
			c := productCase{
				stream: c.stream, epilogue: c.epilogue, eps: 1e-5, tokens: s.Tokens, rows: 16*tiles - 3, k: segments * definition.Segment,
				ctas: ctas, bias: true, residual: true, change: func(in *productInputs) { mixE(in.x, in.k, segments+1) },
			}
			all = append(all, harness.Case{
				Operation: "product_long_rows", Format: s.Format.String(), Name: operation + ", " + s.Kernel().Name() + name, Reason: reason,
				Run: func(r *harness.Fixture) { checkProduct(r, c) },
			})
		}
		add("", "segments added eight at a time, twice, and one by one; a CTA that has one more tile", 3, 17, 2)
		add(", two segments", "buffers of sums that another warp uses again when its weights are there", 2*s.Warps+1, 2, 1)
	}
	return all
}

// eachCount returns a case for each Tile that several cases launch, or one case of sets: in each eight tokens, token tiles that
// end with the first and with the second token of a lane.
func eachCount(operation string, cases []productCase) (all []harness.Case) {
	count, several := map[product.Tile]int{}, 3
	if strings.HasPrefix(operation, "product_set") {
		several = 1
	}
	for _, c := range cases {
		for _, tile := range []product.Tile{c.tile, c.mma} {
			if count[tile]++; tile.Tokens == 0 || c.fused() || count[tile] != several {
				continue
			}
			some := productCase{tile: tile, rows: 20, k: definition.Segment, residual: true}
			all = append(all, harness.Case{
				Operation: operation, Format: tile.Format.String(), Name: tile.Kernel().Name() + ", numbers of tokens", Reason: "bounds of columns",
				Run: func(r *harness.Fixture) {
					for i := range tile.Tokens / 4 {
						some.tokens = i/2*8 + i/2%4*2 + i%2 + 1
						checkProduct(r, some)
					}
				},
			})
		}
	}
	return all
}

// extremes are the cases of unusual numbers for a pair of kernels.
func extremes(c productCase) []productCase {
	var all []productCase
	add := func(name, reason string, d harness.Distribution, change func(in *productInputs)) {
		c := c
		c.name, c.reason, c.dist, c.change = name, reason, d, change
		all = append(all, c)
	}
	for _, d := range harness.Distributions() {
		if d == harness.Subnormal && c.format().BlockLen() == definition.Segment {
			continue // each segment's sum rounds to the smallest subnormal number
		}
		add(d.String(), "such numbers", d, nil)
	}
	last := c.k - min(c.k, definition.Segment)/2 // a column of the last segment
	noNumbers := func(in *productInputs) { in.x[last], in.x[last+5] = float32(math.NaN()), float32(math.Inf(-1)) }
	add("no numbers", "a NaN and an infinity spare other tokens and the E of their segment", harness.Gaussian, noNumbers)
	add("zeros", "segments of zeros", harness.Gaussian, func(in *productInputs) { clear(in.x[:c.k]) })
	for _, border := range []struct{ large, scale float32 }{{0x1.fffffep23, 1}, {0x1p24, 1}, {0x1.fffffep-9, 0x1p-30}, {0x1p-8, 0x1p-30}} {
		name := fmt.Sprintf("%g times 0", border.large)
		add(name, "E decides how many bits small activations have beside a large one, on both sides of borders", harness.Gaussian, func(in *productInputs) {
			for i := range in.x {
				in.x[i] *= border.scale
			}
			for i := 0; i < len(in.x); i += in.k {
				in.x[i] = border.large
			}
			for r := range in.rows {
				clear(in.row(r)[:in.f.BlockBytes()])
			}
		})
	}
	if c.format().BlockLen() == 1 {
		add("tiny", "E is at least 2^-103", harness.Gaussian, tiny)
	}
	add("small and large", "segments of one token with very different E", harness.Gaussian, func(in *productInputs) {
		for i := range in.x {
			in.x[i] *= 0x1p-100
		}
		in.x[1] = 0x1p120
	})
	return all
}

// tiny makes activations so small that their segments have the smallest E. Divided by it, many are subnormal float16.
func tiny(in *productInputs) {
	for i := range in.x {
		in.x[i] *= 0x1p-118
	}
}

// mixed is mixE for the activations of a case.
func mixed(in *productInputs) { mixE(in.x, in.k, 2) }

// mixE gives segments of rows of k activations one of two E. Their sizes are near the border between these, so that no segment
// hides the products of another. In every same-th segment all rows have the same E; in the others rows 2i and 2i+1 differ.
func mixE(x []float32, k, same int) {
	for i := range x {
		row, segment := i/k, i%k/definition.Segment
		if segment%same == same-1 {
			row = 0
		}
		large := (row + bits.OnesCount(uint(3*segment+row/2))) % 2 // without a period
		x[i] *= [2]float32{0x1p-12, 0x1p-7}[large]
	}
}

// streamCases change the number of segments, of tiles and of CTAs, so that tiles begin and end within stages, and
// the ring and the buffers of sums are used several times.
func streamCases() []harness.Case {
	spec := product.Stream{Format: quant.Q4_1, Tokens: 2, Warps: 4, Stage: 2, Ring: 2, CTAs: 1}
	tile := product.Tile{Format: quant.Q4_1, Tokens: 40, Warpgroups: 1, Ring: 2, RingX: 1}
	both := productCase{stream: spec, tile: tile, tokens: 2}
	alone := productCase{stream: spec, tokens: 2}
	shape := func(c productCase, reason string, rows, k, ctas int) productCase {
		c.name, c.reason, c.rows, c.k, c.ctas = fmt.Sprintf("%d rows of %d, %d CTAs", rows, k, ctas), reason, rows, k, ctas
		return c
	}
	cases := []productCase{
		shape(alone, "buffers of sums used three times, the ring five times", 20*16-3, 256, 1),
		shape(alone, "less than a segment", 5, 32, 1),
		shape(both, "tiles that begin and end within a stage; CTAs with a tile more", 7*16-5, 768, 2),
		shape(both, "more CTAs than tiles; a last segment that is not full", 40, 288, 9),
		shape(both, "segments added eight at a time and one by one; activations in several turns", 18, 17*256+96, 1),
		shape(alone, "segments that the number of warps divides", 33, 2048, 3),
		shape(alone, "buffers of sums that another warp adds when they are used again", 40, 1280, 1),
		shape(alone, "activations that end in the last segment of a turn", 5, 1792, 1),
	}
	many := shape(both, "activations of tokens have different E", 40, 768, 1)
	many.name, many.tokens, many.change = "41 tokens", 41, mixed
	for i, c := range cases[2:] {
		c.name += ", bias and residual"
		c.bias, c.residual = true, true
		if i%2 == 1 {
			c.name += ", one token"
			c.tokens = 1
		}
		cases = append(cases, c)
	}
	cases = append(cases, many)
	both.rows, both.k = 16, 544
	for i, c := range extremes(both) {
		if i%2 == 0 {
			c.tile = product.Tile{}
		}
		cases = append(cases, c)
	}
	alone.k, alone.ctas = 800, 2
	cases = append(cases, epilogues(alone)...)
	for _, f := range product.Formats() {
		for _, k := range []int{1, 96, 1280} {
			if k%f.BlockLen() == 0 {
				one := product.Stream{Format: f, Tokens: 1, Warps: 4, Stage: 1, Ring: 2, CTAs: 1}
				name := fmt.Sprintf("k=%d", k)
				cases = append(cases, productCase{name: name, reason: WidthReason(k), stream: one, tokens: 1, rows: 21, k: k})
			}
		}
	}
	for tokens := 1; tokens <= 8; tokens++ {
		spec := product.Stream{Format: quant.Q6_K, Tokens: 1, Warps: 6, Stage: 3, Ring: 2, CTAs: 2}
		for spec.Tokens < tokens {
			spec.Tokens *= 2
		}
		cases = append(cases, productCase{
			name: fmt.Sprintf("%d tokens", tokens), reason: "columns of the operand that no token has",
			stream: spec, tokens: tokens, rows: 40, k: 768, ctas: 2, bias: true, residual: true,
		})
	}
	all := append(productOf("product_stream", cases), productOf("product_norm", norms())...)
	all = append(all, harness.Case{
		Operation: "product_epilogue", Format: alone.format().String(), Name: "tokens together and alone",
		Reason: "a token's results do not depend on others", Run: func(r *harness.Fixture) { checkTokensAlone(r, alone) },
	})
	return append(append(all, expertProducts()...), tileExperts()...)
}

// tileCases change the number of segments, rows and tokens of Tile.
func tileCases() []harness.Case {
	spec := product.Tile{Format: quant.Q5_K, Tokens: 16, Warpgroups: 2, Ring: 3, RingX: 2}
	stream := product.Stream{Format: quant.Q5_K, Tokens: 8, Warps: 4, Stage: 2, Ring: 2, CTAs: 1}
	both := productCase{stream: stream, tile: spec}
	shape := func(reason string, tokens, rows, k int, bias, residual bool) productCase {
		c := both
		c.name, c.reason = fmt.Sprintf("%d tokens, %d rows of %d", tokens, rows, k), reason
		c.tokens, c.rows, c.k, c.bias, c.residual = tokens, rows, k, bias, residual
		return c
	}
	cases := []productCase{
		shape("a single segment; rows that end in the second half of a tile", 1, 29, 256, false, false),
		shape("as many segments as the ring of weights", 10, 16, 768, true, false),
		shape("rings used several times", 11, 50, 1792, false, true),
		shape("several tiles, the last ones not full; a CTA that has one more", 17, 150, 512, true, true),
		shape("a tile that is full", 16, 128, 256, false, true),
		shape("a CTA per tile", 20, 200, 256, true, false),
	}
	cases[3].ctas, cases[5].ctas = 3, 9
	both.tokens, both.rows, both.k = 6, 16, 512
	for i, c := range extremes(both) {
		if i%4 == 0 { // so that more cases launch tile than stream
			c.stream = product.Stream{}
		}
		cases = append(cases, c)
	}
	minimums := func(d, dmin uint16) func(in *productInputs) {
		return func(in *productInputs) {
			block := in.src[:quant.Q5_K.BlockBytes()]
			block[0], block[1], block[2], block[3] = byte(d), byte(d>>8), byte(dmin), byte(dmin>>8)
		}
	}
	for _, c := range []struct {
		name    string
		d, dmin uint16
	}{
		{"d is 0", 0, 0x3c00}, {"dmin is 0", 0x3c00, 0}, {"both are 0", 0, 0}, {"quants do not count", 1, 0x7800},
		{"large ratio", 0x1000, 0xf000}, {"small ratio", 0x7800, 0x0003},
	} {
		special := both
		special.name, special.reason, special.change = c.name, "d and dmin of a block", minimums(c.d, c.dmin)
		cases = append(cases, special)
	}
	small := product.Tile{Format: quant.Q4_1, Tokens: 40, Warpgroups: 1, Ring: 2, RingX: 1}
	for _, c := range epilogues(productCase{tile: small, k: 544}) {
		c.stream = product.Stream{Format: c.tile.Format, Tokens: 8, Warps: 4, Stage: 2, Ring: 2, CTAs: 1}
		c.name, c.tokens = fmt.Sprintf("%s, %d tokens", c.name, 5*c.tokens), 5*c.tokens
		cases = append(cases, c)
	}
	for _, f := range product.Formats() {
		cases = append(cases, productCase{
			name: "all kernels", reason: "every format; rings used again; small blocks do not fill the last segment",
			stream: product.Stream{Format: f, Tokens: 8, Warps: 4, Stage: 2, Ring: 2, CTAs: 1}, ctas: 2,
			tile:   product.Tile{Format: f, Tokens: 32, Warpgroups: 1, Ring: 2, RingX: 1},
			mma:    product.Tile{Format: f, Tokens: 32, Warps: 3, RingX: 2},
			tokens: 5, rows: 40, k: 512 + 96/f.BlockLen()*f.BlockLen(),
		})
	}
	cases = append(cases, productCase{
		name: "128 columns", reason: "as many columns as a CTA may have",
		tile:   product.Tile{Format: quant.F16, Tokens: 128, Warpgroups: 1, Ring: 2, RingX: 1},
		tokens: 130, rows: 20, k: 515,
	})
	for _, token := range []int{0, 40, 71} {
		cases = append(cases, productCase{
			name: fmt.Sprintf("another E for token %d", token), reason: "a warp compares the E of 32 tokens at a time",
			change: func(in *productInputs) {
				for i := range in.k {
					in.x[token*in.k+i] *= 0x1p20
				}
			},
			tile:   product.Tile{Format: quant.Q4_K, Tokens: 72, Warpgroups: 1, Ring: 2, RingX: 1},
			stream: product.Stream{Format: quant.Q4_K, Tokens: 8, Warps: 4, Stage: 2, Ring: 2, CTAs: 1},
			tokens: 72, rows: 20, k: 512,
		})
	}
	all := productOf("product_tile", cases)
	all = append(all, productOf("product_two_row_tiles", twoRowTileCases())...)
	all = append(all, productOf("product_sets", setCases(16, 3, []product.Tile{
		{Format: quant.IQ4_XS, Tokens: 8, Warps: 1, Sets: 15, Ring: 16},
		{Format: quant.BF16, Tokens: 8, Warps: 2, Sets: 2, Ring: 4},
		{Format: quant.F32, Tokens: 8, Warps: 2, Sets: 2, Ring: 2},
		{Format: quant.Q5_0, Tokens: 8, Warps: 5, Sets: 2, Ring: 3},
	}))...)
	all = append(all, productOf("product_sets_wgmma", setCases(32, 4, []product.Tile{
		{Format: quant.Q8_0, Tokens: 32, Warps: 4, Sets: 4, Ring: 4},
		{Format: quant.Q2_K, Tokens: 32, Warps: 8, Sets: 3, Ring: 3},
		{Format: quant.F32, Tokens: 32, Warps: 4, Sets: 2, Ring: 2},
		{Format: quant.Q4_K, Tokens: 32, Warps: 4, Sets: 6, Ring: 7},
	}))...)
	all = append(all, productOf("product_set", oneSetCases())...)
	for _, f := range product.Formats() {
		all = append(all, harness.Case{
			Operation: "product_decode", Format: f.String(), Name: f.String() + "/one column each",
			Reason: "tokens that each have a single 1: the results are the decoded weights",
			Run:    func(r *harness.Fixture) { checkDecoded(r, f) },
		})
	}
	return all
}

// twoRowTileCases change the numbers of output tiles and of segments of a Tile with TwoRowTiles. Others have a case each.
func twoRowTileCases() (cases []productCase) {
	small := product.Tile{Format: quant.Q4_K, Tokens: 16, Ring: 4, RingX: 1}
	for i, c := range []struct {
		reason         string
		tile           product.Tile
		rows, segments int
	}{
		{"a segment; second row tiles without rows", small, 20, 1},
		{"three output tiles in turn, rings used several times", small, 650, 3},
		{"rows that end in a second row tile; two CTAs", small, 150, 5},
		{"a CTA that has one more output tile", small, 300, 2},
		{"a ring of one segment", product.Tile{Format: quant.Q6_K, Tokens: 24, Ring: 2, RingX: 2}, 270, 3},
		{"no offset steps", product.Tile{Format: quant.Q8_0, Tokens: 8, Ring: 2, RingX: 2}, 257, 3},
		{"two offset steps", product.Tile{Format: quant.Q2_K, Tokens: 40, Ring: 2, RingX: 1}, 257, 2},
	} {
		c.tile.Warpgroups, c.tile.TwoRowTiles = 2, true
		cases = append(cases, productCase{
			name: fmt.Sprintf("%d rows of %d segments", c.rows, c.segments), reason: c.reason, tile: c.tile,
			stream: product.Stream{Format: c.tile.Format, Tokens: 8, Warps: 3, Stage: 1, Ring: 2, CTAs: 1}, ctas: 1 + i/2%2,
			tokens: c.tile.Tokens + 1, rows: c.rows, k: definition.Segment * c.segments, bias: i%2 == 0, residual: i%3 > 0, change: mixed,
		})
	}
	return cases
}

// oneSetCases change the numbers of tiles and of segments of a Tile with one set.
func oneSetCases() (cases []productCase) {
	for i, c := range []struct {
		reason         string
		tile           product.Tile
		rows, segments int
	}{
		{"a segment", product.Tile{Format: quant.Q6_K, Tokens: 16, Warps: 4, Ring: 3}, 20, 1},
		{"three tiles in turn, rings used several times", product.Tile{Format: quant.Q4_K, Tokens: 64, Warps: 4, Ring: 2}, 150, 5},
		{"more stages than segments", product.Tile{Format: quant.Q8_0, Tokens: 8, Warps: 4, Ring: 5}, 64, 3},
		{"two warpgroups, the second one with few rows", product.Tile{Format: quant.Q4_1, Tokens: 24, Warps: 8, Ring: 3}, 70, 4},
		{"as many warps as registers suffice for", product.Tile{Format: quant.Q4_K, Tokens: 64, Warps: 16, Ring: 3}, 260, 4},
		{"two offset steps", product.Tile{Format: quant.Q2_K, Tokens: 32, Warps: 4, Ring: 2}, 64, 2},
		{"two operands per step", product.Tile{Format: quant.F32, Tokens: 32, Warps: 4, Ring: 2}, 40, 2},
	} {
		c.tile.Sets = 1
		cases = append(cases, productCase{
			name: fmt.Sprintf("%d rows of %d segments, %d columns", c.rows, c.segments, c.tile.Tokens), reason: c.reason, tile: c.tile,
			stream: product.Stream{Format: c.tile.Format, Tokens: 8, Warps: 3, Stage: 1, Ring: 2, CTAs: 1}, ctas: 1 + i%2,
			tokens: c.tile.Tokens + 1, rows: c.rows, k: definition.Segment * c.segments, bias: i%2 == 0, residual: i%3 > 0, change: mixed,
		})
	}
	for _, c := range epilogues(productCase{
		tile: product.Tile{Format: quant.Q4_1, Tokens: 8, Warps: 4, Sets: 1, Ring: 2}, ctas: 1,
		stream: product.Stream{Format: quant.Q4_1, Tokens: 8, Warps: 3, Stage: 1, Ring: 2, CTAs: 1},
	}) {
		if c.epilogue == everyPart {
			c.name, c.k = "one set, "+c.name, max(c.k, 3*definition.Segment-32)
			cases = append(cases, c)
		}
	}
	return cases
}

// setCases change the number of segments and of tiles of a Tile with three sets. Other tiles with sets have a case each.
func setCases(columns, warps int, others []product.Tile) []productCase {
	of := func(tile product.Tile) productCase {
		stream := product.Stream{Format: tile.Format, Tokens: 8, Warps: 3, Stage: 1, Ring: 2, CTAs: 1}
		return productCase{stream: stream, ctas: 1, tile: tile}
	}
	var cases []productCase
	for i, s := range []struct {
		reason         string
		rows, segments int
	}{
		{"two sets have no segment", 16, 1},
		{"a set has no segment", 20, 2},
		{"a turn of each set", 64, 3},
		{"two tiles of a segment; sums are not handed on", 70, 1},
		{"tiles begin with each set", 150, 2},
		{"rings used several times; rows that end in the first half of a warp's", 72, 11},
	} {
		c := of(product.Tile{Format: quant.Q6_K, Tokens: columns, Warps: warps, Sets: 3, Ring: 5})
		if i%2 == 0 { // so that more cases launch this Tile than any Stream
			c.stream.Tokens = 4
		}
		c.name, c.reason = fmt.Sprintf("3 sets, %d rows of %d segments", s.rows, s.segments), s.reason
		c.tokens, c.rows, c.k, c.bias, c.residual, c.change = 5+3*i, s.rows, definition.Segment*s.segments, i != 1, i > 0, mixed
		cases = append(cases, c)
	}
	for _, tile := range others {
		c := of(tile)
		c.name, c.reason = fmt.Sprintf("%d columns, %d sets of %d warps", tile.Tokens, tile.Sets, tile.Warps), "other kernels"
		c.tokens, c.rows, c.k, c.change = tile.Tokens+1, 150, definition.Segment*5, mixed
		cases = append(cases, c)
	}
	for _, c := range epilogues(of(product.Tile{Format: quant.Q4_1, Tokens: 8, Warps: warps, Sets: 2, Ring: 4})) {
		if c.epilogue == everyPart {
			c.name, c.k = fmt.Sprintf("2 sets of %d, %s", warps, c.name), max(c.k, 3*definition.Segment-32)
			cases = append(cases, c)
		}
	}
	return cases
}

// mmaCases change the number of segments, rows and tokens of Tile by mma.sync.
func mmaCases() []harness.Case {
	spec := product.Tile{Format: quant.Q5_1, Tokens: 8, Warps: 2, RingX: 3}
	stream := product.Stream{Format: quant.Q5_1, Tokens: 8, Warps: 4, Stage: 2, Ring: 2, CTAs: 1}
	both := productCase{stream: stream, mma: spec}
	shape := func(reason string, tokens, rows, k, ctas int, bias, residual bool) productCase {
		c := both
		c.name, c.reason = fmt.Sprintf("%d tokens, %d rows of %d, %d CTAs", tokens, rows, k, ctas), reason
		c.tokens, c.rows, c.k, c.ctas, c.bias, c.residual = tokens, rows, k, ctas, bias, residual
		return c
	}
	cases := []productCase{
		shape("less than a segment; rows that end in the second half of a warp's", 1, 29, 32, 1, false, false),
		shape("a warp without rows", 10, 16, 768, 1, true, false),
		shape("a ring used several times", 11, 24, 1792, 1, false, true),
		shape("several tiles, the last ones not full; a CTA that has one more", 17, 77, 544, 3, true, true),
		shape("a tile begins in a stage that the one before ends in", 20, 64, 288, 1, true, false),
		shape("a CTA per tile", 20, 64, 288, 9, true, false),
	}
	both.tokens, both.rows, both.k = 6, 16, 512
	for i, c := range extremes(both) {
		if i%4 == 0 { // so that more cases launch Tile than Stream
			c.stream = product.Stream{}
		}
		cases = append(cases, c)
	}
	cases = append(cases, epilogues(both)...)
	for _, f := range product.Formats() {
		for i, warps := range []int{1, 8} {
			c := both
			c.stream.Format, c.stream.Tokens, c.mma = f, 4, product.Tile{Format: f, Tokens: 56 - 8*i, Warps: warps, RingX: 2}
			c.name, c.reason = fmt.Sprintf("%d warps", warps), "every format; as few and as many warps as possible"
			c.tokens, c.rows, c.k, c.ctas, c.change = 3+i, 40, 512+96/f.BlockLen()*f.BlockLen(), 2, mixed
			cases = append(cases, c)
		}
	}
	return productOf("product_mma", cases)
}

// roundCases change the activations that Tile.Round rounds. The kernels that multiply have two formats for each kernel that
// rounds, so that this one is launched most.
func roundCases() []harness.Case {
	var cases []productCase
	for _, f := range []quant.Format{quant.Q5_1, quant.Q4_1, quant.BF16, quant.F16} {
		both := productCase{
			stream: product.Stream{Format: f, Tokens: 8, Warps: 2, Stage: 1, Ring: 2, CTAs: 1},
			tile:   product.Tile{Format: f, Tokens: 24, Warpgroups: 1, Ring: 2, RingX: 1},
			tokens: 3, rows: 3, k: 544,
		}
		for i, k := range []int{1, 3, 5, 32, 96, 254, 256, 257, 258, 259, 260, 263, 288, 512, 516} {
			c := both
			c.name, c.reason, c.k = fmt.Sprintf("k=%d", k), "rows that are aligned or not, and segments that are full or not", k
			c.rows, c.ctas, c.residual = 3+i%3*17, 1+i%2, i%2 == 0
			if k > definition.Segment {
				c.change = mixed
			}
			if k%f.BlockLen() == 0 {
				cases = append(cases, c)
			}
		}
		for _, tokens := range []int{1, 9, 24, 25} {
			c := both
			c.name, c.reason, c.tokens, c.k = fmt.Sprintf("%d tokens", tokens), "blocks of tokens that are full or not", tokens, 32
			cases = append(cases, c)
		}
		cases = append(cases, extremes(both)...)
	}
	return productOf("product_round", cases)
}

// productInputs are the operands of a product.
type productInputs struct {
	f               quant.Format
	tokens, rows, k int
	src             []byte // weights as in a GGUF file
	x               []float32
	bias, residual  []float32 // nil: none
	normWeight      []float32 // of an RMS norm with eps; nil: none
	eps             float32
	slotFactors     []float32 // [tokens], of the norm; nil: all 1
	epilogue        product.Epilogue
	fill, gap       int
}

// softcap and scale are those of the kernels that have them. Some results are near softcap, so that both ways to compute tanh count.
const (
	softcap = 30
	scale   = float32(0.3)
)

func newProductInputs(r *harness.Fixture, f quant.Format, dist harness.Distribution, tokens, rows, k int) *productInputs {
	weights := dist
	if weights == harness.Subnormal && f.BlockLen() == 1 {
		weights = harness.Gaussian // products of two such numbers are zeros
	}
	in := &productInputs{f: f, tokens: tokens, rows: rows, k: k}
	in.src, in.x = r.Weights(f, weights, rows, k), r.Vector(dist, tokens*k)
	return in
}

// packed returns the packed weights.
func (in *productInputs) packed() []byte { return packedRows(in.f, in.src, in.rows, in.k) }

// packedRows returns rows of weights, packed for package product.
func packedRows(f quant.Format, src []byte, rows, k int) []byte {
	p := product.Packing{Format: f, K: k}
	packed := make([]byte, p.TileBytes(rows))
	packed, err := binary.Append(packed, binary.LittleEndian, p.Pack(packed, src, rows))
	if err != nil {
		panic(err)
	}
	return packed
}

// want returns the results, [tokens, rows], from rounded operands.
func (in *productInputs) want() (want []harness.Ref) {
	var weights, acts [][]float32
	var factors []float64
	for i := range in.rows {
		weights = append(weights, float32s(definition.Weights(in.f, in.row(i), in.k)))
	}
	for t := range in.tokens {
		x := make([]float64, in.k)
		for j := range x {
			x[j] = float64(in.x[t*in.k+j])
		}
		factor := 1.0
		if in.epilogue.Norm {
			x, factor = definition.Norm(x, float64s(in.normWeight), float64(in.eps))
		}
		if in.slotFactors != nil {
			factor *= float64(in.slotFactors[t])
		}
		acts, factors = append(acts, float32s(definition.Activations(in.f, x))), append(factors, factor)
	}
	for t := range in.tokens {
		for i := range in.rows {
			dot := harness.Dot(weights[i], acts[t]).Times(factors[t])
			if in.bias != nil {
				dot = dot.Plus(float64(in.bias[i]))
			}
			if in.residual != nil {
				dot = dot.Plus(float64(in.residual[t*in.rows+i]))
			}
			want = append(want, dot)
		}
	}
	return want
}

// row returns the blocks of a row of weights.
func (in *productInputs) row(i int) []byte {
	size := len(in.src) / in.rows
	return in.src[i*size : (i+1)*size]
}

func float64s(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

func float32s(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

// tolerance is that of a chain of instructions for each segment, and of adding the segments, the bias and the
// residual. With a norm, half the error of the sum of squares and a few roundings are added.
func (in *productInputs) tolerance(r *harness.Fixture) harness.Tolerance {
	segments, chain := (in.k+definition.Segment-1)/definition.Segment, 18
	if in.f == quant.F32 {
		chain = 32
	}
	norm := 0
	if in.epilogue.Norm {
		norm = (8+5+segments)/2 + 6
	}
	return harness.Tolerance{L: chain + segments + norm + 4, U: tensorStep(r), Correlated: true}
}

// tensorStep bounds the error of a tensor-core instruction that adds 16 products to a sum, relative to the sum of the
// magnitudes of these terms. The instruction aligns the terms to the largest one, drops the bits that do not fit, and
// rounds the result toward zero: see alu.Accumulate.
func tensorStep(r *harness.Fixture) float64 {
	if cc := r.Properties().ComputeCapability; cc != 0 && cc < 90 {
		return 2 * (0x1p-23 + 9*0x1p-24) // two steps of 8
	}
	return 0x1p-23 + 17*0x1p-25
}

// columns is the number of columns of the results.
func (in *productInputs) columns() int {
	if in.epilogue.Gated {
		return in.rows/2 - in.fill
	}
	return in.rows
}

// productResult is the result of a kernel and its rows' distance in elements.
type productResult struct {
	*harness.Buffer
	rows, columns, stride int
}

// values returns the rows. It checks that what is between them did not change.
func (y productResult) values() (all []float32) {
	for i := range y.rows {
		all = append(all, y.FloatsAt(quant.F32, 4*i*y.stride, y.columns)...)
		y.Untouched(4*(i*y.stride+y.columns), 4*(y.stride-y.columns))
	}
	return all
}

// result allocates y, which holds the residual if there is one. It returns the arguments for all tokens but X
// and W.
func (in *productInputs) result(r *harness.Fixture, name string) (y productResult, a product.Args) {
	columns := in.columns()
	stride := columns + in.gap
	y = productResult{r.Output(name, 4*in.tokens*stride), in.tokens, columns, stride}
	a = product.Args{Y: y.Addr(), Tokens: in.tokens, Rows: in.rows, K: in.k}
	if in.epilogue.Gated {
		a.Rows -= 2 * in.fill
	}
	if in.gap > 0 {
		a.YStride = stride
	}
	if in.epilogue.Norm {
		a.NormWeight, a.Eps = r.F32s("weights of the norm", in.normWeight).Addr(), in.eps
	}
	if in.epilogue.Scaled {
		a.Scale = scale
	}
	if in.epilogue.Softcap {
		a.Softcap = softcap
	}
	if in.bias != nil {
		a.Bias = r.F32s("bias", in.bias).Addr()
	}
	if in.residual != nil {
		for i := range in.tokens {
			y.SetF32s(4*i*stride, in.residual[i*columns:][:columns])
		}
		a.Residual = a.Y
	}
	return y, a
}

// runStream returns the results of Stream, from a launch for each spec.Tokens tokens.
func (in *productInputs) runStream(r *harness.Fixture, spec product.Stream, ctas int) []float32 {
	spec.Epilogue = in.epilogue
	kernel := spec.Kernel()
	y, a := in.result(r, "y of Stream")
	a.W, a.CTAs = r.Bytes("w", in.packed()).Addr(), max(ctas, 1)
	x := r.F32s("x", in.x).Addr()
	for first := 0; first < in.tokens; first += spec.Tokens {
		a.X, a.Y, a.Tokens = x+uint64(4*first*in.k), y.At(4*first*y.stride), min(spec.Tokens, in.tokens-first)
		if in.residual != nil {
			a.Residual = a.Y
		}
		r.Launch(kernel.Launch(r.Kernel(kernel), a))
	}
	return y.values()
}

// runTile returns the results of Tile.
func (in *productInputs) runTile(r *harness.Fixture, spec product.Tile, ctas int) []float32 {
	spec.Epilogue = in.epilogue
	round, kernel := spec.Round(), spec.Kernel()
	rounded := r.Scratch("rounded", spec.RoundedBytes(in.tokens, in.k)).Addr()
	y, a := in.result(r, "y of Tile")
	x := r.F32s("x", in.x).Addr()
	first, err := round.Launch(r.Kernel(round), product.RoundArgs{
		X: x, Y: rounded, Tokens: in.tokens, K: in.k, NormWeight: a.NormWeight, Eps: a.Eps,
	})
	if err != nil {
		r.Fatalf("%v", err)
	}
	a.NormWeight, a.Eps = 0, 0
	a.X, a.W, a.CTAs = rounded, r.Bytes("w", in.packed()).Addr(), max(ctas, 1)
	second, err := kernel.Launch(r.Kernel(kernel), a)
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.LaunchInTurn(first, second)
	return y.values()
}

func checkProduct(r *harness.Fixture, c productCase) {
	in := newProductInputs(r, c.format(), c.dist, c.tokens, c.rows, c.k)
	in.fill, in.gap = c.fill, c.gap
	if c.bias {
		in.bias = r.Vector(harness.Gaussian, c.rows)
	}
	if c.bias && c.epilogue.Softcap { // exactly where tanh goes from one way to the other
		clear(in.row(0))
		in.bias[0] = 0.5625 * softcap
		if c.epilogue.Scaled {
			in.bias[0] /= scale
		}
	}
	if in.epilogue.Norm = c.epilogue.Norm; c.epilogue.Norm {
		in.normWeight, in.eps = r.Vector(harness.Gaussian, c.k), c.eps
	}
	if c.residual && !c.fused() {
		in.residual = r.Vector(harness.Gaussian, c.tokens*c.rows)
	}
	if c.change != nil {
		c.change(in)
	}
	got := c.run(r, in)
	r.Close("y", got, in.want(), c.rows, in.tolerance(r))
	if c.fused() {
		want := in.applyEpilogue(r, c, got)
		harness.Exact(r, "y with the epilogue", c.run(r, in), want)
	}
}

// run launches all kernels, demands equal bits, and returns the results.
func (c productCase) run(r *harness.Fixture, in *productInputs) []float32 {
	var got [][]float32
	if c.stream.Tokens > 0 {
		got = append(got, in.runStream(r, c.stream, c.ctas))
	}
	for _, spec := range []product.Tile{c.tile, c.mma} {
		if spec.Tokens > 0 {
			got = append(got, in.runTile(r, spec, c.ctas))
		}
	}
	for _, other := range got[1:] {
		harness.Exact(r, "y of Tile, from the first kernel's", other, got[0])
	}
	return got[0]
}

// applyEpilogue changes the inputs so that kernels have an epilogue. It returns what elementwise.Fused makes of the
// results without it.
func (in *productInputs) applyEpilogue(r *harness.Fixture, c productCase, y []float32) []float32 {
	in.epilogue = c.epilogue
	columns := in.columns()
	x, up := y, []float32(nil)
	if c.epilogue.Gated {
		x = nil
		for t := range in.tokens {
			for i := range columns {
				row := t*in.rows + i/8*16 + i%8
				x, up = append(x, y[row]), append(up, y[row+8])
			}
		}
	}
	if c.epilogue.Scaled {
		x = slices.Clone(x)
		for i := range x {
			x[i] *= scale
		}
	}
	out := r.Output("y of Fused", 4*len(x))
	a := elementwise.FusedArgs{X: r.F32s("x of Fused", x).Addr(), Y: out.Addr(), Rows: in.tokens, Width: columns, Activation: c.epilogue.Activation}
	if up != nil {
		a.Up = r.F32s("up of Fused", up).Addr()
	}
	if c.epilogue.Softcap {
		a.Cap = softcap
	}
	if c.residual {
		in.residual = r.Vector(harness.Gaussian, len(x))
		a.Residual = out.SetF32s(0, in.residual).Addr()
	}
	launchElementwise(r, a)
	return out.F32s()
}

// norms are the cases of a norm that change the number of tokens, of segments and of tiles.
func norms() (all []productCase) {
	for _, n := range []struct {
		name, reason string
		format       quant.Format
		columns      int // of the kernel
		tokens, k    int
		rows, perSM  int
		eps          float32
		gated        bool
	}{
		{"one token", "lanes without results", quant.Q8_0, 1, 1, 512, 16, 1, 1e-5, false},
		{"one token, gated", "the same with half as many results", quant.Q8_0, 1, 1, 512, 16, 1, 1e-5, true},
		{"one token, one segment", "each warp has a slot", quant.Q8_0, 1, 1, 256, 9 * 16, 1, 1e-5, false},
		{"two tokens", "some tokens of the kernel are not there", quant.Q8_0, 4, 2, 512, 24, 1, 1e-5, false},
		{"seven tokens, gated", "two results per lane, of two rows each", quant.Q8_0, 8, 7, 288, 32, 2, 1e-5, true},
		{"many segments", "weights that are loaded several times; squares added eight at a time and one by one", quant.Q8_0, 4, 4, 17*256 + 96, 16, 1, 1e-5, false},
		{"many tiles", "a warp that adds several tiles", quant.Q8_0, 4, 3, 512, 9 * 16, 1, 1e-5, false},
		{"one segment", "a warp whose first segment is the first beyond the row", quant.Q8_0, 4, 4, 256, 16, 1, 1e-5, false},
		{"odd columns", "rows and weights that are not aligned", quant.F16, 2, 2, 515, 16, 1, 1e-5, false},
		{"large eps", "eps that counts", quant.Q8_0, 4, 4, 512, 16, 1, 3, false},
	} {
		c := productCase{
			name: "norm, " + n.name, reason: n.reason, ctas: 1, tokens: n.tokens, rows: n.rows, k: n.k, bias: true,
			epilogue: product.Epilogue{Norm: true, Gated: n.gated}, eps: n.eps,
			stream: product.Stream{Format: n.format, Tokens: n.columns, Warps: 6, Stage: 2, Ring: 2, CTAs: n.perSM},
		}
		withNaN := n.name == "many tiles"
		if withNaN {
			c.name += ", no numbers"
		}
		c.change = func(in *productInputs) {
			for i := range in.x {
				in.x[i] *= 53 // so that about half of the segments have their largest number above 2^8, where E changes
			}
			if withNaN {
				in.x[3], in.x[600] = float32(math.NaN()), float32(math.Inf(1))
			}
		}
		all = append(all, c)
	}
	return all
}

// everyPart is an epilogue with all parts.
var everyPart = product.Epilogue{Norm: true, Gated: true, Scaled: true, Softcap: true, Activation: elementwise.GELU}

// epilogues are the cases of the parts of an epilogue and of a few together.
func epilogues(c productCase) []productCase {
	var all []productCase
	for _, e := range []struct {
		name, reason            string
		epilogue                product.Epilogue
		bias, residual          bool
		tokens, rows, fill, gap int
	}{
		{"gap", "rows of results that are apart", product.Epilogue{}, true, true, 2, 21, 0, 3},
		{"scaled", "after the bias, before the residual", product.Epilogue{Scaled: true}, true, true, 2, 21, 0, 0},
		{"softcap", "after the bias", product.Epilogue{Softcap: true}, true, false, 2, 21, 0, 0},
		{"SiLU", "after the bias", product.Epilogue{Activation: elementwise.SiLU}, true, false, 1, 21, 0, 0},
		{"GELU", "before the residual", product.Epilogue{Activation: elementwise.GELU}, false, true, 2, 21, 0, 1},
		{"gated", "gate times up, without an activation", product.Epilogue{Gated: true}, false, false, 1, 32, 0, 0},
		{"gated, SiLU", "the last tile is not full; the bias has the order of rows", product.Epilogue{Gated: true, Activation: elementwise.SiLU}, true, false, 2, 48, 3, 0},
		{"gated, clamped SwiGLU", "gate is limited from above, up from both sides", product.Epilogue{Gated: true, Activation: elementwise.ClampedSwiGLU}, true, true, 2, 48, 3, 0},
		{"norm", "before the bias and the residual", product.Epilogue{Norm: true}, true, true, 2, 21, 0, 0},
		{"norm, gated", "gate and up have the factor", product.Epilogue{Norm: true, Gated: true}, false, false, 2, 32, 0, 0},
		{"all", "all parts in their order", everyPart, true, true, 2, 64, 7, 5},
		{"all, one tile", "all parts without what is optional", everyPart, false, false, 2, 16, 0, 0},
		{"all, many segments", "segments added eight at a time and one by one", everyPart, true, false, 2, 16, 5, 0},
		{"all, many tiles", "buffers of sums and the ring used several times", everyPart, false, true, 2, 20 * 16, 2, 0},
	} {
		c := c
		c.name, c.reason, c.epilogue, c.bias, c.residual = e.name, e.reason, e.epilogue, e.bias, e.residual
		c.tokens, c.rows, c.fill, c.gap, c.eps = e.tokens, e.rows, e.fill, e.gap, 1e-5
		if e.epilogue.Norm { // which makes results of all sizes alike
			c.change = mixed
		}
		switch {
		case strings.HasSuffix(e.name, "many segments"):
			c.k = 17*256 + 96
		case strings.HasSuffix(e.name, "many tiles"):
			c.k, c.ctas = 256, 1
		}
		all = append(all, c)
	}
	return all
}

// checkTokensAlone compares the results of two tokens with those of a launch per token.
func checkTokensAlone(r *harness.Fixture, c productCase) {
	in := newProductInputs(r, c.format(), harness.Gaussian, 2, 64, c.k)
	in.epilogue, in.eps, in.fill = everyPart, 1e-5, 3
	in.bias, in.normWeight = r.Vector(harness.Gaussian, in.rows), r.Vector(harness.Gaussian, in.k)
	together := in.runStream(r, c.stream, 2)
	var alone []float32
	x := in.x
	in.tokens = 1
	for t := range 2 {
		in.x = x[t*in.k:][:in.k]
		alone = append(alone, in.runStream(r, c.stream, 1)...)
	}
	harness.Exact(r, "y", together, alone)
}

// expertProduct is a launch of a few experts.
type expertProduct struct {
	name, reason string
	format       quant.Format
	epilogue     product.Epilogue
	perX         int // slots per row of x
	rows, k      int
	ctas, gap    int
	experts      int      // 0: 5
	chosen       []uint32 // the expert of each slot
	factors      bool     // slots have factors
	unbiased     bool
	routed       bool // a kernel chooses the experts just before
	rounded      bool // compares the rounded activations, too
}

func expertProducts() []harness.Case {
	var all []harness.Case
	add := func(operation string, c expertProduct) {
		c.chosen = []uint32{4, 0, 2, 4}
		name := fmt.Sprintf("%v/experts, %s", c.format, c.name)
		all = append(all, harness.Case{Operation: operation, Format: c.format.String(), Name: name, Reason: c.reason, Run: func(r *harness.Fixture) { checkExperts(r, c) }})
	}
	add("product_experts", expertProduct{
		name: "two slots per row of x", reason: "factors of rows; several CTAs per slot", format: quant.Q8_0, perX: 2, rows: 45, k: 544, ctas: 11,
	})
	add("product_experts", expertProduct{
		name: "one slot per row of x", reason: "rows of y that are apart; fewer CTAs than slots", format: quant.Q8_0, perX: 1, rows: 20, k: 256, ctas: 1, gap: 3, unbiased: true,
	})
	add("product_experts", expertProduct{
		name: "many segments", reason: "segments added eight at a time and one by one", format: quant.Q8_0, perX: 4, rows: 16, k: 17*256 + 96, ctas: 1,
	})
	add("product_experts", expertProduct{
		name: "a row that ends in the second load", reason: "a warp loads two segments before it rounds them", format: quant.Q8_0,
		perX: 2, rows: 16, k: 5*256 + 32, ctas: 1,
	})
	add("product_experts", expertProduct{
		name: "many tiles", reason: "buffers of sums and the ring used several times", format: quant.Q8_0, perX: 2, rows: 20 * 16, k: 256, ctas: 1,
	})
	add("product_experts", expertProduct{
		name: "tiles of five segments", reason: "buffers of sums that another warp adds when they are used again", format: quant.Q8_0, perX: 4, rows: 5 * 16, k: 5 * definition.Segment, ctas: 1,
	})
	add("product_experts", expertProduct{
		name: "factors of slots", reason: "a factor of each slot multiplies that of the norm", format: quant.Q8_0, epilogue: product.Epilogue{Norm: true},
		perX: 2, rows: 45, k: 544, ctas: 11, factors: true,
	})
	add("product_stream", expertProduct{
		name: "all parts of an epilogue", reason: "the router has not ended when the kernel starts", format: quant.Q4_K, epilogue: everyPart,
		perX: 2, rows: 32, k: 512, ctas: 1, routed: true,
	})
	return all
}

// checkExperts compares the products of a few experts in one launch with the definition, or with an epilogue with a
// launch per expert.
func checkExperts(r *harness.Fixture, c expertProduct) {
	all, in := c.inputs(r)
	spec := product.Stream{Format: c.format, Tokens: 1, Warps: 4, Stage: 2, Ring: 2, CTAs: 1, Experts: true, Epilogue: c.epilogue}
	kernel := spec.Kernel()
	y, a := in.result(r, "y")
	a.X, a.W, a.Tokens, a.CTAs = r.F32s("x", all.x).Addr(), r.Bytes("w", c.matrices(all, in)).Addr(), 1, c.ctas
	a.Slots, a.SlotsPerX, a.ExpertBytes = len(c.chosen), c.perX, c.bytes()
	if c.factors {
		a.SlotFactors = r.F32s("factors of slots", in.slotFactors).Addr()
	}
	if c.routed {
		launchRouted(r, kernel, a, c.chosen, c.count())
	} else {
		a.Experts = r.U32s("experts", c.chosen).Addr()
		r.Launch(kernel.Launch(r.Kernel(kernel), a))
	}
	got := y.values()
	if c.epilogue != (product.Epilogue{}) && !c.factors {
		spec.Experts = false
		var want []float32
		for i := range c.chosen {
			want = append(want, c.slot(all, in, i).runStream(r, spec, 1)...)
		}
		harness.Exact(r, "y", got, want)
		return
	}
	var want []harness.Ref
	for i := range c.chosen {
		want = append(want, c.slot(all, in, i).want()...)
	}
	r.Close("y", got, want, c.rows, in.tolerance(r))
}

// count is the number of experts.
func (c expertProduct) count() int { return cmp.Or(c.experts, 5) }

// inputs returns the inputs with the matrices of all experts one below the other and a token for each row of x, and
// those with the rows of one expert and a token for each slot.
func (c expertProduct) inputs(r *harness.Fixture) (all, slots *productInputs) {
	all = newProductInputs(r, c.format, harness.Gaussian, len(c.chosen)/c.perX, c.rows*c.count(), c.k)
	for i := range all.x { // so that segments have different E
		all.x[i] *= float32(int(1) << (5 + i%c.k/definition.Segment%5))
	}
	in := *all
	in.tokens, in.rows, in.gap, in.epilogue, in.eps = len(c.chosen), c.rows, c.gap, c.epilogue, 1e-5
	in.normWeight = r.Vector(harness.Gaussian, c.k)
	if !c.unbiased {
		in.bias = r.Vector(harness.Gaussian, c.rows*c.count())
	}
	in.residual = r.Vector(harness.Gaussian, len(c.chosen)*in.columns())
	if c.factors {
		in.slotFactors = r.Vector(harness.Gaussian, len(c.chosen))
	}
	return all, &in
}

// slot returns the inputs of a slot alone.
func (c expertProduct) slot(all, in *productInputs, i int) *productInputs {
	one, columns, bytes := *in, in.columns(), len(all.src)/c.count()
	one.tokens, one.gap = 1, 0
	if !c.unbiased {
		one.bias = in.bias[int(c.chosen[i])*c.rows:][:c.rows]
	}
	one.src, one.x = all.src[int(c.chosen[i])*bytes:][:bytes], all.x[i/c.perX*c.k:][:c.k]
	one.residual = in.residual[i*columns:][:columns]
	if c.factors {
		one.slotFactors = in.slotFactors[i:][:1]
	}
	return &one
}

// matrices returns the packed matrices of the experts that are chosen.
func (c expertProduct) matrices(all, in *productInputs) []byte {
	packed := make([]byte, c.count()*c.bytes())
	for i, e := range c.chosen {
		copy(packed[int(e)*c.bytes():], c.slot(all, in, i).packed())
	}
	return packed
}

// bytes is the size of an expert's matrix.
func (c expertProduct) bytes() int { return product.Packing{Format: c.format, K: c.k}.Bytes(c.rows) }

// tileExperts are products of experts by Tile.
func tileExperts() []harness.Case {
	var all []harness.Case
	add := func(stream product.Stream, spec product.Tile, c expertProduct) {
		c.format = spec.Format
		stream.Format = spec.Format
		name, operation := fmt.Sprintf("%v/experts, %s", c.format, c.name), "product_tile_experts"
		if c.rounded {
			operation = "product_round_experts"
		}
		all = append(all, harness.Case{
			Operation: operation, Format: c.format.String(), Name: name, Reason: c.reason,
			Run: func(r *harness.Fixture) { checkTileExperts(r, stream, spec, c) },
		})
	}
	stream := product.Stream{Tokens: 1, Warps: 4, Stage: 2, Ring: 2, CTAs: 1}
	few := []uint32{4, 0, 2, 4, 0, 4}
	full := []uint32{1, 3, 1, 3, 1, 0, 1, 3, 1, 2, 1, 3, 1, 0, 1, 2, 1, 3, 1, 0} // ten slots of expert 1
	eight := []uint32{2, 2, 2, 2, 2, 2, 2, 2}
	small := product.Tile{Format: quant.Q8_0, Tokens: 8, Warpgroups: 1, Ring: 2, RingX: 1}
	for _, c := range []expertProduct{
		{name: "two slots per row of x", reason: "experts without slots; factors of rows", chosen: few, perX: 2, rows: 45, k: 544, ctas: 2, gap: 3},
		{name: "several blocks of an expert", reason: "a block that is full and one that is not", chosen: full, perX: 2, rows: 80, k: 256, ctas: 4},
		{name: "a block", reason: "exactly as many slots as columns, of one expert", chosen: eight, perX: 1, rows: 20, k: 288, ctas: 3},
		{name: "one slot", reason: "more CTAs than tiles; one expert", experts: 1, chosen: []uint32{0}, perX: 1, rows: 16, k: 256, ctas: 9},
		{name: "two blocks", reason: "a block that is not the first of its expert", chosen: []uint32{1, 1, 1, 1, 1, 3, 1, 1, 1, 1}, perX: 1, rows: 16, k: 256, ctas: 2},
		{name: "norm", reason: "factors of columns", epilogue: product.Epilogue{Norm: true}, chosen: full, perX: 2, rows: 30, k: 544, ctas: 2},
		{
			name: "many experts", reason: "two turns of a warp over the experts", experts: 64, chosen: []uint32{16, 2, 63, 32, 0, 34},
			perX: 2, rows: 16, k: 32, ctas: 2,
		},
		{name: "many segments", reason: "two turns of the warps over a row; 16 segments are added in two parts, and one more", chosen: []uint32{4}, perX: 1, rows: 16, k: 17 * definition.Segment, ctas: 1, rounded: true},
		{name: "many segments, norm", reason: "two turns of the warps over a row, and the factor", epilogue: product.Epilogue{Norm: true}, chosen: []uint32{4}, perX: 1, rows: 16, k: 9 * definition.Segment, ctas: 1, rounded: true},
		{name: "norm, factors of slots", reason: "a factor of each slot multiplies that of the norm", epilogue: product.Epilogue{Norm: true}, chosen: full, perX: 2, rows: 30, k: 544, ctas: 2, factors: true},
		{name: "all parts, factors of slots", reason: "an activation between gate and up", epilogue: everyPart, chosen: few, perX: 2, rows: 32, k: 544, ctas: 3, factors: true},
		{name: "all parts", reason: "an epilogue with all parts", epilogue: everyPart, chosen: few, perX: 2, rows: 32, k: 544, ctas: 3},
	} {
		add(stream, small, c)
	}
	halves := small
	halves.Format = quant.F16
	for odd := 1; odd < 8; odd++ {
		add(stream, halves, expertProduct{
			name: fmt.Sprintf("%d columns beyond eighths", odd), reason: fmt.Sprintf("rows that end after column %d of a lane", odd),
			chosen: []uint32{4, 0}, perX: 1, rows: 16, k: 8 + odd, ctas: 1, rounded: true,
		})
	}
	add(stream, halves, expertProduct{
		name: "one column beyond a segment", reason: "rows that are not aligned, although a segment is full", chosen: []uint32{4, 0}, perX: 1,
		rows: 16, k: definition.Segment + 1, ctas: 1, rounded: true,
	})
	two := expertProduct{reason: "other kernels", epilogue: everyPart, chosen: full, perX: 2, rows: 160, k: 3 * definition.Segment, ctas: 3}
	for _, spec := range []product.Tile{
		{Format: quant.Q4_K, Tokens: 16, Warps: 4, Sets: 3, Ring: 5},
		{Format: quant.Q6_K, Tokens: 16, Warpgroups: 2, Ring: 2, RingX: 2},
		{Format: quant.BF16, Tokens: 8, Warps: 3, Sets: 2, Ring: 4},
		{Format: quant.F32, Tokens: 8, Warpgroups: 1, Ring: 2, RingX: 1},
		{Format: quant.Q2_K, Tokens: 8, Warps: 3, RingX: 2},
		{Format: quant.Q4_1, Tokens: 16, Warps: 8, RingX: 3},
	} {
		two.name = fmt.Sprintf("%d columns, %d sets, %d warps", spec.Tokens, spec.Sets, spec.Warps)
		add(stream, spec, two)
	}
	two.reason = "kernels that engines ask for"
	streams, tiles := product.Chosen()
	for _, tile := range tiles {
		if !tile.Experts {
			continue
		}
		for _, stream := range streams {
			if stream.Experts && stream.Format == tile.Format {
				two.name, two.epilogue = "chosen", tile.Epilogue
				add(stream, tile, two)
			}
		}
	}
	return all
}

// checkTileExperts demands the bits of Stream.
func checkTileExperts(r *harness.Fixture, stream product.Stream, tile product.Tile, c expertProduct) {
	all, in := c.inputs(r)
	for i, n := range in.normWeight { // negative ones would make -0 of the zeros that fill up blocks
		in.normWeight[i] = float32(math.Abs(float64(n)))
	}
	x, w, slots := r.F32s("x", all.x).Addr(), r.Bytes("w", c.matrices(all, in)).Addr(), len(c.chosen)
	stream.Experts, stream.Epilogue, tile.Experts, tile.Epilogue = true, c.epilogue, true, c.epilogue
	alone := stream.Kernel()
	y, a := in.result(r, "y of Stream")
	a.X, a.W, a.Tokens, a.CTAs, a.ExpertBytes = x, w, 1, 1, c.bytes()
	a.Slots, a.SlotsPerX, a.Experts = slots, c.perX, r.U32s("experts", c.chosen).Addr()
	if c.factors {
		a.SlotFactors = r.F32s("factors of slots", in.slotFactors).Addr()
	}
	r.Launch(alone.Launch(r.Kernel(alone), a))
	want := y.values()

	offsets, order := []uint32{0}, []uint32(nil)
	for e := range uint32(c.count()) {
		for i, chosen := range c.chosen {
			if chosen == e {
				order = append(order, uint32(i))
			}
		}
		offsets = append(offsets, uint32(len(order)))
	}
	round, kernel := tile.Round(), tile.Kernel()
	routes := r.Scratch("routes", tile.RouteBytes(slots, c.count())).Addr()
	padded := tile.PaddedSlots(slots, c.count())
	rounded := r.Scratch("rounded", tile.RoundedBytes(padded, c.k))
	y, b := in.result(r, "y of Tile")
	b.X, b.W, b.Tokens, b.CTAs, b.Experts, b.ExpertBytes = rounded.Addr(), w, padded, c.ctas, routes, c.bytes()
	first, err := round.Launch(r.Kernel(round), product.RoundArgs{
		X: x, Y: b.X, Tokens: slots, K: c.k, NormWeight: b.NormWeight, Eps: b.Eps, Routes: routes, Experts: c.count(), SlotsPerX: c.perX, SlotFactors: a.SlotFactors,
		Offsets: r.U32s("offsets", offsets).Addr(), Order: r.U32s("order", order).Addr(),
	})
	if err != nil {
		r.Fatalf("%v", err)
	}
	b.NormWeight, b.Eps = 0, 0
	second, err := kernel.Launch(r.Kernel(kernel), b)
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.LaunchInTurn(first, second)
	harness.Exact(r, "y of Tile, from that of Stream", y.values(), want)
	if !c.rounded {
		return
	}
	c.checkRounded(r, tile, all.x, in.normWeight, offsets, order, rounded)
}

// checkRounded compares the activations of experts with those of the same rows as tokens.
func (c expertProduct) checkRounded(r *harness.Fixture, tile product.Tile, x, normWeight []float32, offsets, order []uint32, got *harness.Buffer) {
	var rows []float32
	for e := range c.count() {
		own := order[offsets[e]:offsets[e+1]]
		for i := range (len(own) + tile.Tokens - 1) / tile.Tokens * tile.Tokens {
			row := make([]float32, c.k)
			if i < len(own) {
				copy(row, x[int(own[i])/c.perX*c.k:])
			}
			rows = append(rows, row...)
		}
	}
	tile.Experts = false
	round, columns := tile.Round(), len(rows)/c.k
	want := r.Scratch("rounded rows", tile.RoundedBytes(columns, c.k))
	a := product.RoundArgs{X: r.F32s("rows", rows).Addr(), Y: want.Addr(), Tokens: columns, K: c.k}
	if tile.Epilogue.Norm {
		a.NormWeight, a.Eps = r.F32s("norm weights of rows", normWeight).Addr(), 1e-5
	}
	r.Launch(round.Launch(r.Kernel(round), a))
	tile.Epilogue.Norm = false
	bytes := tile.RoundedBytes(columns, c.k)
	harness.Exact(r, "rounded", got.Range(0, bytes), want.Range(0, bytes))
}

// launchRouted launches a product after the kernel that chooses its experts.
func launchRouted(r *harness.Fixture, kernel kernel.Typed[product.Args], a product.Args, chosen []uint32, experts int) {
	tokens := len(chosen) / a.SlotsPerX
	logits := make([]float32, tokens*experts)
	for i, e := range chosen {
		logits[i/a.SlotsPerX*experts+int(e)] = float32(len(chosen) - i)
	}
	list, route := r.Output("experts", 4*len(chosen)), moe.Route(false)
	first, err := route.Launch(r.Kernel(route), moe.RouteArgs{
		Logits: r.F32s("logits", logits).Addr(), Weights: r.Scratch("weights", 4*len(chosen)).Addr(), Chosen: list.Addr(),
		Tokens: tokens, Experts: experts, K: a.SlotsPerX,
	})
	if err != nil {
		r.Fatalf("%v", err)
	}
	a.Experts = list.Addr()
	second, err := kernel.Launch(r.Kernel(kernel), a)
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.LaunchInTurn(first, second)
	harness.Exact(r, "experts", list.U32s(), chosen)
}

// checkDecoded multiplies by the identity matrix.
func checkDecoded(r *harness.Fixture, f quant.Format) {
	const rows, k = 16, definition.Segment
	in := newProductInputs(r, f, harness.Gaussian, k, rows, k)
	clear(in.x)
	for i := range k {
		in.x[i*k+i] = 1
	}
	got := in.runTile(r, product.Tile{Format: f, Tokens: 32, Warpgroups: 1, Ring: 2, RingX: 1}, 5)
	want := make([]float32, len(got))
	for i := range rows {
		for j, w := range definition.Row(f, in.row(i), k) {
			want[j*rows+i] = float32(w + 0) // the sum begins with 0
		}
	}
	harness.Exact(r, "weights", got, want)
}

// chosenCases are the kernels that engines ask for.
func chosenCases() []harness.Case {
	filled := func(c productCase, e product.Epilogue) productCase {
		c.reason, c.epilogue, c.rows, c.k, c.ctas, c.eps = "a kernel that engines ask for", e, 150, 2*definition.Segment, 2, 1e-5
		if e.Gated {
			c.rows = 160
		}
		return c
	}
	var ofStream, ofTile []productCase
	streams, tiles := product.Chosen()
	for _, s := range streams {
		if s.Experts {
			continue // see tileExperts
		}
		c := productCase{name: fmt.Sprintf("chosen, %d tokens, gated %v", s.Tokens, s.Epilogue.Gated), stream: s, tokens: s.Tokens}
		ofStream = append(ofStream, filled(c, s.Epilogue))
	}
	for _, t := range tiles {
		if t.Experts {
			continue
		}
		c := productCase{name: fmt.Sprintf("chosen, %d columns, two row tiles %v, gated %v", t.Tokens, t.TwoRowTiles, t.Epilogue.Gated), tile: t, tokens: t.Tokens + 1}
		if t.Warps > 0 {
			c.name, c.tile, c.mma = fmt.Sprintf("chosen, mma, %d columns", t.Tokens), product.Tile{}, t
		}
		c = filled(c, t.Epilogue)
		c.stream = product.Stream{Format: t.Format, Tokens: 8, Warps: 4, Stage: 1, Ring: 2, CTAs: 1} // has the same bits
		c.k, c.change = 3*definition.Segment, mixed
		ofTile = append(ofTile, c)
	}
	return append(productOf("product_stream", ofStream), productOf("product_tile", ofTile)...)
}
