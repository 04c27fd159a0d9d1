package kernelcases

import (
	"cmp"
	"fmt"

	definition "github.com/lockstep-go/lockstep/internal/product"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/quant"
)

// embedCase gathers rows of a packed matrix.
type embedCase struct {
	name, reason string
	format       quant.Format
	k            int
	rows         int  // of the matrix; 0: 3
	random       bool // blocks of random bytes, with NaN and infinite scales
	scale        float32
	residual     bool
	offset       int // elements of float32 before the first rows of the residual and the output
}

func embedCases() []harness.Case {
	var rows []embedCase
	for _, f := range product.Formats() {
		for _, k := range Widths(f) {
			if k <= 4096 {
				rows = append(rows, embedCase{name: fmt.Sprintf("k=%d", k), reason: WidthReason(k), format: f, k: k, scale: 1})
			}
		}
		if f.BlockLen() == 1 {
			for k := 4; k < 32; k += 4 {
				rows = append(rows, embedCase{name: fmt.Sprintf("k=%d", k), reason: "a row of less than 32 weights", format: f, k: k, scale: 1, residual: true})
			}
			rows = append(rows, embedCase{name: "k=89", reason: "one element after whole vec4 accesses", format: f, k: 89, scale: 1, residual: true},
				embedCase{name: "k=90", reason: "two elements after whole vec4 accesses", format: f, k: 90, scale: 1, residual: true},
				embedCase{name: "k=91", reason: "three elements after whole vec4 accesses", format: f, k: 91, scale: 1, residual: true},
				embedCase{name: "unaligned", reason: "whole Vec4s at addresses that are not aligned to one", format: f, k: 92, scale: 1, residual: true, offset: 1})
		}
		rows = append(rows, embedCase{name: "any bytes", reason: "arbitrary scales, also NaN and infinities", format: f, k: 2048, random: true, scale: 1},
			embedCase{name: "scaled", reason: "scaled as in Gemma, plus positions as in GPT-2", format: f, k: 256, scale: 48, residual: true},
			embedCase{name: "several tiles", reason: "rows of another tile than the first", format: f, k: 256, rows: 37, scale: 1},
			embedCase{name: "several CTAs", reason: "a row of more weights than the threads of a CTA decode", format: f, k: 4352, rows: 1, scale: 1})
	}
	var all []harness.Case
	for _, c := range rows {
		all = append(all, harness.Case{
			Operation: "product_embed", Format: c.format.String(), Name: fmt.Sprintf("%v/%s", c.format, c.name), Reason: c.reason,
			Run: func(r *harness.Fixture) { checkEmbed(r, c) },
		})
	}
	return all
}

// weights returns the decoded weights of rows of blocks.
func (c embedCase) weights(file []byte, rows int) []float32 {
	var weights []float32
	for size := len(file) / rows; len(file) > 0; file = file[size:] {
		for _, w := range definition.Row(c.format, file[:size], c.k) {
			if c.format == quant.F32 {
				w += 0 // the low part of -0 is +0
			}
			weights = append(weights, float32(w))
		}
	}
	return weights
}

// launch launches the kernel.
func (c embedCase) launch(r *harness.Fixture, a product.EmbedArgs, file []byte) {
	e := product.Embed(c.format)
	a.W = r.Bytes("w", packedRows(c.format, file, a.Rows, c.k)).Addr()
	r.Launch(e.Launch(r.Kernel(e), a))
}

func checkEmbed(r *harness.Fixture, c embedCase) {
	rows := cmp.Or(c.rows, 3)
	tokens := []uint32{2, 0, 2, 1, uint32(rows - 1)}
	if rows < 3 {
		tokens = []uint32{0}
	}
	file := r.Weights(c.format, harness.Gaussian, rows, c.k)
	if c.random {
		for i := range file {
			file[i] = byte(r.Rand().Uint32())
		}
	}
	weights := c.weights(file, rows)
	residual := r.Vector(harness.Gaussian, len(tokens)*c.k)
	first := 4 * c.offset
	out := r.Output("out", first+4*len(residual))
	a := product.EmbedArgs{
		Tokens: r.U32s("tokens", tokens).Addr(), Out: out.At(first), Count: len(tokens), Rows: rows, K: c.k, Scale: c.scale,
	}
	if c.residual {
		a.Residual = r.Input("residual", first+4*len(residual)).SetF32s(first, residual).At(first)
	}
	var want []float32
	for i, token := range tokens {
		for j, w := range weights[int(token)*c.k : (int(token)+1)*c.k] {
			if c.scale != 1 {
				w *= c.scale
			}
			if c.residual {
				w = float32(w) + residual[i*c.k+j]
			}
			want = append(want, w)
		}
	}
	c.launch(r, a, file)
	out.Untouched(0, first)
	harness.Exact(r, "out", out.FloatsAt(quant.F32, first, len(want)), want)
	if !c.residual && c.scale == 1 {
		all := r.Output("all", 4*len(weights))
		a.Tokens, a.Count, a.Out = 0, rows, all.Addr()
		c.launch(r, a, file)
		harness.Exact(r, "all", all.F32s(), weights)
	}
}
