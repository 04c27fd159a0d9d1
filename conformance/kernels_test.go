package conformance

import (
	"embed"
	"encoding/json"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/kernelcases"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/atomicfile"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
)

// runKernels runs the cases on one suite per CPU, or on one if there is a GPU, since many
// cases have a single CTA. The returned suite holds the kernels of all suites.
func runKernels(t *testing.T, cases []harness.Case, run func(*harness.Suite, harness.Case) harness.Result) ([]harness.Result, *harness.Suite) {
	t.Helper()
	suites := make([]*harness.Suite, runtime.GOMAXPROCS(0))
	if *onGPU {
		suites = suites[:1]
	}
	results := make([]harness.Result, len(cases))
	var next atomic.Int64
	var all sync.WaitGroup
	for i := range suites {
		s := kernelSuite(t)
		suites[i] = s
		all.Go(func() {
			for at := next.Add(1) - 1; at < int64(len(cases)); at = next.Add(1) - 1 {
				results[at] = run(s, cases[at])
			}
		})
	}
	all.Wait()
	for _, s := range suites {
		maps.Copy(suites[0].Kernels, s.Kernels)
	}
	return results, suites[0]
}

func TestKernels(t *testing.T) {
	skipIfShort(t)
	cases, err := kernelcases.Select(kernelcases.All(), *kernelIDs, *longCases)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("replay with -seed %d", *kernelSeed)
	results, suite := runKernels(t, cases, func(s *harness.Suite, c harness.Case) (r harness.Result) {
		t.Run(c.ID(), func(t *testing.T) {
			if r = s.Run(t, c); r.Skipped != "" {
				t.Skip(r.Skipped)
			}
			if t.Failed() {
				t.Logf("%s; replay with -seed %d -kernels '^%s$'", c.Reason, s.Seed, c.ID())
			}
		})
		return r
	})
	if !*longCases {
		defaultRun.results, defaultRun.kernels = results, suite.Kernels
	}
	var reachable []kernel.Spec
	if *kernelIDs == "" {
		reachable = ptxgen.Reachable()
	}
	rep := harness.NewReport(suite, *longCases, results, reachable)
	if len(rep.Unmeasured) > 0 {
		t.Errorf("no case launched %d of the kernels that engines may ask for", len(rep.Unmeasured))
	}
	checkSkips(t, cases, rep.Skipped)
	publish(t, rep)
}

// publish prints the report and writes it to the file of -json.
func publish(t *testing.T, rep harness.Report) {
	t.Helper()
	if err := rep.Write(os.Stdout); err != nil {
		t.Error(err)
	}
	if *jsonFile == "" {
		return
	}
	b, err := json.MarshalIndent(rep, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	err = atomicfile.Write(*jsonFile, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
	if err != nil {
		t.Errorf("-json: %v", err)
	}
}

//go:embed testdata
var testdata embed.FS

// checkSkips compares the skipped cases with testdata/skips.json. Each skipped case must be
// listed, and each listed case must have been skipped.
func checkSkips(t T, cases []harness.Case, skipped map[string]string) {
	t.Helper()
	kind := "emulator"
	if *onGPU {
		kind = "cuda"
	}
	var manifest map[string]map[string]string
	b, err := testdata.ReadFile("testdata/skips.json")
	if err == nil {
		err = json.Unmarshal(b, &manifest)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	compareSkips(t, manifest[kind], cases, skipped)
}

func compareSkips(t T, manifest map[string]string, cases []harness.Case, skipped map[string]string) {
	t.Helper()
	for id, why := range skipped {
		if _, ok := manifest[id]; !ok {
			t.Errorf("%s was skipped (%s) but is not in testdata/skips.json", id, why)
		}
	}
	known := map[string]bool{}
	for _, c := range kernelcases.All() {
		known[c.ID()] = true
	}
	ran := map[string]bool{}
	for _, c := range cases {
		ran[c.ID()] = true
	}
	for id := range manifest {
		if _, ok := skipped[id]; !known[id] || ran[id] && !ok {
			t.Errorf("testdata/skips.json lists %s, which is no case or was not skipped", id)
		}
	}
}

func TestKernelNames(t *testing.T) {
	for _, c := range kernelcases.All() { // panics if a case is incomplete
		if c.Format == "" {
			t.Errorf("%s has no format", c.ID())
		}
	}
}

func TestSkipManifest(t *testing.T) {
	cases := []harness.Case{{Operation: "a", Name: "1"}, {Operation: "a", Name: "2"}}
	for _, c := range []struct {
		name     string
		manifest map[string]string
		skipped  map[string]string
		want     string
	}{
		{"nothing skipped", nil, nil, ""},
		{"skipped but not listed", nil, map[string]string{"a/1": "why"}, "a/1 was skipped"},
		{"no such case", map[string]string{"a/3": "why"}, nil, "lists a/3"},
		{"listed but not skipped", map[string]string{"a/2": "why"}, nil, "lists a/2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &harness.Recorder{}
			compareSkips(r, c.manifest, cases, c.skipped)
			expect(t, r.Messages, c.want)
		})
	}
}

func TestKernelReport(t *testing.T) {
	s, err := harness.NewSuite(func() (driver.Device, error) { return newFakeDevice(nil), nil }, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	of := func(name string) harness.Case { return harness.Case{Operation: "op", Format: "F32", Name: name} }
	rep := harness.NewReport(s, false, []harness.Result{
		{Case: of("good"), Compared: 3, Worst: map[string]float64{harness.WorstCase: 0.5}, Bias: 1},
		{Case: of("better"), Compared: 3, Worst: map[string]float64{harness.WorstCase: 0.25, harness.ULPs: 2}},
		{Case: harness.Case{Operation: "other", Name: "skipped"}, Skipped: "why", Kernels: map[string]bool{"scale": true}},
	}, []kernel.Spec{scale{}})
	want := harness.Report{
		Device: "fake", Seed: 1, Cases: 3, Skips: 1, Compared: 6, Unmeasured: []string{"scale"}, Failures: []string{},
		Rows: []harness.Row{
			{Operation: "op", Format: "F32", Cases: 2, Compared: 6, Worst: map[string]harness.Ratio{harness.WorstCase: 0.5, harness.ULPs: 2}, Bias: 1},
			{Operation: "other", Cases: 1, Skips: 1, Worst: map[string]harness.Ratio{}},
		},
		Skipped: map[string]string{"other/skipped": "why"},
	}
	if diff := cmp.Diff(want, rep); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if rep.Rows[0].Status() != "ok" || rep.Rows[1].Status() != "unmeasured" {
		t.Errorf("%q and %q, want ok and unmeasured", rep.Rows[0].Status(), rep.Rows[1].Status())
	}
	worst := map[string]float64{harness.WorstCase: math.Inf(1), harness.ULPs: math.NaN()}
	bad := harness.NewReport(s, false, []harness.Result{{Case: of("bad"), Compared: 3, Failures: 2, Worst: worst}}, nil)
	if bad.Rows[0].Status() != "FAILED" || bad.Failed != 1 || bad.Failures[0] != "op/bad" {
		t.Errorf("report of a failed case: %+v", bad)
	}
	if b, err := json.Marshal(bad); err != nil || !strings.Contains(string(b), `"worst":{"ulp":"NaN","worst-case":"+Inf"}`) {
		t.Errorf("a failed case in JSON: %s, %v", b, err)
	}
}
