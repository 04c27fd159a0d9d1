package conformance

import (
	"bytes"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// builtProducts is the kernel of wgmmaBody as the builder makes it.
func builtProducts(multiply func(b *ptx.Builder, d []ptx.S32, a [4]ptx.U32, desc ptx.U64, add bool)) (*ptx.Kernel, error) {
	b := ptx.New("form")
	arrays := map[string]ptx.Global{}
	for _, name := range formArrays {
		if name == "p3" || name == "p4" { // numbers: handForm.inputs are three
			b.ParamU64(name)
			continue
		}
		arrays[name] = b.Global(name, 16)
	}
	i := b.BlockX().MulN(formThreads).Add(b.ThreadX())
	tile := b.Shared("tile", 2048, 128)
	tile.At(b.ThreadX(), 16).StoreU32x4(arrays["p1"].At(i, 16).LoadU32x4())
	b.FenceProxyAsync()
	b.Barrier()
	a := arrays["p0"].At(i, 16).LoadU32x4()
	var sums [2][]ptx.S32
	for r := range ptx.WGMMASums {
		x := arrays["p2"].At(i, 2*ptx.WGMMASums).Plus(4 * (r % (ptx.WGMMASums / 2))).LoadS32()
		sums[0] = append(sums[0], ptx.Var(x))
		sums[1] = append(sums[1], ptx.Undefined[ptx.S32](b))
	}
	b.WGMMAFence()
	for k, c := range wgmmaCores {
		multiply(b, sums[k], a, tile.MatrixDescriptor(c.leading, c.stride), k == 0)
		b.WGMMACommit()
	}
	for k := range sums {
		b.WGMMAWait(1 - k)
		for r, x := range sums[k] {
			arrays["out"].At(i, wgmmaSize).Plus(4 * (ptx.WGMMASums*k + r)).StoreU32(x.U32())
		}
	}
	return b.Finish(ptx.MaxThreads(formThreads))
}

// TestBuiltProducts: the products of a kernel that the builder makes are those of the instruction
// written by hand, on the emulator and with -gpu on the GPU.
func TestBuiltProducts(t *testing.T) {
	for _, c := range []struct {
		op       string
		multiply func(b *ptx.Builder, d []ptx.S32, a [4]ptx.U32, desc ptx.U64, add bool)
	}{
		{"wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", (*ptx.Builder).WGMMAS8},
		{"wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8", (*ptx.Builder).WGMMAU8},
	} {
		k, err := builtProducts(c.multiply)
		if err != nil {
			t.Fatal(err)
		}
		text, err := k.Text(ptx.Target{})
		if err != nil {
			t.Fatal(err)
		}
		f := form{op: c.op}
		h, ok := handFormOf(f)
		if !ok || !bytes.Contains(text, []byte(c.op)) {
			t.Fatalf("%s: no expectation, or the text does not have it:\n%s", c.op, text)
		}
		in := h.inputs(f, *kernelSeed)
		want := h.expected(f, in)
		for _, d := range formDevices(t) {
			if lack := d.lacks(f.needs()); lack != "" {
				t.Logf("left out: %s", lack)
				continue
			}
			got, err := d.run(string(text), in, formCTAs, len(want))
			if err != nil {
				t.Fatalf("%s: %v", d.name, err)
			}
			if i := firstByte(want, got); i >= 0 {
				t.Errorf("%s on %s: byte %d is %#x, want %#x", c.op, d.name, i, got[i], want[i])
			}
		}
	}
}

// TestProductMutants: whatever is changed in a kernel with products, synchronization left out
// above all, the emulator traps or gives other sums.
func TestProductMutants(t *testing.T) {
	notShort(t)
	k, err := builtProducts((*ptx.Builder).WGMMAS8)
	if err != nil {
		t.Fatal(err)
	}
	text, err := k.Text(production.For(k))
	if err != nil {
		t.Fatal(err)
	}
	f := form{op: "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"}
	h, _ := handFormOf(f)
	in := h.inputs(f, *kernelSeed)
	want := h.expected(f, in)
	d := formDevices(t)[0]
	tried := map[string]int{}
	for _, m := range mutantsOf(k) {
		tried[m.mutator]++
		if got, err := d.run(string(m.apply(k.Name, text)), in, formCTAs, len(want)); err == nil && bytes.Equal(got, want) {
			t.Errorf("not seen: %v", m)
		}
	}
	if tried[dropSync] != 7 { // two fences, a barrier, two groups
		t.Errorf("%d mutants without a synchronization, want 7: %v", tried[dropSync], tried)
	}
}
