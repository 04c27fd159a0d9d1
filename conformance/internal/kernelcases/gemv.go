package kernelcases

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// gemvCase is a product of a matrix with one or more vectors.
type gemvCase struct {
	name, reason string
	spec         matmul.Gemv
	dist         harness.Distribution // of the vectors
	rows, k      int
	columns      int // 0 means 1
	slices       int // shared memory is the least for at most so many slices of a row; 0: there is enough for one
	ctas         int // at most so many SMs
	norm         norm.Kind
	long         bool
}

// gemvShared is what a CTA of a data-center GPU may have.
const gemvShared = 227 << 10

// addGemv adds a case.
type addGemv func(operation string, c gemvCase, run func(r *harness.Fixture, c gemvCase))

func gemvCases() []harness.Case {
	var all []harness.Case
	add := func(operation string, c gemvCase, run func(r *harness.Fixture, c gemvCase)) {
		c.columns = max(c.columns, 1)
		all = append(all, harness.Case{
			Operation: operation, Format: c.spec.Format.String(), Name: fmt.Sprintf("%v/%s", c.spec.Format, c.name),
			Reason: c.reason, Long: c.long, Run: func(r *harness.Fixture) { run(r, c) },
		})
	}
	for _, f := range matmul.Formats() {
		spec := matmul.Gemv{Format: f}
		for _, k := range Widths(f) {
			add("gemv", gemvCase{
				name: fmt.Sprintf("k=%d", k), reason: WidthReason(k), spec: spec, rows: 5, k: k, long: k > 4096,
			}, checkGemv)
		}
		for _, d := range harness.Distributions() {
			add("gemv", gemvCase{name: d.String(), reason: "a vector of such numbers", spec: spec, dist: d, rows: 37, k: 512}, checkGemv)
		}
		if f.BlockLen() == 1 {
			addGemvColumns(add, f)
		}
		addGemvParts(add, f)
		addGemvFused(add, f)
	}
	return all
}

// addGemvColumns adds cases of several vectors with each kernel of a format of numbers.
func addGemvColumns(add addGemv, f quant.Format) {
	for _, c := range []int{2, 3, 8, 16} {
		for _, gated := range []bool{false, true} {
			add("gemv columns", gemvCase{
				name:   fmt.Sprintf("columns=%d, gated=%v", c, gated),
				reason: "each column has the bits of a product with it alone; a kernel's last column may be unused",
				spec:   matmul.Gemv{Format: f, Columns: power(c), Gated: gated}, rows: 5, k: 1056, columns: c,
			}, checkGemvColumns)
		}
	}
}

// power is the smallest power of two that is at least n.
func power(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// packed puts a random matrix into device memory, and gives it as a file has it, too.
func packedWeights(r *harness.Fixture, name string, f quant.Format, rows, k int) (*harness.Buffer, []byte) {
	r.T.Helper()
	w := r.Weights(f, harness.Gaussian, rows, k)
	return r.Bytes(name, packedBytes(f, w, rows, k)), w
}

func packedBytes(f quant.Format, file []byte, rows, k int) []byte {
	p := matmul.Packing{Format: f, K: k}
	dst := make([]byte, p.Bytes(rows))
	p.Pack(dst, file, rows)
	return dst
}

// args are the arguments that every case has.
func (c gemvCase) args(x, w, y *harness.Buffer) matmul.GemvArgs {
	return matmul.GemvArgs{
		X: x.Addr(), W: w.Addr(), Y: y.Addr(), Rows: c.rows, K: c.k, Columns: c.columns, SMs: c.ctas, Shared: gemvShared,
	}
}

// fit gives a launch as little shared memory as its slices allow.
func (c gemvCase) fit(s matmul.Gemv, k *ptx.Kernel, a matmul.GemvArgs) matmul.GemvArgs {
	if c.slices == 0 {
		return a
	}
	b := a
	b.Workspace = 16 // no launch needs its size yet
	for b.Shared = 1 << 10; b.Shared < gemvShared; b.Shared += 1 << 10 {
		l, err := s.Launch(k, b)
		if err == nil && (l.Grid[2] <= uint32(c.slices) || c.spec.Format.BlockLen() == 1) {
			a.Shared = b.Shared
			break
		}
	}
	return a
}

// launch launches a kernel cut up as the case wants, and gives the arguments that it was
// launched with.
func (c gemvCase) launch(r *harness.Fixture, s matmul.Gemv, a matmul.GemvArgs) matmul.GemvArgs {
	r.T.Helper()
	return launchGemv(r, s, c.fit(s, r.Kernel(s), a))
}

// launchGemv launches a kernel, with a workspace if there is none yet, which is to be left zero,
// and gives the arguments that it was launched with.
func launchGemv(r *harness.Fixture, s matmul.Gemv, a matmul.GemvArgs) matmul.GemvArgs {
	r.T.Helper()
	k := r.Kernel(s)
	bytes, err := s.Workspace(k, a)
	if err != nil {
		r.Fatalf("%v", err)
	}
	if bytes == 0 || a.Workspace != 0 {
		r.Launch(s.Launch(k, a))
		return a
	}
	zeros := make([]byte, bytes)
	workspace := r.Output("workspace", bytes).Set(0, zeros)
	a.Workspace = workspace.Addr()
	r.Launch(s.Launch(k, a))
	harness.Exact(r, "workspace", workspace.Range(0, bytes), zeros)
	return a
}

func checkGemv(r *harness.Fixture, c gemvCase) {
	x := r.Vector(c.dist, c.k)
	w, file := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
	in, out := r.F32s("x", x), r.Output("y", 4*c.rows)
	c.launch(r, c.spec, c.args(in, w, out))
	// The rows share the sums of x, and with them their rounding.
	r.Close("y", out.F32s(), harness.MatMul(c.spec.Format, file, c.rows, c.k, x), c.rows, harness.Tolerance{L: c.spec.Depth(c.k), Correlated: true})
}

// checkGemvColumns compares the first, the last and a middle column with launches of
// their own; the rows of x and y lie apart, and the vectors are of sizes that norms take
// different ways with.
func checkGemvColumns(r *harness.Fixture, c gemvCase) {
	pad := 3 + c.columns%2 // one that leaves the vectors aligned, too
	data := inTurn(r.Vector(harness.Gaussian, min(c.columns, turns)*c.k), c.columns*c.k)
	for i := range data {
		data[i] *= []float32{1, 0x1p60, 0x1p-70, 1, 0}[i/c.k%turns]
	}
	w, _ := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
	x := r.Rows("x", data, c.k, c.k+pad)
	y := r.Output("y", 4*c.columns*(c.rows+pad))
	a := c.args(x, w, y)
	a.XStride, a.YStride, a.Norm, a.Eps = c.k+pad, c.rows+pad, c.norm, 1e-5
	if c.norm != norm.None {
		a.NormWeight = r.F32s("norm weight", r.Vector(harness.Gaussian, c.k)).Addr()
	}
	one := c.spec
	one.Columns = 1
	residual := r.Rows("residual", inTurn(r.Vector(harness.Gaussian, min(c.columns, turns)*c.rows), c.columns*c.rows), c.rows, c.rows+pad)
	if c.spec.Gated {
		up, _ := packedWeights(r, "up", c.spec.Format, c.rows, c.k)
		a.Up, a.Activation, a.Residual = up.Addr(), elementwise.SiLU, residual.Addr()
	}
	c.launch(r, c.spec, a)
	for i := range c.columns {
		y.Untouched(4*(i*(c.rows+pad)+c.rows), 4*pad)
	}
	c.slices = 0 // the others may stage as much as they like
	for i := range min(c.columns, turns) {
		alone := r.Output("alone", 4*c.rows)
		b := a
		b.X, b.Y, b.Columns, b.YStride = x.At(4*i*(c.k+pad)), alone.Addr(), 1, 0
		if c.spec.Gated {
			b.Residual = residual.At(4 * i * (c.rows + pad))
		}
		c.launch(r, one, b)
		for j := i; j < c.columns; j += turns {
			harness.Exact(r, fmt.Sprintf("column %d", j), y.FloatsAt(quant.F32, 4*j*(c.rows+pad), c.rows), alone.F32s())
		}
	}
}

// turns is the number of different columns of a case, which take turns, so that few launches
// compute every column alone. It divides no tile.
const turns = 5

// inTurn repeats x up to n elements.
func inTurn(x []float32, n int) []float32 {
	for len(x) < n {
		x = append(x, x[:min(len(x), n-len(x))]...)
	}
	return x
}

// normedGemvCase launches an F16 product of RMS-normalized vectors several times. A test
// counts the bytes that it reads.
func NormedGemv(columns, launches int) harness.Case {
	return harness.Case{Operation: "traffic", Name: "gemv", Reason: "the bytes read are counted", Run: func(r *harness.Fixture) {
		c := gemvCase{spec: matmul.Gemv{Format: quant.F16}, rows: 3, k: 1024, columns: columns}
		w, _ := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
		y := r.Output("y", 4*columns*c.rows)
		a := c.args(r.F32s("x", r.Vector(harness.Gaussian, columns*c.k)), w, y)
		a.Norm, a.Eps = norm.RMS, 1e-5
		c.launch(r, c.spec, a)
		first := y.F32s()
		for range launches {
			c.launch(r, c.spec, a)
		}
		harness.Exact(r, "again", y.F32s(), first)
	}}
}

// batchCase is a product of a matrix with several vectors. Another kernel computes their digits
// first.
type batchCase struct {
	name, reason string
	spec         matmul.GemvBatch
	rows, k      int
	columns      int
	entries      int // shared memory is for so many tiles of a round; 0: all there is
	ctas         int // at most so many SMs
	norm         norm.Kind
	biased       bool // the norm has a bias
	wide         bool // by GemvWide, of the same format and matrices
	long         bool
}

// batchCases are for all quantized formats.
func batchCases() []harness.Case {
	var all []harness.Case
	for _, f := range matmul.Formats() {
		if f.BlockLen() == 1 {
			continue
		}
		for _, c := range append(batchCasesOf(f), wideCasesOf(f)...) {
			size := fmt.Sprintf("c%d", c.spec.Columns)
			if c.wide {
				size = "wide"
			}
			all = append(all, harness.Case{
				Operation: "gemv batch", Format: f.String(), Name: fmt.Sprintf("%v/%s/%s", f, size, c.name),
				Reason: c.reason, Long: c.long, Run: func(r *harness.Fixture) { checkBatch(r, c) },
			})
		}
	}
	return all
}

func batchCasesOf(f quant.Format) []batchCase {
	four, eight := matmul.GemvBatch{Format: f, Columns: 4}, matmul.GemvBatch{Format: f, Columns: 8}
	most := eight
	if f != quant.Q2_K && f != quant.Q3_K {
		most.Columns = 16
	}
	gated := func(s matmul.GemvBatch) matmul.GemvBatch { s.Gated = true; return s }
	list := []batchCase{
		{name: "all", reason: "a set of vectors", spec: most, rows: 37, k: fewBlocks(f, 5), columns: 16, norm: norm.RMS},
		{name: "few", reason: "vectors that are not there", spec: eight, rows: 21, k: fewBlocks(f, 3), columns: 5},
		{name: "gated", reason: "two matrices take turns", spec: gated(four), rows: 37, k: fewBlocks(f, 2), columns: 4, norm: norm.RMS},
		{name: "many blocks", reason: "as many parts as there may be, of one block or two", spec: four, rows: 21, k: fewBlocks(f, 18), columns: 3},
		{name: "two teams", reason: "of eight warps each; the parts of a team lie beside each other", spec: four, rows: 37, k: fewBlocks(f, 9), columns: 2},
		{name: "rounds", reason: "more tiles than a round has, the last of which is smaller", spec: four, rows: 150, k: fewBlocks(f, 9), columns: 4, entries: 3, ctas: 1},
		{name: "gated", reason: "two matrices take turns", spec: gated(eight), rows: 21, k: fewBlocks(f, 2), columns: 7},
		{name: "gated, the largest set", reason: "two matrices take turns", spec: gated(most), rows: 21, k: fewBlocks(f, 2), columns: 15},
	}
	if !slices.Contains(gemvKinds, f) {
		return list
	}
	return append(list,
		batchCase{name: "one", reason: "a set for one", spec: four, rows: 1, k: fewBlocks(f, 1), columns: 1, norm: norm.RMS},
		batchCase{name: "sets", reason: "CTAs of several sets, of which the last is not full", spec: four, rows: 40, k: fewBlocks(f, 3), columns: 18, ctas: 3},
		batchCase{name: "long rows", reason: "parts of several blocks", spec: eight, rows: 21, k: fewBlocks(f, 35), columns: 7},
		batchCase{name: "sixteen parts", reason: "two for each warp, of a block each", spec: most, rows: 16, k: fewBlocks(f, 17), columns: 16},
		batchCase{name: "long rows, rounds", reason: "sums wait for the next block, round after round", spec: gated(most), rows: 81, k: fewBlocks(f, 33), columns: 3, entries: 4, ctas: 1},
		batchCase{name: "short rows", reason: "teams of warps, some beyond the last tile", spec: eight, rows: 150, k: fewBlocks(f, 1), columns: 8, entries: 2, ctas: 1},
		batchCase{name: "RMSNorm of a long vector", reason: "digits of several CTAs, each with all squares", spec: four, rows: 5, k: fewBlocks(f, 37), columns: 5, norm: norm.RMS},
		batchCase{name: "RMSNorm of two slices", reason: "the second needs the squares of the first", spec: four, rows: 1, k: fewBlocks(f, 17), columns: 2, norm: norm.RMS},
		batchCase{name: "LayerNorm", reason: "digits after the moments", spec: four, rows: 5, k: fewBlocks(f, 3), columns: 5, norm: norm.Layer, biased: true},
		batchCase{name: "a norm with a bias", reason: "digits after the moments", spec: four, rows: 5, k: fewBlocks(f, 18), columns: 4, norm: norm.RMS, biased: true},
	)
}

// checkBatch compares each vector with a launch of Gemv for it alone. The rows of x and y
// lie apart, and the vectors are of sizes that norms take different ways with.
func checkBatch(r *harness.Fixture, c batchCase) {
	c.needs(r)
	pad := 3 + c.columns%2 // one that leaves the vectors aligned, too
	data := inTurn(r.Vector(harness.Gaussian, min(c.columns, turns)*c.k), c.columns*c.k)
	for i := range data {
		data[i] *= []float32{1, 0x1p60, 0x1p-70, 0, 0x1p-128}[i/c.k%turns]
	}
	stride, skew := c.k+pad, 0
	if c.columns == 1 {
		data, skew = append([]float32{0}, data...), 4 // not aligned to 16 bytes, while its stride is
		stride++
	}
	x := r.Rows("x", data, len(data)/c.columns, stride)
	w, _ := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
	y := r.Output("y", 4*c.columns*(c.rows+pad))
	residual := r.Rows("residual", inTurn(r.Vector(harness.Gaussian, min(c.columns, turns)*c.rows), c.columns*c.rows), c.rows, c.rows+pad)
	bias := r.F32s("bias", r.Vector(harness.Gaussian, c.rows))
	before := c.kernel().Digits()
	digits := r.Scratch("digits", int(before.Bytes(c.k, c.columns)))
	d := matmul.DigitsArgs{X: x.At(skew), Out: digits.Addr(), K: c.k, Vectors: c.columns, XStride: c.k + pad, Norm: c.norm, Eps: 1e-5}
	if c.norm != norm.None {
		d.NormWeight = r.F32s("norm weight", r.Vector(harness.Gaussian, c.k)).Addr()
	}
	if c.biased {
		d.NormBias = r.F32s("norm bias", r.Vector(harness.Gaussian, c.k)).Addr()
	}
	r.Launch(before.Launch(r.Kernel(before), d))
	if c.wide {
		checkWideDigits(r, digits, d)
	} else {
		checkNoDigits(r, digits, c)
	}
	a := matmul.GemvBatchArgs{
		Digits: d.Out, W: w.Addr(), Y: y.Addr(), Rows: c.rows, K: c.k, Columns: c.columns, YStride: c.rows + pad,
		Bias: bias.Addr(), Residual: residual.Addr(), Activation: elementwise.SiLU, SMs: c.ctas, Shared: gemvShared,
	}
	if c.spec.Gated {
		up, _ := packedWeights(r, "up", c.spec.Format, c.rows, c.k)
		a.Up = up.Addr()
	}
	c.launch(r, a)
	one := matmul.Gemv{Format: c.spec.Format, Gated: c.spec.Gated}
	for i := range c.columns {
		y.Untouched(4*(i*(c.rows+pad)+c.rows), 4*pad)
	}
	for i := range min(c.columns, turns) {
		alone := r.Output("alone", 4*c.rows)
		b := matmul.GemvArgs{
			X: x.At(skew + 4*i*(c.k+pad)), W: a.W, Up: a.Up, Y: alone.Addr(), Rows: c.rows, K: c.k,
			Norm: c.norm, NormWeight: d.NormWeight, NormBias: d.NormBias, Eps: d.Eps,
			Bias: a.Bias, Residual: residual.At(4 * i * (c.rows + pad)), Activation: a.Activation, Shared: gemvShared,
			SMs: 2, // each CTA makes the digits of x
		}
		launchGemv(r, one, b)
		for j := i; j < c.columns; j += turns {
			harness.Exact(r, fmt.Sprintf("column %d", j), y.FloatsAt(quant.F32, 4*j*(c.rows+pad), c.rows), alone.F32s())
		}
	}
}

// checkNoDigits holds what vectors have that are not there, up to the next multiple of 16, to
// be zeros.
func checkNoDigits(r *harness.Fixture, digits *harness.Buffer, c batchCase) {
	const most = 16
	block := int(matmul.Digits{}.Bytes(1, most))/most - 4 // without what products are multiplied by
	room := (c.columns + most - 1) / most * most
	if room == c.columns {
		return
	}
	zeros := func(what string, first, size int) {
		bytes := digits.Range(first+c.columns*size, (room-c.columns)*size)
		harness.Exact(r, what, bytes, make([]byte, len(bytes)))
	}
	blocks := (c.k + 255) / 256
	for i := range blocks {
		zeros(fmt.Sprintf("no digits of block %d", i), i*room*block, block)
	}
	zeros("no factors", blocks*room*block, 4)
}

// kernel is what multiplies.
func (c batchCase) kernel() matmul.BatchKernel {
	if c.wide {
		return matmul.GemvWide(c.spec.Format, c.spec.Gated)
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
func (c batchCase) launch(r *harness.Fixture, a matmul.GemvBatchArgs) {
	r.T.Helper()
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
	harness.Exact(r, "workspace", workspace.Range(0, bytes), zeros)
}

// addGemvFused adds cases of what a product does beside the product.
func addGemvFused(add addGemv, f quant.Format) {
	add("gemv fused", gemvCase{
		name: "norms", reason: "a norm while the vector is staged is that of a kernel of its own",
		spec: matmul.Gemv{Format: f}, dist: harness.Outliers, rows: 21, k: fewBlocks(f, 3),
	}, checkGemvNorms)
	if !slices.Contains(gemvKinds, f) {
		return
	}
	for _, c := range []struct {
		gemvCase
		run func(r *harness.Fixture, c gemvCase)
	}{
		{gemvCase{name: "gated", reason: "a gated product is that of two kernels", rows: 21, k: fewBlocks(f, 17)}, checkGemvGated},
		{gemvCase{name: "gated, slices", reason: "the epilogue is that of the slice that comes last", rows: 21, k: fewBlocks(f, 17), slices: 16}, checkGemvGated},
		{gemvCase{name: "gated, many CTAs", reason: "each of which may come last for some rows", rows: 300, k: fewBlocks(f, 5), slices: 2, ctas: 4}, checkGemvGated},
		{gemvCase{name: "gated, rounds", reason: "the results of two matrices take turns", rows: 151, k: 8 * gemvBlock(f), ctas: 1}, checkGemvGated},
		{gemvCase{name: "gated, RMSNorm", reason: "before two matrices", rows: 5, k: fewBlocks(f, 9), norm: norm.RMS}, checkGemvGated},
		{gemvCase{name: "gated, LayerNorm", reason: "before two matrices", rows: 5, k: fewBlocks(f, 3), norm: norm.Layer}, checkGemvGated},
		{gemvCase{name: "epilogue", reason: "bias, cap, activation and residual at a row's end are those of a kernel of their own", rows: 21, k: fewBlocks(f, 1)}, checkGemvEpilogue},
		{gemvCase{name: "epilogue, slices", reason: "the slice that comes last has it, too", rows: 21, k: fewBlocks(f, 2), slices: 16}, checkGemvEpilogue},
		{gemvCase{name: "norms, slices", reason: "of which each takes the norm of the whole vector", rows: 5, k: fewBlocks(f, 3), slices: 16}, checkGemvNorms},
		{gemvCase{name: "norms, a long row", reason: "of which a thread has many elements", rows: 1, k: 8704}, checkGemvNorms},
		{gemvCase{name: "RMSNorm, a long row", reason: "the same, cheap enough for mutants", rows: 1, k: 8704, norm: norm.RMS}, checkGemvNorms},
		{gemvCase{name: "norms, squares overflow", reason: "a norm that is taken at another scale", dist: harness.NearOverflow, rows: 5, k: fewBlocks(f, 3)}, checkGemvNorms},
		{gemvCase{name: "norms, squares vanish", reason: "a norm that is taken at another scale", dist: harness.Subnormal, rows: 5, k: fewBlocks(f, 3)}, checkGemvNorms},
		{gemvCase{name: "experts", reason: "an expert's product is that of its matrix alone", rows: 37, k: fewBlocks(f, 2)}, checkGemvExperts},
		{gemvCase{name: "experts, gated, slices", reason: "each slot has its own part of the workspace", spec: matmul.Gemv{Gated: true}, rows: 17, k: fewBlocks(f, 2), slices: 16}, checkGemvExperts},
	} {
		c.spec.Format = f
		if f.BlockLen() == 1 {
			c.rows = min(c.rows, 37)
		}
		add("gemv fused", c.gemvCase, c.run)
	}
}

// checkGemvGated compares a gated product with two products and a kernel that
// combines them, bit by bit.
func checkGemvGated(r *harness.Fixture, c gemvCase) {
	x := r.F32s("x", r.Vector(harness.Gaussian, c.k))
	gate, _ := packedWeights(r, "gate", c.spec.Format, c.rows, c.k)
	up, _ := packedWeights(r, "up", c.spec.Format, c.rows, c.k)
	residual := r.F32s("residual", r.Vector(harness.Gaussian, c.rows))
	normed := func(a matmul.GemvArgs) matmul.GemvArgs {
		a.Norm, a.Eps = c.norm, 1e-5
		return a
	}
	product := func(name string, w *harness.Buffer) *harness.Buffer {
		y := r.Scratch(name, 4*c.rows)
		c.launch(r, c.spec, normed(c.args(x, w, y)))
		return y
	}
	g, u := product("g", gate), product("u", up)
	both := c.spec
	both.Gated = true
	for _, act := range []elementwise.Activation{elementwise.SiLU, elementwise.GELU} {
		fused, apart := r.Output("fused", 4*c.rows), r.Output("apart", 4*c.rows)
		a := normed(c.args(x, gate, fused))
		a.Up, a.Activation, a.Residual = up.Addr(), act, residual.Addr()
		c.launch(r, both, a)
		launchElementwise(r, elementwise.FusedArgs{
			X: g.Addr(), Up: u.Addr(), Residual: residual.Addr(), Y: apart.Addr(), Rows: 1, Width: c.rows, Activation: act,
		})
		harness.Exact(r, fmt.Sprintf("activation %d", act), fused.F32s(), apart.F32s())
	}
}

func launchElementwise(r *harness.Fixture, a elementwise.FusedArgs) {
	r.T.Helper()
	e := elementwise.Fused()
	r.Launch(e.Launch(r.Kernel(e), a))
}

// checkGemvEpilogue compares each part of the epilogue, and all of them, with the
// plain product and a kernel that does the rest, bit by bit. The residual is where
// the result goes.
func checkGemvEpilogue(r *harness.Fixture, c gemvCase) {
	x := r.F32s("x", r.Vector(harness.Gaussian, c.k))
	w, _ := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
	bias, data := r.F32s("bias", r.Vector(harness.Gaussian, c.rows)), r.Vector(harness.Gaussian, c.rows)
	plain := r.Scratch("plain", 4*c.rows)
	c.launch(r, c.spec, c.args(x, w, plain))
	for _, e := range []struct {
		name           string
		bias, residual bool
		cap            float32
		act            elementwise.Activation
	}{
		{name: "bias", bias: true},
		{name: "residual", residual: true},
		{name: "cap", cap: 30},
		{name: "SiLU", act: elementwise.SiLU},
		{name: "all", bias: true, residual: true, cap: 20, act: elementwise.GELU},
	} {
		fused, apart := r.Output("fused", 4*c.rows), r.Output("apart", 4*c.rows)
		a := c.args(x, w, fused)
		b := elementwise.FusedArgs{X: plain.Addr(), Y: apart.Addr(), Rows: 1, Width: c.rows}
		a.Softcap, b.Cap, a.Activation, b.Activation = e.cap, e.cap, e.act, e.act
		if e.bias {
			a.Bias, b.Bias = bias.Addr(), bias.Addr()
		}
		if e.residual {
			fused.SetF32s(0, data)
			apart.SetF32s(0, data)
			a.Residual, b.Residual = fused.Addr(), apart.Addr()
		}
		c.launch(r, c.spec, a)
		launchElementwise(r, b)
		harness.Exact(r, e.name, fused.F32s(), apart.F32s())
	}
}

// checkGemvNorms compares a product with a norm in front with the float64 product of what the
// norm's own kernel computes. The tolerance allows four more roundings.
func checkGemvNorms(r *harness.Fixture, c gemvCase) {
	x := r.Vector(c.dist, c.k)
	if c.dist != harness.Subnormal {
		for i := range x {
			x[i] += 0.5
		}
	}
	in, weight, bias := r.Input("x", 4*c.k+4), r.F32s("weight", r.Vector(harness.Gaussian, c.k)), r.F32s("bias", r.Vector(harness.Gaussian, c.k))
	ones := r.F32s("ones", slices.Repeat([]float32{1}, c.k))
	w, file := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
	for _, n := range []struct {
		name         string
		kind         norm.Kind
		weight, bias bool
		offset       int // of x, in bytes
	}{
		{"RMSNorm", norm.RMS, true, false, 0},
		{"RMSNorm, x not aligned", norm.RMS, true, false, 4},
		{"RMSNorm without a weight", norm.RMS, false, false, 0},
		{"RMSNorm with a bias", norm.RMS, true, true, 0},
		{"LayerNorm", norm.Layer, true, true, 0},
		{"LayerNorm without a weight", norm.Layer, false, false, 4},
	} {
		if c.norm != norm.None && (n.kind != c.norm || !n.weight || n.bias || n.offset > 0) {
			continue
		}
		in.Poison(0, in.Len()).SetF32s(n.offset, x)
		spec := norm.Rows(n.kind, quant.F32)
		normal, y := r.Output("normal", 4*c.k), r.Output("y", 4*c.rows)
		a := c.args(in, w, y)
		a.X, a.Norm, a.Eps = in.At(n.offset), n.kind, 1e-5
		b := norm.RowsArgs{X: a.X, Y: normal.Addr(), Tokens: 1, Width: c.k, Eps: a.Eps}
		if b.Weight = ones.Addr(); n.weight {
			a.NormWeight, b.Weight = weight.Addr(), weight.Addr()
		}
		if n.bias {
			a.NormBias, b.Bias = bias.Addr(), bias.Addr()
		}
		r.Launch(spec.Launch(r.Kernel(spec), b))
		c.launch(r, c.spec, a)
		want := harness.MatMul(c.spec.Format, file, c.rows, c.k, normal.F32s())
		r.Close(n.name, y.F32s(), want, c.rows, harness.Tolerance{L: c.spec.Depth(c.k) + 4, Correlated: true})
	}
}

// checkGemvExperts compares the products of a few experts, in one launch, with those
// of each expert's matrices alone.
func checkGemvExperts(r *harness.Fixture, c gemvCase) {
	const experts, perX = 5, 2
	chosen := []uint32{4, 0, 2, 4}
	tokens := len(chosen) / perX
	x := r.F32s("x", r.Vector(harness.Gaussian, tokens*c.k))
	size := (matmul.Packing{Format: c.spec.Format, K: c.k}).Bytes(c.rows)
	matrices := func(name string) *harness.Buffer {
		var all []byte
		for range experts {
			all = append(all, packedBytes(c.spec.Format, r.Weights(c.spec.Format, harness.Gaussian, c.rows, c.k), c.rows, c.k)...)
		}
		return r.Bytes(name, all)
	}
	w := matrices("w")
	up := w
	list := r.U32s("experts", chosen)
	together, alone := r.Output("together", 4*len(chosen)*c.rows), r.Output("alone", 4*len(chosen)*c.rows)
	a := c.args(x, w, together)
	if c.spec.Gated {
		up = matrices("up")
		a.Up = up.Addr()
	}
	b := a
	a.Experts, a.Slots, a.SlotsPerX, a.ExpertBytes = list.Addr(), len(chosen), perX, size
	c.launch(r, c.spec, a)
	for i, e := range chosen {
		b.X, b.W, b.Y = x.At(4*(i/perX)*c.k), w.At(int(e)*size), alone.At(4*i*c.rows)
		if c.spec.Gated {
			b.Up = up.At(int(e) * size)
		}
		c.launch(r, c.spec, b)
	}
	harness.Exact(r, "y", together.F32s(), alone.F32s())
}

// gemvBlock is how many weights of a row a warp takes at a time.
func gemvBlock(f quant.Format) int {
	if f.BlockLen() == 1 {
		return 1024
	}
	return 256
}

// fewBlocks is a width of a few blocks of which the last is not whole, where that may be.
func fewBlocks(f quant.Format, n int) int {
	switch f.BlockLen() {
	case 1:
		return min(n, 9)*gemvBlock(f) - 38 // no whole quads, either; of more blocks the warps take turns as of nine
	case 32:
		return n*gemvBlock(f) - 32
	}
	return n * gemvBlock(f)
}

// gemvKinds has a format of each way to multiply: as numbers, with a scale a unit, with
// integer scales, and with those of half a unit.
var gemvKinds = []quant.Format{quant.F16, quant.Q4_1, quant.Q4_K, quant.Q6_K}

// addGemvParts adds cases of how rows and vectors are cut up.
func addGemvParts(add addGemv, f quant.Format) {
	list := []gemvCase{
		{name: "rounds", reason: "a CTA with more tiles than it finishes at a time", rows: 151, k: 8 * gemvBlock(f), ctas: 2},
		{name: "slices", reason: "a vector of which little fits: the parts meet in memory, or the warps of a row wait for each", rows: 37, k: fewBlocks(f, 5), slices: 16, ctas: 1},
	}
	if slices.Contains(gemvKinds, f) {
		if f.BlockLen() == 1 {
			addGemvColumnParts(add, f)
		}
		list = append(list,
			gemvCase{name: "rows=1", reason: "most of a tile is beyond the matrix", rows: 1, k: fewBlocks(f, 6)},
			gemvCase{name: "rows=16", reason: "a whole tile", rows: 16, k: 256},
			gemvCase{name: "rows=600", reason: "a block a row: as many tiles as a CTA has warps, several times", rows: 600, k: gemvBlock(f), ctas: 1},
			gemvCase{name: "rounds after rounds", reason: "the first buffer of results has its second turn", rows: 300, k: 8 * gemvBlock(f), ctas: 1},
			gemvCase{name: "turns", reason: "a CTA's tiles take turns with two buffers; warps share the rows of a tile", rows: 21, k: 2048, ctas: 1},
			gemvCase{name: "two slices", reason: "of several parts each, in several CTAs", rows: 300, k: fewBlocks(f, 5), slices: 2, ctas: 4},
			gemvCase{name: "many slices", reason: "as many as there may be", rows: 5, k: fewBlocks(f, 17), slices: 16},
			gemvCase{name: "one long row", reason: "a warp stages several parts of a long vector at a time", rows: 1, k: 28672},
			gemvCase{name: "slices, many CTAs", reason: "any of which may be the last", rows: 600, k: 5120, slices: 16, long: true},
		)
	}
	for _, c := range list {
		c.spec.Format = f
		if f.BlockLen() == 1 {
			c.rows = min(c.rows, 81) // many tiles
		}
		add("gemv", c, checkGemvTwice)
	}
	spec := matmul.Gemv{Format: f}
	add("gemv", gemvCase{name: "block by block", reason: "each block has its own power of two, up to the largest and down to the least", spec: spec, rows: 5, k: fewBlocks(f, 3)}, checkGemvBlocks)
	add("gemv", gemvCase{name: "no number", reason: "one NaN or infinite element and no row is a number", spec: spec, rows: 21, k: fewBlocks(f, 3)}, checkGemvNaN)
	if slices.Contains(gemvKinds, f) {
		add("gemv", gemvCase{name: "no number, slices", reason: "NaN is a sum like others where slices meet", spec: spec, rows: 5, k: fewBlocks(f, 5), slices: 16}, checkGemvNaN)
	}
}

// addGemvColumnParts adds cases of how several vectors are cut up.
func addGemvColumnParts(add addGemv, f quant.Format) {
	one, two := matmul.Gemv{Format: f, Columns: 4}, matmul.Gemv{Format: f, Columns: 4, Gated: true}
	list := []gemvCase{
		{name: "slices", reason: "how much is staged at a time has no part in the bits", spec: one, k: fewBlocks(f, 17), columns: 4, slices: 16},
		{name: "slices, gated", reason: "two matrices wait for what is staged", spec: two, k: fewBlocks(f, 5), columns: 3, slices: 2, ctas: 4},
		{name: "rounds", reason: "tile after tile for several vectors", spec: one, k: fewBlocks(f, 9), columns: 3, ctas: 1},
		{name: "rounds, gated", reason: "the results of two matrices take turns", spec: two, k: fewBlocks(f, 17), columns: 4, ctas: 1},
		{name: "RMSNorm", reason: "each vector has its own moments", spec: one, k: fewBlocks(f, 3), columns: 4, norm: norm.RMS},
		{name: "RMSNorm, slices", reason: "of a norm that needs all of the vector", spec: two, k: fewBlocks(f, 3), columns: 3, slices: 2, norm: norm.RMS},
		{name: "LayerNorm", reason: "each vector is staged after its own moments", spec: one, k: fewBlocks(f, 3), columns: 3, norm: norm.Layer},
		{name: "LayerNorm, gated", reason: "before two matrices, too", spec: two, k: fewBlocks(f, 5), columns: 4, norm: norm.Layer},
		{name: "more than the kernel has", reason: "other CTAs take them", spec: one, k: fewBlocks(f, 2), columns: 9, norm: norm.RMS},
	}
	for _, c := range list {
		c.rows = 21 // some tiles
		add("gemv columns", c, checkGemvColumns)
	}
}

// checkGemvTwice launches a product twice: the first launch leaves the workspace as it
// was.
func checkGemvTwice(r *harness.Fixture, c gemvCase) {
	x := r.Vector(c.dist, c.k)
	w, file := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
	first, second := r.Output("first", 4*c.rows), r.Output("second", 4*c.rows)
	a := c.launch(r, c.spec, c.args(r.F32s("x", x), w, first))
	a.Y = second.Addr()
	c.launch(r, c.spec, a)
	r.Close("y", first.F32s(), harness.MatMul(c.spec.Format, file, c.rows, c.k, x), c.rows, harness.Tolerance{L: c.spec.Depth(c.k), Correlated: true})
	harness.Exact(r, "again", second.F32s(), first.F32s())
}

// checkGemvBlocks multiplies vectors of which one block alone is not zero, and that is of
// a given size. The exponents are those around which integers are scaled differently.
func checkGemvBlocks(r *harness.Fixture, c gemvCase) {
	w, file := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
	block := gemvBlock(c.spec.Format)
	for i, exponent := range []int{-126, -112, -111, -110, -109, -64, -63, -62, 0, 64, 118} {
		x := make([]float32, c.k)
		at := i * block % c.k
		data := r.Vector(harness.Gaussian, min(block, c.k-at))
		var largest float64
		for _, v := range data {
			largest = max(largest, math.Abs(float64(v)))
		}
		for j, v := range data {
			x[at+j] = float32(math.Ldexp(float64(v)/largest*1.5, exponent))
		}
		out := r.Output("y", 4*c.rows)
		c.launch(r, c.spec, c.args(r.F32s("x", x), w, out))
		r.Close(fmt.Sprintf("2^%d", exponent), out.F32s(), harness.MatMul(c.spec.Format, file, c.rows, c.k, x), c.rows, harness.Tolerance{L: c.spec.Depth(c.k), Correlated: true})
	}
}

// checkGemvNaN multiplies vectors with an element that is no finite number. Where weights
// are numbers by themselves, an infinite one may give infinite rows.
func checkGemvNaN(r *harness.Fixture, c gemvCase) {
	w, _ := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
	for i, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := r.Vector(harness.Gaussian, c.k)
		x[(i*gemvBlock(c.spec.Format)+7)%c.k] = float32(odd)
		out := r.Output("y", 4*c.rows)
		c.launch(r, c.spec, c.args(r.F32s("x", x), w, out))
		got, want := out.F32s(), make([]float32, c.rows)
		for j := range want {
			want[j] = float32(math.NaN())
			if c.spec.Format.BlockLen() == 1 && math.IsInf(float64(got[j]), 0) && i > 0 {
				want[j] = got[j]
			}
		}
		harness.Exact(r, fmt.Sprintf("with %v", odd), got, want)
	}
}

// wideFormats are those that GemvWide multiplies.
var wideFormats = []quant.Format{quant.Q4_K, quant.Q5_K, quant.Q6_K}

// wideCasesOf are products by warpgroups, which take 64 rows a tile.
func wideCasesOf(f quant.Format) []batchCase {
	if !slices.Contains(wideFormats, f) {
		return nil
	}
	one, two := matmul.GemvBatch{Format: f}, matmul.GemvBatch{Format: f, Gated: true}
	list := []batchCase{
		{name: "tiles", reason: "a whole tile, and one without rows for the last warps", spec: one, rows: 85, k: fewBlocks(f, 5), columns: 16, norm: norm.RMS},
		{name: "sets", reason: "CTAs of several sets, of which the last is not full", spec: one, rows: 300, k: fewBlocks(f, 3), columns: 18, ctas: 3},
		{name: "gated", reason: "a warpgroup for each matrix, and a round of one pair", spec: two, rows: 150, k: fewBlocks(f, 4), columns: 15, ctas: 1},
		{name: "slices", reason: "four CTAs of several parts meet, for each tile and set", spec: one, rows: 70, k: fewBlocks(f, 19), columns: 18, ctas: 8},
		{name: "a slice for each part", reason: "as many CTAs as there may be meet, of two matrices", spec: two, rows: 20, k: fewBlocks(f, 19), columns: 3, ctas: 16},
		{name: "one block", reason: "nothing to wait for, nothing to add up", spec: one, rows: 64, k: fewBlocks(f, 1), columns: 1},
		{name: "rounds", reason: "blocks of digits once more for the next round, sums on all levels", spec: two, rows: 280, k: fewBlocks(f, 18), columns: 3, ctas: 1, long: true},
	}
	for i := range list {
		list[i].wide = true
		list[i].long = list[i].long || f == quant.Q5_K && i > 2 // its steps are those of Q4_K, but for one bit
	}
	return list
}

// takesWarpgroups reports whether the device knows products of warpgroups.
func takesWarpgroups(r *harness.Fixture) bool {
	return kernelcache.MaxTarget(r.Properties()).HasWGMMA()
}

// needs skips a case that the device has no instructions for.
func (c batchCase) needs(r *harness.Fixture) {
	if c.wide && !takesWarpgroups(r) {
		r.Skip("products of warpgroups are for sm_90 alone, and begin with PTX 8.4")
	}
}

// checkWideDigits compares digits with those that other kernels of several vectors take,
// which lie elsewhere: see matmul.Digits.
func checkWideDigits(r *harness.Fixture, wide *harness.Buffer, a matmul.DigitsArgs) {
	const vectors, block = 16, 1232 // of a set; bytes of a vector's block
	narrow := matmul.Digits{}
	digits := r.Scratch("other digits", int(narrow.Bytes(a.K, a.Vectors)))
	a.Out = digits.Addr()
	r.Launch(narrow.Launch(r.Kernel(narrow), a))
	bytes := int(narrow.Bytes(a.K, a.Vectors))
	got, want := wide.Range(0, bytes), make([]byte, bytes)
	other := digits.Range(0, bytes)
	blocks := bytes / block / vectors * vectors
	for i := range blocks {
		vector, set, from := i%vectors, want[i/vectors*vectors*block:], other[i*block:]
		wideOrder(vector, func(to, at, n int) { copy(set[to:to+n], from[at:]) })
	}
	copy(want[blocks*block:], other[blocks*block:])
	harness.Exact(r, fmt.Sprintf("digits of %d vectors", a.Vectors), got, want)
}

// wideOrder says where in a set the bytes of a vector's block go, and where they are from.
func wideOrder(vector int, move func(to, from, n int)) {
	const vectors, means, power, digits = 16, 64, 16, 1024
	for unit := range 8 {
		for half := range 2 {
			for digit := range 4 {
				core := ((unit*2+half)*4+vector/4)*2 + digit/2
				column := vector%4*2 + digit%2
				for quad := range 4 {
					move(vectors*means+core*128+column*16+4*quad, unit/2*256+digit*64+quad*16+unit%2*8+half*4, 4)
				}
			}
		}
	}
	behind := vectors * (means + digits)
	move(vector*means, digits, means)
	move(behind+vector*power, digits+means, power)
	move(behind+vectors*power+vector*means, digits+means+power, means)
	move(behind+vectors*(power+means)+vector*means, digits+2*means+power, means)
}

// productCases are products of several vectors with a norm in front, of the largest quants and
// scales, with sums of -0, and of launches that share a workspace.
func productCases() []harness.Case {
	all := []harness.Case{{
		Operation: "gemv", Format: quant.Q8_0.String(), Name: "Q8_0/minus zero",
		Reason: "how a row is cut has no part in the sign of a zero", Run: checkMinusZero,
	}, {
		Operation: "gemv", Format: quant.Q4_0.String(), Name: "Q4_0/one workspace",
		Reason: "launches of any shape use one after the other", Run: checkOneWorkspace,
	}}
	for f := range blockScales {
		all = append(all, harness.Case{
			Operation: "gemv", Format: f.String(), Name: fmt.Sprintf("%v/extremes", f),
			Reason: "sums of the largest quants, scales and digits fit 32 bits", Run: func(r *harness.Fixture) { checkExtremes(r, f, false) },
		}, harness.Case{
			Operation: "gemv batch", Format: f.String(), Name: fmt.Sprintf("%v/extremes", f), Long: true,
			Reason: "so do those of several vectors' kernel", Run: func(r *harness.Fixture) { checkExtremes(r, f, true) },
		})
	}
	slices.SortFunc(all, func(a, b harness.Case) int { return strings.Compare(a.ID(), b.ID()) })
	for _, t := range []struct {
		reason  string
		kernel  int // its columns
		columns int
	}{
		{"an unused column is staged, too", 4, 3},
		{"more vectors than a CTA has warps", 16, 16},
		{"other CTAs take what the kernel has no columns for", 1, 16},
	} {
		for _, kind := range []norm.Kind{norm.RMS, norm.Layer} {
			c := gemvCase{spec: matmul.Gemv{Format: quant.F16, Columns: t.kernel}, rows: 5, k: 1024, columns: t.columns}
			all = append(all, harness.Case{
				Operation: "gemv columns", Format: c.spec.Format.String(),
				Name:   fmt.Sprintf("%v/%d normed by %d in a kernel of %d", c.spec.Format, t.columns, kind, t.kernel),
				Reason: t.reason, Run: func(r *harness.Fixture) { checkNormedColumns(r, c, kind) },
			})
		}
	}
	return all
}

// checkNormedColumns compares every column with a launch of its own. The vectors are of
// unlike sizes; one's squares overflow, so that it is staged in another way.
func checkNormedColumns(r *harness.Fixture, c gemvCase, kind norm.Kind) {
	data := r.Vector(harness.Gaussian, c.columns*c.k)
	for i := range data {
		switch column := i / c.k; column {
		case 1:
			data[i] *= 0x1p70
		default:
			data[i] *= float32(1 + column)
		}
	}
	x, weight := r.F32s("x", data), r.F32s("weight", r.Vector(harness.Gaussian, c.k))
	w, _ := packedWeights(r, "w", c.spec.Format, c.rows, c.k)
	y := r.Output("y", 4*c.columns*c.rows)
	a := c.args(x, w, y)
	a.Norm, a.NormWeight, a.Eps = kind, weight.Addr(), 1
	c.launch(r, c.spec, a)
	one := c.spec
	one.Columns = 1
	alone := r.Output("alone", 4*c.columns*c.rows)
	for i := range c.columns {
		b := a
		b.X, b.Y, b.Columns = x.At(4*i*c.k), alone.At(4*i*c.rows), 1
		c.launch(r, one, b)
	}
	harness.Exact(r, fmt.Sprintf("norm %d", kind), y.F32s(), alone.F32s())
}

// checkMinusZero splits a row into different numbers of parts. Its products are negative, and so small
// that float32 rounds them to -0.
func checkMinusZero(r *harness.Fixture) {
	const blocks = 16 // as many parts
	spec := matmul.Gemv{Format: quant.Q8_0}
	c := gemvCase{spec: spec, rows: 1, k: blocks * 256, columns: 1}
	var file []byte
	for range c.k / 32 {
		file = append(file, 1, 0) // the least scale, 2^-24
		file = append(file, slices.Repeat([]byte{1}, 32)...)
	}
	w := r.Bytes("w", packedBytes(spec.Format, file, c.rows, c.k))
	x := r.F32s("x", slices.Repeat([]float32{-(0x1p-139 + 0x1p-147)}, c.k))
	want := []float32{float32(math.Copysign(0, -1))}
	for _, most := range []int{0, 2, blocks} {
		c.slices = most
		y := r.Output("y", 4)
		c.launch(r, spec, c.args(x, w, y))
		harness.Exact(r, fmt.Sprintf("at most %d slices", most), y.F32s(), want)
	}
}

// checkOneWorkspace launches products of few and many rows, cut into slices, with one
// workspace and with one each.
func checkOneWorkspace(r *harness.Fixture) {
	spec := matmul.Gemv{Format: quant.Q4_0}
	k := r.Kernel(spec)
	var own []int
	var args []matmul.GemvArgs
	var together, alone []*harness.Buffer
	for _, rows := range []int{33, 1700, 17} {
		c := gemvCase{spec: spec, rows: rows, k: 512, slices: 2}
		w, _ := packedWeights(r, "w", spec.Format, rows, c.k)
		together, alone = append(together, r.Output("together", 4*rows)), append(alone, r.Output("alone", 4*rows))
		a := c.fit(spec, k, c.args(r.F32s("x", r.Vector(harness.Gaussian, c.k)), w, alone[len(alone)-1]))
		bytes, err := spec.Workspace(k, a)
		if err != nil {
			r.Fatalf("%v", err)
		}
		own, args = append(own, bytes), append(args, a)
	}
	workspace := func(bytes int) uint64 {
		return uint64(r.Output("workspace", bytes).Set(0, make([]byte, bytes)).Addr())
	}
	shared := workspace(slices.Max(own))
	for i, a := range args {
		a.Workspace = workspace(own[i])
		r.Launch(spec.Launch(k, a))
		a.Workspace, a.Y = shared, together[i].Addr()
		r.Launch(spec.Launch(k, a))
		harness.Exact(r, fmt.Sprintf("%d rows", a.Rows), together[i].F32s(), alone[i].F32s())
	}
}

// blockScales is where a block has its float16 scales: from one byte to another.
var blockScales = map[quant.Format][2]int{
	quant.Q4_0: {0, 2}, quant.Q4_1: {0, 4}, quant.Q5_0: {0, 2}, quant.Q5_1: {0, 4}, quant.Q8_0: {0, 2},
	quant.Q2_K: {80, 84}, quant.Q3_K: {108, 110}, quant.Q4_K: {0, 4}, quant.Q5_K: {0, 4}, quant.Q6_K: {208, 210},
	quant.IQ4_NL: {0, 2}, quant.IQ4_XS: {0, 2},
}

// checkExtremes multiplies blocks by the numbers with the least digits: -63 and three times
// -128. All bytes of a block have one value, except for scales. If together is set,
// the kernel of several vectors must give the same.
func checkExtremes(r *harness.Fixture, f quant.Format, together bool) {
	spec := matmul.Gemv{Format: f}
	c := gemvCase{spec: spec, k: 512, columns: 1}
	var file []byte
	for _, fill := range []byte{0x00, 0x7F, 0x80, 0x88, 0xF0, 0x0F, 0xFF} {
		block := slices.Repeat([]byte{fill}, f.BlockBytes())
		for at := subScales[f][0]; at < subScales[f][1] && fill == 0xFF; at++ {
			block[at] = 0x80
		}
		for at := blockScales[f][0]; at < blockScales[f][1]; at += 2 {
			block[at], block[at+1] = 0x00, 0x3C // 1
		}
		file = append(file, slices.Repeat(block, c.k/f.BlockLen())...)
		c.rows++
	}
	x := slices.Repeat([]float32{-0x3F808080}, c.k)
	y := r.Output("y", 4*c.rows)
	xs, ws := r.F32s("x", x), r.Bytes("w", packedBytes(f, file, c.rows, c.k))
	vector, w := xs.Addr(), ws.Addr()
	c.launch(r, spec, c.args(xs, ws, y))
	r.Close("y", y.F32s(), harness.MatMul(f, file, c.rows, c.k, x), c.rows, harness.Tolerance{L: spec.Depth(c.k), Correlated: true})
	if !together {
		return
	}
	for _, wide := range []bool{false, true} {
		batch := batchCase{spec: matmul.GemvBatch{Format: f, Columns: 4}, wide: wide, rows: c.rows, k: c.k}
		if wide && (len(wideCasesOf(f)) == 0 || !takesWarpgroups(r)) {
			continue
		}
		before := batch.kernel().Digits()
		digits, several := r.Scratch("digits", int(before.Bytes(c.k, 1))), r.Output("y of several", 4*c.rows)
		r.Launch(before.Launch(r.Kernel(before), matmul.DigitsArgs{X: vector, Out: digits.Addr(), K: c.k, Vectors: 1}))
		batch.launch(r, matmul.GemvBatchArgs{Digits: digits.Addr(), W: w, Y: several.Addr(), Rows: c.rows, K: c.k, Columns: 1, Shared: gemvShared})
		harness.Exact(r, fmt.Sprintf("y of several, wide %v", wide), several.F32s(), y.F32s())
	}
}

// subScales is where a block has a byte of scale a sub-block, which may be the least there is
// while its quants are the largest.
var subScales = map[quant.Format][2]int{quant.Q6_K: {192, 208}}

// smallCases hold the kernels for devices with little shared memory to the others, bit
// by bit.
func smallCases() []harness.Case {
	var all []harness.Case
	for _, f := range matmul.Formats() {
		if f.BlockLen() == 1 {
			continue
		}
		for _, gated := range []bool{false, true} {
			all = append(all, harness.Case{
				Operation: "gemv", Format: f.String(), Name: fmt.Sprintf("%v/small, gated=%v", f, gated),
				Reason: "a kernel for less shared memory gives the same bits, normed or not",
				Run:    func(r *harness.Fixture) { checkGemvSmall(r, f, gated) },
			})
		}
	}
	return all
}

func checkGemvSmall(r *harness.Fixture, f quant.Format, gated bool) {
	const smallShared = 99 << 10 // of an RTX 3090 or 4090
	k := 5 * 256
	c := gemvCase{rows: 21, k: k, columns: 1, ctas: 1}
	x, weight := r.F32s("x", r.Vector(harness.Gaussian, k)), r.F32s("weight", r.Vector(harness.Gaussian, k))
	w, _ := packedWeights(r, "w", f, c.rows, k)
	up, _ := packedWeights(r, "up", f, c.rows, k)
	for _, kind := range []norm.Kind{norm.None, norm.RMS, norm.Layer} {
		var results [2][]float32
		for i, shared := range []int{gemvShared, smallShared} {
			s := matmul.Gemv{Format: f, Columns: 1, Gated: gated, Small: i == 1}
			y := r.Output(fmt.Sprintf("y%d of norm %d", i, kind), 4*c.rows)
			a := c.args(x, w, y)
			a.Norm, a.Eps, a.Shared = kind, 1e-5, shared
			if kind != norm.None {
				a.NormWeight = weight.Addr()
			}
			if gated {
				a.Up, a.Activation = up.Addr(), elementwise.SiLU
			}
			launchGemv(r, s, a)
			results[i] = y.F32s()
		}
		harness.Exact(r, fmt.Sprintf("norm %d", kind), results[1], results[0])
	}
}
