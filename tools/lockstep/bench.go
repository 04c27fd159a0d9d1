package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/internal/kernelbench"
)

type benchCmd struct {
	Model   benchModelCmd   `cmd:"" default:"withargs" help:"Measure an engine on one model: decoding, prompts and sequences together. The default: bench --model F."`
	Kernels benchKernelsCmd `cmd:"" help:"Measure each kernel on a GPU, beside the limits measured in the same run."`
}

type benchKernelsCmd struct {
	Only   string `help:"Measure only what matches this regular expression: the kernel's name, a space, the shape." placeholder:"REGEX"`
	Device int    `help:"The GPU's number." default:"0"`
	JSON   path   `name:"json" help:"Write the figures to this file, too." placeholder:"FILE"`
}

func (c *benchKernelsCmd) Help() string {
	return "Each figure is the median over repeated graphs of launches that read different copies of their data; the share is " +
		"of the read bandwidth (the best of plain and bulk loads) or of the rate of the matrix units by mma.sync, whichever " +
		"would take a perfect kernel longer."
}

func (c *benchKernelsCmd) Run(e *env) error {
	only, err := regexp.Compile(c.Only)
	if err != nil {
		return usagef("--only: %w", err)
	}
	if c.Device < 0 {
		return usagef("--device: %d, want 0 or more", c.Device)
	}
	dev, err := cuda.Open(c.Device)
	if err != nil {
		return fmt.Errorf("--device %d: %w", c.Device, err)
	}
	defer dev.Close()
	rep, err := kernelbench.Run(e.ctx, dev, kernelbench.Cases(dev.Properties()), only, func(r kernelbench.Result) {
		e.note("%s %s", r.Kernel, r.Shape)
	})
	if err != nil {
		return err
	}
	if err := e.showBench(rep); err != nil {
		return err
	}
	if c.JSON != "" {
		text, err := json.MarshalIndent(rep, "", "  ")
		if err != nil {
			return err
		}
		return writeFile(string(c.JSON), append(text, '\n'))
	}
	return nil
}

func (e *env) showBench(rep kernelbench.Report) error {
	l := rep.Limits
	d := rep.Device
	err := e.stdout("%s, driver %d.%d, %d SMs\nread %.2f TB/s plain, %.2f bulk; copy %.2f TB/s read and written; mma.sync bf16 %.0f TFLOP/s; launch in a graph %.2f µs\n\n",
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
