package emu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// copyWord is a kernel that copies a word from in to out. It reads, or reads and writes, before
// griddepcontrol.wait if told so.
func copyWord(readEarly, writeEarly bool) string {
	wait, read, write := "griddepcontrol.wait;", "ld.global.u32 %r1, [%rd1];", "st.global.u32 [%rd2], %r1;"
	order := []string{wait, read, write}
	switch {
	case writeEarly:
		order = []string{read, write, wait}
	case readEarly:
		order = []string{read, wait, write}
	}
	return `.version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 4 in, .param .u64 .ptr .global .align 4 out)
.maxntid 32, 1, 1
{
	.reg .b32 %r<2>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
	griddepcontrol.launch_dependents;
	` + strings.Join(order, "\n") + `
	ret;
}`
}

// function loads a text and returns its kernel k.
func (r *fixture) function(t *testing.T, text string) driver.Function {
	t.Helper()
	m, err := r.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// graphOf captures what record queues, and returns the launch of the graph.
func (r *fixture) graphOf(t *testing.T, record func() error) (launch func() error) {
	t.Helper()
	g, err := r.s.Capture(record)
	if err != nil {
		t.Fatal(err)
	}
	return func() error { return g.Launch(r.s) }
}

// A kernel that may overlap traps if the overlap could show.
func TestDependentLaunch(t *testing.T) {
	for _, c := range []struct {
		name                  string
		readEarly, writeEarly bool
		plain                 bool // not launched to overlap
		fromHost              bool // reads what no kernel writes
		graph, together       bool // launched as a graph; with the kernel before
		between               string
		want                  string // of the trap; "" none
	}{
		{name: "reads after it has waited"},
		{name: "reads before what no kernel writes", readEarly: true, fromHost: true},
		{name: "reads before what a kernel wrote", readEarly: true, want: "read before griddepcontrol.wait"},
		{name: "not launched to overlap", readEarly: true, plain: true},
		{name: "a kernel between that overlaps, too", readEarly: true, between: "overlapping", want: "read before griddepcontrol.wait"},
		{name: "a kernel between for which all had ended", readEarly: true, between: "kernel"},
		{name: "a copy between", readEarly: true, between: "copy"},
		{name: "the first of a graph", readEarly: true, graph: true},
		{name: "behind a kernel of its graph", readEarly: true, graph: true, together: true, want: "read before griddepcontrol.wait"},
		{name: "writes before", writeEarly: true, fromHost: true, want: "written before griddepcontrol.wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFixture(t, Options{})
			buffer := func() driver.Address {
				b, err := r.Alloc(4)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.s.Fill(b.Address(), 7, 4); err != nil {
					t.Fatal(err)
				}
				return b.Address()
			}
			from, elsewhere := buffer(), buffer()
			run := func(f driver.Function, in driver.Address, overlaps bool) error {
				p := binary.LittleEndian.AppendUint64(nil, uint64(in))
				one := driver.Dim3{X: 1, Y: 1, Z: 1}
				return r.s.Launch(driver.Launch{Function: f, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint64(p, uint64(elsewhere)), Overlaps: overlaps})
			}
			early, late, in := r.function(t, copyWord(c.readEarly, c.writeEarly)), r.function(t, copyWord(false, false)), r.buf.Address()
			if c.fromHost {
				in = from
			}
			before := func() error { return r.s.Launch(r.add(1)) }
			work := func() (err error) {
				if c.together {
					err = before()
				}
				switch c.between {
				case "kernel", "overlapping":
					err = run(late, from, c.between == "overlapping")
				case "copy":
					err = r.s.Fill(from, 1, 4)
				}
				return errors.Join(err, run(early, in, !c.plain))
			}
			if c.graph {
				work = r.graphOf(t, work)
			}
			err := errors.Join(before(), work(), r.s.Synchronize())
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, driver.ErrDeviceLost) || !strings.Contains(err.Error(), string(TrapRace)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want a trap with %q", err, c.want)
			}
		})
	}
}

// If no warp of an overlapping kernel waits, the trap is where its first warp ends. One warp that
// waits is enough.
func TestDependentLaunchWithoutWait(t *testing.T) {
	for _, c := range []struct {
		name, guard string // before the wait
		plain       bool   // not launched to overlap
		traps       bool
	}{
		{name: "all wait"},
		{name: "the last CTA waits", guard: "@%p1 "},
		{name: "no wait", guard: "//", traps: true},
		{name: "none comes to the wait", guard: "@%p0 ", traps: true},
		{name: "not launched to overlap", guard: "//", plain: true},
	} {
		text := sm90 + `.visible .entry k()
.maxntid 64, 1, 1
{
	.reg .pred %p<3>; .reg .b32 %r<3>;
	mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;
	setp.gt.u32 %p0, %r1, 6; setp.eq.u32 %p1, %r1, 6; setp.lt.u32 %p2, %r2, 3;
	griddepcontrol.launch_dependents;
	` + c.guard + `griddepcontrol.wait;
	@%p2 ret;
	ret;
}`
		for _, o := range []Options{{Workers: 1}, {Workers: 4, Schedule: Adversarial(1)}} {
			t.Run(fmt.Sprintf("%s, %d workers", c.name, o.Workers), func(t *testing.T) {
				r := newFixture(t, o)
				grid, block := driver.Dim3{X: 7, Y: 1, Z: 1}, driver.Dim3{X: 64, Y: 1, Z: 1}
				err := errors.Join(r.s.Launch(driver.Launch{Function: r.function(t, text), Grid: grid, Block: block, Overlaps: !c.plain}), r.s.Synchronize())
				var trap *Trap
				if errors.As(err, &trap) != c.traps || err != nil && !c.traps {
					t.Fatal(err)
				}
				if c.traps && (trap.Kind != TrapRace || trap.Kernel != "k" || trap.Line != 13 || trap.Text != "ret;" || trap.CTA.X != 0 || trap.Warp != 0 || trap.Lane != 3) {
					t.Error(trap)
				}
			})
		}
	}
}
