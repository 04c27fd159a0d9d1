package cuda

import (
	"encoding/binary"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// TestOverlappingLaunch checks the results of launches with programmatic dependent launch, eager
// and in a graph. The kernels do not depend on each other.
func TestOverlappingLaunch(t *testing.T) { each(t, testOverlappingLaunch) }

func testOverlappingLaunch(t *testing.T, open opener) {
	d := open(t, options{noCache: true})
	k, s := kernel(t, d, "count_up"), must(d.NewStream())(t)
	const n = 64
	first := []uint32{7, 1000, 31}
	buf := must(d.Alloc(int64(len(first)) * 4 * n))(t)
	launch := func() error {
		for i, x := range first {
			l := launchOf(k, 64, 64, pack(buf.Address()+driver.Address(4*n*i), uint32(n), x))
			l.Overlaps = i > 0
			if err := s.Launch(l); err != nil {
				return err
			}
		}
		return nil
	}
	check := func(how string) {
		t.Helper()
		got := make([]byte, 4*n*len(first))
		ok(t, s.Read(got, buf.Address()))
		for i := range n * len(first) {
			if v, want := binary.LittleEndian.Uint32(got[4*i:]), first[i/n]+uint32(i%n); v != want {
				t.Fatalf("%s: element %d is %d, want %d", how, i, v, want)
			}
		}
	}
	ok(t, launch())
	check("eagerly")
	ok(t, s.Fill(buf.Address(), 0, int64(len(first))*4*n))
	g := must(s.Capture(launch))(t)
	ok(t, g.Launch(s))
	check("in a graph")
	ok(t, g.Close())
}
