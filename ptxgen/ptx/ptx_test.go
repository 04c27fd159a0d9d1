package ptx_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

var update = flag.Bool("update", false, "write the golden texts")

// everything uses each kind of statement once.
func everything(b *ptx.Builder) {
	b.Doc("y[i] = sum over j < n of c*j, and then some")
	y, n, c := b.Global("y", 16), b.ParamU32("n"), b.ParamF32("c")
	tile := b.Shared("tile", 512, 16)
	i := b.BlockX().MulN(128).Add(b.ThreadX())
	b.ReturnIf(i.Ge(n))
	p := y.At(i, 16)
	sum := ptx.Var(b.F32(0))
	b.For(b.U32(0), n, b.U32(1), func(j ptx.U32) { ptx.Set(sum, j.F32().FMA(c, sum)) }, ptx.NoUnroll)
	b.When(i.LtN(3), func() { ptx.Set(sum, p.LoadF32()) })
	b.Comment("four values at once")
	v := p.LoadF32x4(ptx.ReadOnce)
	at := tile.At(b.ThreadX(), 4)
	b.IfElse(sum.Gt(v[0]), func() { at.StoreF32(v[1]) }, func() { at.StoreF32(v[2].Neg()) })
	b.Barrier()
	left := ptx.Var(b.U32(4))
	b.While(func() ptx.Pred { return left.Ne(b.U32(0)) }, func() { ptx.Set(left, left.Sub(b.U32(1))) })
	lo, hi := ptx.PackF16(at.LoadF32(), v[3]).F32()
	p.StoreF32x2([2]ptx.F32{ptx.WarpSum(lo), ptx.Select(i.EqN(1), hi, sum)})
	p.Plus(-8).StoreF32x2([2]ptx.F32{p.Plus(8).LoadF32(), sum})
}

func build(f func(*ptx.Builder)) (*ptx.Kernel, error) {
	b := ptx.New("k")
	f(b)
	return b.Finish(ptx.MaxThreads(128))
}

// TestText compares the text of a kernel with a golden file, byte by byte.
func TestText(t *testing.T) {
	k, err := build(everything)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "everything.ptx")
	got, err := k.Text(ptx.Target{})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the text differs from %s; to accept the change run with -update:\n%s", golden, got)
	}
	again, _ := build(everything)
	if text, _ := again.Text(ptx.Target{}); !bytes.Equal(text, got) {
		t.Error("a second build gives another text")
	}
}

// TestFailures checks each failure and that it names the caller's source line.
func TestFailures(t *testing.T) {
	other := ptx.New("other")
	foreign := other.U32(7)
	for _, c := range []struct {
		name, want string
		make       func(*ptx.Builder)
	}{
		{"undefined after a branch", "not written on every path", func(b *ptx.Builder) {
			var x ptx.F32
			b.If(b.ThreadX().EqN(0), func() { x = b.ThreadX().F32() })
			b.Global("y", 4).StoreF32(x)
		}},
		{"alignment of dynamic shared memory", "alignment 24", func(b *ptx.Builder) { b.DynamicShared(24) }},
		{"undefined variable", "not written on every path", func(b *ptx.Builder) {
			b.Global("y", 4).StoreF32(ptx.Undefined[ptx.F32](b))
		}},
		{"predicated value used outside", "not written on every path", func(b *ptx.Builder) {
			y := b.Global("y", 4)
			var x ptx.F32
			b.When(b.ThreadX().EqN(0), func() { x = y.LoadF32() })
			y.StoreF32(x)
		}},
		{"defined in a loop's body", "not written on every path", func(b *ptx.Builder) {
			var x ptx.U32
			n := ptx.Var(b.ThreadX())
			b.While(func() ptx.Pred { return n.EqN(0) }, func() { x = n.AddN(1); ptx.Set(n, x) })
			b.Global("y", 4).StoreU32(x)
		}},
		{"set of a value", "is not a variable", func(b *ptx.Builder) { ptx.Set(b.ThreadX(), b.U32(1)) }},
		{"two kernels", "another kernel", func(b *ptx.Builder) { b.ThreadX().Min(foreign) }},
		{"narrow vector access", "aligned to 4", func(b *ptx.Builder) { b.Global("y", 16).At(b.ThreadX(), 4).LoadF32x4() }},
		{"misaligned offset", "aligned to 2", func(b *ptx.Builder) { b.Global("y", 16).Plus(2).LoadU32() }},
		{"alignment lost", "aligned to 1", func(b *ptx.Builder) { b.Shared("s", 64, 16).AtBytes(b.ThreadX()).LoadU32() }},
		{"branch under a predicate", "inside a predicated section", func(b *ptx.Builder) {
			p := b.ThreadX().EqN(0)
			b.When(p, func() { b.If(p, func() {}) })
		}},
		{"parameter twice", "two parameters", func(b *ptx.Builder) { b.ParamU32("n"); b.ParamF32("n") }},
		{"parameter's name", "cannot name", func(b *ptx.Builder) { b.ParamU32("n!") }},
		{"comment", "not ASCII", func(b *ptx.Builder) { b.Comment("Σ") }},
		{"shared memory twice", "two arrays", func(b *ptx.Builder) { b.Shared("s", 4, 4); b.Shared("s", 8, 4) }},
		{"shared memory", "48 KiB", func(b *ptx.Builder) { b.Shared("s", 48<<10+1, 4) }},
		{"cache of shared memory", "no cache", func(b *ptx.Builder) { b.Shared("s", 64, 16).LoadU32(ptx.ReadOnce) }},
		{"accumulator", "not a variable", func(b *ptx.Builder) {
			x, h := b.F32(0), b.U32(0).AsF16x2()
			ptx.MMA([4]ptx.F32{x, x, x, x}, [4]ptx.F16x2{h, h, h, h}, [2]ptx.F16x2{h, h})
		}},
		{"constant halves", "takes only registers", func(b *ptx.Builder) { b.U32(0x3C003C00).AsF16x2().Mul(b.ThreadX().AsF16x2()) }},
		{"constant halves, second", "operand 3 is the constant 7", func(b *ptx.Builder) { b.ThreadX().AsF16x2().Add(b.U32(7).AsF16x2()) }},
		{"wait on some paths", "on some paths only", func(b *ptx.Builder) { b.If(b.ThreadX().EqN(0), b.WaitForPrior) }},
		{"a store before the wait", "st.global.u32", func(b *ptx.Builder) {
			b.If(b.ThreadX().EqN(0), func() { b.Global("y", 4).StoreU32(b.U32(1)) })
			b.WaitForPrior()
		}},
		{"a return before the wait", "ret before the kernel waits", func(b *ptx.Builder) {
			b.ReturnIf(b.BlockX().EqN(0))
			b.WaitForPrior()
		}},
		{"an atomic addition before the wait", "before the kernel waits", func(b *ptx.Builder) {
			b.Global("y", 4).AddU32(b.U32(1))
			b.WaitForPrior()
		}},
		{"a reduction before the wait", "before the kernel waits", func(b *ptx.Builder) {
			b.Global("y", 4).AddReleaseU32(b.U32(1))
			b.WaitForPrior()
		}},
		{"constant address", "is a constant", func(b *ptx.Builder) { ptx.GlobalAt(b.U64(64), 16).LoadU32() }},
		{"Failf", "no such format", func(b *ptx.Builder) { b.Failf("no such format") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := build(c.make)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if !strings.Contains(err.Error(), "ptx_test.go:") {
				t.Errorf("%v does not name the caller's line", err)
			}
		})
	}
}

// TestFirstFailure checks that Finish returns the first of several failures.
func TestFirstFailure(t *testing.T) {
	_, err := build(func(b *ptx.Builder) {
		b.Failf("first")
		b.Failf("second")
		b.ParamU32("n!")
	})
	if err == nil || !strings.Contains(err.Error(), "first") {
		t.Errorf("error %v, want the first", err)
	}
}

func TestLaunch(t *testing.T) {
	k, err := build(everything)
	if err != nil {
		t.Fatal(err)
	}
	grid := [3]uint32{1, 1, 1}
	type params struct {
		Y ptx.Global
		N ptx.U32
		C ptx.F32
	}
	good := params{Y: ptx.Addr(uint64(256)), N: ptx.Uint(3), C: ptx.Float(0.5)}
	l, err := k.Launch(grid, 128, 0, &good)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x01\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x3f"; string(l.Params) != want {
		t.Errorf("packed %q, want %q", l.Params, want)
	}
	unset := good
	unset.N = ptx.U32{}
	misaligned := good
	misaligned.Y = ptx.Addr(uint64(260))
	for _, c := range []struct {
		name, want string
		grid       [3]uint32
		threads    int
		shared     int
		params     any
	}{
		{"too few", "parameter c: it is missing", grid, 128, 0, &struct {
			Y ptx.Global
			N ptx.U32
		}{good.Y, good.N}},
		{"too many", "it has no parameter d", grid, 128, 0, &struct {
			Y    ptx.Global
			N    ptx.U32
			C, D ptx.F32
		}{good.Y, good.N, good.C, good.C}},
		{"order", "parameter y is u64, not n of type u32", grid, 128, 0, &struct {
			N ptx.U32
			Y ptx.Global
			C ptx.F32
		}{good.N, good.Y, good.C}},
		{"type", "parameter n is u32, not n of type f32", grid, 128, 0, &struct {
			Y    ptx.Global
			N, C ptx.F32
		}{good.Y, good.C, good.C}},
		{"unset", "parameter n: it is not set", grid, 128, 0, &unset},
		{"alignment", "address 0x104 is not a multiple of 16", grid, 128, 0, &misaligned},
		{"threads", "129 threads, at most 128", grid, 129, 0, &good},
		{"no CTA", "a grid of", [3]uint32{1, 0, 1}, 128, 0, &good},
		{"tall grid", "a grid of", [3]uint32{1, 65536, 1}, 128, 0, &good},
		{"shared", "dynamic shared memory, which it does not use", grid, 128, 16, &good},
	} {
		if _, err := k.Launch(c.grid, c.threads, c.shared, c.params); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

func TestTargets(t *testing.T) {
	base, err := build(everything)
	if err != nil {
		t.Fatal(err)
	}
	hopper, err := build(func(b *ptx.Builder) { b.NewMBarrier(b.Shared("bar", 8, 8), b.N(1)).Wait(b.U32(0)) })
	if err != nil {
		t.Fatal(err)
	}
	warpgroup, err := build((*ptx.Builder).WGMMAFence)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		kernel *ptx.Kernel
		target string
		want   string // part of the text or of the error
	}{
		{"zero target", base, "", ".version 7.4\n.target sm_80\n"},
		{"newer than needed", base, "sm_89", ".version 7.8\n.target sm_89\n"},
		{"older than needed", base, "sm_75", "needs sm_80 at least, not sm_75"},
		{"sm_90 instructions, zero target", hopper, "", ".version 8.0\n.target sm_90\n"},
		{"sm_90 instructions on sm_80", hopper, "sm_80", "needs sm_90 at least"},
		{"sm_90 instructions on sm_90a", hopper, "sm_90a", ".version 8.0\n.target sm_90a\n"},
		{"sm_90a instructions, zero target", warpgroup, "", ".version 8.0\n.target sm_90a\n"},
		{"sm_90a instructions on sm_90", warpgroup, "sm_90", "needs sm_90a and runs on nothing else, not sm_90"},
	} {
		var target ptx.Target
		if c.target != "" {
			if target, err = ptx.ParseTarget(c.target); err != nil {
				t.Fatal(err)
			}
		}
		text, err := c.kernel.Text(target)
		if err != nil {
			text = []byte(err.Error())
		}
		if !strings.Contains(string(text), c.want) {
			t.Errorf("%s: want %q in\n%.200s", c.name, c.want, text)
		}
	}
	for _, bad := range []string{"", "sm_", "80", "sm_8x", "sm_80b", "sm_080", "compute_80"} {
		if got, err := ptx.ParseTarget(bad); err == nil {
			t.Errorf("ParseTarget(%q) = %v", bad, got)
		}
	}
}

// TestSharedBytes checks how much shared memory a kernel takes beside what its launch asks for. Static
// shared memory is padded to 16 bytes if dynamic shared memory follows it. Dynamic shared memory gets
// as many bytes more as its alignment, if that is above 16, in either order of declaration.
func TestSharedBytes(t *testing.T) {
	fixed := func(b *ptx.Builder) { b.Shared("a", 8, 8); b.Shared("b", 268, 16) }
	dynamic := func(align int) func(*ptx.Builder) { return func(b *ptx.Builder) { b.DynamicShared(align) } }
	for _, c := range []struct {
		name            string
		make            []func(b *ptx.Builder)
		static, padding int
	}{
		{"none", nil, 0, 0},
		{"static", []func(*ptx.Builder){fixed}, 284, 0},
		{"dynamic", []func(*ptx.Builder){dynamic(16)}, 0, 0},
		{"dynamic, aligned less", []func(*ptx.Builder){fixed, dynamic(4)}, 288, 0},
		{"dynamic, aligned more", []func(*ptx.Builder){dynamic(1024)}, 0, 1024},
		{"both", []func(*ptx.Builder){fixed, dynamic(128)}, 288, 128},
		{"both, dynamic first", []func(*ptx.Builder){dynamic(128), fixed}, 288, 128},
	} {
		k, err := build(func(b *ptx.Builder) {
			for _, f := range c.make {
				f(b)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if k.Static != c.static {
			t.Errorf("%s: %d bytes of static shared memory, want %d", c.name, k.Static, c.static)
		}
		if got, want := k.MaxDynamic(5000), 5000-c.static-c.padding; got != want {
			t.Errorf("%s: at most %d bytes of dynamic shared memory, want %d", c.name, got, want)
		}
		if !k.Dynamic {
			continue
		}
		l, err := k.Launch([3]uint32{1, 1, 1}, 32, 640)
		if err != nil || l.Shared != uint32(640+c.padding) {
			t.Errorf("%s: a launch with %d bytes, want %d; %v", c.name, l.Shared, 640+c.padding, err)
		}
	}
}
