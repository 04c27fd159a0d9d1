package ptx_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/ptxas"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// specialized is a kernel of a producer warp and two consumer warpgroups. The producer fills a buffer by
// bulk copies and gives its registers away. The consumers take turns by named barriers.
func specialized(b *ptx.Builder) {
	x, y, count := b.Global("x", 16), b.Global("y", 16), b.Global("count", 4)
	buffer, place := b.Shared("buffer", 4096, 128), b.Shared("full", 8, 8)
	group := b.ThreadX().DivN(128)
	b.When(b.ThreadX().EqN(0), func() {
		b.NewMBarrier(place, b.N(1))
		b.FenceMBarrierInit()
	})
	b.Barrier()
	full := ptx.MBarrierAt(place)
	b.IfElse(group.EqN(0), func() {
		b.DecreaseRegisters(24)
		b.When(b.ThreadX().EqN(0), func() {
			policy := b.EvictFirst()
			x.Plus(4096).PrefetchL2()
			full.ArriveExpectTx(b.U32(4096))
			b.BulkLoad(buffer, x, b.U32(4096), full, policy)
		})
	}, func() {
		b.IncreaseRegisters(240)
		full.Wait(b.U32(0))
		mine := b.NamedBarrier(group, 256)
		other := b.NamedBarrier(b.U32(3).Sub(group), 256)
		b.When(group.EqN(2), func() { other.Arrive() })
		mine.Sync()
		v := buffer.At(b.ThreadX().AndN(127), 16).LoadU32x4()
		b.When(group.EqN(1), func() { other.Arrive() })
		y.At(b.ThreadX(), 16).StoreU32x4(v)
		b.NamedBarrier(b.U32(5), 256).Sync()
		b.When(b.ThreadX().EqN(128), func() { count.AddReleaseU32(b.U32(1)) })
		b.While(func() ptx.Pred { return count.LoadAcquireU32().Lt(b.GridX()) }, func() {})
		count.Plus(4).StoreReleaseU32(v[0])
	})
}

// TestSpecializationAssembles checks that ptxas accepts the instructions of specialized warps. If
// the kernel did not tell the number of registers at entry, ptxas would ignore setmaxnreg with a warning.
func TestSpecializationAssembles(t *testing.T) {
	for _, c := range []struct {
		name      string
		options   []ptx.KernelOption
		registers int
	}{
		{"by MaxRegisters", []ptx.KernelOption{ptx.MaxThreads(384), ptx.MaxRegisters(160)}, 160},
		{"by MinCTAs", []ptx.KernelOption{ptx.MaxThreads(384), ptx.MinCTAs(1)}, 168},
	} {
		b := ptx.New("k")
		specialized(b)
		k, err := b.Finish(c.options...)
		if err != nil {
			t.Fatal(err)
		}
		text, err := k.Text(ptx.Target{})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			".target sm_90a\n", "setmaxnreg.dec.sync.aligned.u32 24;", "setmaxnreg.inc.sync.aligned.u32 240;", "bar.arrive %r", "bar.sync 5, 256;",
			"createpolicy.fractional.L2::evict_first.b64 %d", "complete_tx::bytes.L2::cache_hint [", "prefetch.global.L2 [%d", "+4096];",
			"ld.acquire.gpu.global.u32 ", "st.release.gpu.global.u32 [", "red.release.gpu.global.add.u32 [",
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, text)
			}
		}
		reports, err := ptxas.Need(t).Assemble(text, "sm_90a")
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, text)
		}
		if r := reports["k"]; len(r.Warnings) > 0 || r.SpillStores > 0 || r.Registers != c.registers {
			t.Errorf("%s: %+v, want %d registers", c.name, r, c.registers)
		}
	}
}

func TestSpecializationFailures(t *testing.T) {
	for _, c := range []struct {
		name, want string
		make       func(b *ptx.Builder)
		options    []ptx.KernelOption
	}{
		{"barrier 0", "barrier 0, want 1 to 15", func(b *ptx.Builder) { b.NamedBarrier(b.U32(0), 64) }, nil},
		{"barrier 16", "barrier 16, want 1 to 15", func(b *ptx.Builder) { b.NamedBarrier(b.U32(16), 64) }, nil},
		{"48 threads", "48 threads, want a multiple of 32", func(b *ptx.Builder) { b.NamedBarrier(b.U32(1), 48) }, nil},
		{"no threads", "0 threads, want a multiple of 32", func(b *ptx.Builder) { b.NamedBarrier(b.U32(1), 0) }, nil},
		{"registers that are no multiple of 8", "100 registers, want a multiple of 8", func(b *ptx.Builder) { b.IncreaseRegisters(100) }, nil},
		{"too few registers", "16 registers, want", func(b *ptx.Builder) { b.DecreaseRegisters(16) }, nil},
		{"too many registers", "264 registers, want", func(b *ptx.Builder) { b.IncreaseRegisters(264) }, nil},
		{"registers under a predicate", "inside a predicated section", func(b *ptx.Builder) {
			b.When(b.ThreadX().EqN(0), func() { b.IncreaseRegisters(64) })
		}, nil},
		{"an unknown number at entry", "needs MaxRegisters or MinCTAs", func(b *ptx.Builder) { b.IncreaseRegisters(64) }, nil},
		{"a cap of 20", "MaxRegisters is 20, want 24 to 255", func(*ptx.Builder) {}, []ptx.KernelOption{ptx.MaxRegisters(20)}},
		{"two policies", "2 cache policies, want at most 1", func(b *ptx.Builder) {
			s := b.Shared("s", 32, 16)
			b.BulkLoad(s, b.Global("x", 16), b.U32(16), ptx.MBarrierAt(s.Plus(16)), b.EvictFirst(), b.EvictFirst())
		}, nil},
		{"a misaligned counter", "aligned to 2", func(b *ptx.Builder) { b.Global("x", 2).AddReleaseU32(b.U32(1)) }, nil},
	} {
		b := ptx.New("k")
		c.make(b)
		_, err := b.Finish(append(c.options, ptx.MaxThreads(128))...)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "specialization_test.go:") {
			t.Errorf("%s: error %v, want one with %q and the caller's line", c.name, err, c.want)
		}
	}
}
