package ptx_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/ptxas"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// accumulators makes the variables of a product's D, of 64 columns.
func accumulators(b *ptx.Builder) []ptx.F32 {
	d := make([]ptx.F32, 32)
	for i := range d {
		d[i] = ptx.Undefined[ptx.F32](b)
	}
	return d
}

// loadA loads the registers of a product's A.
func loadA(x ptx.Global) (a [4]ptx.F16x2) {
	for i, w := range x.LoadU32x4() {
		a[i] = w.AsF16x2()
	}
	return a
}

// layoutB is the layout of a B of 64 columns.
var layoutB = ptx.MatrixLayout{Rows: 64, Depth: 16, Line: 16}

// matrixB returns a B of 64 columns.
func matrixB(p ptx.Shared) ptx.SharedMatrix[ptx.F16x2] {
	return ptx.NewSharedMatrix[ptx.F16x2](p, layoutB)
}

// chained accumulates products in two D. It loads the next A while products are in flight and
// moves it to its variables after the wait.
func chained(b *ptx.Builder) {
	x, y := b.Global("x", 16), b.Global("y", 16)
	tile := b.Shared("tile", 2*layoutB.Bytes(), 128)
	x = x.At(b.ThreadX(), 16)
	tile.At(b.ThreadX(), 16).StoreU32x4(x.LoadU32x4())
	b.FenceProxyAsync()
	b.Barrier()
	first, second := accumulators(b), accumulators(b)
	low, high := matrixB(tile), matrixB(tile.Plus(layoutB.Bytes()))
	var a [4]ptx.F16x2
	for i, r := range loadA(x) {
		a[i] = ptx.Var(r)
	}
	b.WGMMAFence()
	ptx.WGMMA(first, a, low, false)
	ptx.WGMMA(second, a, high, false)
	b.WGMMACommit()
	b.For(b.U32(1), b.U32(9), b.U32(1), func(i ptx.U32) {
		next := loadA(x.At(i, 2048))
		b.WGMMAWait(0)
		for j := range a {
			ptx.Set(a[j], next[j].Add(next[j]))
		}
		b.WGMMAFence()
		ptx.WGMMA(first, a, low, true)
		ptx.WGMMA(second, a, high, true)
		b.WGMMACommit()
	}, ptx.NoUnroll)
	b.WGMMAWait(0)
	storeAccumulators(b, y, first, second)
}

func storeAccumulators(b *ptx.Builder, y ptx.Global, all ...[]ptx.F32) {
	y = y.At(b.ThreadX(), 128*len(all))
	for k, d := range all {
		for i, x := range d {
			y.Plus(128*k + 4*i).StoreF32(x)
		}
	}
}

// pipelined accumulates products in one D with two A. It prepares one A while the product of the
// other is in flight.
func pipelined(b *ptx.Builder) {
	x, y := b.Global("x", 16), b.Global("y", 16)
	x = x.At(b.ThreadX(), 16)
	matrix := matrixB(b.Shared("tile", layoutB.Bytes(), 128))
	d := accumulators(b)
	var a [2][4]ptx.F16x2
	for k := range a {
		for i, r := range loadA(x.Plus(2048 * k)) {
			a[k][i] = ptx.Var(r)
		}
	}
	b.WGMMAFence()
	ptx.WGMMA(d, a[0], matrix, false)
	b.WGMMACommit()
	b.For(b.U32(1), b.U32(17), b.U32(2), func(i ptx.U32) {
		for k := range a {
			set := a[1-k]
			for j, r := range loadA(x.At(i, 2048).Plus(2048 * k)) {
				ptx.Set(set[j], r.Add(r))
			}
			b.WGMMAFence()
			ptx.WGMMA(d, set, matrix, true)
			b.WGMMACommit()
			b.WGMMAWait(1)
		}
	}, ptx.NoUnroll)
	b.WGMMAWait(0)
	storeAccumulators(b, y, d)
}

// halves returns a kernel that accumulates products of n columns. B has 64 of K in each of two stages.
// If a is nil, A is in registers, else in shared memory, with 64 of K.
func halves[T ptx.Half2](n int, a *ptx.MatrixLayout, layout ptx.MatrixLayout) func(*ptx.Builder) {
	return func(b *ptx.Builder) {
		x, y := b.Global("x", 16), b.Global("y", 16)
		memory := b.DynamicShared(1024)
		var inMemory ptx.SharedMatrix[T]
		if a != nil {
			inMemory = ptx.NewSharedMatrix[T](memory, *a)
		}
		stages := memory.Plus(8192)
		matrix := ptx.NewSharedMatrix[T](stages, layout)
		d := make([]ptx.F32, n/2)
		for i := range d {
			d[i] = ptx.Undefined[ptx.F32](b)
		}
		b.For(b.U32(0), b.U32(9), b.U32(1), func(i ptx.U32) {
			stage := i.AndN(1)
			layout.Chunk(stages.At(stage, layout.Bytes()), b.ThreadX(), i).StoreU32x4(x.At(i, 16).LoadU32x4())
			b.FenceProxyAsync()
			b.Barrier()
			current := matrix.At(stage, layout.Bytes())
			var fragments [4][4]T
			for k := range fragments {
				for j, r := range x.At(i, 4096).Plus(64 * k).LoadU32x4() {
					fragments[k][j] = T(r)
				}
			}
			b.WGMMAFence()
			for k := range 4 {
				if part := current.Sub(0, 16*k); a != nil {
					ptx.WGMMAShared(d, inMemory.Sub(0, 16*k), part, k > 0)
				} else {
					ptx.WGMMA(d, fragments[k], part, k > 0)
				}
			}
			b.WGMMACommit()
			b.WGMMAWait(0)
			for j, sum := range d {
				y.At(i, 4096).Plus(4 * j).StoreF32(sum)
			}
		}, ptx.NoUnroll)
	}
}

// TestWGMMAAssembles checks that ptxas accepts the kernels without a warning about serialized
// products and without spills.
func TestWGMMAAssembles(t *testing.T) {
	const hopper = ".version 8.0\n.target sm_90a\n"
	for _, c := range []struct {
		name      string
		make      func(*ptx.Builder)
		registers int // minimum: those of D
	}{
		{"two D", chained, 64},
		{"two groups in flight", pipelined, 32},
		{"f16, 8 columns", halves[ptx.F16x2](8, nil, ptx.MatrixLayout{Rows: 8, Depth: 64, Line: 128}), 4},
		{"bf16, 24 columns", halves[ptx.BF16x2](24, nil, ptx.MatrixLayout{Rows: 24, Depth: 64, Line: 16, Transposed: true}), 12},
		{"f16, 256 columns", halves[ptx.F16x2](256, nil, ptx.MatrixLayout{Rows: 256, Depth: 64, Line: 128}), 128},
		{"bf16 from shared memory", halves[ptx.BF16x2](128, &ptx.MatrixLayout{Rows: 64, Depth: 64, Line: 128},
			ptx.MatrixLayout{Rows: 128, Depth: 64, Line: 64}), 64},
		{"f16, both transposed", halves[ptx.F16x2](64, &ptx.MatrixLayout{Rows: 64, Depth: 64, Line: 32, Transposed: true},
			ptx.MatrixLayout{Rows: 64, Depth: 64, Line: 128, Transposed: true}), 32},
	} {
		k, err := build(c.make)
		if err != nil {
			t.Fatal(err)
		}
		text, err := k.Text(ptx.Target{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), hopper) {
			t.Errorf("%s: want %q in\n%.200s", c.name, hopper, text)
		}
		reports, err := ptxas.Need(t).Assemble(text, "sm_90a")
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, text)
		}
		r := reports["k"]
		if err := r.Check("k"); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if r.Registers < c.registers {
			t.Errorf("%s: %d registers, want at least %d", c.name, r.Registers, c.registers)
		}
	}
}

// TestWGMMAShapesAssemble checks that ptxas accepts each number of columns.
func TestWGMMAShapesAssemble(t *testing.T) {
	for n := 8; n <= 256; n += 8 {
		kernel := halves[ptx.F16x2](n, nil, ptx.MatrixLayout{Rows: n, Depth: 64, Line: 128})
		if n%16 == 0 {
			kernel = halves[ptx.BF16x2](n, &ptx.MatrixLayout{Rows: 64, Depth: 64, Line: 64}, ptx.MatrixLayout{Rows: n, Depth: 64, Line: 32, Transposed: true})
		}
		k, err := build(kernel)
		if err != nil {
			t.Fatal(err)
		}
		text, err := k.Text(ptx.Target{})
		if err != nil {
			t.Fatal(err)
		}
		if reports, err := ptxas.Need(t).Assemble(text, "sm_90a"); err != nil || len(reports["k"].Warnings) > 0 {
			t.Errorf("%d columns: %v, %v", n, err, reports["k"].Warnings)
		}
	}
}

// TestTargetFor checks that For adds architecture-specific features only if the kernel needs them.
func TestTargetFor(t *testing.T) {
	own, err := build((*ptx.Builder).WGMMAFence)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := build((*ptx.Builder).WarpSync)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		kernel       *ptx.Kernel
		target, want ptx.Target
	}{
		{"needed", own, ptx.Target{SM: 90}, ptx.Target{SM: 90, Arch: true}},
		{"another architecture", own, ptx.Target{SM: 100}, ptx.Target{SM: 100}},
		{"not needed", plain, ptx.Target{SM: 90}, ptx.Target{SM: 90}},
		{"asked for", plain, ptx.Target{SM: 90, Arch: true}, ptx.Target{SM: 90, Arch: true}},
	} {
		if got := c.target.For(c.kernel); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestWGMMAKeepsWrites checks that coalescing does not move a write across a wait, because the
// register is still in use before it.
func TestWGMMAKeepsWrites(t *testing.T) {
	k, err := build(func(b *ptx.Builder) {
		x := b.Global("x", 16)
		d := accumulators(b)
		var a [4]ptx.F16x2
		for i, r := range loadA(x) {
			a[i] = ptx.Var(r)
		}
		matrix := matrixB(b.Shared("tile", layoutB.Bytes(), 16))
		b.WGMMAFence()
		ptx.WGMMA(d, a, matrix, false)
		b.WGMMACommit()
		later := x.Plus(16).LoadU32()
		b.WGMMAWait(0)
		ptx.Set(a[0], later.AsF16x2())
		x.StoreU32(a[0].Bits())
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := k.Text(ptx.Target{})
	if err != nil {
		t.Fatal(err)
	}
	if _, after, found := strings.Cut(string(text), "wgmma.wait_group.sync.aligned 0;\n"); !found || !strings.HasPrefix(after, "\tmov.b32 ") {
		t.Errorf("the move does not follow the wait:\n%s", text)
	}
}

// TestMatrixLayout checks offsets and the alignment in tiles of each kind.
func TestMatrixLayout(t *testing.T) {
	type offsets map[[2]int]int // by row and k
	for _, c := range []struct {
		layout ptx.MatrixLayout
		align  int
		want   offsets
	}{
		{ptx.MatrixLayout{Rows: 24, Depth: 32, Line: 16}, 16, offsets{{1, 0}: 16, {0, 1}: 2, {8, 0}: 128, {0, 8}: 384, {9, 17}: 2*384 + 144 + 2}},
		{ptx.MatrixLayout{Rows: 24, Depth: 32, Line: 32}, 256, offsets{{1, 0}: 32, {0, 8}: 16, {4, 0}: 4*32 + 16, {4, 8}: 4 * 32, {8, 0}: 256, {0, 16}: 768}},
		{ptx.MatrixLayout{Rows: 16, Depth: 32, Line: 64}, 512, offsets{{1, 0}: 64, {2, 0}: 128 + 16, {7, 8}: 7*64 + 16*(3^1), {8, 0}: 512}},
		{ptx.MatrixLayout{Rows: 16, Depth: 128, Line: 128}, 1024, offsets{{1, 0}: 128 + 16, {7, 63}: 7*128 + 16*(7^7) + 14, {8, 16}: 1024 + 32, {0, 64}: 2048}},
		{ptx.MatrixLayout{Rows: 16, Depth: 48, Line: 16, Transposed: true}, 16, offsets{{1, 0}: 2, {0, 1}: 16, {0, 8}: 128, {8, 0}: 768, {9, 16}: 768 + 256 + 2}},
		{ptx.MatrixLayout{Rows: 128, Depth: 32, Line: 128, Transposed: true}, 1024, offsets{{8, 0}: 16, {0, 1}: 128 + 16, {8, 1}: 128, {0, 8}: 1024, {64, 0}: 4096}},
	} {
		if c.layout.Align() != c.align {
			t.Errorf("%+v is aligned to %d, want %d", c.layout, c.layout.Align(), c.align)
		}
		for at, want := range c.want {
			if got := c.layout.Offset(at[0], at[1]); got != want {
				t.Errorf("%+v: row %d and k %d are at %d, want %d", c.layout, at[0], at[1], got, want)
			}
		}
		seen := map[int]bool{}
		for row := range c.layout.Rows {
			for k := range c.layout.Depth {
				seen[c.layout.Offset(row, k)] = true
			}
		}
		if len(seen) != c.layout.Rows*c.layout.Depth || seen[c.layout.Bytes()] || !seen[c.layout.Bytes()-2] {
			t.Errorf("%+v: %d offsets, which do not fill %d bytes", c.layout, len(seen), c.layout.Bytes())
		}
	}
}

// parts are operands of products that TestWGMMAFailures spoils.
type parts struct {
	b    *ptx.Builder
	d    []ptx.F32
	a    [4]ptx.F16x2
	tile ptx.Shared
	x    ptx.U32 // a register
}

// sums makes n accumulators.
func (p parts) sums(n int) []ptx.F32 {
	d := make([]ptx.F32, n)
	for i := range d {
		d[i] = ptx.Undefined[ptx.F32](p.b)
	}
	return d
}

// half multiplies with n accumulators.
func (p parts) half(n int, l ptx.MatrixLayout) {
	ptx.WGMMA(p.sums(n), p.a, ptx.NewSharedMatrix[ptx.F16x2](p.tile, l), false)
}

// product multiplies with 64 columns.
func (p parts) product() { ptx.WGMMA(p.d, p.a, matrixB(p.tile), false) }

func TestWGMMAFailures(t *testing.T) {
	for _, c := range []struct {
		name, want string
		make       func(p parts)
	}{
		{"an accumulator that is not a variable", "is not a distinct variable", func(p parts) {
			p.d[3] = p.x.AsF32()
			p.product()
		}},
		{"a repeated accumulator", "is not a distinct variable", func(p parts) {
			p.d[3] = p.d[4]
			p.product()
		}},
		{"a constant in a", "a needs registers", func(p parts) {
			p.a[2] = p.b.U32(7).AsF16x2()
			p.product()
		}},
		{"accumulating without a value", "not written on every path", func(p parts) { ptx.WGMMA(p.d, p.a, matrixB(p.tile), true) }},
		{"under a predicate", "inside a predicated section", func(p parts) { p.b.When(p.x.EqN(0), p.b.WGMMAFence) }},
		{"no fence", "between WGMMAFence and a product", func(p parts) { p.product(); p.b.WGMMACommit() }},
		{"a fence before a loop", "between WGMMAFence and a product", func(p parts) {
			p.b.WGMMAFence()
			p.b.For(p.b.U32(0), p.x, p.b.U32(1), func(ptx.U32) { p.product(); p.b.WGMMACommit() })
		}},
		{"a fence in a branch", "between WGMMAFence and a product", func(p parts) {
			p.b.If(p.x.EqN(0), p.b.WGMMAFence)
			p.product()
			p.b.WGMMACommit()
		}},
		{"no commit", "between a product and its WGMMACommit", func(p parts) { p.b.WGMMAFence(); p.product() }},
		{"a commit after a loop", "between a product and its WGMMACommit", func(p parts) {
			p.b.For(p.b.U32(0), p.x, p.b.U32(1), func(ptx.U32) { p.b.WGMMAFence(); p.product() })
			p.b.WGMMACommit()
		}},
		{"a commit after a branch", "between a product and its WGMMACommit", func(p parts) {
			p.b.WGMMAFence()
			p.product()
			p.b.If(p.x.EqN(0), p.b.WGMMACommit)
		}},
		{"too many groups", "all but 8 groups", func(p parts) { p.b.WGMMAWait(8) }},
		{"five sums", "5 registers of d", func(p parts) { p.half(5, ptx.MatrixLayout{Rows: 64, Depth: 16, Line: 16}) }},
		{"no sums", "0 registers of d", func(p parts) { p.half(0, ptx.MatrixLayout{Rows: 64, Depth: 16, Line: 16}) }},
		{"264 columns", "132 registers of d", func(p parts) { p.half(132, ptx.MatrixLayout{Rows: 264, Depth: 16, Line: 16}) }},
		{"too few columns of b", "16 rows of b from row 0 of 8", func(p parts) { p.half(8, ptx.MatrixLayout{Rows: 8, Depth: 16, Line: 16}) }},
		{"a line of 48 bytes", "MatrixLayout.Line is 48", func(p parts) { p.half(4, ptx.MatrixLayout{Rows: 8, Depth: 48, Line: 48}) }},
		{"12 rows", "MatrixLayout.Rows is 12", func(p parts) { p.half(4, ptx.MatrixLayout{Rows: 12, Depth: 16, Line: 16}) }},
		{"a depth of 24", "MatrixLayout.Depth is 24", func(p parts) { p.half(4, ptx.MatrixLayout{Rows: 8, Depth: 24, Line: 16}) }},
		{"half a line", "MatrixLayout.Line is 128 bytes, which 32 elements", func(p parts) { p.half(4, ptx.MatrixLayout{Rows: 8, Depth: 32, Line: 128}) }},
		{"some of a transposed line", "8 rows of b do not fill lines of 32 bytes", func(p parts) {
			p.tile = p.tile.Aligned(256)
			p.half(4, ptx.MatrixLayout{Rows: 16, Depth: 16, Line: 32, Transposed: true})
		}},
		{"a swizzled matrix that is not aligned", "aligned to 16, want 256", func(p parts) { p.half(4, ptx.MatrixLayout{Rows: 8, Depth: 16, Line: 32}) }},
		{"a submatrix beyond the end", "from row 0 and k 16 of a matrix of 8 rows and 16 of K", func(p parts) {
			ptx.NewSharedMatrix[ptx.F16x2](p.tile, ptx.MatrixLayout{Rows: 8, Depth: 16, Line: 16}).Sub(0, 16)
		}},
		{"a submatrix from row 4", "want multiples of 8 and 16", func(p parts) {
			ptx.NewSharedMatrix[ptx.F16x2](p.tile, ptx.MatrixLayout{Rows: 16, Depth: 16, Line: 16}).Sub(4, 0)
		}},
		{"a misaligned stage", "8 bytes apart, want a multiple of 16", func(p parts) {
			ptx.NewSharedMatrix[ptx.F16x2](p.tile, ptx.MatrixLayout{Rows: 16, Depth: 16, Line: 16}).At(p.x, 8)
		}},
		{"32 rows of a", "64 rows of a from row 0 of 32", func(p parts) {
			m := ptx.NewSharedMatrix[ptx.F16x2](p.tile, ptx.MatrixLayout{Rows: 32, Depth: 16, Line: 16})
			ptx.WGMMAShared(p.sums(4), m, m, false)
		}},
		{"accumulating halves without a value", "not written on every path", func(p parts) {
			m := ptx.NewSharedMatrix[ptx.F16x2](p.tile, ptx.MatrixLayout{Rows: 64, Depth: 16, Line: 16})
			ptx.WGMMAShared(p.sums(4), m, m, true)
		}},
		{"a misaligned matrix", "aligned to 8, want 16", func(p parts) { matrixB(p.tile.Plus(8)) }},
		{"an offset out of range", "an offset of 262144 bytes", func(p parts) { p.half(4, ptx.MatrixLayout{Rows: 1 << 14, Depth: 16, Line: 16}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := build(func(b *ptx.Builder) {
				x := b.Global("x", 16)
				c.make(parts{b, accumulators(b), loadA(x), b.Shared("tile", 2048, 16), x.LoadU32()})
			})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "wgmma_test.go:") {
				t.Errorf("error %v, want one with %q and the caller's line", err, c.want)
			}
		})
	}
}
