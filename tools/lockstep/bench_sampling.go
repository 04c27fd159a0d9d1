package main

import (
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/modelbench"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

type benchSamplingCmd struct {
	benchTarget
	Sequences []int   `default:"1,64" help:"Decode N sequences together (${default})." placeholder:"N,…"`
	Depth     int     `default:"64" help:"Cached positions of each sequence (${default})." placeholder:"N"`
	Steps     int     `default:"64" help:"Decoding steps per measurement (${default})." placeholder:"N"`
	Rounds    int     `default:"5" help:"Number of rounds; each measures every set of parameters once (${default})." placeholder:"N"`
	JSON      outPath `name:"json" help:"Also write the results as JSON." placeholder:"F"`
}

func (c *benchSamplingCmd) Help() string {
	return "Decodes with several sets of sampling parameters in turn, in one process, and compares each with greedy decoding in the same round. " +
		"\"engine\" is Engine.Step, \"scheduler\" is what requests get. The row \"greedy again\" shows the noise. " +
		"The mask permits all tokens and the hook does nothing, so their rows leave out the time of real ones."
}

func (c *benchSamplingCmd) check() error {
	if err := c.checkModel(); err != nil {
		return err
	}
	for _, f := range []struct {
		flag string
		list []int
	}{{"--sequences", c.Sequences}, {"--depth", []int{c.Depth}}, {"--steps", []int{c.Steps}}, {"--rounds", []int{c.Rounds}}} {
		if len(f.list) == 0 {
			return usagef("%s: nothing to measure", f.flag)
		}
		if least := slices.Min(f.list); least < 1 {
			return usagef("%s: %d, want 1 or more", f.flag, least)
		}
	}
	if most := slices.Max(c.Sequences); most > maxSequences {
		return usagef("--sequences: %d, want 1 to %d", most, maxSequences)
	}
	return nil
}

func (c *benchSamplingCmd) Run(e *env) error {
	if err := c.check(); err != nil {
		return err
	}
	json := output{flag: "--json", file: c.JSON}
	if err := e.checkOutputs([]output{json}, c.Model.file); err != nil {
		return err
	}
	m, err := c.openTarget(e)
	if err != nil {
		return err
	}
	defer m.close()
	engine, device, err := c.engine(e, m)
	if err != nil {
		return fmt.Errorf("--device %s: %s: %w", c.Device, m.name, err)
	}
	defer engine.Close()
	rep := modelbench.SamplingReport{
		Benchmark: modelbench.SamplingBenchmark, Version: modelbench.SamplingVersion, Date: time.Now().UTC().Format(time.RFC3339),
		Model: m.describe(), Device: device, Depth: c.Depth, Steps: c.Steps,
	}
	rep.Results, err = modelbench.CompareSampling(e.ctx, engine, modelbench.SamplingOptions{
		Sequences: c.Sequences, Depth: c.Depth, Steps: c.Steps, Rounds: c.Rounds,
		Show: func(r modelbench.SamplingResult) {
			e.note("%d sequences, %s, %s: %.1f%% of greedy", r.Sequences, r.Path, r.Sampling, 100*r.Ratio)
		},
	})
	if len(rep.Results) > 0 {
		err = errors.Join(err, e.printSampling(&rep))
	}
	if err != nil {
		return err // without a file: results are missing
	}
	return json.writeJSON(rep)
}

// engine makes the engine and returns the device's name.
func (c *benchSamplingCmd) engine(e *env, m *benchModel) (model.Engine, string, error) {
	if m.device == nil {
		engine, err := ref.New(m.Model, ref.Options{Numerics: ref.Numerics{KV: c.KV}})
		if err != nil {
			return nil, "", err
		}
		return engine, "CPU", nil
	}
	progress, end := e.uploadProgress()
	o := engineFor(c.Sequences, c.KV)
	o.Progress = progress
	engine, err := accel.New(e.ctx, m.Model, m.device, o)
	end()
	if err != nil {
		return nil, "", err
	}
	return engine, m.device.Properties().Name, nil
}

func (e *env) printSampling(rep *modelbench.SamplingReport) error {
	err := e.stdout("%s, %s; %s; %d cached positions, %d steps per measurement\n\n", rep.Model.Name, rep.Model.Quant, rep.Device, rep.Depth, rep.Steps)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "sequences\tby\tsampling\ttokens/s\tof greedy\tleast\tmost\t")
	for _, r := range rep.Results {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%.1f%%\t%.1f%%\t%.1f%%\t\n", r.Sequences, r.Path, r.Sampling, rateText(r.Rate),
			100*r.Ratio, 100*slices.Min(r.Ratios), 100*slices.Max(r.Ratios))
	}
	return w.Flush()
}
