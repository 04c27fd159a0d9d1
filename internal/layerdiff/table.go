package layerdiff

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Subject says what was compared, for those who read a report.
type Subject struct {
	Model     string `json:"model"`
	Reference string `json:"reference,omitempty"` // the model that the reference computed, if another
	Device    string `json:"device"`
	KV        string `json:"kv"`
	Prefill   string `json:"prefill"`
	Tokens    int    `json:"tokens"`
}

// grid is the results as a table: a row for each layer, -1 for what belongs to none, a
// column for each operation.
type grid struct {
	names  []string
	layers []int
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

// cell is an error for people, marked where it left its bound.
func (g *grid) cell(layer int, name string) string {
	res, ok := g.cells[Op{layer, name}]
	switch {
	case !ok:
		return ""
	case res.Left > 0:
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

// Verdict is a line that says what left its bound, or that nothing did.
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
		text += fmt.Sprintf("; nearest to its own is %v at position %d: %s of %s", near.Op, near.Position, number(near.Error), number(near.Bound))
	}
	return text
}

// nearest is the result with the largest part of its bound.
func (r *Report) nearest() (near Result, ok bool) {
	for _, res := range r.Ops {
		if !ok || res.Error/res.Bound > near.Error/near.Bound {
			near, ok = res, true
		}
	}
	return near, ok
}

// lines say what the predictions are like.
func (l *Logits) lines() []string {
	list := []string{fmt.Sprintf("KL divergence of the logits: mean %s nats (bound %s), largest %s at position %d (bound %s)",
		number(l.MeanKL), number(l.MeanBound), number(l.MaxKL), l.MaxKLPosition, number(l.MaxBound))}
	out := fmt.Sprintf("%.1f%% of %d positions are left out, as their margin is no more than twice the bound", 100*l.LeftOut(), l.Positions)
	if l.Decided == 0 {
		return append(list, "best token: "+out)
	}
	return append(list, fmt.Sprintf("best token: the same at %d of %d positions; %s", l.Decided-l.Disagree, l.Decided, out))
}

// WriteText writes a report for people.
func (r *Report) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n\nrelative L2 of the error, of the worst position (!: left its bound)\n", r.Verdict()); err != nil {
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
	if r.Logits == nil {
		return nil
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

// decimal is a number in JSON: NaN and the infinities, of which it has none, as strings.
type decimal float64

func (d decimal) MarshalJSON() ([]byte, error) {
	x := float64(d)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return json.Marshal(strconv.FormatFloat(x, 'g', -1, 64))
	}
	return json.Marshal(x)
}

type jsonResult struct {
	Layer     int     `json:"layer"` // -1: of none
	Op        string  `json:"op"`
	Error     decimal `json:"relative_l2"`
	Position  int     `json:"position"`
	Bound     decimal `json:"bound"`
	Positions int     `json:"positions"`
	Left      int     `json:"positions_out_of_bound"`
}

type jsonDeparture struct {
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
	LeftOut   decimal `json:"top1_left_out"` // share of the positions
}

type jsonReport struct {
	Subject
	Within bool           `json:"within_bounds"`
	Says   string         `json:"verdict"`
	First  *jsonDeparture `json:"first"`
	Ops    []jsonResult   `json:"operations"`
	Logits *jsonLogits    `json:"logits"`
}

// JSON is a report for programs.
func (r *Report) JSON(s Subject) ([]byte, error) {
	out := jsonReport{Subject: s, Within: r.Err() == nil, Says: r.Verdict(), Ops: []jsonResult{}}
	if d := r.First; d != nil {
		out.First = &jsonDeparture{d.Op.Layer, d.Op.Name, d.Position, d.Element, decimal(d.Got), decimal(d.Want),
			decimal(d.Error), decimal(d.Bound), decimal(d.RowError), decimal(d.RowBound)}
	}
	for _, o := range r.Ops {
		out.Ops = append(out.Ops, jsonResult{o.Op.Layer, o.Op.Name, decimal(o.Error), o.Position, decimal(o.Bound), o.Positions, o.Left})
	}
	if l := r.Logits; l != nil {
		out.Logits = &jsonLogits{l.Positions, decimal(l.MeanKL), decimal(l.MeanBound), decimal(l.MaxKL), l.MaxKLPosition,
			decimal(l.MaxBound), l.Decided, l.Decided - l.Disagree, decimal(l.LeftOut())}
	}
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}
