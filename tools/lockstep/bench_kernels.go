package main

import (
	"fmt"
	"regexp"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/internal/kernelbench"
)

type benchCmd struct {
	Model    benchModelCmd    `cmd:"" default:"withargs" help:"Measure an engine on one model: decoding, prefill and batches (default)."`
	Kernels  benchKernelsCmd  `cmd:"" help:"Measure each kernel on a GPU, and the limits of the GPU."`
	Sampling benchSamplingCmd `cmd:"" help:"Measure decoding with sampling parameters beside greedy decoding."`
	Serve    benchServeCmd    `cmd:"" help:"Measure a server with an OpenAI-compatible API under load."`
}

type benchKernelsCmd struct {
	Only   string  `help:"Measure only kernels whose \"NAME SHAPE\" matches this regular expression." placeholder:"REGEX"`
	Device int     `help:"Number of the GPU (${default})." default:"0"`
	JSON   outPath `name:"json" help:"Also write the results as JSON." placeholder:"FILE"`
}

func (c *benchKernelsCmd) Help() string {
	return "Each time is the median over repeated graphs of launches that read different copies of their data. The limit is the " +
		"read bandwidth (the best of plain and bulk loads) or the mma.sync rate, whichever allows the lower speed; " +
		"both are measured in the same run."
}

func (c *benchKernelsCmd) Run(e *env) error {
	only, err := regexp.Compile(c.Only)
	if err != nil {
		return usagef("--only: %w", err)
	}
	if c.Device < 0 {
		return usagef("--device: %d, want 0 or more", c.Device)
	}
	json := output{flag: "--json", file: c.JSON}
	if err := e.checkOutputs([]output{json}); err != nil {
		return err
	}
	dev, err := cuda.Open(c.Device)
	if err != nil {
		return fmt.Errorf("--device %d: %w", c.Device, err)
	}
	defer dev.Close()
	e.watch(dev)
	rep, err := kernelbench.Run(e.ctx, dev, kernelbench.Cases(dev.Properties()), only, func(r kernelbench.Result) {
		e.note("%s %s", r.Kernel, r.Shape)
	})
	if err != nil {
		return err
	}
	if err := e.printKernels(rep); err != nil {
		return err
	}
	return json.writeJSON(rep)
}

func (e *env) printKernels(rep kernelbench.Report) error {
	l := rep.Limits
	d := rep.Device
	err := e.stdout("%s, driver %d.%d, %d SMs\nread %.2f TB/s plain, %.2f TB/s bulk; copy %.2f TB/s read and written; mma.sync bf16 %.0f TFLOP/s; launch in a graph %.2f µs\n\n",
		d.Name, d.DriverVersion/1000, d.DriverVersion%1000/10, d.SMs, l.ReadPlain/1e12, l.ReadBulk/1e12, l.Copy/1e12, l.Matrix/1e12, l.Launch*1e6)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kernel\tshape\tµs\tleast\tmost\trate\t\tof limit\t")
	for _, r := range rep.Results {
		if r.Err != "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t\n", r.Kernel, r.Shape, r.Err)
			continue
		}
		unit, scale := "GB/s", 1e9
		if r.Unit == "FLOP/s" {
			unit, scale = "TFLOP/s", 1e12
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.0f\t%s\t%.0f%%\t\n",
			r.Kernel, r.Shape, r.Seconds*1e6, r.Least*1e6, r.Most*1e6, r.Rate/scale, unit, 100*r.Share)
	}
	return w.Flush()
}
