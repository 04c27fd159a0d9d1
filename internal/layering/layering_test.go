package layering

import (
	"bytes"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// root is the module's directory.
var root = os.DirFS("../..")

func TestImportRules(t *testing.T) {
	g, err := ReadGraph(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(g["internal/layering"].Code) == 0 {
		t.Fatal("the graph lacks this package: no source was read")
	}
	for _, violation := range Check(g) {
		t.Error(violation)
	}
}

// TestCheckFindsViolations plants each kind of violation, and imports that are allowed.
func TestCheckFindsViolations(t *testing.T) {
	const m = Module + "/"
	tests := []struct {
		name, reason string
		files        map[string]string // file name → its only import
		want         string            // part of a violation; "": there is none
	}{
		{"allowed", "a row of the table", map[string]string{"ref/a.go": m + "quant"}, ""},
		{"standard library", "always allowed", map[string]string{"quant/a.go": "encoding/binary"}, ""},
		{"command", "a command may import anything", map[string]string{"tools/x/a.go": "example.com/y"}, ""},
		{"test of accel", "the table does not apply to tests", map[string]string{"accel/a_test.go": m + "driver/emu"}, ""},
		{"pattern of packages", "/... includes all levels", map[string]string{"accel/a.go": m + "ptxgen/a/b"}, ""},
		{"pattern as row", "/... includes all levels", map[string]string{"ptxgen/a/b/c.go": m + "ptxgen/ptx"}, ""},
		{"row before pattern", "the package's own row counts", map[string]string{"ptxgen/ptx/a.go": m + "quant"}, "ptxgen/ptx: may not import"},
		{"ref to accel", "forbidden", map[string]string{"ref/a.go": m + "accel"}, "ref: may not import"},
		{"accel to ref", "forbidden", map[string]string{"accel/a.go": m + "ref"}, "accel: reaches ref"},
		{"below accel to ref", "the rule includes packages below", map[string]string{"accel/internal/a/a.go": m + "ref"}, "accel/internal/a: reaches ref"},
		{"ref to ptxgen", "forbidden", map[string]string{"ref/a.go": m + "ptxgen"}, "ref: reaches ptxgen"},
		{"ref to ptx", "the rule includes packages below", map[string]string{"ref/a.go": m + "ptxgen/ptx"}, "ref: reaches ptxgen"},
		{"ref to driver", "forbidden", map[string]string{"ref/a.go": m + "driver"}, "ref: reaches driver"},
		{"ptxgen to driver", "forbidden", map[string]string{"ptxgen/a.go": m + "driver"}, "ptxgen: reaches driver"},
		{"accel to cuda", "the device is injected", map[string]string{"accel/a.go": m + "driver/cuda"}, "accel: reaches driver/cuda"},
		{"accel to emu", "the device is injected", map[string]string{"accel/a.go": m + "driver/emu"}, "accel: reaches driver/emu"},
		{"emu to ptxgen", "shared code hides bugs", map[string]string{"driver/emu/a.go": m + "ptxgen/ptx"}, "driver/emu: reaches ptxgen"},
		{"generate to ref", "the engine is injected", map[string]string{"generate/a.go": m + "ref"}, "generate: reaches ref"},
		{"golden to ref", "the engine is injected", map[string]string{"golden/a.go": m + "ref"}, "golden: reaches ref"},
		{"indirect", "through packages that may", map[string]string{"ref/a.go": m + "model", "model/a.go": m + "conformance", "conformance/a.go": m + "accel"},
			"ref → model → conformance → accel"},
		{"purego in accel", "only driver/cuda", map[string]string{"accel/a.go": purego}, "accel: imports purego"},
		{"purego in a test", "the rule includes tests", map[string]string{"driver/emu/a_test.go": purego + "/objc"}, "driver/emu: imports purego"},
		{"purego in a command", "the rule includes commands", map[string]string{"tools/x/a.go": purego}, "tools/x: imports purego"},
		{"import of a command", "forbidden", map[string]string{"conformance/a.go": m + "tools/x"}, "conformance: imports the command"},
		{"import of a command in a test", "the rule includes tests", map[string]string{"ref/a_test.go": m + "tools/x"}, "ref: imports the command"},
		{"one command in another", "the rule includes commands", map[string]string{"tools/y/a.go": m + "tools/x"}, "tools/y: imports the command"},
		{"module where none is allowed", "quant uses only the standard library", map[string]string{"quant/a.go": "golang.org/x/sys/cpu"}, "quant: may not import"},
		{"another module", "a row names its modules", map[string]string{"ref/a.go": "golang.org/x/text/width"}, "ref: may not import"},
		{"cgo", "forbidden", map[string]string{"driver/cuda/a.go": "C"}, "driver/cuda: uses cgo"},
		{"package without a row", "a new package is a decision", map[string]string{"utils/a.go": "fmt"}, "utils: has no row"},
		{"import in the root", "the root has a row of its own", map[string]string{"a.go": m + "ptxgen"}, ".: may not import"},
		{"another platform", "build constraints are ignored", map[string]string{"quant/a_windows.go": "golang.org/x/sys/windows"}, "quant: may not import"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for name, imp := range tt.files {
				tree[name] = &fstest.MapFile{Data: []byte("package p\n\nimport \"" + imp + "\"\n")}
			}
			g, err := ReadGraph(tree)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(Check(g), "\n")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%s: violations %q, want %q", tt.reason, got, tt.want)
			}
		})
	}
}

func TestReadGraphReportsBadSource(t *testing.T) {
	if _, err := ReadGraph(fstest.MapFS{"quant/a.go": {Data: []byte("import")}}); err == nil {
		t.Error("no error for a file that does not parse")
	}
}

// machinePath matches a path that exists on one machine only.
var machinePath = regexp.MustCompile(`(?:^|[^.\w])/(?:` + strings.Join([]string{"home", "Users", "root", "tmp"}, "|") + `)/[a-z.]`)

func TestNoMachinePaths(t *testing.T) {
	err := walk(root, func(name string) error {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text[:min(len(text), 8192)], 0) >= 0 {
			return nil // not text
		}
		for n, line := range bytes.Split(text, []byte("\n")) {
			if machinePath.Match(line) {
				t.Errorf("%s:%d: path of one machine: %s", name, n+1, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMachinePathPattern(t *testing.T) {
	slash := "/"
	tests := []struct {
		name, text string
		want       bool
	}{
		{"start of a line", slash + "tmp" + slash + "main", true},
		{"quoted", `"` + slash + "home" + slash + `me/x"`, true},
		{"relative", ".." + slash + "tmp" + slash + "main", false},
		{"part of a longer path", "a" + slash + "home" + slash + "main", false},
		{"prose", "home and root", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := machinePath.MatchString(tt.text); got != tt.want {
				t.Errorf("match %v, want %v", got, tt.want)
			}
		})
	}
}
