package layering

import (
	"os/exec"
	"strings"
	"testing"
)

// TestCommandLinksNoTestPackages checks that the command does not contain packages that
// only tests need.
func TestCommandLinksNoTestPackages(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is not on the path")
	}
	cmd := exec.Command(goTool, "list", "-deps", "./tools/lockstep")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("go list printed only %d packages", len(deps))
	}
	for _, dep := range deps {
		for _, testOnly := range []string{"testing", goCmp, Module + "/conformance", Module + "/internal/tiny"} {
			if below(dep, testOnly) {
				t.Errorf("the command links %s", dep)
			}
		}
	}
}
