package layerdiff

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/internal/chart"
)

// Subject describes a comparison in a report.
type Subject struct {
	Model     string `json:"model"`
	Reference string `json:"reference,omitempty"` // model that the reference computed, if another
	Device    string `json:"device"`
	KV        string `json:"kv"`
	Steps     bool   `json:"steps"` // tokens were computed one by one
	Tokens    int    `json:"tokens"`
}

// grid arranges results in a table: one row per layer, one column per operation.
type grid struct {
	names  []string
	layers []int // -1: outside of the layers
	cells  map[Op]Result
}

func (r *Report) grid() grid {
	g := grid{cells: map[Op]Result{}}
	for _, res := range r.Ops {
		if !slices.Contains(g.names, res.Op.Name) {
			g.names = append(g.names, res.Op.Name)
		}
		if !slices.Contains(g.layers, res.Op.Layer) {
			g.layers = append(g.layers, res.Op.Layer)
		}
		g.cells[res.Op] = res
	}
	slices.Sort(g.layers)
	return g
}

// cell returns an error as text, marked if it is out of tolerance.
func (g *grid) cell(layer int, name string) string {
	res, ok := g.cells[Op{layer, name}]
	switch {
	case !ok:
		return ""
	case res.Exceeded > 0:
		return number(res.Error) + " !"
	}
	return number(res.Error)
}

func layerName(layer int) string {
	if layer < 0 {
		return "–"
	}
	return strconv.Itoa(layer)
}

func number(x float64) string {
	if x == 0 {
		return "0"
	}
	return fmt.Sprintf("%.1e", x)
}

// Verdict returns one line: the first difference out of tolerance, or that there is none.
func (r *Report) Verdict() string {
	if err := r.Err(); err != nil {
		return "first out of bounds: " + err.Error()
	}
	positions := 0
	if len(r.Ops) > 0 {
		positions = r.Ops[0].Positions
	}
	text := fmt.Sprintf("all %d operations stay within their bounds at all %d positions", len(r.Ops), positions)
	if near, ok := r.nearest(); ok {
		text += fmt.Sprintf("; nearest to its bound: %v at position %d, %s of %s", near.Op, near.Position, number(near.Error), number(near.Bound))
	}
	return text
}

// nearest returns the result with the largest ratio of error to tolerance.
func (r *Report) nearest() (near Result, ok bool) {
	for _, res := range r.Ops {
		if !ok || res.Error/res.Bound > near.Error/near.Bound {
			near, ok = res, true
		}
	}
	return near, ok
}

// lines describes the difference in the predictions for the report; nil without logits.
func (l *Logits) lines() []string {
	if l == nil {
		return nil
	}
	kl := fmt.Sprintf("KL divergence of the logits: mean %s nats (bound %s), largest %s at position %d (bound %s)",
		number(l.MeanKL), number(l.MeanBound), number(l.MaxKL), l.MaxKLPosition, number(l.MaxBound))
	best := fmt.Sprintf("%.1f%% of %d positions not compared, their margin is at most twice the bound", 100*l.Undecided(), l.Positions)
	if l.Decided > 0 {
		best = fmt.Sprintf("equal at %d of %d positions; %s", l.Decided-l.Disagree, l.Decided, best)
	}
	return []string{kl, "top token: " + best}
}

// WriteText writes the report as a table.
func (r *Report) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n\nrelative L2 of the error at the worst position (!: out of bounds)\n", r.Verdict()); err != nil {
		return err
	}
	g := r.grid()
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tab, "layer")
	for _, name := range g.names {
		fmt.Fprint(tab, "\t", name)
	}
	fmt.Fprintln(tab)
	for _, layer := range g.layers {
		fmt.Fprint(tab, layerName(layer))
		for _, name := range g.names {
			fmt.Fprint(tab, "\t", g.cell(layer, name))
		}
		fmt.Fprintln(tab)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for i, line := range r.Logits.lines() {
		if i == 0 {
			line = "\n" + line
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

type page struct {
	Subject Subject
	Verdict string
	Bad     bool
	Chart   template.HTML
	Names   []string
	Rows    []pageRow
	Lines   []string
}

type pageRow struct {
	Layer string
	Cells []pageCell
}

type pageCell struct {
	Text, Title string
	Bad         bool
}

// WriteHTML writes the report as one self-contained page with a chart and the table.
func (r *Report) WriteHTML(w io.Writer, s Subject) error {
	g := r.grid()
	p := page{Subject: s, Verdict: r.Verdict(), Bad: r.Err() != nil, Names: g.names, Lines: r.Logits.lines()}
	if len(g.cells) > 0 {
		p.Chart = chart.Inline(g.chart())
	}
	for _, layer := range g.layers {
		row := pageRow{Layer: layerName(layer)}
		for _, name := range g.names {
			res, ok := g.cells[Op{layer, name}]
			c := pageCell{Text: g.cell(layer, name), Bad: res.Exceeded > 0}
			if ok {
				c.Title = res.title()
			}
			row.Cells = append(row.Cells, c)
		}
		p.Rows = append(p.Rows, row)
	}
	return pageTemplate.Execute(w, p)
}

func (r Result) title() string {
	text := fmt.Sprintf("%v: %s at position %d, bound %s", r.Op, number(r.Error), r.Position, number(r.Bound))
	if r.Exceeded > 0 {
		text += fmt.Sprintf("; %d of %d positions exceed it", r.Exceeded, r.Positions)
	}
	return text
}

// chart plots the error (solid) and bound (dashed) of each operation over the layers. The
// embedding is left of layer 0 and the logits are right of the last layer.
func (g *grid) chart() *chart.XY {
	layers, low, high := 0, math.Inf(1), 0.0
	for _, res := range g.cells {
		layers = max(layers, res.Op.Layer+1)
		for _, v := range []float64{res.Error, res.Bound} {
			if v > 0 && !math.IsInf(v, 0) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		low, high = 1e-8, 1e-7
	}
	c := &chart.XY{X: chart.Axis{Label: "layer", Min: -1, Max: float64(layers)}, Y: chart.Decades("", low, high)}
	const maxTicks = 20
	for layer := 0; layer < layers; layer += (layers + maxTicks - 1) / maxTicks {
		c.X.Ticks = append(c.X.Ticks, chart.Tick{Value: float64(layer), Label: layerName(layer)})
	}
	for i, name := range g.names {
		color := chart.Colors[i%len(chart.Colors)]
		errors := chart.Series{Name: name, Color: color, Line: true, Dots: true}
		bounds := chart.Series{Color: color, Line: true, Dashed: true}
		for _, layer := range g.layers {
			res, ok := g.cells[Op{layer, name}]
			if !ok {
				continue
			}
			x := float64(layer)
			if res.Op == logitsOp {
				x = float64(layers)
			}
			errors.Points = append(errors.Points, chart.Point{X: x, Y: res.Error, Title: res.title(), Large: res.Exceeded > 0})
			bounds.Points = append(bounds.Points, chart.Point{X: x, Y: res.Bound})
		}
		c.Series = append(c.Series, bounds, errors)
	}
	return c
}

// decimal is a JSON number. NaN and infinities, which JSON lacks, become strings.
type decimal float64

func (d decimal) MarshalJSON() ([]byte, error) {
	x := float64(d)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return json.Marshal(strconv.FormatFloat(x, 'g', -1, 64))
	}
	return json.Marshal(x)
}

type jsonResult struct {
	Layer     int     `json:"layer"` // -1: outside of the layers
	Op        string  `json:"op"`
	Error     decimal `json:"relative_l2"`
	Position  int     `json:"position"`
	Bound     decimal `json:"bound"`
	Positions int     `json:"positions"`
	Exceeded  int     `json:"positions_out_of_bound"`
}

type jsonMismatch struct {
	Layer    int     `json:"layer"`
	Op       string  `json:"op"`
	Position int     `json:"position"`
	Element  int     `json:"element"`
	Got      decimal `json:"got"`
	Want     decimal `json:"want"`
	Error    decimal `json:"error"`
	Bound    decimal `json:"bound"`
	RowError decimal `json:"row_relative_l2"`
	RowBound decimal `json:"row_bound"`
}

type jsonLogits struct {
	Positions int     `json:"positions"`
	MeanKL    decimal `json:"mean_kl"`
	MeanBound decimal `json:"mean_kl_bound"`
	MaxKL     decimal `json:"max_kl"`
	MaxAt     int     `json:"max_kl_position"`
	MaxBound  decimal `json:"max_kl_bound"`
	Decided   int     `json:"top1_compared"`
	Agree     int     `json:"top1_agree"`
	Undecided decimal `json:"top1_left_out"` // share of the positions
}

type jsonReport struct {
	Subject
	Within  bool          `json:"within_bounds"`
	Verdict string        `json:"verdict"`
	First   *jsonMismatch `json:"first"`
	Ops     []jsonResult  `json:"operations"`
	Logits  *jsonLogits   `json:"logits"`
}

// JSON returns the report as JSON.
func (r *Report) JSON(s Subject) ([]byte, error) {
	out := jsonReport{Subject: s, Within: r.Err() == nil, Verdict: r.Verdict(), Ops: []jsonResult{}}
	if d := r.First; d != nil {
		out.First = &jsonMismatch{d.Op.Layer, d.Op.Name, d.Position, d.Element, decimal(d.Got), decimal(d.Want),
			decimal(d.Error), decimal(d.Bound), decimal(d.RowError), decimal(d.RowBound)}
	}
	for _, o := range r.Ops {
		out.Ops = append(out.Ops, jsonResult{o.Op.Layer, o.Op.Name, decimal(o.Error), o.Position, decimal(o.Bound), o.Positions, o.Exceeded})
	}
	if l := r.Logits; l != nil {
		out.Logits = &jsonLogits{l.Positions, decimal(l.MeanKL), decimal(l.MeanBound), decimal(l.MaxKL), l.MaxKLPosition,
			decimal(l.MaxBound), l.Decided, l.Decided - l.Disagree, decimal(l.Undecided())}
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}
