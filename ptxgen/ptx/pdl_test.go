package ptx_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// TestPDL checks that griddepcontrol is printed for targets that have it, and that Overlaps
// reports it.
func TestPDL(t *testing.T) {
	waits, err := build(func(b *ptx.Builder) {
		b.LaunchDependents()
		b.Shared("s", 4, 4).StoreU32(b.U32(1))
		b.If(b.ThreadX().EqN(0), b.WaitForPrior) // earlier on one path
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
		{"zero target", waits, ptx.Target{}, false},
		{"sm_89", waits, ptx.Target{SM: 89}, false},
		{"sm_90", waits, ptx.Target{SM: 90}, true},
		{"sm_90a", waits, ptx.Target{SM: 90, Arch: true}, true},
		{"a kernel without a wait", plain, ptx.Target{SM: 90}, false},
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
