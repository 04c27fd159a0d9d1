package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/internal/modelbench"
	"github.com/lockstep-go/lockstep/internal/nvml"
	"github.com/lockstep-go/lockstep/model"
)

func TestBenchUsage(t *testing.T) {
	tests := []struct{ name, reason, args, want string }{
		{"two models", "ambiguous", "--model a --preset gpt2 --quant q8_0", "--preset: excludes --model"},
		{"unknown preset", "the choices are named", "--preset gpt9 --quant q8_0", "llama-3.2-1b"},
		{"unknown preset alone", "reported before the missing format", "--preset gpt9", "--preset: "},
		{"no format", "a preset has none; the choices are named", "--preset gpt2", "--quant: --preset needs a block format: f32, f16"},
		{"unknown format", "the choices are named", "--preset gpt2 --quant q9", "q4_k_m"},
		{"too many layers", "above the limit", "--preset gpt2 --quant q8_0 --layers 513", "--layers: 513, want 1 to 512"},
		{"negative layers", "below zero", "--preset gpt2 --quant q8_0 --layers -1", "--layers: -1, want 1 to 512"},
		{"no layers of a preset", "it has some", "--preset gpt2 --quant q8_0 --layers 0 --batches -1", "--batches: -1"},
		{"format of a file", "it has its own", "--model a --quant q8_0", "--quant: needs --preset"},
		{"layers of a file", "it has its own", "--model a --layers 2", "--layers: needs --preset"},
		{"nothing to measure", "all lists are empty", "--depths= --prompts= --batches=", "nothing to measure"},
		{"negative depth", "below zero", "--depths=0,-1", "--depths: -1, want 0 or more"},
		{"negative depth apart", "a number, no flag", "--depths -1,0", "--depths: -1, want 0 or more"},
		{"empty prompt", "nothing to compute", "--prompts 0", "--prompts: 0, want 1 or more"},
		{"no sequences", "nothing to compute", "--batches 4,0", "--batches: 0, want 1 or more"},
		{"no depth of batches", "an empty list", "--depths= --prompts= --batch-depths=", "nothing to measure"},
		{"negative depth of batches", "below zero", "--batch-depths 0,-5", "--batch-depths: -5, want 0 or more"},
		{"no repeats", "nothing to report", "--repeats 0", "--repeats: 0, want 1 or more"},
		{"negative steps", "below zero", "--steps=-1", "--steps: -1, want 0 or more"},
		{"no time", "too short", "--budget 0s", "--budget: 0s, want more"},
		{"negative time", "below zero", "--budget -1s", "--budget: -1s, want more"},
		{"time without unit", "the unit is missing", "--budget 4", "--budget: \"4\", want a duration"},
		{"negative device of kernels", "numbers start at 0", "kernels --device -1", "--device: -1, want 0 or more"},
		{"unknown device", "the choices are named", "--device tpu", "--device"},
		{"no choice of device", "a measurement names its device", "--device auto", "--device"},
		{"unknown cache", "the choices are named", "--kv q8_0", "--kv"},
		{"nothing to sample", "an empty list", "sampling --sequences=", "--sequences: nothing to measure"},
		{"no sequences to sample", "below one", "sampling --sequences 1,0", "--sequences: 0, want 1 or more"},
		{"too many sequences to sample", "above what the engine holds", "sampling --sequences 257", "--sequences: 257, want 1 to 256"},
		{"no rounds", "nothing to compare", "sampling --rounds 0", "--rounds: 0, want 1 or more"},
		{"no steps to sample", "nothing to time", "sampling --steps 0", "--steps: 0, want 1 or more"},
		{"no cached positions", "below one", "sampling --depth 0", "--depth: 0, want 1 or more"},
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
		{"json in no directory", []string{"--model", silentModel, "--json", "no/such/bench.json"}, "--json: write no/such/bench.json: "},
		{"plot over a directory", []string{"--model", silentModel, "--plot", dir}, "--plot"},
		{"no GPU", []string{"--model", silentModel}, "--device gpu"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, runCommand(t, "", append([]string{"bench"}, tt.args...)...), exitError, tt.want)
		})
	}
}

// TestBenchWeakGPU checks that a GPU that cannot run the kernels is refused at once.
func TestBenchWeakGPU(t *testing.T) {
	gpu(t, smallGPU, nil)
	open := openGPU
	openGPU = func() (driver.Device, error) { dev, err := open(); return weak{dev}, err }
	refused(t, runCommand(t, "", "bench", "--model", silentModel), exitError, "--device gpu: "+silentModel, "compute capability", "7.5")
}

// runBench runs the bench command and parses its JSON.
func runBench(t *testing.T, args ...string) (result, modelbench.Report) {
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
			r, rep := runBench(t, "--model", silentModel, "--device", device, "--kv", "bf16", "--plot", plot,
				"--depths", "0,5,1000", "--prompts", "7", "--batches", "2,257", "--batch-depths", "0,5", "--steps", "2", "--repeats", "1")
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
			if got := strings.Join(names, ", "); got != "prefill 7, decode at 0, decode at 5, decode at 1000, batch 2 at 0, batch 257 at 0, batch 2 at 5, batch 257 at 5" {
				t.Errorf("measured %s", got)
			}
			wantSkipped := []string{"needs 1003 positions; the context has 512"}
			if device == "emu" {
				most := "the engine steps 256 sequences together"
				wantSkipped = append(wantSkipped, most, most) // at both depths
			}
			if strings.Join(skipped, "|") != strings.Join(wantSkipped, "|") {
				t.Errorf("skipped %q, want %q", skipped, wantSkipped)
			}
			if rep.Benchmark != modelbench.Benchmark || rep.Version != modelbench.Version || rep.Engine != engine || rep.KV != "BF16" || rep.Limits != nil || rep.Device.Name == "" || rep.Date == "" || rep.Model.Quant != "F32" {
				t.Errorf("%+v", rep)
			}
			for _, w := range []string{"decode at 5", "skipped: " + wantSkipped[0], "tokens/s", rep.Device.Name} {
				if !strings.Contains(r.out, w) {
					t.Errorf("standard output has no %q:\n%s", w, r.out)
				}
			}
			if svg, err := os.ReadFile(plot); err != nil || !bytes.Contains(svg, []byte("decode at 5")) {
				t.Errorf("the chart: %v\n%s", err, svg)
			}
		})
	}
}

func TestBenchSampling(t *testing.T) {
	for _, device := range []string{"cpu", "emu"} {
		t.Run(device, func(t *testing.T) {
			if device == "emu" && testing.Short() {
				t.Skip("emulates a model")
			}
			file := filepath.Join(t.TempDir(), "sampling.json")
			r := succeed(t, "", "bench", "sampling", "--model", silentModel, "--device", device,
				"--sequences", "1,2", "--depth", "3", "--steps", "2", "--rounds", "1", "--json", file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var rep modelbench.SamplingReport
			if err := json.Unmarshal(text, &rep); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, res := range rep.Results {
				if res.Sequences == 2 {
					got = append(got, string(res.Path)+" "+res.Sampling)
				}
				if !(res.Rate > 0) || !(res.Ratio > 0) || len(res.Ratios) != 1 {
					t.Errorf("%+v", res)
				}
			}
			want := []string{
				"engine greedy", "engine greedy again", "engine temperature", "engine temperature, top-k, top-p", "engine temperature, min-p", "engine all parameters",
				"scheduler greedy", "scheduler greedy again", "scheduler temperature", "scheduler temperature, top-k, top-p", "scheduler temperature, min-p",
				"scheduler all parameters", "scheduler mask", "scheduler hook",
			}
			if !slices.Equal(got, want) || len(rep.Results) != 2*len(got) || rep.Benchmark != "sampling" || rep.Version != 1 || rep.Depth != 3 || rep.Device == "" || rep.Model.Quant != "F32" {
				t.Errorf("%q, want %q\n%+v", got, want, rep)
			}
			if !strings.Contains(r.out, "of greedy") || !strings.Contains(r.err, "2 sequences, scheduler, hook: ") {
				t.Errorf("standard output %q, standard error %q", r.out, r.err)
			}
		})
	}
}

// TestBenchPreset checks that the temporary file of a preset is removed.
func TestBenchPreset(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a model of 40 MB")
	}
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, dir)
	}
	args := []string{"--preset", "gpt2", "--quant", "q4_k_m", "--layers", "1", "--device", "cpu", "--depths=0", "--prompts=", "--batches=", "--repeats", "1", "--steps", "1"}
	r, rep := runBench(t, args...)
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

// An interrupted benchmark prints the cases that ran, and writes no file: it would replace that
// of a whole run.
func TestBenchInterrupted(t *testing.T) {
	for _, cases := range []string{"--depths=0,1 --batches=", "--depths= --batches=2,3"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		json := put(t, "out", "precious")
		args := "bench --model " + silentModel + " --device cpu --prompts= --steps 1 --repeats 1 " + cases + " --json " + json
		var out, errw bytes.Buffer
		status := run(ctx, strings.Fields(args), nil, &out, writerFunc(func(b []byte) (int, error) {
			cancel(interrupt{os.Interrupt}) // after the first case
			return errw.Write(b)
		}))
		if status != 130 || strings.Count(out.String(), "1 × 1") != 1 || strings.Count(errw.String(), "\n") != 2 || !strings.HasSuffix(errw.String(), interruptedText+"\n") {
			t.Errorf("%s: status %d, %q, %q", cases, status, out.String(), errw.String())
		}
		checkPrecious(t, json)
	}
}

func TestBenchTable(t *testing.T) {
	joules := 0.123
	rep := modelbench.Report{
		Model:  modelbench.Model{Name: "M", Arch: "llama", Quant: "q4_k_m", Layers: 32, Bytes: 4.617e9, FLOP: 13.96e9},
		Device: kernelbench.Device{Name: "GPU", DriverVersion: 13000, SMs: 132},
		Engine: "accel", KV: "F16",
		Limits: &kernelbench.Limits{ReadPlain: 4.5e12, MMA: 6.2e14},
		Results: []modelbench.Result{
			{Case: modelbench.Case{Kind: modelbench.Decode, Sequences: 1}, Rate: 512.4, Least: 500, Most: 520, Repeats: 5, Passes: 128, Limit: "read", Share: 0.526, Joules: &joules},
			{Case: modelbench.Case{Kind: modelbench.Decode, Depth: 8192, Sequences: 1}, Skipped: "no room"},
			{Case: modelbench.Case{Kind: modelbench.Batch, Sequences: 4}, Err: "broken"},
			{Case: modelbench.Case{Kind: modelbench.Prefill, Prompt: 512, Sequences: 1}, Rate: 12345.6, Least: 9, Most: 20000, Repeats: 3, Passes: 1, Limit: "matrix", Share: 0.3},
		},
	}
	var earlier *earlierRun[modelbench.Report]
	show := func() string {
		var out bytes.Buffer
		if err := (&env{out: &out}).printModelBench(rep, earlier); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `M, llama, 32 layers, q4_k_m; per token 4.62 GB of weights and 13.96 GFLOP; engine accel, KV cache F16
GPU, driver 13.0, 132 SMs; read 4.50 TB/s, mma.sync bf16 620 TFLOP/s

                  tokens/s  least   most  repeats  of limit                  J/token
     decode at 0       512    500    520  5 × 128       53%  read bandwidth    0.123
  decode at 8192                                                                      skipped: no room
    batch 4 at 0                                                                      failed: broken
     prefill 512     12346   9.00  20000    3 × 1       30%     matrix rate         
`
	if got := show(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	earlier = &earlierRun[modelbench.Report]{file: "old.json", report: modelbench.Report{
		Date: "2030-01-02", Device: kernelbench.Device{Name: "Old\nGPU"}, KV: "F32",
		Results: []modelbench.Result{
			{Case: modelbench.Case{Kind: modelbench.Prefill, Prompt: 512, Sequences: 1}, Rate: 10000},
			{Case: modelbench.Case{Kind: modelbench.Decode, Sequences: 1}, Rate: 600},
			{Case: modelbench.Case{Kind: modelbench.Batch, Sequences: 4}, Rate: 600},
		},
	}}
	want = `M, llama, 32 layers, q4_k_m; per token 4.62 GB of weights and 13.96 GFLOP; engine accel, KV cache F16
GPU, driver 13.0, 132 SMs; read 4.50 TB/s, mma.sync bf16 620 TFLOP/s
ratio: speed of this run to that of old.json (2030-01-02, "Old\nGPU", KV cache F32); above 1 is faster

                  tokens/s  ratio  least   most  repeats  of limit                  J/token
     decode at 0       512   0.85    500    520  5 × 128       53%  read bandwidth    0.123
  decode at 8192                                                                             skipped: no room
    batch 4 at 0                                                                             failed: broken
     prefill 512     12346   1.23   9.00  20000    3 × 1       30%     matrix rate         
`
	if got := show(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	earlier, rep.Limits, rep.Results = nil, nil, rep.Results[3:]
	if got := show(); strings.Contains(got, "limit") || strings.Contains(got, "%") || strings.Contains(got, "J/token") {
		t.Errorf("columns of unknown values:\n%s", got)
	}
	if err := firstFailure(rep.Results); err != nil {
		t.Errorf("nothing failed, but %v", err)
	}
	rep.Results[0].Err = "broken"
	if err := firstFailure(rep.Results); err == nil || errors.Unwrap(err) != nil || err.Error() != "prefill 512: broken" {
		t.Errorf("%v", err)
	}
}

// checkRepeats checks the repeats of a case: they have the counters of an engine that
// counts, and no device condition.
func checkRepeats(t *testing.T, r modelbench.Result, counts bool) {
	t.Helper()
	if len(r.Each) != r.Repeats {
		t.Errorf("%v: %d repeats, %d in the report", r.Case, r.Repeats, len(r.Each))
	}
	for _, one := range r.Each {
		if one.Condition != nil || (one.Counts != nil) != counts {
			t.Errorf("%v: %+v", r.Case, one)
			continue
		}
		tokens, chunks := r.Sequences*r.Passes, 0
		if r.Kind == modelbench.Prefill {
			tokens, chunks = 0, 1
		}
		if c := one.Counts; counts && (c.StepTokens != tokens || c.Chunks != chunks || c.Steps*r.Sequences < tokens || c.AsyncSteps > c.Steps) {
			t.Errorf("%v of %d passes: %+v", r.Case, r.Passes, *c)
		}
	}
}

func TestBenchPrintsRepeats(t *testing.T) {
	counted := func(steps int) modelbench.Repeat {
		return modelbench.Repeat{Counts: &modelbench.Counts{Steps: steps}}
	}
	at := func(hertz float64, slowed ...string) modelbench.Repeat {
		return modelbench.Repeat{Condition: &modelbench.Condition{SMClock: hertz, Slowed: slowed}}
	}
	of := func(c modelbench.Case, each ...modelbench.Repeat) modelbench.Result {
		return modelbench.Result{Case: c, Passes: 8, Repeats: len(each), Each: each}
	}
	batch := modelbench.Case{Kind: modelbench.Batch, Sequences: 64}
	prompt := modelbench.Case{Kind: modelbench.Prefill, Prompt: 5, Sequences: 1}
	for _, c := range []struct {
		name, reason string
		results      []modelbench.Result
		want         string
	}{
		{"nothing known", "a CPU", []modelbench.Result{of(batch, modelbench.Repeat{})}, ""},
		{"whole batch", "one step per pass", []modelbench.Result{of(batch, counted(8), counted(8))}, ""},
		{"skipped", "it has no repeats", []modelbench.Result{of(batch)}, ""},
		{"split batch", "the most steps of a repeat", []modelbench.Result{of(batch, counted(8), counted(10), counted(9))},
			"\nbatch 64 at 0: the batch was split in 2 of 3 repeats: up to 10 steps instead of 8\n"},
		{"long prompt", "a prompt may take several steps", []modelbench.Result{of(prompt, counted(9))}, ""},
		{"clocks", "the range of all repeats", []modelbench.Result{of(prompt, at(1.98e9)), of(batch, at(1.755e9), at(1.9e9))},
			"\nSM clock: 1.75 to 1.98 GHz\n"},
		{"no clock", "reasons without a clock are left out", []modelbench.Result{of(batch, at(0, "power limit"))}, ""},
		{"reduced clock", "each reason once, with counts", []modelbench.Result{of(batch, at(1.5e9, "temperature", "power limit"), at(1.6e9, "power limit"), at(1.98e9), modelbench.Repeat{})},
			"\nSM clock: 1.50 to 1.98 GHz; reduced after 2 of 3 repeats: power limit, temperature\n"},
	} {
		var out bytes.Buffer
		if err := (&env{out: &out}).printNotes(c.results); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s (%s): %q, want %q", c.name, c.reason, out.String(), c.want)
		}
	}
}

func TestConditionOf(t *testing.T) {
	condition := nvml.Condition{SMClock: 1.98e9, MemoryClock: 3.2e9, Watts: 640, Celsius: 61, Slowed: []string{"power limit"}}
	want := &modelbench.Condition{SMClock: 1.98e9, MemoryClock: 3.2e9, Watts: 640, Celsius: 61, Slowed: []string{"power limit"}}
	if got := conditionOf(&stillMeter{condition: condition}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := conditionOf(&stillMeter{}); got != nil {
		t.Errorf("no sensors: %+v", got)
	}
}

// stillMeter is a meter whose counter never moves.
type stillMeter struct {
	closed    int
	condition nvml.Condition
}

func (*stillMeter) Joules() (float64, error)    { return 1, nil }
func (*stillMeter) Tick() time.Duration         { return 20 * time.Millisecond }
func (*stillMeter) Source() string              { return "a fake" }
func (m *stillMeter) Condition() nvml.Condition { return m.condition }
func (m *stillMeter) Close() error              { m.closed++; return nil }

// closedEngine is an engine that can only be closed.
type closedEngine struct{ model.Engine }

func (closedEngine) Close() error { return nil }

// TestBenchStartMeter checks that a missing energy counter is noted and is no error.
func TestBenchStartMeter(t *testing.T) {
	open := openMeter
	t.Cleanup(func() { openMeter = open })
	dev, err := emu.Open(smallGPU)
	if err != nil {
		t.Fatal(err)
	}
	fake := &stillMeter{}
	for _, c := range []struct {
		name, reason string
		open         func(driver.Device) (meter, error)
		meter        meter
		note         string
		energy       modelbench.Energy
	}{
		{"no library", "energy is optional", func(driver.Device) (meter, error) { return nil, errors.New("no NVML: gone") }, nil,
			"energy is unknown: no NVML: gone\n", modelbench.Energy{Unknown: "no NVML: gone"}},
		{"another device", "an emulator has no counter", open, nil,
			"energy is unknown: unsupported by device: emulated sm_90 does not count energy\n", modelbench.Energy{Unknown: "unsupported by device: emulated sm_90 does not count energy"}},
		{"a counter", "its source is in the report", func(driver.Device) (meter, error) { return fake, nil }, fake,
			"", modelbench.Energy{Source: "a fake", Tick: 0.02, Least: 0.5}},
	} {
		var errw bytes.Buffer
		openMeter = c.open
		m, energy := (&env{errw: &errw}).startMeter(dev)
		var o modelbench.Options
		useMeter(&o, m)
		if m != c.meter || (o.Meter != nil) != (c.meter != nil) || (o.Condition != nil) != (c.meter != nil) || errw.String() != c.note || *energy != c.energy {
			t.Errorf("%s (%s): meter %v, note %q, report %+v", c.name, c.reason, m, errw.String(), energy)
		}
		if m != nil {
			(&bench{engine: closedEngine{}, meter: m}).close()
		}
	}
	if fake.closed != 1 {
		t.Errorf("the meter was closed %d times", fake.closed)
	}
}

func TestBenchPrintsEnergy(t *testing.T) {
	joules := 0.123
	at := func(depth int, j *float64, unknown string) modelbench.Result {
		return modelbench.Result{Case: modelbench.Case{Kind: modelbench.Decode, Depth: depth, Sequences: 1}, Rate: 500, Joules: j, EnergyUnknown: unknown}
	}
	for _, c := range []struct {
		name, reason string
		energy       *modelbench.Energy
		results      []modelbench.Result
		column       bool
		want         string // the lines after the table
	}{
		{"none", "a CPU", nil, []modelbench.Result{at(0, nil, "")}, false, ""},
		{"unknown", "noted when the run began", &modelbench.Energy{Unknown: "no NVML"}, []modelbench.Result{at(0, nil, "")}, false, ""},
		{"known", "the source is named", &modelbench.Energy{Source: "NVML", Least: 0.5}, []modelbench.Result{at(0, &joules, "")}, true,
			"\nenergy: NVML, over 0.5 s or more\n"},
		{"of some", "each reason once", &modelbench.Energy{Source: "NVML", Least: 1},
			[]modelbench.Result{at(0, nil, "too short"), at(5, &joules, ""), at(6, nil, "cut"), at(7, nil, "too short")}, true,
			"\nenergy: NVML, over 1 s or more\nenergy of decode at 0, decode at 7 is unknown: too short\nenergy of decode at 6 is unknown: cut\n"},
	} {
		var out bytes.Buffer
		if err := (&env{out: &out}).printModelBench(modelbench.Report{Energy: c.energy, Results: c.results}, nil); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(out.String(), "\n\n")
		_, below, _ := strings.Cut(table, "\n\n")
		if below = "\n" + below; below == "\n" {
			below = ""
		}
		if below != c.want || strings.Contains(table, "J/token") != c.column {
			t.Errorf("%s (%s): below the table %q, want %q\n%s", c.name, c.reason, below, c.want, table)
		}
	}
	r := at(0, &joules, "")
	if got := resultLine(r); got != "decode at 0: 500 tokens/s, 0.123 J/token" {
		t.Errorf("in one line %q", got)
	}
}
