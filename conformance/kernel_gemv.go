package conformance

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// gemvCase is a product of a matrix with one or more vectors.
type gemvCase struct {
	name, reason string
	spec         ptxgen.Gemv
	dist         Distribution // of the vectors
	rows, k      int
	columns      int // 0 means 1
	shared       int // bytes that a CTA may have; 0 means gemvShared, -1 the least that is possible
	ctas         int // at most so many SMs
	long         bool
}

// gemvShared is what a CTA of a data-centre GPU may have.
const gemvShared = 227 << 10

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
		for _, c := range []int{2, 3, 8, 16} {
			for _, gated := range []bool{false, true} {
				spec.Columns, spec.Gated = power(c), gated
				add("gemv columns", gemvCase{
					name:   fmt.Sprintf("columns=%d, gated=%v", c, gated),
					reason: "each column has the bits of a product with it alone; a kernel's last column may be unused",
					spec:   spec, rows: 5, k: 1024 + max(32, f.BlockLen()), columns: c,
				}, checkGemvColumns)
			}
		}
	}
	addGemvParts(add)
	return all
}

// addGemvParts adds what does not depend on the format.
func addGemvParts(add func(operation string, c gemvCase, run func(r *KernelRig, c gemvCase))) {
	for _, f := range []quant.Format{quant.Q4_K, quant.F16} {
		spec := ptxgen.Gemv{Format: f}
		for _, rows := range []int{1, 15, 16, 33, 151} {
			add("gemv", gemvCase{name: fmt.Sprintf("rows=%d", rows), reason: "around a tile, and several tiles for one CTA", spec: spec, rows: rows, k: 256, ctas: 1}, checkGemv)
		}
		add("gemv", gemvCase{name: "one long row", reason: "a warp stages several parts of a long vector at a time", spec: spec, rows: 1, k: 28672}, checkGemv)
		add("gemv", gemvCase{name: "rounds", reason: "a CTA with more tiles than it finishes at a time", spec: spec, rows: 151, k: 4096, ctas: 1}, checkGemv)
		add("gemv", gemvCase{name: "parts", reason: "a vector of which little fits: the parts meet in memory, or the warps of a row wait for each", spec: spec, rows: 21, k: 5120, shared: -1, ctas: 1}, checkGemv)
		add("gemv", gemvCase{name: "parts, many CTAs", reason: "any of which may be the last", spec: spec, rows: 600, k: 5120, shared: -1, long: true}, checkGemv)
		spec.Columns = 8
		add("gemv columns", gemvCase{name: "parts of columns", reason: "how a row is cut has no part in its bits", spec: spec, rows: 21, k: 5120, columns: 7, shared: -1}, checkGemvColumns)
		spec.Columns = 0
		spec.Gated = true
		add("gemv fused", gemvCase{name: "gated", reason: "a gated product is that of two kernels", spec: spec, rows: 21, k: 2304, columns: 1}, checkGemvGated)
		spec.Gated = false
		add("gemv fused", gemvCase{name: "epilogue", reason: "bias, cap, activation and residual at a row's end are those of a kernel of their own", spec: spec, rows: 21, k: 1280}, checkGemvEpilogue)
		add("gemv fused", gemvCase{name: "norms", reason: "a norm while the vector is staged is that of a kernel of its own", spec: spec, dist: Outliers, rows: 21, k: 2304}, checkGemvNorms)
		add("gemv fused", gemvCase{name: "norms, squares overflow", reason: "a norm that is taken at another scale", spec: spec, dist: NearOverflow, rows: 2, k: 2304}, checkGemvNorms)
		add("gemv fused", gemvCase{name: "experts", reason: "an expert's product is that of its matrix alone", spec: spec, rows: 9, k: 512}, checkGemvExperts)
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
	shared := gemvShared
	switch {
	case c.shared > 0:
		shared = c.shared
	case c.shared < 0:
		shared = 1 << 10
	}
	return ptxgen.GemvArgs{
		X: x.Addr(), W: w.Addr(), Y: y.Addr(), Rows: c.rows, K: c.k, Columns: c.columns, SMs: c.ctas, Shared: shared,
	}
}

// launch launches a kernel with its workspace.
func (c gemvCase) launch(r *KernelRig, s ptxgen.Gemv, a ptxgen.GemvArgs) {
	r.Helper()
	k := r.Kernel(s)
	bytes, err := s.Workspace(k, a)
	for c.shared == -1 && err != nil {
		a.Shared += 1 << 10
		bytes, err = s.Workspace(k, a)
	}
	if bytes > 0 {
		a.Workspace = r.Output("workspace", bytes).Set(0, make([]byte, bytes)).Addr()
	}
	r.Launch(s.Launch(k, a))
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
// their own; the rows of x and y lie apart.
func checkGemvColumns(r *KernelRig, c gemvCase) {
	const pad = 3
	data := r.Vector(Gaussian, c.columns*c.k)
	w, _ := r.packed("w", c.spec.Format, c.rows, c.k)
	x := r.Rows("x", data, c.k, c.k+pad)
	y := r.Output("y", 4*c.columns*(c.rows+pad))
	a := c.args(x, w, y)
	a.XStride, a.YStride = c.k+pad, c.rows+pad
	one := c.spec
	one.Columns = 1
	if c.spec.Gated {
		up, _ := r.packed("up", c.spec.Format, c.rows, c.k)
		a.Up, a.Activation = up.Addr(), ptxgen.SiLU
	}
	c.launch(r, c.spec, a)
	y.Untouched(4*c.rows, 4*pad)
	for _, i := range slices.Compact([]int{0, c.columns / 2, c.columns - 1}) {
		alone := r.Output("alone", 4*c.rows)
		b := a
		b.Shared = gemvShared
		b.X, b.Y, b.Columns, b.YStride = x.At(4*i*(c.k+pad)), alone.Addr(), 1, 0
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
