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

	"github.com/lockstep-go/lockstep/internal/ptxlog/ptxlogtest"
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
		{"as many values as fit", ptxlogtest.Crowded(20), "k", false, 0},
		{"twice as many values as registers", ptxlogtest.Crowded(64), "k", true, 0},
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

// TestSlowTexts checks that the assembler's warnings and spills become errors.
func TestSlowTexts(t *testing.T) {
	a := uncached(t)
	for _, text := range ptxlogtest.Texts() {
		t.Run(text.Name, func(t *testing.T) {
			reports, err := a.assemble(Job{Text: []byte(text.PTX), Target: text.Target(), Linked: text.Linked})
			if err != nil {
				t.Fatal(err)
			}
			switch err := reports["k"].Check("k"); {
			case text.Want == "":
				if err != nil {
					t.Errorf("%v, want no error", err)
				}
			case err == nil || !strings.HasPrefix(err.Error(), "kernel k is slow: ") || !strings.Contains(err.Error(), text.Want):
				t.Errorf("%v, want one that names k and contains %q", err, text.Want)
			}
		})
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
	jobs := []Job{{Text: []byte(plain), Target: "sm_80"}, {Text: []byte(bad), Target: "sm_80"}, {Text: []byte(ptxlogtest.Crowded(8)), Target: "sm_90"}, {Text: []byte(plain), Target: "sm_90"}}
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
