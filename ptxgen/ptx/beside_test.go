package ptx_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

type besideParams struct {
	Y ptx.Global
	N ptx.U32
}

// besidePart returns a part with shared memory that waits for earlier kernels, if it should.
func besidePart(b *ptx.Builder, bytes, align int, waits bool) func() {
	return func() {
		var p besideParams
		ptx.Declare(b, &p)
		b.DynamicShared(align)
		b.Shared("s", bytes, 4).StoreU32(p.N)
		if waits {
			b.WaitForPrior()
		}
		p.Y.At(b.BlockX(), 4).StoreU32(b.GridX())
	}
}

// TestBeside checks that parts share memory and have parameters of their own.
func TestBeside(t *testing.T) {
	k, err := build(func(b *ptx.Builder) {
		b.Beside(besidePart(b, 8, 128, true), besidePart(b, 24, 16, true), besidePart(b, 4, 16, true))
	})
	if err != nil {
		t.Fatal(err)
	}
	if k.Static != 32 || !k.Overlaps(ptx.Target{SM: 90}) {
		t.Errorf("%d bytes of static shared memory, overlaps: %v; want 32, true", k.Static, k.Overlaps(ptx.Target{SM: 90}))
	}
	part := func(ctas, shared, threads, n int) ptx.Part {
		return ptx.Part{CTAs: ctas, Shared: shared, Threads: threads, Params: []any{&besideParams{Y: ptx.Addr[uint64](64), N: ptx.Uint(n)}}}
	}
	l, err := k.LaunchBeside(part(5, 48, 32, 7), part(6, 16, 64, 8), part(1, 0, 32, 9))
	if err != nil {
		t.Fatal(err)
	}
	if l.Grid != [3]uint32{12, 1, 1} || l.Block[0] != 64 || l.Shared != 48+128 {
		t.Errorf("grid %v of %v threads with %d bytes", l.Grid, l.Block, l.Shared)
	}
	for at, want := range map[int]uint32{0: 5, 16: 7, 20: 6, 32: 8, 36: 1, 48: 9} { // CTAs and N of each part
		if got := binary.LittleEndian.Uint32(l.Params[at:]); got != want {
			t.Errorf("the parameter at byte %d is %d, want %d", at, got, want)
		}
	}
	for want, launch := range map[string]func() (ptx.Launch, error){
		"0 CTAs for part 1": func() (ptx.Launch, error) {
			return k.LaunchBeside(part(5, 0, 32, 7), part(0, 0, 32, 8), part(1, 0, 32, 9))
		},
		"grid_2: it is missing":   func() (ptx.Launch, error) { return k.LaunchBeside(part(5, 0, 32, 7), part(1, 0, 32, 8)) },
		"grid_0 is u32, not y of": func() (ptx.Launch, error) { return k.Launch([3]uint32{1, 1, 1}, 32, 0, part(1, 0, 32, 7).Params...) },
	} {
		if _, err := launch(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestBesideRefuses(t *testing.T) {
	for want, emit := range map[string]func(b *ptx.Builder){
		"several parts": func(b *ptx.Builder) { b.Beside(besidePart(b, 4, 16, false)) },
		"no code before": func(b *ptx.Builder) {
			b.ThreadX()
			b.Beside(besidePart(b, 4, 16, false), besidePart(b, 4, 16, false))
		},
		"on some paths only": func(b *ptx.Builder) { b.Beside(besidePart(b, 4, 16, true), besidePart(b, 4, 16, false)) },
		"before the kernel waits": func(b *ptx.Builder) {
			b.Beside(besidePart(b, 4, 16, true), func() {
				b.Global("y", 4).StoreU32(b.U32(1))
				b.WaitForPrior()
			})
		},
	} {
		if _, err := build(emit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
