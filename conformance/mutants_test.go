package conformance

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/kernelcases"
	"github.com/lockstep-go/lockstep/conformance/internal/mutate"
	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// flowAt parses a text and finds the line with a mark.
func flowAt(text, mark string) (f ptxtext.Flow, line int) {
	lines := strings.Split(text, "\n")
	line = slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, mark) })
	lines[line] = strings.TrimSuffix(lines[line], " // "+mark)
	return ptxtext.FlowOf(lines), line
}

func TestNeedlessBarrier(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"between store and load", "\tst.shared.u32 [%r0], %r1;\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];", false},
		{"between load and store", "\tld.shared.u32 %r2, [%r0];\n\tbar.sync 0; // HERE\n\tst.shared.u32 [%r0], %r1;", false},
		{"between loads", "\tld.shared.u32 %r2, [%r0];\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r3, [%r0];", true},
		{"between shared and global memory", "\tld.global.u32 %r2, [%d0];\n\tbar.sync 0; // HERE\n\tst.shared.u32 [%r0], %r2;", true},
		{"after another barrier", "\tst.shared.u32 [%r0], %r1;\n\tbar.sync 0;\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];", true},
		{"a store in the previous iteration", "$L0:\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];\n\tst.shared.u32 [%r1], %r2;\n\t@%p0 bra $L0;", false},
		{"after a completed copy", "\tcp.async.wait_group 0;\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];", false},
		{"a warp barrier after a CTA barrier", "\tst.shared.u32 [%r0], %r1;\n\tbar.sync 0;\n\tbar.warp.sync 4294967295; // HERE\n\tld.shared.u32 %r2, [%r0];", true},
		{"a CTA barrier after a warp barrier", "\tst.shared.u32 [%r0], %r1;\n\tbar.warp.sync 4294967295;\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, line := flowAt(c.text, "HERE")
			if got := f.BarrierNeedless(line); got != c.want {
				t.Errorf("needless: %v, want %v", got, c.want)
			}
		})
	}
}

func TestJoinedWaits(t *testing.T) {
	const commit, copied = "\tcp.async.commit_group;\n", "\tcp.async.commit_group; // HERE\n"
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"another group", copied + commit + "\tcp.async.wait_group 0;", 1},
		{"two waits", copied + commit + "\t@%p0 bra $L0;\n\tcp.async.wait_group 0;\n\tret;\n$L0:\n\tcp.async.wait_group 0;", 2},
		{"the last group", copied + "\tcp.async.wait_group 0;", 0},
		{"a wait for some groups", copied + commit + "\tcp.async.wait_group 1;", 0},
		{"no other group on one path", copied + "\t@%p0 bra $L0;\n" + commit + "$L0:\n\tcp.async.wait_group 0;", 0},
		{"no other group in this iteration", "$L0:\n" + copied + "\tcp.async.wait_group 0;\n\t@%p0 bra $L0;", 0},
		{"a guarded group", copied + "\t@%p0 cp.async.commit_group;\n\tcp.async.wait_group 0;", 0},
		{"the same way at both branches", "\tsetp.eq.u32 %p0, %r0, 0;\n\t@!%p0 bra $L0;\n" + copied + "$L0:\n\t@!%p0 bra $L1;\n" + commit +
			"\tcp.async.wait_group 0;\n\tret;\n$L1:\n\tcp.async.wait_group 2;", 1},
		{"another way at the second branch", "\tsetp.eq.u32 %p0, %r0, 0;\n\t@!%p0 bra $L0;\n" + copied + "$L0:\n\t@%p0 bra $L1;\n" + commit +
			"\tcp.async.wait_group 0;\n\tret;\n$L1:\n\tcp.async.wait_group 2;", 0},
		{"a predicate that changes between the branches", "\tsetp.eq.u32 %p0, %r0, 0;\n$L2:\n\t@!%p0 bra $L0;\n" + copied + "$L0:\n\tsetp.eq.u32 %p0, %r1, 0;\n\t@!%p0 bra $L1;\n" + commit +
			"\tcp.async.wait_group 0;\n\tret;\n$L1:\n\tcp.async.wait_group 2;", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, line := flowAt(c.text, "HERE")
			if got := len(f.JoinedWaits(line)); got != c.want {
				t.Errorf("%d waits, want %d", got, c.want)
			}
		})
	}
}

const knownValuesText = `	.param .u64 .ptr .global .align 16 y,
.maxntid 64, 1, 1
{
	ld.param.u64 %d0, [y];
	ld.param.u32 %r0, [n];
	add.u32 %r1, %r0, 31;
	shr.u32 %r2, %r1, 5;
	shl.b32 %r3, %r2, 5;
	add.u32 %r4, %r3, 3;
	shr.u32 %r5, %r4, 2;
	mov.u32 %r6, %tid.x;
	setp.lt.u32 %p0, %r6, %r5;
	shl.b32 %r7, %r6, 2;
	min.u32 %r8, %r7, %r3;
	sub.u32 %r9, %r3, %r8;
	setp.ge.u32 %p1, %r9, 4;
	cvt.u32.u64 %r10, %d0;
	and.b32 %r11, %r10, 15;
	setp.eq.u32 %p2, %r11, 0;
	and.pred %p3, %p1, %p2;
	and.b32 %r12, %r10, 31;
	setp.eq.u32 %p4, %r12, 0;
	sub.u32 %r13, %r0, %r8;
	setp.ge.u32 %p5, %r13, 4;
	shr.u32 %r14, %r6, 6;
	shr.u32 %r15, %r6, 5;
	setp.lt.u32 %p6, %r7, %r3;
	setp.lt.u32 %p7, %r7, %r0;
	setp.gt.u32 %p8, %r9, 0;
	setp.gt.u32 %p9, %r13, 0;
	mad.wide.u32 %d1, %r0, 16, %d0;
	cvt.u32.u64 %r16, %d1;
	and.b32 %r17, %r16, 15;
	setp.eq.u32 %p10, %r17, 0;
	mad.wide.u32 %d2, %r0, 8, %d0;
	cvt.u32.u64 %r18, %d2;
	and.b32 %r19, %r18, 15;
	setp.eq.u32 %p11, %r19, 0;
	mov.f32 %f0, 0fC0000000;
	abs.f32 %f1, %f0;
	mov.f32 %f2, 0f00000000;
	@%p0 mov.f32 %f2, 0f3F800000;`

func TestKnownValues(t *testing.T) {
	f, _ := flowAt(knownValuesText, "maxntid")
	for p, want := range map[string]bool{
		"%p1": true, "%p2": true, "%p3": true, // whole vec4 at a multiple of 16
		"%p10": true, "%p11": false, // rows of 16 bytes, and of 8
		"%p8": true,  // one of the remaining elements of a vec4
		"%p9": false, // another length than that of the vec4
		"%p4": false, // alignment to 32 is unknown
		"%p5": false, // the length is unknown
		"%p0": false,
	} {
		if got := f.AlwaysTrue(p); got != want {
			t.Errorf("%s is always true: %v, want %v", p, got, want)
		}
	}
	for reg, want := range map[string]uint64{"%r6": 63, "%r14": 0, "%r15": 1, "%r0": 1<<32 - 1, "%r11": 0, "%r12": 31} {
		if got := f.UpperBound(reg); got != want {
			t.Errorf("%s is at most %d, want %d", reg, got, want)
		}
	}
	if x, ok := f.Constant("%f1"); x != 2 || !ok {
		t.Errorf("%%f1 is %v, %v, want 2", x, ok)
	}
	if x, ok := f.Constant("%f2"); ok {
		t.Errorf("%%f2, which has two values, is known to be %v", x)
	}
	for p, want := range map[string]bool{"%p6": true, "%p7": false} {
		if s, _ := f.Definition(p); f.IsVec4Bound(s) != want {
			t.Errorf("%s is 4i < n: %v, want %v", p, !want, want)
		}
	}
}

func TestControls(t *testing.T) {
	const text = "\tadd.u32 %r1, %r0, 1; // HERE\n\tsetp.lt.u32 %p0, %r1, %r2;\n\t@%p0 bra $L0;\n\tselp.b32 %r4, %r2, %r3, %p0;\n$L0:\n"
	f, line := flowAt(text, "HERE")
	if got := f.Controls(line); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("controls lines %v, want 2 and 3", got)
	}
	f, line = flowAt("\tsetp.lt.f32 %p0, %f0, 0f00000000; // HERE\n\tselp.f32 %f1, 0f00000000, %f0, %p0;\n\tadd.rn.f32 %f2, %f1, %f1;", "HERE")
	if got := f.Controls(line); !slices.Equal(got, []int{1}) {
		t.Errorf("controls lines %v, want 1", got)
	}
	f, line = flowAt(text+"\tst.global.u32 [%d0], %r1;", "HERE")
	if got := f.Controls(line); got != nil {
		t.Errorf("controls lines %v, want none since the result is stored", got)
	}
}

func TestDeadResults(t *testing.T) {
	lines := strings.Split(`
	mov.u32 %r0, 0;
	mov.u32 %r1, 1;
	mov.u32 %r2, 2;
	setp.eq.u32 %p0, %r0, 0;
	@%p0 bra $L1;
	mov.u32 %r1, 3;
	@%p0 mov.u32 %r2, 4;
	mov.u32 %r3, 5;
$L1:
	add.u32 %r3, %r2, 1;
	add.u32 %r4, %r3, %r1;
	mul.lo.u32 %r5, %r4, 3;
	st.global.u32 [%d0], %r3;
	ret;`, "\n")
	want := []string{"\tmov.u32 %r1, 1;", "\tmov.u32 %r1, 3;", "\tmov.u32 %r3, 5;", "\tadd.u32 %r4, %r3, %r1;", "\tmul.lo.u32 %r5, %r4, 3;"}
	var got []string
	for i, dead := range ptxtext.FlowOf(lines).Dead() {
		if dead {
			got = append(got, lines[i])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("dead: %q, want %q", got, want)
	}
}

var mutantCount = flag.Int("mutants", 0, "how many mutants of the kernels to try; 0 is 120, and 2400 with -long")

var mutated = flag.String("mutate", "", "change only kernels whose names match this regular expression")

// minKilled is the fraction of mutants to kill, not counting rejected and equivalent ones.
const minKilled = 1

// otherSamples are seeds that each select a small sample of mutants too, with the inputs of
// -seed. They are not run with -mutants.
var otherSamples = []uint64{2, 3, 7, 99}

// otherCount is how many mutants each of otherSamples selects.
const otherCount = 16

// TestMutants changes kernels one instruction at a time and demands that each mutant traps
// or fails a case.
func TestMutants(t *testing.T) {
	skipIfShort(t)
	if *onGPU {
		t.Skip("mutants run on the emulator only: a wrong address may lose the GPU")
	}
	n, budget := cmp.Or(*mutantCount, 120), 6e6
	if *longCases {
		n, budget = cmp.Or(*mutantCount, 2400), 1e7
	}
	runDefaultCases(t)
	m, err := mutate.New(defaultRun.kernels, defaultRun.results, mutate.Options{Seed: *kernelSeed, Long: *longCases, Mutate: *mutated, Budget: budget, Open: openMutant})
	if err != nil {
		t.Fatal(err)
	}
	scoreSample(t, m, n, *kernelSeed)
	if *mutantCount == 0 {
		for _, seed := range otherSamples {
			scoreSample(t, m, otherCount, seed)
		}
	}
}

// scoreSample tries n mutants that a seed selects and prints their score.
func scoreSample(t *testing.T, m *mutate.Runner, n int, seed uint64) {
	t.Helper()
	all := m.All()
	sites := len(all)
	list := mutate.Sample(all, func(kernel string) string { return m.Family[kernel] }, n, seed)
	verdicts := m.Verdicts(list)
	fmt.Printf("\nmutants, inputs of seed %d, sample of seed %d: %d of %d sites in %d kernels\n", *kernelSeed, seed, len(list), sites, len(m.Changed))
	s := mutate.NewScore(m, verdicts)
	if err := s.Write(os.Stdout); err != nil {
		t.Error(err)
	}
	for _, v := range verdicts {
		switch {
		case v.Fate == mutate.Killed:
			t.Logf("%v\n\tkilled: %s", v.Mutant, firstLine(v.Failure))
		case v.Rule != "":
			t.Logf("%v\n\tequivalent: %s", v.Mutant, v.Rule)
		case v.Fate != mutate.Rejected:
			fmt.Printf("survived (%s): %v\n", v.Fate, v.Mutant)
		}
	}
	if part := s.Total.KillRate(); !(part >= minKilled) {
		t.Errorf("%.3f of the mutants were killed, want %d; replay with -seed %d -mutants %d", part, minKilled, *kernelSeed, n)
	}
}

// openMutant opens the suite's emulator with a limit of instructions per launch.
func openMutant(maxInstructions int64) (driver.Device, error) {
	o := emulation()
	o.Workers, o.MaxInstructions = 1, maxInstructions
	return emu.Open(o)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// defaultRun holds the results and kernels of TestKernels, so that the cases run once.
var defaultRun struct {
	results []harness.Result
	kernels map[string]*ptx.Kernel
}

// runDefaultCases runs the default cases unless TestKernels did.
func runDefaultCases(t *testing.T) {
	t.Helper()
	if defaultRun.results != nil {
		return
	}
	cases, err := kernelcases.Select(kernelcases.All(), *kernelIDs, false)
	if err != nil {
		t.Fatal(err)
	}
	results, suite := runKernels(t, cases, func(s *harness.Suite, c harness.Case) harness.Result { return s.Run(&harness.Recorder{}, c) })
	defaultRun.results, defaultRun.kernels = results, suite.Kernels
}

// TestMutationOfSmallKernel demands that all mutants of a small kernel are killed. A change
// without effect must be unchanged and an invalid text rejected.
func TestMutationOfSmallKernel(t *testing.T) {
	s, err := harness.NewSuite(func() (driver.Device, error) { return openMutant(1 << 20) }, *kernelSeed)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Guard = 0
	var results []harness.Result
	for _, c := range scaleCases() {
		results = append(results, s.Run(t, c))
	}
	m, err := mutate.New(s.Kernels, results, mutate.Options{Seed: *kernelSeed, Long: *longCases, Budget: 1e9, Open: openMutant})
	if err != nil {
		t.Fatal(err)
	}
	list := m.All()
	if len(list) < 10 {
		t.Errorf("only %d mutants", len(list))
	}
	for _, v := range m.Verdicts(list) {
		if v.Fate != mutate.Killed {
			t.Errorf("not killed (%s): %v", v.Fate, v.Mutant)
		}
	}
	for change, want := range map[string]mutate.Fate{" // the same": mutate.Unchanged, " no": mutate.Rejected} {
		x := list[0].Mutants[0]
		x.New = x.Old + change
		if v := m.Try(mutate.Site{Mutants: []mutate.Mutant{x}}); v.Fate != want {
			t.Errorf("%v is %s, want %s", x, v.Fate, want)
		}
	}
}

func TestMutationScore(t *testing.T) {
	x := mutate.Mutant{Kernel: "k", Mutator: "constant"}
	m := &mutate.Runner{Family: map[string]string{"k": "f"}}
	s := mutate.NewScore(m, []mutate.Verdict{
		{Fate: mutate.Killed, Mutant: x}, {Fate: mutate.Killed, Mutant: x}, {Fate: mutate.Unchanged, Mutant: x}, {Fate: mutate.Unchanged, Mutant: x, Rule: "edge"},
		{Fate: mutate.Rejected, Mutant: x}, {Fate: mutate.Killed, Mutant: x},
	})
	if s.Total != (mutate.Tally{Tried: 6, Killed: 3, Equivalent: 1, Rejected: 1}) || s.Total.Survived() != 1 || s.Total.KillRate() != 0.75 || *s.Families["f"] != s.Total || *s.Mutators["constant"] != s.Total {
		t.Errorf("score: %+v", s)
	}
}
