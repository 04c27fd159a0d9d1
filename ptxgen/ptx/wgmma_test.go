package ptx_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/ptxas"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// sums are the variables of a product's D, without a value.
func sums(b *ptx.Builder) []ptx.S32 {
	d := make([]ptx.S32, ptx.WGMMASums)
	for i := range d {
		d[i] = ptx.Undefined[ptx.S32](b)
	}
	return d
}

// rows are the registers of a product's A, loaded from x.
func rows(x ptx.Global) [4]ptx.U32 { return x.LoadU32x4() }

// chained adds the products of a row of tiles in two accumulators: while a group of products is
// under way the next A is loaded, to be moved to its variables after the wait.
func chained(b *ptx.Builder) {
	x, y := b.Global("x", 16), b.Global("y", 16)
	tile := b.Shared("tile", 2*2048, 128)
	x = x.At(b.ThreadX(), 16)
	tile.At(b.ThreadX(), 16).StoreU32x4(x.LoadU32x4())
	b.FenceProxyAsync()
	b.Barrier()
	first, second := sums(b), sums(b)
	var a [4]ptx.U32
	for i, r := range rows(x) {
		a[i] = ptx.Var(r)
	}
	b.WGMMAFence()
	b.WGMMAS8(first, a, tile.MatrixDescriptor(128, 256), false)
	b.WGMMAU8(second, a, tile.Plus(2048).MatrixDescriptor(1024, 128), false)
	b.WGMMACommit()
	b.For(b.U32(1), b.U32(9), b.U32(1), func(i ptx.U32) {
		next := rows(x.At(i, 2048))
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
	storeSums(b, y, first, second)
}

func storeSums(b *ptx.Builder, y ptx.Global, all ...[]ptx.S32) {
	y = y.At(b.ThreadX(), 128*len(all))
	for k, d := range all {
		for i, x := range d {
			y.Plus(128*k + 4*i).StoreU32(x.U32())
		}
	}
}

// pipelined adds products in one accumulator: the registers of one A are made while the product of the
// other is under way.
func pipelined(b *ptx.Builder) {
	x, y := b.Global("x", 16), b.Global("y", 16)
	x = x.At(b.ThreadX(), 16)
	desc := b.Shared("tile", 2048, 128).MatrixDescriptor(128, 256)
	d := sums(b)
	var a [2][4]ptx.U32
	for k := range a {
		for i, r := range rows(x.Plus(2048 * k)) {
			a[k][i] = ptx.Var(r)
		}
	}
	b.WGMMAFence()
	b.WGMMAS8(d, a[0], desc, false)
	b.WGMMACommit()
	b.For(b.U32(1), b.U32(17), b.U32(2), func(i ptx.U32) {
		for k := range a {
			set := a[1-k]
			for j, r := range rows(x.At(i, 2048).Plus(2048 * k)) {
				ptx.Set(set[j], r.AndN(0x0f0f0f0f))
			}
			b.WGMMAFence()
			b.WGMMAS8(d, set, desc, true)
			b.WGMMACommit()
			b.WGMMAWait(1)
		}
	}, ptx.NoUnroll)
	b.WGMMAWait(0)
	storeSums(b, y, d)
}

// The assembler takes the instructions, puts no product after another for want of order, and
// spills nothing.
func TestWGMMAAssembles(t *testing.T) {
	for _, c := range []struct {
		name, head string
		make       func(*ptx.Builder)
		registers  int // of D, at least
	}{
		{"two accumulators, factors of two types", ".version 8.4\n.target sm_90a\n", chained, 2 * ptx.WGMMASums},
		{"two groups under way", ".version 8.0\n.target sm_90a\n", pipelined, ptx.WGMMASums},
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
		if r := reports["k"]; len(r.Warnings) > 0 || r.SpillStores > 0 || r.Registers < c.registers {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// TestTargetFor: the text that a device runs has the device's own features where the kernel needs
// them, and only those.
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
		{"its own", own, ptx.Target{SM: 90}, ptx.Target{SM: 90, Arch: true}},
		{"another's", own, ptx.Target{SM: 100}, ptx.Target{SM: 100}},
		{"not needed", plain, ptx.Target{SM: 90}, ptx.Target{SM: 90}},
		{"asked for", plain, ptx.Target{SM: 90, Arch: true}, ptx.Target{SM: 90, Arch: true}},
	} {
		if got := c.target.For(c.kernel); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A value computed before a wait and set after it must not be written sooner: the variable's
// register is still in use.
func TestWGMMAKeepsWrites(t *testing.T) {
	k, err := build(func(b *ptx.Builder) {
		x := b.Global("x", 16)
		d := sums(b)
		var a [4]ptx.U32
		for i, r := range rows(x) {
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
		{"few sums", "31 registers of d", func(p parts) { p.b.WGMMAS8(p.d[1:], p.a, p.tile.MatrixDescriptor(128, 256), false) }},
		{"a sum that is a value", "is not a variable of its own", func(p parts) {
			p.d[3] = p.a[0].S32()
			p.b.WGMMAS8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), false)
		}},
		{"a sum twice", "is not a variable of its own", func(p parts) {
			p.d[3] = p.d[4]
			p.b.WGMMAS8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), false)
		}},
		{"a constant among the rows", "a takes registers", func(p parts) {
			p.a[2] = p.b.U32(7)
			p.b.WGMMAU8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), false)
		}},
		{"a sum among the rows", "a takes registers", func(p parts) {
			p.a[2] = p.d[0].U32()
			p.b.WGMMAU8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), false)
		}},
		{"a constant descriptor", "not a register", func(p parts) { p.b.WGMMAS8(p.d, p.a, p.b.U64(64), false) }},
		{"added to nothing", "not written on every path", func(p parts) { p.b.WGMMAS8(p.d, p.a, p.tile.MatrixDescriptor(128, 256), true) }},
		{"under a predicate", "inside a predicated part", func(p parts) { p.b.When(p.a[0].EqN(0), p.b.WGMMAFence) }},
		{"too many groups", "all but 8 groups", func(p parts) { p.b.WGMMAWait(8) }},
		{"a matrix out of line", "aligned to 8, want 16", func(p parts) { p.tile.Plus(8).MatrixDescriptor(128, 256) }},
		{"an offset out of line", "an offset of 136 bytes", func(p parts) { p.tile.MatrixDescriptor(128, 136) }},
		{"an offset out of range", "an offset of 262144 bytes", func(p parts) { p.tile.MatrixDescriptor(1<<18, 128) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := build(func(b *ptx.Builder) {
				c.make(parts{b, sums(b), rows(b.Global("x", 16)), b.Shared("tile", 2048, 16)})
			})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "wgmma_test.go:") {
				t.Errorf("error %v, want one with %q at the author's line", err, c.want)
			}
		})
	}
}
