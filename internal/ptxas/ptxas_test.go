package ptxas

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

const header = ".version 7.4\n.target sm_80\n.address_size 64\n"

// plain uses static shared memory.
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

// bad lacks an operand in line 8.
const bad = header + `.visible .entry bad()
{
	.reg .b32 %r<3>;
	mov.u32 %r2, 1;
	add.u32 %r1, %r2;
	ret;
}
`

// crowded keeps n loaded values live with few registers. Volatile accesses keep their order, so
// no value can be stored early.
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

// uncached returns the assembler without its cache.
func uncached(t *testing.T) *Assembler {
	t.Helper()
	a := *Need(t)
	a.cache = ""
	return &a
}

func TestAssembleReports(t *testing.T) {
	a := uncached(t)
	tests := []struct {
		name, text, entry string
		spills            bool
		shared            int
	}{
		{"static shared memory", plain, "plain", false, 100},
		{"as many values as fit", crowded(20), "crowded", false, 0},
		{"twice as many values as registers", crowded(64), "crowded", true, 0},
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
				t.Errorf("%d registers", r.Registers)
			}
			if spills := r.SpillStores > 0 && r.SpillLoads > 0 && r.Stack > 0; spills != tt.spills || r.Shared != tt.shared {
				t.Errorf("%+v, want spills %v and %d bytes shared", r, tt.spills, tt.shared)
			}
		})
	}
}

// serializedWGMMA changes an accumulator between two wgmma, so ptxas must serialize them.
const serializedWGMMA = `.version 8.0
.target sm_90a
.address_size 64
.visible .entry accumulate(.param .u64 p)
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

func TestAssembleWarnsOfSerializedWGMMA(t *testing.T) {
	reports, err := uncached(t).Assemble([]byte(serializedWGMMA), "sm_90a")
	if err != nil {
		t.Fatal(err)
	}
	if w := reports["accumulate"].Warnings; len(w) != 1 || !strings.Contains(w[0], "serialized") {
		t.Errorf("warnings %q, want one of serialized wgmma", w)
	}
}

func TestAssembleRejects(t *testing.T) {
	a := uncached(t)
	tests := []struct {
		name, text, target string
		line               int
		source, message    string
	}{
		{"operand missing", bad, "sm_80", 8, "add.u32 %r1, %r2;", "Arguments mismatch"},
		{"truncated text", strings.TrimSuffix(plain, "}\n"), "sm_80", 16, "", "syntax error"},
		{"older target", strings.Replace(plain, "sm_80", "sm_86", 1), "sm_80", 0, "", "higher"},
		{"unknown target", plain, "sm_1", 0, "", "sm_1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := a.Assemble([]byte(tt.text), tt.target)
			var r *RejectedError
			if !errors.As(err, &r) {
				t.Fatalf("error %v, want a RejectedError", err)
			}
			m := r.Messages[0]
			if m.Line != tt.line || m.Source != tt.source || !strings.Contains(m.Text, tt.message) {
				t.Errorf("%+v, want line %d, %q, %q", m, tt.line, tt.source, tt.message)
			}
			if !strings.Contains(err.Error(), tt.source) || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("the error lacks the message: %v", err)
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
	var r *RejectedError
	if _, err := a.Assemble([]byte(plain), "sm_80"); err == nil || errors.As(err, &r) {
		t.Errorf("error %v, want one that is not a RejectedError", err)
	}
}

// program creates an executable file that is never run.
func program(t *testing.T, path string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir()) // as os.Getwd returns it
	if err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(root, "module", "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "module", "go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	named := program(t, filepath.Join(root, "named", "assembler"))
	inModule := program(t, filepath.Join(root, "module", downloadDir, "ptxas"))
	onPath := program(t, filepath.Join(root, "path", "ptxas"))
	outside := filepath.Join(root, "path")
	tests := []struct {
		name, env, path, dir string
		want                 string
	}{
		{"the variable comes first", named, outside, deep, named},
		{"the module comes before PATH", "", outside, deep, inModule},
		{"on PATH, outside the module", "", outside, outside, onPath},
		{"not found", "", root, outside, ""},
		{"the variable is wrong", filepath.Join(root, "none"), outside, deep, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(envPath, tt.env)
			t.Setenv("PATH", tt.path)
			t.Chdir(tt.dir)
			got, err := find()
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
			if err != nil && errors.Is(err, errNotFound) != (tt.env == "") {
				t.Errorf("error %v: a wrong variable must not be errNotFound", err)
			}
		})
	}
}

// recorder records the message of a skip or a failure.
type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Skipf(f string, args ...any)  { r.message = "skip: " + fmt.Sprintf(f, args...) }
func (r *recorder) Fatalf(f string, args ...any) { r.message = "fatal: " + fmt.Sprintf(f, args...) }

func TestNeed(t *testing.T) {
	tests := []struct {
		name, require string
		err           error
		want          []string
	}{
		{"found", "1", nil, nil},
		{"absent", "", errNotFound, []string{"skip: ", "tools/get-ptxas", envPath}},
		{"absent but required", "1", errNotFound, []string{"fatal: ", envRequire}},
		{"broken", "", errors.New("exec format error"), []string{"fatal: ", "exec format"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(envRequire, tt.require)
			var r recorder
			need(&r, tt.err)
			if (r.message == "") != (tt.want == nil) {
				t.Errorf("message %q", r.message)
			}
			for _, part := range tt.want {
				if !strings.Contains(r.message, part) {
					t.Errorf("%q lacks %q", r.message, part)
				}
			}
		})
	}
}

func TestOpenBrokenProgram(t *testing.T) {
	path := program(t, filepath.Join(t.TempDir(), "ptxas"))
	if _, err := open(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names %s", err, path)
	}
}
