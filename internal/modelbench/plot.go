package modelbench

import (
	"fmt"
	"io"

	"github.com/lockstep-go/lockstep/internal/chart"
)

// kinds lists the kinds with their colors in charts.
var kinds = []struct {
	kind  Kind
	color string
}{{Prefill, chart.Colors[1]}, {Decode, chart.Colors[0]}, {Batch, chart.Colors[2]}}

// Plot writes the report as SVG. With limits it draws a roofline and each result as a
// percentage of its limit; without, each result in tokens/s.
func (r Report) Plot(w io.Writer) error {
	if r.Limits == nil {
		return chart.Write(w, r.bars())
	}
	return chart.Write(w, r.roofline(), r.bars())
}

// measured returns the results that were neither skipped nor failed.
func (r Report) measured() []Result {
	var list []Result
	for _, res := range r.Results {
		if res.Rate > 0 {
			list = append(list, res)
		}
	}
	return list
}

// roofline plots FLOP/s over FLOP per byte that is read, below the limits of the device.
func (r Report) roofline() *chart.XY {
	read, matrix := r.Limits.Read(), r.Limits.Matrix()
	ridge := matrix / read
	minX, maxX, minY := ridge, ridge, matrix
	var series []chart.Series
	for _, k := range kinds {
		s := chart.Series{Name: string(k.kind), Color: k.color, Dots: true}
		for _, res := range r.measured() {
			if res.Kind == k.kind {
				p := chart.Point{X: res.FLOP / res.Bytes, Y: res.FLOP * res.Rate / float64(res.tokens()), Title: res.String()}
				s.Points = append(s.Points, p)
				minX, maxX, minY = min(minX, p.X), max(maxX, p.X), min(minY, p.Y)
			}
		}
		if len(s.Points) > 0 {
			series = append(series, s)
		}
	}
	c := &chart.XY{
		Title: r.Device.Name,
		X:     chart.Decades("FLOP per byte read", minX/2, maxX*2),
		Y:     chart.Decades("FLOP/s", minY/2, matrix*2),
	}
	roof := chart.Series{Name: fmt.Sprintf("%.2f TB/s, %.0f TFLOP/s", read/1e12, matrix/1e12), Color: "#666", Line: true}
	roof.Points = []chart.Point{{X: c.X.Min, Y: c.X.Min * read}, {X: ridge, Y: matrix}, {X: c.X.Max, Y: matrix}}
	c.Series = append(series, roof)
	return c
}

// bars draws the share of the limit, or without limits the rate, of each result.
func (r Report) bars() *chart.Bars {
	c := &chart.Bars{Title: fmt.Sprintf("%s, %s", r.Model.Name, r.Model.Quant), Unit: "tokens/s", Max: 1}
	if r.Limits != nil {
		c.Unit, c.Max = "percent of the limit", 100
	}
	for _, res := range r.measured() {
		b := chart.Bar{Name: res.String(), Value: res.Rate, Label: threeDigits(res.Rate)}
		if r.Limits != nil {
			b.Value, b.Label = 100*res.Share, fmt.Sprintf("%.0f%%  %s tokens/s", 100*res.Share, b.Label)
		}
		for _, k := range kinds {
			if k.kind == res.Kind {
				b.Color = k.color
			}
		}
		c.Bars = append(c.Bars, b)
		c.Max = max(c.Max, b.Value)
	}
	return c
}

// threeDigits formats a rate with at least three significant digits.
func threeDigits(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
