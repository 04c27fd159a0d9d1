package house

import (
	"bytes"
	"io/fs"
	"os"
	"path"
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
	if len(g["internal/house"].Code) == 0 {
		t.Fatal("the graph does not even hold this package: it was not read")
	}
	for _, breach := range Check(g) {
		t.Error(breach)
	}
}

// A planted breach must be found: a checker that finds nothing proves nothing.
func TestCheckFindsPlantedBreaches(t *testing.T) {
	const m = Module + "/"
	tests := []struct {
		name, reason string
		files        map[string]string // file: its one import
		want         string            // in one of the breaches; "" when all is well
	}{
		{"in order", "the plainest allowed import", map[string]string{"ref/a.go": m + "quant"}, ""},
		{"standard library", "always allowed", map[string]string{"quant/a.go": "encoding/binary"}, ""},
		{"anything in a command", "tools may import all", map[string]string{"tools/x/a.go": "example.com/y"}, ""},
		{"test of accel on the emulator", "tests are freer than code", map[string]string{"accel/a_test.go": m + "driver/emu"}, ""},
		{"ref to accel", "never", map[string]string{"ref/a.go": m + "accel"}, "ref: may not import"},
		{"accel to ref", "never", map[string]string{"accel/a.go": m + "ref"}, "accel: reaches ref"},
		{"ref to ptxgen", "never", map[string]string{"ref/a.go": m + "ptxgen"}, "ref: reaches ptxgen"},
		{"ref to ptx", "a package below counts", map[string]string{"ref/a.go": m + "ptxgen/ptx"}, "ref: reaches ptxgen"},
		{"ref to driver", "never", map[string]string{"ref/a.go": m + "driver"}, "ref: reaches driver"},
		{"ptxgen to driver", "never", map[string]string{"ptxgen/a.go": m + "driver"}, "ptxgen: reaches driver"},
		{"accel to cuda", "the device is injected", map[string]string{"accel/a.go": m + "driver/cuda"}, "accel: reaches driver/cuda"},
		{"accel to emu", "the device is injected", map[string]string{"accel/a.go": m + "driver/emu"}, "accel: reaches driver/emu"},
		{"emu to ptxgen", "a shared representation hides bugs", map[string]string{"driver/emu/a.go": m + "ptxgen/ptx"}, "driver/emu: reaches ptxgen"},
		{"golden to ref", "the engine is injected", map[string]string{"golden/a.go": m + "ref"}, "golden: reaches ref"},
		{"detour", "through a package that may", map[string]string{"ref/a.go": m + "model", "model/a.go": m + "conformance", "conformance/a.go": m + "accel"},
			"ref → model → conformance → accel"},
		{"purego in accel", "only driver/cuda", map[string]string{"accel/a.go": purego}, "accel: imports purego"},
		{"purego in a test", "the rule binds tests", map[string]string{"driver/emu/a_test.go": purego + "/objc"}, "driver/emu: imports purego"},
		{"purego in a command", "the rule binds commands", map[string]string{"tools/x/a.go": purego}, "tools/x: imports purego"},
		{"a command imported", "commands are imported by nobody", map[string]string{"conformance/a.go": m + "tools/x"}, "conformance: imports the command"},
		{"a command imported by a test", "the rule binds tests", map[string]string{"ref/a_test.go": m + "tools/x"}, "ref: imports the command"},
		{"one command by another", "the rule binds commands", map[string]string{"tools/y/a.go": m + "tools/x"}, "tools/y: imports the command"},
		{"module in a std room", "quant has only the standard library", map[string]string{"quant/a.go": "golang.org/x/sys/cpu"}, "quant: may not import"},
		{"other module", "a row names its modules", map[string]string{"ref/a.go": "golang.org/x/text/width"}, "ref: may not import"},
		{"cgo", "there is none", map[string]string{"driver/cuda/a.go": "C"}, "driver/cuda: uses cgo"},
		{"package without a row", "a new room is a decision", map[string]string{"utils/a.go": "fmt"}, "utils: has no row"},
		{"package at the root", "the root is no room", map[string]string{"a.go": "fmt"}, ".: has no row"},
		{"other platform", "build constraints hide nothing", map[string]string{"quant/a_windows.go": "golang.org/x/sys/windows"}, "quant: may not import"},
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
				t.Errorf("%s: breaches %q, want %q", tt.reason, got, tt.want)
			}
		})
	}
}

func TestReadGraphReportsBadSource(t *testing.T) {
	if _, err := ReadGraph(fstest.MapFS{"quant/a.go": {Data: []byte("import")}}); err == nil {
		t.Error("a file that does not parse was passed over")
	}
}

const maxLines = 300

// longFiles may be longer than maxLines, for the reason given.
var longFiles = map[string]string{}

func TestFilesAreShort(t *testing.T) {
	seen := map[string]bool{}
	err := walk(root, func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		seen[name] = true
		lines, reason := bytes.Count(src, []byte("\n")), longFiles[name]
		switch {
		case lines > maxLines && reason == "":
			t.Errorf("%s has %d lines, more than %d: split it, or give a reason", name, lines, maxLines)
		case lines <= maxLines && reason != "":
			t.Errorf("%s has %d lines and needs no exception", name, lines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range longFiles {
		if !seen[name] {
			t.Errorf("the exception %s is no file", name)
		}
	}
}

// Paths of the machine that something was written on mean nothing elsewhere.
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
				t.Errorf("%s:%d: a path of one machine: %s", name, n+1, line)
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
