package ptxgen_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/ptxas"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

var update = flag.Bool("update", false, "write the golden files")

// targets lists the targets to assemble for. Register counts differ between them.
var targets = []string{"sm_80", "sm_86", "sm_89", "sm_90"}

// resources are what a kernel uses: registers per thread, and bytes of static shared memory
// per CTA.
type resources struct {
	Registers, Shared int
}

const resourceFile = "testdata/resources.json"

// Every reachable kernel assembles for every target that it supports, without spills or warnings,
// and uses the resources of the golden table.
func TestAssemble(t *testing.T) {
	as := ptxas.Need(t)
	var jobs []ptxas.Job
	var names []string
	for _, s := range ptxgen.Reachable() {
		k := build(t, s)
		for _, name := range targets {
			target, err := ptx.ParseTarget(name)
			if err != nil {
				t.Fatal(err)
			}
			if target.SM < k.MinTarget.SM || target.SM > k.MinTarget.SM && k.MinTarget.Arch {
				continue
			}
			target = target.For(k)
			name = target.String()
			text, err := k.Text(target)
			if err != nil {
				t.Fatal(err)
			}
			jobs = append(jobs, ptxas.Job{Text: text, Target: name})
			names = append(names, s.Name())
		}
	}
	got := map[string]map[string]resources{}
	for i, o := range as.AssembleAll(jobs) {
		name, target := names[i], jobs[i].Target
		if o.Err != nil {
			t.Errorf("%s for %s: %v", name, target, o.Err)
			continue
		}
		r, ok := o.Reports[name]
		if !ok {
			t.Errorf("%s for %s: no such entry in the text, only %v", name, target, slices.Collect(maps.Keys(o.Reports)))
			continue
		}
		if err := r.Check(name); err != nil {
			t.Errorf("%s: %v", target, err)
		}
		if got[name] == nil {
			got[name] = map[string]resources{}
		}
		got[name][target] = resources{r.Registers, r.Shared}
	}
	compareResources(t, got)
	t.Logf("%d kernels, %d texts assembled", len(got), len(jobs))
}

func compareResources(t *testing.T, got map[string]map[string]resources) {
	t.Helper()
	if *update {
		text, err := json.MarshalIndent(got, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(resourceFile, append(text, '\n'), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(resourceFile)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]map[string]resources
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatalf("%s: %v", resourceFile, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s differs; if that is intended, run with -update (-was +is):\n%s", resourceFile, diff)
	}
}

// built caches the kernels that build built, by name.
var built = map[string]*ptx.Kernel{}

func build(t *testing.T, s kernel.Spec) *ptx.Kernel {
	t.Helper()
	k, ok := built[s.Name()]
	if !ok {
		var err error
		if k, err = s.Build(); err != nil {
			t.Fatalf("%s: %v", s.Name(), err)
		}
		built[s.Name()] = k
	}
	return k
}

// Every kernel's text is ASCII, its entry has the name of the spec, and it is the same when
// the kernel is built again.
func TestTexts(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range ptxgen.Reachable() {
		k := build(t, s)
		text, err := k.Text(ptx.Target{})
		if err != nil {
			t.Fatal(err)
		}
		second, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		again, err := second.Text(ptx.Target{})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case seen[s.Name()]:
			t.Errorf("%s occurs twice", s.Name())
		case k.Name != s.Name() || !bytes.Contains(text, []byte(".visible .entry "+s.Name()+"(\n")):
			t.Errorf("%s: the entry is named %s", s.Name(), k.Name)
		case !bytes.Equal(text, again):
			t.Errorf("%s: the text differs when it is built again", s.Name())
		case bytes.ContainsFunc(text, func(c rune) bool { return c > '~' || c < ' ' && c != '\n' && c != '\t' }):
			t.Errorf("%s: the text is not ASCII", s.Name())
		}
		seen[s.Name()] = true
	}
}

// golden names the kernels whose texts are in golden/ptx, so that a diff shows how a change of
// a generator changes its output.
var golden = []string{"peak_read", "peak_mma", "argmax_slice", "rmsnorm", "product_embed_q4_k", "product_stream_q4_k_1_w28_r2x4_c1"}

func TestGolden(t *testing.T) {
	byName := map[string]kernel.Spec{}
	for _, s := range ptxgen.Reachable() {
		byName[s.Name()] = s
	}
	for _, name := range golden {
		s, ok := byName[name]
		if !ok {
			t.Errorf("there is no kernel %s", name)
			continue
		}
		got, err := build(t, s).Text(ptx.Target{})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("..", "golden", "ptx", name+".ptx")
		if *update {
			if err := os.WriteFile(file, got, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s differs; if that is intended, run with -update (-was +is):\n%s", file, diff)
		}
	}
}
