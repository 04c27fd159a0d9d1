package emu

import (
	"errors"
	"strings"
	"testing"
)

// withRegisters adds a directive to a kernel of perThread.
func withRegisters(text, directive string) string {
	return strings.Replace(text, "\n{", "\n"+directive+"\n{", 1)
}

// moved gives 80 registers per thread of the first warpgroup to the second.
const moved = `
	mov.u32 %r0, %r1;
	setp.lt.u32 %p1, %r1, 128;
	@!%p1 bra MORE;
	setmaxnreg.dec.sync.aligned.u32 40;
	bra DONE;
MORE:
	setmaxnreg.inc.sync.aligned.u32 200;
DONE:
	bar.sync 0;
	@%p1 setmaxnreg.inc.sync.aligned.u32 40;
`

func TestSetMaxNReg(t *testing.T) {
	for _, directive := range []string{".maxnreg 120", ".maxnreg 114", ".maxntid 256, 1, 1\n.minnctapersm 2"} {
		for seed := range uint64(4) {
			opts := Options{Schedule: Adversarial(seed)}
			text := withRegisters(perThread(sm90a, "", moved), directive)
			if directive == ".maxntid 256, 1, 1\n.minnctapersm 2" { // 128 at entry
				text = strings.Replace(text, "u32 200", "u32 216", 1)
			}
			out, err := kernelRun{opts: opts, ptx: text, block: 256, args: []any{256}}.run(t)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", directive, seed, err)
			}
			for i, got := range out[0] {
				if got != uint32(i) {
					t.Fatalf("%s: thread %d has %d", directive, i, got)
				}
			}
		}
	}
}

// A warp that got its registers gets none again while it waits for something else.
func TestSetMaxNRegOnce(t *testing.T) {
	const late = `
	and.b32 %r2, %r1, 31;
	setp.ne.u32 %p2, %r2, 0;
	@%p2 bra SYNC;
SPIN:
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p2, %r2, 100;
	@%p2 bra SPIN;
SYNC:
	bar.warp.sync 0xffffffff;
DONE:`
	text := withRegisters(perThread(sm90a, "", strings.Replace(moved, "DONE:", late, 1)), ".maxnreg 120")
	for seed := range uint64(8) {
		if _, err := (kernelRun{opts: Options{Schedule: Adversarial(seed)}, ptx: text, block: 256, args: []any{256}}).run(t); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestSetMaxNRegTraps(t *testing.T) {
	change := func(old, new string) string {
		if !strings.Contains(moved, old) {
			t.Fatalf("no %q", old)
		}
		return strings.Replace(moved, old, new+" // BUG\n", 1)
	}
	const inc, dec, again = "setmaxnreg.inc.sync.aligned.u32 200;", "setmaxnreg.dec.sync.aligned.u32 40;", "@%p1 setmaxnreg.inc.sync.aligned.u32 40;"
	for _, c := range []struct {
		name  string
		kind  TrapKind
		body  string
		fixed string
		want  string // in the trap
	}{
		{"more than there are", TrapDeadlock, change(inc, "setmaxnreg.inc.sync.aligned.u32 208;"), inc, "the warp waits for 88 more registers per thread, and the CTA has 56"},
		{"no decrease", TrapDeadlock, change(dec, ""), dec, "the warp waits for 80 more registers per thread, and the CTA has 0"},
		{"an increase by dec", TrapWarpgroup, change(dec, "setmaxnreg.dec.sync.aligned.u32 128;"), dec, "// BUG"},
		{"a decrease by inc", TrapWarpgroup, change(again, "@%p1 setmaxnreg.inc.sync.aligned.u32 32;"), again, "// BUG"},
		{"no synchronization", TrapWarpgroup, change("bar.sync 0;", ""), "bar.sync 0;", "u32 40;"},
		{"some warps", TrapWarpgroup, change("setp.lt.u32 %p1, %r1, 128;", "setp.lt.u32 %p1, %r1, 96;"), "setp.lt.u32 %p1, %r1, 128;", "another warp of the warpgroup is at line"},
		{"a delay instead of synchronization", TrapWarpgroup,
			change("bar.sync 0;", "mov.u32 %r2, 0; SPIN: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 4000; @%p2 bra SPIN;"), "bar.sync 0;", "has not synchronized"},
		{"some lanes", TrapDivergence, change("bar.sync 0;", "setp.lt.u32 %p1, %r1, 9;"), "bar.sync 0;", "u32 40;"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := trapCase{header: sm90a, body: c.body, fixed: c.fixed}
			text := withRegisters(k.faulty(), ".maxnreg 120")
			for seed := range uint64(8) {
				run := kernelRun{ptx: text, block: 256, args: []any{256}}
				if seed > 0 {
					run.opts.Schedule = Adversarial(seed)
				}
				_, err := run.run(t)
				var trap *Trap
				if !errors.As(err, &trap) || seed == 0 && (trap.Kind != c.kind || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("seed %d: want %s with %q, got %v", seed, c.kind, c.want, err)
				}
			}
			if _, err := (kernelRun{ptx: withRegisters(k.corrected(), ".maxnreg 120"), block: 256, args: []any{256}}).run(t); err != nil {
				t.Errorf("without the bug: %v", err)
			}
		})
	}
}

func TestSetMaxNRegRejected(t *testing.T) {
	d, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	const good = "setmaxnreg.dec.sync.aligned.u32 40;"
	for _, c := range []struct{ name, header, text, directive, want string }{
		{"as it should be", sm90a, good, ".maxnreg 64", ""},
		{"threads and CTAs", sm90a, good, ".reqntid 128, 1, 1\n.minnctapersm 1", ""},
		{"threads alone", sm90a, good, ".maxntid 128, 1, 1", "needs .maxnreg, or .minnctapersm"},
		{"another target", sm90, good, ".maxnreg 64", "needs .target sm_90a"},
		{"16", sm90a, strings.Replace(good, "40", "16", 1), ".maxnreg 64", "want a multiple of 8 from 24 to 256"},
		{"44", sm90a, strings.Replace(good, "40", "44", 1), ".maxnreg 64", "want a multiple of 8"},
		{"264", sm90a, strings.Replace(good, "40", "264", 1), ".maxnreg 64", "is not a number from 0 to 256"},
		{"a register", sm90a, strings.Replace(good, "40", "%r1", 1), ".maxnreg 64", "is not a number from 0 to 256"},
	} {
		_, err := d.Load([]byte(withRegisters(perThread(c.header, "", "mov.u32 %r0, 0;\n"+c.text), c.directive)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}
