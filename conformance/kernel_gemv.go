package conformance

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// gemvCase is a product of a matrix with one or more vectors.
type gemvCase struct {
	name, reason string
	spec         ptxgen.Gemv
	dist         Distribution // of the vectors
	rows, k      int
	columns      int // 0 means 1
	slices       int // shared memory is the least for at most so many slices of a row; 0: there is enough for one
	ctas         int // at most so many SMs
	norm         ptxgen.NormKind
	long         bool
}

// gemvShared is what a CTA of a data-center GPU may have.
const gemvShared = 227 << 10

// addGemv adds a case.
type addGemv func(operation string, c gemvCase, run func(r *KernelRig, c gemvCase))

func gemvCases() []KernelCase {
	var all []KernelCase
	add := func(operation string, c gemvCase, run func(r *KernelRig, c gemvCase)) {
		c.columns = max(c.columns, 1)
		all = append(all, KernelCase{
			Operation: operation, Format: c.spec.Format.String(), Name: fmt.Sprintf("%v/%s", c.spec.Format, c.name),
			Reason: c.reason, Long: c.long, Run: func(r *KernelRig) { run(r, c) },
		})
	}
	for _, f := range quant.Formats() {
		spec := ptxgen.Gemv{Format: f}
		for _, k := range Widths(f) {
			add("gemv", gemvCase{
				name: fmt.Sprintf("k=%d", k), reason: WidthReason(k), spec: spec, rows: 5, k: k, long: k > 4096,
			}, checkGemv)
		}
		for _, d := range Distributions() {
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
				spec:   ptxgen.Gemv{Format: f, Columns: power(c), Gated: gated}, rows: 5, k: 1056, columns: c,
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
func (r *KernelRig) packed(name string, f quant.Format, rows, k int) (*Mem, []byte) {
	r.Helper()
	w := r.Weights(f, Gaussian, rows, k)
	return r.Bytes(name, packedBytes(f, w, rows, k)), w
}

func packedBytes(f quant.Format, file []byte, rows, k int) []byte {
	p := ptxgen.Packing{Format: f, K: k}
	dst := make([]byte, p.Bytes(rows))
	p.Pack(dst, file, rows)
	return dst
}

// args are the arguments that every case has.
func (c gemvCase) args(x, w, y *Mem) ptxgen.GemvArgs {
	return ptxgen.GemvArgs{
		X: x.Addr(), W: w.Addr(), Y: y.Addr(), Rows: c.rows, K: c.k, Columns: c.columns, SMs: c.ctas, Shared: gemvShared,
	}
}

// fit gives a launch as little shared memory as its slices allow.
func (c gemvCase) fit(s ptxgen.Gemv, k *ptx.Kernel, a ptxgen.GemvArgs) ptxgen.GemvArgs {
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
func (c gemvCase) launch(r *KernelRig, s ptxgen.Gemv, a ptxgen.GemvArgs) ptxgen.GemvArgs {
	r.Helper()
	return launchGemv(r, s, c.fit(s, r.Kernel(s), a))
}

// launchGemv launches a kernel, with a workspace if there is none yet, which is to be left zero,
// and gives the arguments that it was launched with.
func launchGemv(r *KernelRig, s ptxgen.Gemv, a ptxgen.GemvArgs) ptxgen.GemvArgs {
	r.Helper()
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
	Exact(r, "workspace", workspace.Range(0, bytes), zeros)
	return a
}

func checkGemv(r *KernelRig, c gemvCase) {
	x := r.Vector(c.dist, c.k)
	w, file := r.packed("w", c.spec.Format, c.rows, c.k)
	in, out := r.F32s("x", x), r.Output("y", 4*c.rows)
	c.launch(r, c.spec, c.args(in, w, out))
	// The rows share the sums of x, and with them their rounding.
	r.Close("y", out.F32s(), MatVecRef(c.spec.Format, file, c.rows, c.k, x), c.rows, Tolerance{L: c.spec.Depth(c.k), Correlated: true})
}

// checkGemvColumns compares the first, the last and a middle column with launches of
// their own; the rows of x and y lie apart, and the vectors are of sizes that norms take
// different ways with.
func checkGemvColumns(r *KernelRig, c gemvCase) {
	pad := 3 + c.columns%2 // one that leaves the vectors aligned, too
	data := r.Vector(Gaussian, c.columns*c.k)
	for i := range data {
		data[i] *= []float32{1, 0x1p60, 0x1p-70, 1, 0}[i/c.k%5]
	}
	w, _ := r.packed("w", c.spec.Format, c.rows, c.k)
	x := r.Rows("x", data, c.k, c.k+pad)
	y := r.Output("y", 4*c.columns*(c.rows+pad))
	a := c.args(x, w, y)
	a.XStride, a.YStride, a.Norm, a.Eps = c.k+pad, c.rows+pad, c.norm, 1e-5
	if c.norm != ptxgen.NoNorm {
		a.NormWeight = r.F32s("norm weight", r.Vector(Gaussian, c.k)).Addr()
	}
	one := c.spec
	one.Columns = 1
	residual := r.Rows("residual", r.Vector(Gaussian, c.columns*c.rows), c.rows, c.rows+pad)
	if c.spec.Gated {
		up, _ := r.packed("up", c.spec.Format, c.rows, c.k)
		a.Up, a.Activation, a.Residual = up.Addr(), ptxgen.SiLU, residual.Addr()
	}
	c.launch(r, c.spec, a)
	for i := range c.columns {
		y.Untouched(4*(i*(c.rows+pad)+c.rows), 4*pad)
	}
	c.slices = 0 // the others may stage as much as they like
	for _, i := range slices.Compact([]int{0, c.columns / 2, c.columns - 1}) {
		alone := r.Output("alone", 4*c.rows)
		b := a
		b.X, b.Y, b.Columns, b.YStride = x.At(4*i*(c.k+pad)), alone.Addr(), 1, 0
		if c.spec.Gated {
			b.Residual = residual.At(4 * i * (c.rows + pad))
		}
		c.launch(r, one, b)
		Exact(r, fmt.Sprintf("column %d", i), floatsOf(y.Range(4*i*(c.rows+pad), 4*c.rows)), alone.F32s())
	}
}

// floatsOf reads little-endian float32.
func floatsOf(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	quant.Decode(quant.F32, x, b)
	return x
}
