package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/internal/modelbench"
)

// limitNames names the limits for people.
var limitNames = map[string]string{"read": "read bandwidth", "matrix": "bf16 mma.sync"}

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

// printModelBench prints the report as a table, without the columns of unknown values.
func (e *env) printModelBench(rep modelbench.Report) error {
	m, d := rep.Model, rep.Device
	device := d.Name
	if d.DriverVersion > 0 {
		device += fmt.Sprintf(", driver %d.%d, %d SMs", d.DriverVersion/1000, d.DriverVersion%1000/10, d.SMs)
	}
	if l := rep.Limits; l != nil {
		device += fmt.Sprintf("; read %.2f TB/s, mma.sync bf16 %.0f TFLOP/s", l.Read()/1e12, l.Matrix/1e12)
	}
	err := e.stdout("%s, %s, %d layers, %s; per token %s of weights and %.4g GFLOP; engine %s, KV cache %s\n%s\n\n",
		m.Name, m.Arch, m.Layers, m.Quant, size(int64(m.Bytes)), m.FLOP/1e9, rep.Engine, rep.KV, device)
	if err != nil {
		return err
	}
	t := benchTable{
		limits: rep.Limits != nil,
		energy: slices.ContainsFunc(rep.Results, func(r modelbench.Result) bool { return r.Joules != nil }),
	}
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, t.line([]string{"", "tokens/s", "least", "most", "repeats"}, []string{"of limit", ""}, "J/token"))
	for _, r := range rep.Results {
		fmt.Fprintln(w, t.row(r))
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
type benchTable struct{ limits, energy bool }

func (t benchTable) row(r modelbench.Result) string {
	blank := t.line([]string{r.String(), "", "", "", ""}, []string{"", ""}, "")
	switch {
	case r.Err != "":
		return blank + "  failed: " + r.Err
	case r.Skipped != "":
		return blank + "  skipped: " + r.Skipped
	}
	joules := ""
	if r.Joules != nil {
		joules = fmt.Sprintf("%.3g", *r.Joules)
	}
	repeats := fmt.Sprintf("%d × %d", r.Repeats, r.Passes)
	return t.line([]string{r.String(), rateText(r.Rate), rateText(r.Least), rateText(r.Most), repeats},
		[]string{fmt.Sprintf("%.0f%%", 100*r.Share), limitNames[r.Limit]}, joules)
}

func (t benchTable) line(cells, limit []string, joules string) string {
	if t.limits {
		cells = append(cells, limit...)
	}
	if t.energy {
		cells = append(cells, joules)
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
