package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/internal/modelbench"
)

// limitNames says for people what a figure is bound by.
var limitNames = map[string]string{"read": "reading", "matrix": "bf16 mma.sync"}

// noteOf is a result in one line, while others are measured.
func noteOf(r modelbench.Result) string {
	text := fmt.Sprintf("%v: ", r.Case)
	switch {
	case r.Err != "":
		return text + r.Err
	case r.Skipped != "":
		return text + "skipped: " + r.Skipped
	}
	text += rateText(r.Rate) + " tokens/s"
	if r.Limit != "" {
		text += fmt.Sprintf(", %.0f%% of %s", 100*r.Share, limitNames[r.Limit])
	}
	if r.Joules != nil {
		text += fmt.Sprintf(", %.3g J/token", *r.Joules)
	}
	return text
}

// rateText writes a rate with three digits or more.
func rateText(x float64) string {
	decimals := 0
	for at := 100.0; x < at && decimals < 4; at /= 10 {
		decimals++
	}
	return fmt.Sprintf("%.*f", decimals, x)
}

// showModelBench prints the run as a table. Columns that nothing is known of are left out.
func (e *env) showModelBench(rep modelbench.Report) error {
	m, d := rep.Model, rep.Device
	device := d.Name
	if d.DriverVersion > 0 {
		device += fmt.Sprintf(", driver %d.%d, %d SMs", d.DriverVersion/1000, d.DriverVersion%1000/10, d.SMs)
	}
	if l := rep.Limits; l != nil {
		device += fmt.Sprintf("; read %.2f TB/s, mma.sync bf16 %.0f TFLOP/s", l.Read()/1e12, l.Matrix/1e12)
	}
	err := e.stdout("%s, %s of %d layers, %s; a token takes %s of weights and %.4g GFLOP; engine %s, keys and values %s\n%s\n\n",
		m.Name, m.Arch, m.Layers, m.Quant, size(int64(m.Bytes)), m.FLOP/1e9, rep.Engine, rep.KV, device)
	if err != nil {
		return err
	}
	limits := rep.Limits != nil
	energy := slices.ContainsFunc(rep.Results, func(r modelbench.Result) bool { return r.Joules != nil })
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, benchRow([]string{"", "tokens/s", "least", "most", "repeats"}, limits, []string{"of limit", ""}, energy, "J/token"))
	for _, r := range rep.Results {
		fmt.Fprintln(w, benchRowOf(r, limits, energy))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := e.showRepeats(rep); err != nil {
		return err
	}
	return e.showEnergy(rep)
}

func benchRowOf(r modelbench.Result, limits, energy bool) string {
	blank := benchRow([]string{r.String(), "", "", "", ""}, limits, []string{"", ""}, energy, "")
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
	return benchRow([]string{r.String(), rateText(r.Rate), rateText(r.Least), rateText(r.Most), repeats},
		limits, []string{fmt.Sprintf("%.0f%%", 100*r.Share), limitNames[r.Limit]}, energy, joules)
}

func benchRow(cells []string, limits bool, share []string, energy bool, joules string) string {
	if limits {
		cells = append(cells, share...)
	}
	if energy {
		cells = append(cells, joules)
	}
	return strings.Join(cells, "\t") + "\t"
}
