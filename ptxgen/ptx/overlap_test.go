package ptx_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// TestOverlap: a kernel that waits for those before it says so on targets that know how,
// and on the others neither waits nor may be launched to overlap.
func TestOverlap(t *testing.T) {
	waits, err := build(func(b *ptx.Builder) {
		b.LaunchDependents()
		b.Shared("s", 4, 4).StoreU32(b.U32(1))
		b.If(b.ThreadX().EqN(0), b.WaitForPrior) // sooner on one path
		b.WaitForPrior()
		b.Global("y", 4).StoreU32(b.U32(1))
	})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := build(func(b *ptx.Builder) { b.Global("y", 4).StoreU32(b.U32(1)) })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		kernel *ptx.Kernel
		target ptx.Target
		want   bool
	}{
		{"the least target", waits, ptx.Target{}, false},
		{"before Hopper", waits, ptx.Target{SM: 89}, false},
		{"Hopper", waits, ptx.Target{SM: 90}, true},
		{"its own features", waits, ptx.Target{SM: 90, Arch: true}, true},
		{"a kernel that does not wait", plain, ptx.Target{SM: 90}, false},
	} {
		text, err := c.kernel.Text(c.target)
		if err != nil {
			t.Fatal(err)
		}
		printed := strings.Contains(string(text), "griddepcontrol.wait;") && strings.Contains(string(text), "griddepcontrol.launch_dependents;")
		if got := c.kernel.Overlaps(c.target); got != c.want || printed != c.want {
			t.Errorf("%s: overlaps %v, printed %v, want %v", c.name, got, printed, c.want)
		}
	}
}
