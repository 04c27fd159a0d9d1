package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/internal/modelbench"
)

func TestBenchUsage(t *testing.T) {
	tests := []struct{ name, reason, args, want string }{
		{"two models", "which one?", "--model a --preset gpt2 --quant q8_0", "--preset: there is a --model"},
		{"unknown preset", "the choices are named", "--preset gpt9 --quant q8_0", "llama-3.2-1b"},
		{"unknown preset alone", "a format for it would be of no use", "--preset gpt9", "--preset: "},
		{"no format", "a preset has none; the choices are named", "--preset gpt2", "--quant: --preset needs a block format: f32, f16"},
		{"unknown format", "the choices are named", "--preset gpt2 --quant q9", "q4_k_m"},
		{"too many layers", "nothing could run the model", "--preset gpt2 --quant q8_0 --layers 513", "--layers: 513, want 1 to 512"},
		{"negative layers", "below zero", "--preset gpt2 --quant q8_0 --layers -1", "--layers: -1, want 1 to 512"},
		{"no layers of a preset", "it has some", "--preset gpt2 --quant q8_0 --layers 0 --batches -1", "--batches: -1"},
		{"format of a file", "it has its own", "--model a --quant q8_0", "--quant: is for --preset"},
		{"layers of a file", "it has its own", "--model a --layers 2", "--layers: is for --preset"},
		{"nothing", "all lists are empty", "--depths= --prompts= --batches=", "nothing is to be measured"},
		{"negative depth", "below zero", "--depths=0,-1", "--depths: -1, want 0 or more"},
		{"negative depth apart", "a number, no flag", "--depths -1,0", "--depths: -1, want 0 or more"},
		{"empty prompt", "nothing to compute", "--prompts 0", "--prompts: 0, want 1 or more"},
		{"no sequences", "nothing to compute", "--batches 4,0", "--batches: 0, want 1 or more"},
		{"no repeats", "nothing to report", "--repeats 0", "--repeats: 0, want 1 or more"},
		{"negative steps", "below zero", "--steps=-1", "--steps: -1, want 0 or more"},
		{"no time", "nothing can be done in it", "--budget 0s", "--budget: 0s, want more"},
		{"negative time", "it has gone", "--budget -1s", "--budget: -1s, want more"},
		{"time without unit", "no duration", "--budget 4", "--budget: \"4\", want a time with its unit"},
		{"negative device of kernels", "ordinals count from 0", "kernels --device -1", "--device: -1, want 0 or more"},
		{"unknown device", "the choices are named", "--device tpu", "--device"},
		{"no choice of device", "a measurement is of what it says", "--device auto", "--device"},
		{"lookahead of the CPU", "it has none", "--device cpu --no-lookahead", "--no-lookahead: there is none"},
		{"unknown cache", "the choices are named", "--kv q8_0", "--kv"},
		{"one file for both", "the second would replace the first", "--json x --plot x", "--plot: x is the file of --json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, runCommand(t, "", append([]string{"bench"}, strings.Fields(tt.args)...)...), exitUsage, tt.want)
		})
	}
}

func TestBenchRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no file", []string{"--model", "no.gguf", "--device", "cpu"}, "no.gguf"},
		{"json over the model", []string{"--model", silentModel, "--json", silentModel}, "--json"},
		{"json in no directory", []string{"--model", silentModel, "--json", "no/such/bench.json"}, "--json: no/such/bench.json: "},
		{"plot over a directory", []string{"--model", silentModel, "--plot", dir}, "--plot"},
		{"no GPU", []string{"--model", silentModel}, "--device gpu"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, runCommand(t, "", append([]string{"bench"}, tt.args...)...), exitError, tt.want)
		})
	}
}

// A GPU that cannot run the kernels is refused before anything is measured on it.
func TestBenchWeakGPU(t *testing.T) {
	gpu(t, smallGPU, nil)
	open := openGPU
	openGPU = func() (driver.Device, error) { dev, err := open(); return weak{dev}, err }
	refused(t, runCommand(t, "", "bench", "--model", silentModel), exitError, "--device gpu: "+silentModel, "compute capability", "7.5")
}

// benched runs bench and reads its JSON.
func benched(t *testing.T, args ...string) (result, modelbench.Report) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bench.json")
	r := succeed(t, "", append(append([]string{"bench"}, args...), "--json", file)...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rep modelbench.Report
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&rep); err != nil {
		t.Fatal(err)
	}
	return r, rep
}

func TestBenchModel(t *testing.T) {
	for device, engine := range map[string]string{"cpu": "ref", "emu": "accel"} {
		t.Run(device, func(t *testing.T) {
			if device == "emu" && testing.Short() {
				t.Skip("emulates a model")
			}
			plot := filepath.Join(t.TempDir(), "bench.svg")
			r, rep := benched(t, "--model", silentModel, "--device", device, "--kv", "bf16", "--plot", plot,
				"--depths", "0,5,1000", "--prompts", "7", "--batches", "2,65", "--steps", "2", "--repeats", "1")
			var names, skipped []string
			for _, res := range rep.Results {
				names = append(names, res.String())
				if res.Skipped != "" {
					skipped = append(skipped, res.Skipped)
				} else if res.Err != "" || !(res.Rate > 0) || res.Share != 0 || res.Limit != "" {
					t.Errorf("%+v", res)
				}
				checkRepeats(t, res, device == "emu")
			}
			if got := strings.Join(names, ", "); got != "prefill 7, decode at 0, decode at 5, decode at 1000, batch 2, batch 65" {
				t.Errorf("measured %s", got)
			}
			wantSkipped := []string{"needs 1003 positions; the context has 512"}
			if device == "emu" {
				wantSkipped = append(wantSkipped, "the engine steps 64 sequences together")
			}
			if strings.Join(skipped, "|") != strings.Join(wantSkipped, "|") {
				t.Errorf("skipped %q, want %q", skipped, wantSkipped)
			}
			if rep.Version != 1 || rep.Engine != engine || rep.KV != "BF16" || rep.Limits != nil || rep.Device.Name == "" || rep.Date == "" || rep.Model.Quant != "F32" {
				t.Errorf("%+v", rep)
			}
			for _, w := range []string{"decode at 5", "skipped: " + wantSkipped[0], "tokens/s", rep.Device.Name} {
				if !strings.Contains(r.out, w) {
					t.Errorf("standard output does not say %q:\n%s", w, r.out)
				}
			}
			if svg, err := os.ReadFile(plot); err != nil || !bytes.Contains(svg, []byte("decode at 5")) {
				t.Errorf("the drawing: %v\n%s", err, svg)
			}
		})
	}
}

// What is computed ahead can be left out, and the report says that it was.
func TestBenchLookahead(t *testing.T) {
	for _, tt := range []struct {
		without bool
		engine  string
	}{{false, "accel"}, {true, "accel without lookahead"}} {
		c := &benchModelCmd{modelFlag: modelFlag{silentModel}, Device: "emu", NoLookahead: tt.without, Depths: []int{0}, Repeats: 1, Steps: 4, Budget: 1}
		e := &env{ctx: t.Context(), out: io.Discard, errw: io.Discard}
		s, err := c.subject()
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		m, err := c.load(e)
		if err != nil {
			t.Fatal(err)
		}
		defer m.close()
		if err := s.prepare(e, c, m); err != nil {
			t.Fatal(err)
		}
		defer s.engine.Close()
		if err := c.measure(e, m, s); err != nil {
			t.Fatal(err)
		}
		ahead := s.engine.(*accel.Engine).Stats().AsyncSteps
		if (ahead == 0) != tt.without || s.report.Engine != tt.engine {
			t.Errorf("without %v: %d steps computed ahead, engine %q", tt.without, ahead, s.report.Engine)
		}
	}
}

// A preset's file is made in the directory for temporary files, and does not stay there.
func TestBenchPreset(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a model of 40 MB")
	}
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, dir)
	}
	args := []string{"--preset", "gpt2", "--quant", "q4_k_m", "--layers", "1", "--device", "cpu", "--depths=0", "--prompts=", "--batches=", "--repeats", "1", "--steps", "1"}
	r, rep := benched(t, args...)
	if !strings.Contains(r.err, dir) {
		t.Errorf("%q does not name the file", r.err)
	}
	if rep.Model.Name != "GPT-2 (random weights)" || rep.Model.Quant != "q4_k_m" || rep.Model.Layers != 1 || len(rep.Results) != 1 || !(rep.Results[0].Rate > 0) {
		t.Errorf("%+v", rep)
	}
	left, err := filepath.Glob(filepath.Join(dir, "lockstep-bench-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestBenchTable(t *testing.T) {
	joules := 0.123
	rep := modelbench.Report{
		Model:  modelbench.Model{Name: "M", Arch: "llama", Quant: "q4_k_m", Layers: 32, Bytes: 4.617e9, FLOP: 13.96e9},
		Device: kernelbench.Device{Name: "GPU", DriverVersion: 13000, SMs: 132},
		Engine: "accel", KV: "F16",
		Limits: &kernelbench.Limits{ReadPlain: 4.5e12, Matrix: 6.2e14},
		Results: []modelbench.Result{
			{Case: modelbench.Case{Kind: modelbench.Decode, Sequences: 1}, Rate: 512.4, Least: 500, Most: 520, Repeats: 5, Passes: 128, Limit: "read", Share: 0.526, Joules: &joules},
			{Case: modelbench.Case{Kind: modelbench.Decode, Depth: 8192, Sequences: 1}, Skipped: "no room"},
			{Case: modelbench.Case{Kind: modelbench.Batch, Sequences: 4}, Err: "broken"},
			{Case: modelbench.Case{Kind: modelbench.Prefill, Prompt: 512, Sequences: 1}, Rate: 12345.6, Least: 9, Most: 20000, Repeats: 3, Passes: 1, Limit: "matrix", Share: 0.3},
		},
	}
	show := func() string {
		var out bytes.Buffer
		if err := (&env{out: &out}).showModelBench(rep); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `M, llama of 32 layers, q4_k_m; a token takes 4.62 GB of weights and 13.96 GFLOP; engine accel, keys and values F16
GPU, driver 13.0, 132 SMs; read 4.50 TB/s, mma.sync bf16 620 TFLOP/s

                  tokens/s  least   most  repeats  of limit                 J/token
     decode at 0       512    500    520  5 × 128       53%        reading    0.123
  decode at 8192                                                                     skipped: no room
         batch 4                                                                     failed: broken
     prefill 512     12346   9.00  20000    3 × 1       30%  bf16 mma.sync         
`
	if got := show(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	rep.Limits, rep.Results = nil, rep.Results[3:]
	if got := show(); strings.Contains(got, "limit") || strings.Contains(got, "%") || strings.Contains(got, "J/token") {
		t.Errorf("columns of what is not known:\n%s", got)
	}
	if err := failures(rep.Results); err != nil {
		t.Errorf("no figure failed, but %v", err)
	}
	rep.Results[0].Err = "broken"
	if err := failures(rep.Results); err == nil || errors.Unwrap(err) != nil || err.Error() != "prefill 512: broken" {
		t.Errorf("%v", err)
	}
}
