package main

import (
	"fmt"
	"regexp"
	"strings"
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
	againstFlag
}

func (c *benchKernelsCmd) Help() string {
	return "Each time is the median over repeated graphs of launches that read different copies of their data. The limit is the " +
		"read bandwidth (the better of plain and bulk loads) or the matrix rate (the better of mma.sync and wgmma), whichever allows " +
		"the lower speed; all are measured in the same run."
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
	if err := e.checkOutputs([]output{json}, c.Against); err != nil {
		return err
	}
	earlier, err := readEarlier[kernelbench.Report](c.againstFlag, kernelbench.Benchmark, kernelbench.Version)
	if err != nil {
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
	if err := e.printKernels(rep, earlier); err != nil {
		return err
	}
	return json.writeJSON(rep)
}

// printKernels prints the report as a table, with ratios to an earlier run unless earlier is nil.
func (e *env) printKernels(rep kernelbench.Report, earlier *earlierRun[kernelbench.Report]) error {
	l := rep.Limits
	err := e.stdout("%s\nread %.2f TB/s plain, %.2f TB/s bulk; copy %.2f TB/s read and written; %s; launch in a graph %.2f µs\n",
		deviceText(rep.Device), l.ReadPlain/1e12, l.ReadBulk/1e12, l.Copy/1e12, matrixText(l), l.Launch*1e6)
	if err != nil {
		return err
	}
	title, ratios := "", make([]string, len(rep.Results)) // of the optional column, with a tab
	if earlier != nil {
		if err := e.stdout("%s\n", earlier.header(earlier.report.Device.Name)); err != nil {
			return err
		}
		title = "ratio\t"
		for i, x := range rep.Ratios(earlier.report) {
			ratios[i] = ratioText(x) + "\t"
		}
	}
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := fmt.Sprintf("kernel\tshape\tµs\t%sleast\tmost\trate\t\tof limit\t", title)
	fmt.Fprintln(w, "\n"+head)
	for i, r := range rep.Results {
		if r.Err != "" {
			blank := strings.Repeat("\t", strings.Count(head, "\t")-1)
			fmt.Fprintf(w, "%s\t%s%s  failed: %s\n", r.Kernel, r.Shape, blank, r.Err)
			continue
		}
		unit, scale := "GB/s", 1e9
		if r.Unit == "FLOP/s" {
			unit, scale = "TFLOP/s", 1e12
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%s%.2f\t%.2f\t%.0f\t%s\t%.0f%%\t\n",
			r.Kernel, r.Shape, r.Seconds*1e6, ratios[i], r.Least*1e6, r.Most*1e6, r.Rate/scale, unit, 100*r.Share)
	}
	return w.Flush()
}
