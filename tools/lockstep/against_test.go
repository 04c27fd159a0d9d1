package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/internal/modelbench"
)

// TestBenchAgainst runs a benchmark twice and checks the ratios of the second run.
func TestBenchAgainst(t *testing.T) {
	for _, device := range []string{"cpu", "emu"} {
		t.Run(device, func(t *testing.T) {
			if device == "emu" && testing.Short() {
				t.Skip("emulates a model")
			}
			args := []string{"--model", silentModel, "--device", device, "--steps", "2", "--repeats", "1"}
			_, first := runBench(t, append(args, "--depths", "0,5", "--prompts", "7", "--batches", "2", "--batch-depths", "4")...)
			text, err := json.Marshal(first)
			if err != nil {
				t.Fatal(err)
			}
			file := put(t, "first.json", string(text))
			r, second := runBench(t, append(args, "--depths", "5,6", "--prompts", "7", "--batches", "2", "--batch-depths", "0,4", "--against", file)...)
			speeds := map[string]float64{}
			for _, res := range first.Results {
				speeds[res.String()] = res.Rate
			}
			header, table, _ := strings.Cut(r.out, "\n\n")
			for _, want := range []string{"ratio: speed of this run to that of " + file + " (" + first.Date + ", " + first.Device.Name, "KV cache " + first.KV + "); above 1 is faster"} {
				if !strings.Contains(header, want) {
					t.Errorf("no %q in %q", want, header)
				}
			}
			lines := strings.Split(table, "\n")
			for i, res := range second.Results {
				want := []string{res.String(), rateText(res.Rate)}
				if before := speeds[res.String()]; before > 0 {
					want = append(want, ratioText(res.Rate/before))
				}
				want = append(want, rateText(res.Least), rateText(res.Most))
				if got, want := strings.Join(strings.Fields(lines[i+1]), " "), strings.Join(want, " "); !strings.HasPrefix(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
			}
			if len(second.Results) != 5 || len(speeds) != 4 {
				t.Errorf("%d results, %d before", len(second.Results), len(speeds))
			}
		})
	}
}

func TestBenchAgainstRefuses(t *testing.T) {
	report := func(change func(*modelbench.Report)) string {
		_, rep := runBench(t, "--model", silentModel, "--device", "cpu", "--depths", "0", "--prompts=", "--batches=", "--steps", "1", "--repeats", "1")
		change(&rep)
		text, err := json.Marshal(rep)
		if err != nil {
			t.Fatal(err)
		}
		return put(t, "earlier.json", string(text))
	}
	good := report(func(*modelbench.Report) {})
	for _, c := range []struct {
		name, file string
		args, want []string
	}{
		{"no file", filepath.Join(t.TempDir(), "none.json"), nil, []string{"none.json", "no such file"}},
		{"not JSON", put(t, "text.json", "x"), nil, []string{"text.json: invalid character"}},
		{"no object", put(t, "list.json", "[]"), nil, []string{"list.json: ", "cannot unmarshal array"}},
		{"two reports", put(t, "two.json", "{}{}"), nil, []string{"two.json: invalid character"}},
		{"another program", put(t, "other.json", `{"version": 3}`), nil, []string{`other.json: no field "benchmark"`, "--json of bench model"}},
		{"another benchmark", put(t, "kernels.json", `{"benchmark": "kernels", "version": 1}`), nil, []string{"kernels.json: results of bench kernels, want those of bench model"}},
		{"another version", put(t, "old.json", `{"benchmark": "model", "version": 2}`), nil, []string{"old.json: version 2 of the file format, want 3"}},
		{"a field of another type", put(t, "bad.json", `{"benchmark": "model", "version": 3, "results": 7}`), nil, []string{"bad.json: ", "results"}},
		{"another model", report(func(r *modelbench.Report) { r.Model.Quant = "q4_0\n" }), nil, []string{`earlier.json: results of "`, `q4_0\n`, "; the model here is ", "F32"}},
		{"also the output", good, []string{"--json", good}, []string{"--json: " + good + " is the input"}},
		{"kernels against a model", good, []string{"kernels"}, []string{"results of bench model, want those of bench kernels"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"bench"}
			want := c.want
			if c.args == nil || c.args[0] != "kernels" {
				args = append(args, "--model", silentModel, "--device", "cpu")
			}
			if c.args == nil || c.args[0] == "kernels" {
				want = append(want, "lockstep: --against: ")
			}
			refused(t, runCommand(t, "", append(append(args, c.args...), "--against", c.file)...), exitError, want...)
		})
	}
}

func TestKernelTable(t *testing.T) {
	rep := kernelbench.Report{
		Device: kernelbench.Device{Name: "GPU", DriverVersion: 13000, SMs: 132},
		Limits: kernelbench.Limits{ReadPlain: 4.5e12, ReadBulk: 4.6e12, Copy: 4.2e12, MMA: 6.2e14, WGMMA: 8.9e14, Launch: 1.07e-6},
		Results: []kernelbench.Result{
			{Kernel: "gemv", Shape: "64×64", Seconds: 10e-6, Least: 9e-6, Most: 11e-6, Rate: 4.14e12, Unit: "B/s", Share: 0.9},
			{Kernel: "gemv", Shape: "64×128", Err: "broken"},
			{Kernel: "gemm", Shape: "64×64", Seconds: 20e-6, Least: 20e-6, Most: 20e-6, Rate: 3.1e14, Unit: "FLOP/s", Share: 0.5},
		},
	}
	earlier := &earlierRun[kernelbench.Report]{file: "old.json", report: kernelbench.Report{
		Device:  kernelbench.Device{Name: "Old\nGPU"},
		Results: []kernelbench.Result{{Kernel: "gemv", Shape: "64×64", Seconds: 25e-6}, {Kernel: "gemv", Shape: "64×128", Seconds: 1}},
	}}
	const head = "GPU, driver 13.0, 132 SMs\nread 4.50 TB/s plain, 4.60 TB/s bulk; copy 4.20 TB/s read and written; mma.sync bf16 620 TFLOP/s, wgmma f16 890 TFLOP/s; launch in a graph 1.07 µs\n"
	for _, c := range []struct {
		name    string
		earlier *earlierRun[kernelbench.Report]
		want    string
	}{
		{"alone", nil, head + `
  kernel   shape     µs  least   most  rate           of limit
    gemv   64×64  10.00   9.00  11.00  4140     GB/s       90%
    gemv  64×128                                                failed: broken
    gemm   64×64  20.00  20.00  20.00   310  TFLOP/s       50%
`},
		{"with ratios", earlier, head + `ratio: speed of this run to that of old.json ("Old\nGPU"); above 1 is faster

  kernel   shape     µs  ratio  least   most  rate           of limit
    gemv   64×64  10.00   2.50   9.00  11.00  4140     GB/s       90%
    gemv  64×128                                                       failed: broken
    gemm   64×64  20.00         20.00  20.00   310  TFLOP/s       50%
`},
	} {
		var out bytes.Buffer
		if err := (&env{out: &out}).printKernels(rep, c.earlier); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, out.String(), c.want)
		}
	}
}
