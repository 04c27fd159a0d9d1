package ptxas

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const header = ".version 7.4\n.target sm_80\n.address_size 64\n"

// plain writes a value that it keeps in shared memory.
const plain = header + `.visible .entry plain(.param .u64 p)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<2>;
	.shared .align 4 .b8 sm[100];
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	st.volatile.shared.u32 [sm], %r1;
	bar.sync 0;
	ld.volatile.shared.u32 %r1, [sm+4];
	st.global.u32 [%rd1], %r1;
	ret;
}
`

// bad has its one fault, a missing operand, in line 8.
const bad = header + `.visible .entry bad()
{
	.reg .b32 %r<3>;
	mov.u32 %r2, 1;
	add.u32 %r1, %r2;
	ret;
}
`

// crowded holds n loaded values at a time in few registers. Volatile accesses keep
// their order, so that none can be stored early.
func crowded(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.visible .entry crowded(.param .u64 p) .maxnreg 32\n{\n", header)
	fmt.Fprintf(&b, "\t.reg .b64 %%rd<2>;\n\t.reg .b32 %%r<%d>;\n\tld.param.u64 %%rd1, [p];\n", n)
	for i := range n {
		fmt.Fprintf(&b, "\tld.volatile.global.u32 %%r%d, [%%rd1+%d];\n", i, 4*i)
	}
	for i := range n {
		fmt.Fprintf(&b, "\tst.volatile.global.u32 [%%rd1+%d], %%r%d;\n", 4*i, n-1-i)
	}
	b.WriteString("\tret;\n}\n")
	return b.String()
}

// uncached is the assembler without memory of earlier runs.
func uncached(t *testing.T) *Assembler {
	t.Helper()
	a := *Need(t)
	a.cache = ""
	return &a
}

func TestAssembleReports(t *testing.T) {
	a := uncached(t)
	tests := []struct {
		name, reason, text, entry string
		spills                    bool
		shared                    int
	}{
		{"plain", "a few registers and static shared memory", plain, "plain", false, 100},
		{"room enough", "as many values as fit", crowded(20), "crowded", false, 0},
		{"crowded", "twice as many values as registers", crowded(64), "crowded", true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reports, err := a.Assemble([]byte(tt.text), "sm_80")
			if err != nil {
				t.Fatal(err)
			}
			r, ok := reports[tt.entry]
			if !ok || len(reports) != 1 {
				t.Fatalf("reports %+v, want one for %s", reports, tt.entry)
			}
			if r.Registers < 2 || r.Registers > 32 {
				t.Errorf("%s: %d registers", tt.reason, r.Registers)
			}
			if spills := r.SpillStores > 0 && r.SpillLoads > 0 && r.Stack > 0; spills != tt.spills || r.Shared != tt.shared {
				t.Errorf("%s: %+v, want spills %v and %d bytes shared", tt.reason, r, tt.spills, tt.shared)
			}
		})
	}
}

// touched changes an accumulator between two wgmma, which ptxas can only assemble
// one after the other.
const touched = `.version 8.0
.target sm_90a
.address_size 64
.visible .entry touched(.param .u64 p)
{
	.reg .b64 %rd<3>;
	.reg .f32 %f<4>;
	.reg .pred %p;
	ld.param.u64 %rd0, [p];
	ld.global.v2.u64 {%rd1, %rd2}, [%rd0];
	mov.f32 %f0, 0f00000000;
	mov.f32 %f1, %f0;
	mov.f32 %f2, %f0;
	mov.f32 %f3, %f0;
	setp.ne.u32 %p, 1, 0;
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p, 1, 1, 0, 0;
	add.f32 %f0, %f0, %f1;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	st.global.v4.f32 [%rd0+16], {%f0, %f1, %f2, %f3};
	ret;
}
`

func TestAssembleTellsOfLostSpeed(t *testing.T) {
	reports, err := uncached(t).Assemble([]byte(touched), "sm_90a")
	if err != nil {
		t.Fatal(err)
	}
	if w := reports["touched"].Warnings; len(w) != 1 || !strings.Contains(w[0], "serialized") {
		t.Errorf("warnings %q, want one of serialized wgmma", w)
	}
}

func TestAssembleRefuses(t *testing.T) {
	a := uncached(t)
	tests := []struct {
		name, reason, text, target string
		line                       int
		quoted, message            string
	}{
		{"operand missing", "the line is quoted", bad, "sm_80", 8, "add.u32 %r1, %r2;", "Arguments mismatch"},
		{"cut off", "the fault lies at the end", strings.TrimSuffix(plain, "}\n"), "sm_80", 16, "", "syntax error"},
		{"older target", "text for a newer architecture", strings.Replace(plain, "sm_80", "sm_86", 1), "sm_80", 0, "", "higher"},
		{"unknown target", "a fault of the command line", plain, "sm_1", 0, "", "sm_1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := a.Assemble([]byte(tt.text), tt.target)
			var r *Refusal
			if !errors.As(err, &r) {
				t.Fatalf("%s: error %v, want a refusal", tt.reason, err)
			}
			f := r.Faults[0]
			if f.Line != tt.line || f.Text != tt.quoted || !strings.Contains(f.Message, tt.message) {
				t.Errorf("%s: %+v, want line %d, %q, %q", tt.reason, f, tt.line, tt.quoted, tt.message)
			}
			if !strings.Contains(err.Error(), tt.quoted) || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("the error does not show the fault: %v", err)
			}
		})
	}
}

func TestAssembleAllKeepsOrder(t *testing.T) {
	a := uncached(t)
	jobs := []Job{{Text: []byte(plain), Target: "sm_80"}, {Text: []byte(bad), Target: "sm_80"}, {Text: []byte(crowded(8)), Target: "sm_90"}, {Text: []byte(plain), Target: "sm_90"}}
	for i, got := range a.AssembleAll(jobs) {
		var want Outcome
		want.Reports, want.Err = a.Assemble(jobs[i].Text, jobs[i].Target)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("job %d: %+v, want %+v", i, got, want)
		}
	}
}

func TestAssembleWithoutProgram(t *testing.T) {
	a := Assembler{path: "no-such-program", slots: make(chan struct{}, 1)}
	var r *Refusal
	if _, err := a.Assemble([]byte(plain), "sm_80"); err == nil || errors.As(err, &r) {
		t.Errorf("error %v: a program that does not run has refused nothing", err)
	}
}
