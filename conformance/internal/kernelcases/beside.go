package kernelcases

import (
	"fmt"
	"math"

	definition "github.com/lockstep-go/lockstep/internal/product"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/quant"
)

// besideCase is a launch of several products of the same activations, side by side. Their bits must be those of Stream.
type besideCase struct {
	name, reason   string
	streams        []product.Stream
	tiles          []product.Tile // instead of streams
	alone          product.Stream // multiplies by one matrix at a time
	rows           []int          // of each product
	tokens, k      int
	ctas           int
	bias, residual bool
	dist           harness.Distribution
	change         func(x []float32) // nil: nothing
}

func besideCases() []harness.Case {
	var all []harness.Case
	add := func(c besideCase) {
		operation := "product_beside_stream"
		if len(c.tiles) > 0 {
			operation = "product_beside_tile"
		}
		f, _ := c.generator(0)
		// Mutants change the kernel that most cases of an operation launch, and that should not be alone.
		c.alone = product.Stream{Tokens: 4, Warps: 3 + len(all)%5, Stage: 1, Ring: 2, CTAs: 1}
		all = append(all, harness.Case{
			Operation: operation, Format: f.String(), Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkBeside(r, c) },
		})
	}
	norm := product.Epilogue{Norm: true}
	streams := []product.Stream{
		{Format: quant.Q8_0, Tokens: 2, Warps: 4, Stage: 2, Ring: 2, CTAs: 1, Epilogue: norm},
		{Format: quant.Q4_1, Tokens: 2, Warps: 4, Stage: 4, Ring: 2, CTAs: 1, Epilogue: norm},
	}
	tiles := []product.Tile{
		{Format: quant.Q8_0, Tokens: 8, Warpgroups: 1, Ring: 2, RingX: 1, XSumLayouts: 1, Epilogue: norm},
		{Format: quant.Q4_1, Tokens: 8, Warpgroups: 1, Ring: 3, RingX: 2, Epilogue: norm},
	}
	both := func(c besideCase) {
		odd := len(all) / 2 % 2
		c.streams, c.tokens = streams, 1+odd
		add(c)
		c.streams, c.tiles, c.tokens = nil, tiles, 10+odd
		add(c)
	}
	for i, s := range []struct {
		reason string
		rows   []int
		k      int
		ctas   int
	}{
		{"the first product has more tiles", []int{70, 21}, 544, 3},
		{"the second product has more tiles", []int{5, 130}, 288, 4},
		{"a CTA for each product, although fewer may run", []int{40, 20}, 768, 1},
		{"a CTA per tile", []int{40, 70}, 256, 99},
		{"buffers of sums used three times; rings used several times", []int{20*16 - 3, 18 * 16}, 256, 2},
		{"segments added eight at a time and one by one", []int{18, 30}, 17*256 + 96, 2},
		{"less than a segment", []int{16, 16}, 32, 2},
		{"buffers of sums that another warp adds when they are used again", []int{40, 33}, 1280, 2},
		{"activations that end in the last segment of a turn", []int{5, 7}, 1792, 2},
	} {
		c := besideCase{reason: s.reason, rows: s.rows, k: s.k, ctas: s.ctas, bias: i%2 == 0, residual: i%2 == 0, dist: harness.Gaussian, change: func(x []float32) { mixE(x, s.k, 2) }}
		c.name = fmt.Sprintf("%d and %d rows of %d, %d CTAs", s.rows[0], s.rows[1], s.k, s.ctas)
		both(c)
	}
	for _, d := range harness.Distributions() {
		both(besideCase{name: d.String(), reason: "such numbers", rows: []int{20, 20}, k: 544, ctas: 3, dist: d})
	}
	both(besideCase{
		name: "no numbers", reason: "a NaN and an infinity spare other tokens", rows: []int{20, 20}, k: 544, ctas: 3, dist: harness.Gaussian,
		change: func(x []float32) { x[520], x[3] = float32(math.NaN()), float32(math.Inf(-1)) },
	})
	three := besideCase{reason: "three products; parts with fewer warps than the CTA", rows: []int{40, 20, 30}, tokens: 1, k: 512, ctas: 6, bias: true, residual: true, dist: harness.Gaussian}
	for i, f := range []quant.Format{quant.Q2_K, quant.Q6_K, quant.F16} {
		three.streams = append(three.streams, product.Stream{Format: f, Tokens: 1, Warps: 2 + i, Stage: 1, Ring: 2, CTAs: 2})
	}
	three.name = "three streams"
	add(three)
	for _, tile := range []product.Tile{
		{Tokens: 16, Warps: 3, Sets: 2, Ring: 4},
		{Tokens: 16, Warps: 4, Sets: 2, Ring: 3},
		{Tokens: 16, Warps: 4, RingX: 2},
		{Tokens: 24, Warps: 4, Sets: 2, Ring: 3},
		{Tokens: 16, Warps: 4, Sets: 1, Ring: 2},
		{Tokens: 16, Warpgroups: 1, Ring: 2, RingX: 1},
	} {
		three.streams, three.tokens = nil, 17
		for _, s := range []struct {
			steps   int
			formats []quant.Format
		}{{2, []quant.Format{quant.Q2_K, quant.Q6_K, quant.F16}}, {3, []quant.Format{quant.Q2_K, quant.Q4_K, quant.Q5_1}}} {
			three.tiles, tile.XSumLayouts = nil, s.steps
			for _, f := range s.formats {
				tile.Format = f
				three.tiles = append(three.tiles, tile)
			}
			three.name = fmt.Sprintf("three tiles of %d tokens, %d warps, %d sets, %d offset steps", tile.Tokens, tile.Warps, tile.Sets, tile.XSumLayouts)
			add(three)
		}
	}
	chosen := besideCase{reason: "kernels that engines ask for", rows: []int{150, 40}, k: 2 * definition.Segment, ctas: 5, dist: harness.Gaussian}
	besideStreams, besideTiles := product.ChosenBeside()
	for _, s := range besideStreams {
		chosen.name, chosen.streams, chosen.tokens = fmt.Sprintf("chosen, %d tokens", s[0].Tokens), s, s[0].Tokens
		add(chosen)
	}
	for _, t := range besideTiles {
		chosen.name = fmt.Sprintf("chosen, %d columns, %d warps, %d warpgroups", t[0].Tokens, t[0].Warps, t[0].Warpgroups)
		chosen.streams, chosen.tiles, chosen.tokens = nil, t, t[0].Tokens+1
		add(chosen)
	}
	return all
}

func checkBeside(r *harness.Fixture, c besideCase) {
	const gap = 3 // elements between rows of all results
	stride := gap
	for _, rows := range c.rows {
		stride += rows
	}
	x, normWeight := r.Vector(c.dist, c.tokens*c.k), r.Vector(harness.Gaussian, c.k)
	if c.change != nil {
		c.change(x)
	}
	y := r.Output("y of all", 4*c.tokens*stride)
	var args []product.Args
	var want [][]float32
	column := 0
	for i, rows := range c.rows {
		f, e := c.generator(i)
		in := newProductInputs(r, f, harness.Gaussian, c.tokens, rows, c.k)
		in.x, in.normWeight, in.eps, in.epilogue = x, normWeight, 1e-5, e
		a := product.Args{
			W: r.Bytes(fmt.Sprintf("w of product %d", i), in.packed()).Addr(), Y: y.At(4 * column), YStride: stride,
			Tokens: c.tokens, Rows: rows, K: c.k, CTAs: c.ctas,
		}
		if c.bias {
			in.bias = r.Vector(harness.Gaussian, rows)
			a.Bias = r.F32s(fmt.Sprintf("bias of product %d", i), in.bias).Addr()
		}
		if c.residual {
			in.residual = r.Vector(harness.Gaussian, c.tokens*rows)
			a.Residual = a.Y
			for t := range c.tokens {
				y.SetF32s(4*(t*stride+column), in.residual[t*rows:][:rows])
			}
		}
		c.alone.Format = f
		args, want = append(args, a), append(want, in.runStream(r, c.alone, c.ctas))
		column += rows
	}
	c.launch(r, args, x, normWeight)
	column = 0
	for i, rows := range c.rows {
		var got []float32
		for t := range c.tokens {
			got = append(got, y.FloatsAt(quant.F32, 4*(t*stride+column), rows)...)
		}
		harness.Exact(r, fmt.Sprintf("y of product %d, from that of a launch for it", i), got, want[i])
		column += rows
	}
	for t := range c.tokens {
		y.Untouched(4*(t*stride+column), 4*gap)
	}
}

// generator returns the format and the epilogue of a product.
func (c besideCase) generator(i int) (quant.Format, product.Epilogue) {
	if len(c.tiles) > 0 {
		return c.tiles[i].Format, c.tiles[i].Epilogue
	}
	return c.streams[i].Format, c.streams[i].Epilogue
}

// launch launches all products. args lack what depends on the kernels.
func (c besideCase) launch(r *harness.Fixture, args []product.Args, x, normWeight []float32) {
	_, e := c.generator(0)
	round := product.RoundArgs{X: r.F32s("x of all", x).Addr(), Tokens: c.tokens, K: c.k}
	if e.Norm {
		round.NormWeight, round.Eps = r.F32s("weights of the norm of all", normWeight).Addr(), 1e-5
	}
	if len(c.streams) > 0 {
		for i := range args {
			args[i].X, args[i].NormWeight, args[i].Eps = round.X, round.NormWeight, round.Eps
		}
		kernel := product.Beside(c.streams...)
		r.Launch(kernel.Launch(r.Kernel(kernel), args))
		return
	}
	tile := c.tiles[0]
	round.Y = r.Scratch("rounded for all", tile.RoundedBytes(c.tokens, c.k)).Addr()
	for i := range args {
		args[i].X = round.Y
	}
	first, err := tile.Round().Launch(r.Kernel(tile.Round()), round)
	if err != nil {
		r.Fatalf("%v", err)
	}
	kernel := product.Beside(c.tiles...)
	second, err := kernel.Launch(r.Kernel(kernel), args)
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.LaunchInTurn(first, second)
}
