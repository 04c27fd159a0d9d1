package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/internal/modelbench"
)

// limitNames names the limits for people.
var limitNames = map[string]string{"read": "read bandwidth", "matrix": "matrix rate"}

// resultLine returns a result as one line.
func resultLine(r modelbench.Result) string {
	text := fmt.Sprintf("%v: ", r.Case)
	switch {
	case r.Err != "":
		return text + r.Err
	case r.Skipped != "":
		return text + "skipped: " + r.Skipped
	}
	text += rateText(r.Rate) + " tokens/s"
	if r.Limit != "" {
		text += fmt.Sprintf(", %.0f%% of the %s", 100*r.Share, limitNames[r.Limit])
	}
	if r.Joules != nil {
		text += fmt.Sprintf(", %.3g J/token", *r.Joules)
	}
	return text
}

// startLine returns the times of the first tokens as one line.
func startLine(s modelbench.Start) string {
	return fmt.Sprintf("first tokens after a prompt of %d: %.1f ms and %.1f ms; the same again: %.1f ms and %.1f ms",
		s.Prompt, 1e3*s.First.Prompt, 1e3*s.First.Decode, 1e3*s.Again.Prompt, 1e3*s.Again.Decode)
}

// rateText formats a rate with at least three significant digits.
func rateText(x float64) string {
	if x == 0 {
		return "0"
	}
	decimals := 0
	for at := 100.0; x < at && decimals < 4; at /= 10 {
		decimals++
	}
	return fmt.Sprintf("%.*f", decimals, x)
}

// deviceText describes a device in one line.
func deviceText(d kernelbench.Device) string {
	if d.DriverVersion == 0 {
		return d.Name // a CPU
	}
	return fmt.Sprintf("%s, driver %d.%d, %d SMs", d.Name, d.DriverVersion/1000, d.DriverVersion%1000/10, d.SMs)
}

// matrixText names the tensor core rates of a device.
func matrixText(l kernelbench.Limits) string {
	text := fmt.Sprintf("mma.sync bf16 %.0f TFLOP/s", l.MMA/1e12)
	if l.WGMMA > 0 {
		text += fmt.Sprintf(", wgmma f16 %.0f TFLOP/s", l.WGMMA/1e12)
	}
	return text
}

// printModelBench prints the report as a table, without the columns of unknown values. It has
// ratios to an earlier run unless earlier is nil.
func (e *env) printModelBench(rep modelbench.Report, earlier *earlierRun[modelbench.Report]) error {
	m, device := rep.Model, deviceText(rep.Device)
	if l := rep.Limits; l != nil {
		device += fmt.Sprintf("; read %.2f TB/s, %s", l.Read()/1e12, matrixText(*l))
	}
	err := e.stdout("%s, %s, %d layers, %s; per token %s of weights and %.4g GFLOP; engine %s, KV cache %s\n%s\n",
		m.Name, m.Arch, m.Layers, m.Quant, size(int64(m.Bytes)), m.FLOP/1e9, rep.Engine, rep.KV, device)
	if err != nil {
		return err
	}
	if s := rep.Start; s != nil {
		if err := e.stdout("%s\n", startLine(*s)); err != nil {
			return err
		}
	}
	t := benchTable{
		limits: rep.Limits != nil,
		energy: slices.ContainsFunc(rep.Results, func(r modelbench.Result) bool { return r.Joules != nil }),
	}
	ratios := make([]float64, len(rep.Results))
	if earlier != nil {
		was := &earlier.report
		if err := e.stdout("%s\n", earlier.header(was.Date, was.Device.Name, "KV cache "+was.KV)); err != nil {
			return err
		}
		t.ratios, ratios = true, rep.Ratios(*was)
	}
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\n"+t.line(benchRow{rate: "tokens/s", ratio: "ratio", least: "least", most: "most", repeats: "repeats", share: "of limit", joules: "J/token"}))
	for i, r := range rep.Results {
		fmt.Fprintln(w, t.row(r, ratios[i]))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := e.printNotes(rep.Results); err != nil {
		return err
	}
	return e.printEnergy(rep)
}

// printNotes prints why repeats of a case may differ: split batches and the SM clock.
func (e *env) printNotes(list []modelbench.Result) error {
	notes := append(splitBatchNotes(list), clockNote(list)...)
	if len(notes) == 0 {
		return nil
	}
	return e.stdout("\n%s\n", strings.Join(notes, "\n"))
}

// benchTable tells which optional columns a table has.
type benchTable struct{ ratios, limits, energy bool }

// benchRow is the text of each cell of a row.
type benchRow struct{ name, rate, ratio, least, most, repeats, share, limit, joules string }

func (t benchTable) row(r modelbench.Result, ratio float64) string {
	row := benchRow{name: r.String()}
	switch {
	case r.Err != "":
		return t.line(row) + "  failed: " + r.Err
	case r.Skipped != "":
		return t.line(row) + "  skipped: " + r.Skipped
	}
	row.rate, row.ratio, row.least, row.most = rateText(r.Rate), ratioText(ratio), rateText(r.Least), rateText(r.Most)
	row.repeats = fmt.Sprintf("%d × %d", r.Repeats, r.Passes)
	row.share, row.limit = fmt.Sprintf("%.0f%%", 100*r.Share), limitNames[r.Limit]
	if r.Joules != nil {
		row.joules = fmt.Sprintf("%.3g", *r.Joules)
	}
	return t.line(row)
}

// line joins the cells of the columns that the table has.
func (t benchTable) line(r benchRow) string {
	cells := []string{r.name, r.rate}
	if t.ratios {
		cells = append(cells, r.ratio)
	}
	cells = append(cells, r.least, r.most, r.repeats)
	if t.limits {
		cells = append(cells, r.share, r.limit)
	}
	if t.energy {
		cells = append(cells, r.joules)
	}
	return strings.Join(cells, "\t") + "\t"
}

// splitBatchNotes names the cases whose sequences did not share every decode step.
func splitBatchNotes(list []modelbench.Result) (notes []string) {
	for _, r := range list {
		var steps []int
		for _, repeat := range r.Each {
			if c := repeat.Counts; c != nil && r.Kind != modelbench.Prefill && c.Steps > r.Passes {
				steps = append(steps, c.Steps)
			}
		}
		if len(steps) > 0 {
			notes = append(notes, fmt.Sprintf("%v: the batch was split in %d of %d repeats: up to %d steps instead of %d",
				r.Case, len(steps), r.Repeats, slices.Max(steps), r.Passes))
		}
	}
	return notes
}

// clockNote tells the range of the SM clock over all repeats and why it was reduced, in at
// most one line.
func clockNote(list []modelbench.Result) []string {
	var clocks []float64
	var reasons []string
	reduced := 0
	for _, r := range list {
		for _, repeat := range r.Each {
			c := repeat.Condition
			if c == nil || c.SMClock == 0 {
				continue
			}
			clocks = append(clocks, c.SMClock)
			if len(c.Slowed) > 0 {
				reduced++
				reasons = append(reasons, c.Slowed...)
			}
		}
	}
	if len(clocks) == 0 {
		return nil
	}
	line := fmt.Sprintf("SM clock: %.2f to %.2f GHz", slices.Min(clocks)/1e9, slices.Max(clocks)/1e9)
	if reduced > 0 {
		slices.Sort(reasons)
		line += fmt.Sprintf("; reduced after %d of %d repeats: %s", reduced, len(clocks), strings.Join(slices.Compact(reasons), ", "))
	}
	return []string{line}
}

// printEnergy prints the source of the energy values, and why some are unknown.
func (e *env) printEnergy(rep modelbench.Report) error {
	if rep.Energy == nil || rep.Energy.Source == "" {
		return nil
	}
	var reasons []string
	cases := map[string][]string{} // by reason
	for _, r := range rep.Results {
		if r.EnergyUnknown == "" {
			continue
		}
		if cases[r.EnergyUnknown] == nil {
			reasons = append(reasons, r.EnergyUnknown)
		}
		cases[r.EnergyUnknown] = append(cases[r.EnergyUnknown], r.String())
	}
	if err := e.stdout("\nenergy: %s, over %.2g s or more\n", rep.Energy.Source, rep.Energy.Least); err != nil {
		return err
	}
	for _, reason := range reasons {
		if err := e.stdout("energy of %s is unknown: %s\n", strings.Join(cases[reason], ", "), reason); err != nil {
			return err
		}
	}
	return nil
}
