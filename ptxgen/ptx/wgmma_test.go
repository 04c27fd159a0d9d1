package ptx_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/ptxas"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// accumulators makes the variables of a product's D.
func accumulators(b *ptx.Builder) []ptx.S32 {
	d := make([]ptx.S32, ptx.WGMMAAccumulators)
	for i := range d {
		d[i] = ptx.Undefined[ptx.S32](b)
	}
	return d
}

// loadA loads the registers of a product's A.
func loadA(x ptx.Global) [4]ptx.U32 { return x.LoadU32x4() }

// chained accumulates products in two D. It loads the next A while products are in flight and
// moves it to its variables after the wait.
func chained(b *ptx.Builder) {
	x, y := b.Global("x", 16), b.Global("y", 16)
	tile := b.Shared("tile", 2*2048, 128)
	x = x.At(b.ThreadX(), 16)
	tile.At(b.ThreadX(), 16).StoreU32x4(x.LoadU32x4())
	b.FenceProxyAsync()
	b.Barrier()
	first, second := accumulators(b), accumulators(b)
	var a [4]ptx.U32
	for i, r := range loadA(x) {
		a[i] = ptx.Var(r)
	}
	b.WGMMAFence()
	b.WGMMAS8(first, a, tile.MatrixDescriptor(128, 256), false)
	b.WGMMAU8(second, a, tile.Plus(2048).MatrixDescriptor(1024, 128), false)
	b.WGMMACommit()
	b.For(b.U32(1), b.U32(9), b.U32(1), func(i ptx.U32) {
		next := loadA(x.At(i, 2048))
		b.WGMMAWait(0)
		for j := range a {
			ptx.Set(a[j], next[j].Xor(b.U32(0x80808080)))
		}
		b.WGMMAFence()
		b.WGMMAS8(first, a, tile.MatrixDescriptor(128, 256), true)
		b.WGMMAU8(second, a, tile.Plus(2048).MatrixDescriptor(1024, 128), true)
		b.WGMMACommit()
	}, ptx.NoUnroll)
	b.WGMMAWait(0)
	storeAccumulators(b, y, first, second)
}

func storeAccumulators(b *ptx.Builder, y ptx.Global, all ...[]ptx.S32) {
	y = y.At(b.ThreadX(), 128*len(all))
	for k, d := range all {
		for i, x := range d {
			y.Plus(128*k + 4*i).StoreU32(x.U32())
		}
	}
}

// pipelined accumulates products in one D with two A. It prepares one A while the product of the
// other is in flight.
func pipelined(b *ptx.Builder) {
	x, y := b.Global("x", 16), b.Global("y", 16)
	x = x.At(b.ThreadX(), 16)
	desc := b.Shared("tile", 2048, 128).MatrixDescriptor(128, 256)
	d := accumulators(b)
	var a [2][4]ptx.U32
	for k := range a {
		for i, r := range loadA(x.Plus(2048 * k)) {
			a[k][i] = ptx.Var(r)
		}
	}
	b.WGMMAFence()
	b.WGMMAS8(d, a[0], desc, false)
	b.WGMMACommit()
	b.For(b.U32(1), b.U32(17), b.U32(2), func(i ptx.U32) {
		for k := range a {
			set := a[1-k]
			for j, r := range loadA(x.At(i, 2048).Plus(2048 * k)) {
				ptx.Set(set[j], r.AndN(0x0f0f0f0f))
			}
			b.WGMMAFence()
			b.WGMMAS8(d, set, desc, true)
			b.WGMMACommit()
			b.WGMMAWait(1)
		}
	}, ptx.NoUnroll)
	b.WGMMAWait(0)
	storeAccumulators(b, y, d)
}

// TestWGMMAAssembles checks that ptxas accepts the kernels without a warning about serialized
// products and without spills.
func TestWGMMAAssembles(t *testing.T) {
	for _, c := range []struct {
		name, head string
		make       func(*ptx.Builder)
		registers  int // minimum: those of D
	}{
		{"two D, signed and unsigned bytes", ".version 8.4\n.target sm_90a\n", chained, 2 * ptx.WGMMAAccumulators},
		{"two groups in flight", ".version 8.0\n.target sm_90a\n", pipelined, ptx.WGMMAAccumulators},
	} {
		k, err := build(c.make)
		if err != nil {
			t.Fatal(err)
		}
		text, err := k.Text(ptx.Target{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), c.head) {
			t.Errorf("%s: want %q in\n%.200s", c.name, c.head, text)
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
		var a [4]ptx.U32
		for i, r := range loadA(x) {
			a[i] = ptx.Var(r)
		}
		b.WGMMAFence()
		b.WGMMAS8(d, a, b.Shared("tile", 2048, 16).MatrixDescriptor(128, 256), false)
		b.WGMMACommit()
		later := x.Plus(16).LoadU32()
		b.WGMMAWait(0)
		ptx.Set(a[0], later)
		x.StoreU32(a[0])
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

func TestWGMMAFailures(t *testing.T) {
	type parts struct {
		b    *ptx.Builder
		d    []ptx.S32
		a    [4]ptx.U32
		tile ptx.Shared
	}
	for _, c := range []struct {
		name, want string
		make       func(p parts)
	}{
		{"too few accumulators", "31 registers of d", func(p parts) { p.b.WGMMAS8(p.d[1:], p.a, p.tile.MatrixDescriptor(128, 256), false) }},
		{"an accumulator that is not a variable", "is not a distinct variable", func(p parts) {
			p.d[3] = p.a[0].S32()
			p.b.WGMMAS8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), false)
		}},
		{"a repeated accumulator", "is not a distinct variable", func(p parts) {
			p.d[3] = p.d[4]
			p.b.WGMMAS8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), false)
		}},
		{"a constant in a", "a needs registers", func(p parts) {
			p.a[2] = p.b.U32(7)
			p.b.WGMMAU8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), false)
		}},
		{"an accumulator in a", "a needs registers", func(p parts) {
			p.a[2] = p.d[0].U32()
			p.b.WGMMAU8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), false)
		}},
		{"a constant descriptor", "not a register", func(p parts) { p.b.WGMMAS8(p.d, p.a, p.b.U64(64), false) }},
		{"accumulating without a value", "not written on every path", func(p parts) { p.b.WGMMAS8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), true) }},
		{"under a predicate", "inside a predicated section", func(p parts) { p.b.When(p.a[0].EqN(0), p.b.WGMMAFence) }},
		{"too many groups", "all but 8 groups", func(p parts) { p.b.WGMMAWait(8) }},
		{"a misaligned matrix", "aligned to 8, want 16", func(p parts) { p.tile.Plus(8).MatrixDescriptor(128, 256) }},
		{"a misaligned offset", "an offset of 136 bytes", func(p parts) { p.tile.MatrixDescriptor(128, 136) }},
		{"an offset out of range", "an offset of 262144 bytes", func(p parts) { p.tile.MatrixDescriptor(1<<18, 128) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := build(func(b *ptx.Builder) {
				c.make(parts{b, accumulators(b), loadA(b.Global("x", 16)), b.Shared("tile", 2048, 16)})
			})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "wgmma_test.go:") {
				t.Errorf("error %v, want one with %q and the caller's line", err, c.want)
			}
		})
	}
}
