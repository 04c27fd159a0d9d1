package conformance

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// batchCase is a product of a matrix with several vectors, whose digits come first.
type batchCase struct {
	name, reason string
	spec         ptxgen.GemvBatch
	rows, k      int
	columns      int
	entries      int // shared memory is for so many tiles of a round; 0: all there is
	ctas         int // at most so many SMs
	norm         ptxgen.NormKind
	biased       bool // the norm has a bias
	wide         bool // by GemvWide, of the same format and matrices
	long         bool
}

// batchCases are for all quantized formats.
func batchCases() []KernelCase {
	var all []KernelCase
	for _, f := range quant.Formats() {
		if f.BlockLen() == 1 {
			continue
		}
		for _, c := range append(batchCasesOf(f), wideCasesOf(f)...) {
			size := fmt.Sprintf("c%d", c.spec.Columns)
			if c.wide {
				size = "wide"
			}
			all = append(all, KernelCase{
				Operation: "gemv batch", Format: f.String(), Name: fmt.Sprintf("%v/%s/%s", f, size, c.name),
				Reason: c.reason, Long: c.long, Run: func(r *KernelRig) { checkBatch(r, c) },
			})
		}
	}
	return all
}

func batchCasesOf(f quant.Format) []batchCase {
	four, eight := ptxgen.GemvBatch{Format: f, Columns: 4}, ptxgen.GemvBatch{Format: f, Columns: 8}
	most := eight
	if f != quant.Q2_K && f != quant.Q3_K {
		most.Columns = 16
	}
	gated := func(s ptxgen.GemvBatch) ptxgen.GemvBatch { s.Gated = true; return s }
	list := []batchCase{
		{name: "all", reason: "a set of vectors", spec: most, rows: 37, k: fewBlocks(f, 5), columns: 16, norm: ptxgen.RMSNorm},
		{name: "few", reason: "vectors that are not there", spec: eight, rows: 21, k: fewBlocks(f, 3), columns: 5},
		{name: "gated", reason: "two matrices take turns", spec: gated(four), rows: 37, k: fewBlocks(f, 2), columns: 4, norm: ptxgen.RMSNorm},
		{name: "many blocks", reason: "as many parts as there may be, of one block or two", spec: four, rows: 21, k: fewBlocks(f, 18), columns: 3},
		{name: "two teams", reason: "of eight warps, whose parts lie beside each other", spec: four, rows: 37, k: fewBlocks(f, 9), columns: 2},
		{name: "rounds", reason: "more tiles than a round has, the last of which is smaller", spec: four, rows: 150, k: fewBlocks(f, 9), columns: 4, entries: 3, ctas: 1},
		{name: "gated", reason: "two matrices take turns", spec: gated(eight), rows: 21, k: fewBlocks(f, 2), columns: 7},
		{name: "gated, the largest set", reason: "two matrices take turns", spec: gated(most), rows: 21, k: fewBlocks(f, 2), columns: 15},
	}
	if !slices.Contains(gemvKinds, f) {
		return list
	}
	return append(list,
		batchCase{name: "one", reason: "a set for one", spec: four, rows: 1, k: fewBlocks(f, 1), columns: 1, norm: ptxgen.RMSNorm},
		batchCase{name: "sets", reason: "CTAs of several sets, of which the last is not full", spec: four, rows: 40, k: fewBlocks(f, 3), columns: 18, ctas: 3},
		batchCase{name: "long rows", reason: "parts of several blocks", spec: eight, rows: 21, k: fewBlocks(f, 35), columns: 7},
		batchCase{name: "sixteen parts", reason: "two for each warp, of a block each", spec: most, rows: 16, k: fewBlocks(f, 17), columns: 16},
		batchCase{name: "long rows, rounds", reason: "sums wait for the next block, round after round", spec: gated(most), rows: 81, k: fewBlocks(f, 33), columns: 3, entries: 4, ctas: 1},
		batchCase{name: "short rows", reason: "teams of warps, some beyond the last tile", spec: eight, rows: 150, k: fewBlocks(f, 1), columns: 8, entries: 2, ctas: 1},
		batchCase{name: "RMSNorm of a long vector", reason: "digits of several CTAs, each with all squares", spec: four, rows: 5, k: fewBlocks(f, 37), columns: 5, norm: ptxgen.RMSNorm},
		batchCase{name: "RMSNorm of two slices", reason: "the second needs the squares of the first", spec: four, rows: 1, k: fewBlocks(f, 17), columns: 2, norm: ptxgen.RMSNorm},
		batchCase{name: "LayerNorm", reason: "digits after the moments", spec: four, rows: 5, k: fewBlocks(f, 3), columns: 5, norm: ptxgen.LayerNorm, biased: true},
		batchCase{name: "a norm with a bias", reason: "digits after the moments", spec: four, rows: 5, k: fewBlocks(f, 18), columns: 4, norm: ptxgen.RMSNorm, biased: true},
	)
}

// checkBatch compares each vector with a launch of Gemv for it alone. The rows of x and y
// lie apart, and the vectors are of sizes that norms take different ways with.
func checkBatch(r *KernelRig, c batchCase) {
	c.needs(r)
	pad := 3 + c.columns%2 // one that leaves the vectors aligned, too
	data := r.Vector(Gaussian, c.columns*c.k)
	for i := range data {
		data[i] *= []float32{1, 0x1p60, 1, 0x1p-70, 0, 0x1p-128}[i/c.k%6]
	}
	stride, skew := c.k+pad, 0
	if c.columns == 1 {
		data, skew = append([]float32{0}, data...), 4 // not aligned to 16 bytes, while its stride is
		stride++
	}
	x := r.Rows("x", data, len(data)/c.columns, stride)
	w, _ := r.packed("w", c.spec.Format, c.rows, c.k)
	y := r.Output("y", 4*c.columns*(c.rows+pad))
	residual := r.Rows("residual", r.Vector(Gaussian, c.columns*c.rows), c.rows, c.rows+pad)
	bias := r.F32s("bias", r.Vector(Gaussian, c.rows))
	before := c.kernel().Digits()
	digits := r.Output("digits", int(before.Bytes(c.k, c.columns)))
	d := ptxgen.DigitsArgs{X: x.At(skew), Out: digits.Addr(), K: c.k, Vectors: c.columns, XStride: c.k + pad, Norm: c.norm, Eps: 1e-5}
	if c.norm != ptxgen.NoNorm {
		d.NormWeight = r.F32s("norm weight", r.Vector(Gaussian, c.k)).Addr()
	}
	if c.biased {
		d.NormBias = r.F32s("norm bias", r.Vector(Gaussian, c.k)).Addr()
	}
	r.Launch(before.Launch(r.Kernel(before), d))
	if c.wide {
		checkWideDigits(r, digits, d)
	} else {
		checkNoDigits(r, digits, c)
	}
	a := ptxgen.GemvBatchArgs{
		Digits: d.Out, W: w.Addr(), Y: y.Addr(), Rows: c.rows, K: c.k, Columns: c.columns, YStride: c.rows + pad,
		Bias: bias.Addr(), Residual: residual.Addr(), Activation: ptxgen.SiLU, SMs: c.ctas, Shared: gemvShared,
	}
	if c.spec.Gated {
		up, _ := r.packed("up", c.spec.Format, c.rows, c.k)
		a.Up = up.Addr()
	}
	c.launch(r, a)
	one := ptxgen.Gemv{Format: c.spec.Format, Gated: c.spec.Gated}
	for i := range c.columns {
		y.Untouched(4*(i*(c.rows+pad)+c.rows), 4*pad)
	}
	for _, i := range slices.Compact([]int{0, c.columns / 4, c.columns / 2, c.columns - 1}) {
		alone := r.Output("alone", 4*c.rows)
		b := ptxgen.GemvArgs{
			X: x.At(skew + 4*i*(c.k+pad)), W: a.W, Up: a.Up, Y: alone.Addr(), Rows: c.rows, K: c.k,
			Norm: c.norm, NormWeight: d.NormWeight, NormBias: d.NormBias, Eps: d.Eps,
			Bias: a.Bias, Residual: residual.At(4 * i * (c.rows + pad)), Activation: a.Activation, Shared: gemvShared,
			SMs: 2, // each CTA makes the digits of x
		}
		launchGemv(r, one, b)
		Exact(r, fmt.Sprintf("column %d", i), floatsOf(y.Range(4*i*(c.rows+pad), 4*c.rows)), alone.F32s())
	}
}

// checkNoDigits holds what vectors have that are not there, up to the next multiple of 16, to
// be zeros.
func checkNoDigits(r *KernelRig, digits *Mem, c batchCase) {
	const most = 16
	block := int(ptxgen.Digits{}.Bytes(1, most))/most - 4 // without what products are multiplied by
	room := (c.columns + most - 1) / most * most
	if room == c.columns {
		return
	}
	zeros := func(what string, first, size int) {
		bytes := digits.Range(first+c.columns*size, (room-c.columns)*size)
		Exact(r, what, bytes, make([]byte, len(bytes)))
	}
	blocks := (c.k + 255) / 256
	for i := range blocks {
		zeros(fmt.Sprintf("no digits of block %d", i), i*room*block, block)
	}
	zeros("no factors", blocks*room*block, 4)
}

// kernel is what multiplies.
func (c batchCase) kernel() ptxgen.BatchKernel {
	if c.wide {
		return ptxgen.GemvWide{Format: c.spec.Format, Gated: c.spec.Gated}
	}
	return c.spec
}

// entriesOf is how many tiles, of all matrices, a round of the launch has at most: its last
// parameter counts groups of them.
func (c batchCase) entriesOf(l ptx.Launch) int {
	round := int(binary.LittleEndian.Uint32(l.Params[len(l.Params)-4:]))
	if c.spec.Gated {
		return 2 * round
	}
	return round
}

// launch launches the product, with the least shared memory for as many entries as the
// case wants, and a workspace that it must leave zero.
func (c batchCase) launch(r *KernelRig, a ptxgen.GemvBatchArgs) {
	r.Helper()
	s := c.kernel()
	k := r.Kernel(s)
	if c.entries > 0 {
		for a.Shared = 1 << 10; ; a.Shared += 1 << 10 {
			l, err := s.Launch(k, a)
			if err == nil && c.entriesOf(l) >= c.entries {
				break
			}
			if a.Shared > gemvShared {
				r.Fatalf("no shared memory gives a round %d entries: %v", c.entries, err)
			}
		}
	}
	bytes, err := s.Workspace(k, a)
	if err != nil {
		r.Fatalf("%v", err)
	}
	if bytes == 0 {
		r.Launch(s.Launch(k, a))
		return
	}
	zeros := make([]byte, bytes)
	workspace := r.Output("workspace", bytes).Set(0, zeros)
	a.Workspace = workspace.Addr()
	r.Launch(s.Launch(k, a))
	Exact(r, "workspace", workspace.Range(0, bytes), zeros)
}
