package conformance

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
)

// kernelUses are the forms of all kernels that an engine may ask for.
var kernelUses = sync.OnceValues(func() (uses, error) {
	specs := ptxgen.Reachable()
	var next, all sync.Mutex
	var group sync.WaitGroup
	var failed error
	total := uses{}
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			own := uses{}
			for {
				next.Lock()
				if len(specs) == 0 || failed != nil {
					next.Unlock()
					break
				}
				spec := specs[0]
				specs = specs[1:]
				next.Unlock()
				if err := own.addKernel(spec); err != nil {
					next.Lock()
					failed = err
					next.Unlock()
				}
			}
			all.Lock()
			total.merge(own)
			all.Unlock()
		})
	}
	group.Wait()
	return total, failed
})

func (u uses) addKernel(spec ptxgen.Spec) error {
	k, err := spec.Build()
	if err != nil {
		return err
	}
	text, err := k.Text(production.For(k))
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if s, ok := parseStatement(line); ok {
			u.add(s, k.Name)
		} else if strings.HasSuffix(line, ";") && !strings.HasPrefix(strings.TrimSpace(line), ".") {
			return fmt.Errorf("%s: %q is no instruction", k.Name, line)
		}
	}
	return nil
}

// emulatorTests are the sources of the emulator's own tests.
const emulatorTests = "../driver/emu/*_test.go"

// refusing are the functions of the emulator's tests whose instructions are there to
// be refused, or whose texts are arbitrary.
var refusing = map[string]bool{"TestRejected": true, "TestWarpgroupRejected": true, "FuzzLoad": true}

// hole stands in a text for what is not a constant string.
const hole = "\x00"

// composed are opcodes that the emulator's tests put together.
var composed = map[string][]string{
	"setp." + hole + ".s32":  {"eq", "ne", "lt", "le", "gt", "ge"},
	"setp." + hole + ".f32":  {"eq", "ne", "lt", "le", "gt", "ge"},
	"setp." + hole + "u.f32": {"eq", "ne", "lt", "le", "gt", "ge"},
}

var (
	testLabel  = regexp.MustCompile(`^\s*(\w+:\s*)?`)
	testOpcode = regexp.MustCompile(`^(@!?%\w+ )?([a-z][a-z0-9]*\.[^ ]+|bra|ret|exit|trap)( |$)`)
	testGuard  = regexp.MustCompile(`^@!?%\w+ `)
)

// emulatorUses are the forms in the texts of the emulator's tests.
func emulatorUses(t *testing.T) uses {
	t.Helper()
	files, err := filepath.Glob(emulatorTests)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", emulatorTests, err)
	}
	all, skipped := uses{}, 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && refusing[f.Name.Name] {
				skipped++
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool { return inspectText(t, all, filepath.Base(name), n) })
		}
	}
	if skipped != len(refusing) {
		t.Errorf("%d of %d functions that are left out exist", skipped, len(refusing))
	}
	return all
}

// inspectText adds the instructions of a string, or of a sum of strings.
func inspectText(t *testing.T, all uses, where string, n ast.Node) bool {
	switch e := n.(type) {
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return true
		}
		addText(t, all, where, folded(e))
		return false
	case *ast.BasicLit:
		addText(t, all, where, folded(e))
	}
	return true
}

// folded is the value of an expression of strings.
func folded(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return folded(e.X) + folded(e.Y)
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	}
	return hole
}

// addText adds the instructions of a text, which end with a semicolon.
func addText(t *testing.T, all uses, where, text string) {
	text = strings.ReplaceAll(text, "%%", "%")
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "//")
		pieces := strings.Split(line, ";")
		for _, p := range pieces[:len(pieces)-1] {
			p = strings.TrimLeft(p, hole+" \t") // what comes before ends with its own semicolon
			p = strings.TrimSpace(p[len(testLabel.FindString(p)):])
			m := testOpcode.FindStringSubmatch(p)
			if m == nil {
				if p != "" && p[0] != '.' && registerForm.MatchString(p) {
					t.Errorf("%s: %q is no instruction", where, p)
				}
				continue
			}
			p = testGuard.ReplaceAllString(p, "")
			instances := []string{p}
			if strings.Contains(m[2], hole) {
				instances = nil
				for _, part := range composed[m[2]] {
					instances = append(instances, strings.Replace(p, hole, part, 1))
				}
			}
			if len(instances) == 0 {
				t.Errorf("%s: it is not known what %q may be", where, m[2])
			}
			for _, in := range instances {
				s, ok := parseStatement("\t" + strings.ReplaceAll(in, hole, "0") + ";")
				if !ok {
					t.Errorf("%s: %q is no instruction", where, in)
					continue
				}
				all.add(s, where)
			}
		}
	}
}
