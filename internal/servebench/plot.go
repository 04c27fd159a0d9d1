package servebench

import (
	"fmt"
	"io"

	"gonum.org/v1/gonum/stat"

	"github.com/lockstep-go/lockstep/internal/chart"
)

// Plot writes the report as SVG: the distributions of the latencies, and the latency of each
// request over its arrival. It draws only axes if no request succeeded.
func (rep *Report) Plot(w io.Writer) error {
	return chart.Write(w, rep.distributions(), rep.timeline())
}

// curvePoints is the number of points of a distribution.
const curvePoints = 200

func (rep *Report) distributions() *chart.XY {
	c := &chart.XY{Title: fmt.Sprintf("%s, %.4g requests/s, %.4g output tokens/s", rep.Model, rep.RequestRate, rep.OutputRate)}
	low, high := 1.0, 0.0
	for i, d := range []struct {
		name   string
		values []float64
	}{{"time to first token", rep.firstToken}, {"time between tokens", rep.gaps}, {"end to end", rep.endToEnd}} {
		if len(d.values) == 0 {
			continue
		}
		s := chart.Series{Name: d.name, Color: chart.Colors[i], Line: true}
		for k := range curvePoints + 1 {
			p := float64(k) / curvePoints
			s.Points = append(s.Points, chart.Point{X: stat.Quantile(p, stat.Empirical, d.values, nil), Y: 100 * p})
		}
		low, high = min(low, d.values[0]), max(high, d.values[len(d.values)-1])
		c.Series = append(c.Series, s)
	}
	c.X = secondsAxis(low, high)
	c.Y = chart.Axis{Label: "percent", Max: 100, Ticks: ticks(100)}
	return c
}

func (rep *Report) timeline() *chart.XY {
	c := &chart.XY{Title: rep.URL + rep.Endpoint}
	firstToken := chart.Series{Name: "time to first token", Color: chart.Colors[0], Dots: true}
	endToEnd := chart.Series{Name: "end to end", Color: chart.Colors[2], Dots: true}
	failures := chart.Series{Name: "failed, after", Color: chart.Colors[1], Dots: true}
	low, high, last := 1.0, 0.0, 1.0
	for i, r := range rep.Requests {
		title := fmt.Sprintf("request %d: %d tokens, then %d", i, r.PromptTokens, r.OutputTokens)
		last = max(last, r.Due)
		low, high = min(low, r.EndToEnd), max(high, r.EndToEnd)
		if r.Error != "" {
			failures.Points = append(failures.Points, chart.Point{X: r.Due, Y: r.EndToEnd, Title: title + ": " + r.Error})
			continue
		}
		endToEnd.Points = append(endToEnd.Points, chart.Point{X: r.Due, Y: r.EndToEnd, Title: title})
		if r.FirstToken > 0 {
			low = min(low, r.FirstToken)
			firstToken.Points = append(firstToken.Points, chart.Point{X: r.Due, Y: r.FirstToken, Title: title})
		}
	}
	for _, s := range []chart.Series{firstToken, endToEnd, failures} {
		if len(s.Points) > 0 {
			c.Series = append(c.Series, s)
		}
	}
	c.X = chart.Axis{Label: "arrival in seconds", Max: last, Ticks: ticks(last)}
	c.Y = secondsAxis(low, high)
	return c
}

// secondsAxis returns a logarithmic axis. Values below a microsecond are drawn at its start.
func secondsAxis(low, high float64) chart.Axis {
	low = max(low, 1e-6)
	return chart.Decades("seconds", low, max(high, low))
}

// ticks returns five ticks from 0 to high.
func ticks(high float64) []chart.Tick {
	var list []chart.Tick
	for k := range 5 {
		v := high * float64(k) / 4
		list = append(list, chart.Tick{Value: v, Label: fmt.Sprintf("%.3g", v)})
	}
	return list
}
