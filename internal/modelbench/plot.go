package modelbench

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// kinds is how each kind is drawn: colors that stay apart for every kind of sight.
var kinds = []struct {
	kind  Kind
	color color.Color
	glyph draw.GlyphDrawer
}{
	{Prefill, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, draw.BoxGlyph{}},
	{Decode, color.RGBA{0x00, 0x72, 0xb2, 0xff}, draw.CircleGlyph{}},
	{Batch, color.RGBA{0x00, 0x9e, 0x73, 0xff}, draw.PyramidGlyph{}},
}

// The size of a drawing: bars are one below the other.
const panelWidth, rowHeight, leastHeight = 13 * vg.Centimeter, 0.75 * vg.Centimeter, 9 * vg.Centimeter

// Plot writes the run as SVG: with limits a roofline, and bars of each figure as a
// percentage of its limit; without, bars of tokens a second.
func (r Report) Plot(w io.Writer) error {
	var panels []*plot.Plot
	if r.Limits != nil {
		roof, err := r.roofline()
		if err != nil {
			return fmt.Errorf("roofline: %w", err)
		}
		panels = append(panels, roof)
	}
	bars, err := r.bars()
	if err != nil {
		return fmt.Errorf("bars: %w", err)
	}
	panels = append(panels, bars)
	width := vg.Length(len(panels)) * panelWidth
	height := max(leastHeight, vg.Length(len(r.measured())+4)*rowHeight)
	svg := vgsvg.New(width, height)
	all := draw.New(svg)
	for i, p := range panels {
		left := vg.Length(i) * panelWidth
		p.Draw(draw.Crop(all, left+vg.Points(4), left+panelWidth-width-vg.Points(10), vg.Points(4), -vg.Points(4)))
	}
	_, err = svg.WriteTo(w)
	return err
}

// measured are the results that have a figure.
func (r Report) measured() []Result {
	var list []Result
	for _, res := range r.Results {
		if res.Rate > 0 {
			list = append(list, res)
		}
	}
	return list
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	for _, s := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		s.Font.Variant = "Sans"
	}
	return p
}

// roofline draws what each figure computes a second over how much it computes for a byte
// that it reads, under what the device reaches.
func (r Report) roofline() (*plot.Plot, error) {
	p := newPlot(r.Device.Name)
	p.X.Label.Text, p.Y.Label.Text = "FLOP for a byte of weights", "FLOP/s"
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, vg.Points(8) // where the roof leaves room
	p.Add(plotter.NewGrid())
	read, matrix := r.Limits.Read(), r.Limits.Matrix
	ridge := matrix / read
	low, high, bottom := ridge, ridge, matrix
	for _, k := range kinds {
		var points plotter.XYs
		for _, res := range r.measured() {
			if res.Kind == k.kind {
				at := plotter.XY{X: res.FLOP / res.Bytes, Y: res.FLOP * res.Rate / float64(res.tokens())}
				points = append(points, at)
				low, high, bottom = min(low, at.X), max(high, at.X), min(bottom, at.Y)
			}
		}
		if len(points) == 0 {
			continue
		}
		s, err := plotter.NewScatter(points)
		if err != nil {
			return nil, err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: k.color, Radius: vg.Points(3.5), Shape: k.glyph}
		p.Add(s)
		p.Legend.Add(string(k.kind), s)
	}
	low, high, bottom = decade(low/2, math.Floor), decade(high*2, math.Ceil), decade(bottom/2, math.Floor)
	roof, err := plotter.NewLine(plotter.XYs{{X: low, Y: low * read}, {X: ridge, Y: matrix}, {X: high, Y: matrix}})
	if err != nil {
		return nil, err
	}
	roof.Width = vg.Points(1.5)
	p.Add(roof)
	p.Legend.Add(fmt.Sprintf("%.2f TB/s, %.0f TFLOP/s", read/1e12, matrix/1e12), roof)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, bottom, decade(matrix*2, math.Ceil)
	return p, nil
}

// decade is the power of ten next to x.
func decade(x float64, round func(float64) float64) float64 {
	return math.Pow(10, round(math.Log10(x)))
}

// bars draws the shares, or without limits the rates, one below the other.
func (r Report) bars() (*plot.Plot, error) {
	p := newPlot(fmt.Sprintf("%s, %s", r.Model.Name, r.Model.Quant))
	p.X.Label.Text = "tokens/s"
	value := func(res Result) (x float64, label string) { return res.Rate, digits(res.Rate) }
	if r.Limits != nil {
		p.X.Label.Text = "percent of the limit"
		value = func(res Result) (float64, string) {
			return 100 * res.Share, fmt.Sprintf("%.0f%%  %s tokens/s", 100*res.Share, digits(res.Rate))
		}
	}
	list := r.measured()
	slices.Reverse(list) // the first at the top
	var names, labels []string
	var ends plotter.XYs
	most := 0.0
	for i, res := range list {
		x, label := value(res)
		names, labels = append(names, res.String()), append(labels, " "+label)
		ends = append(ends, plotter.XY{X: x, Y: float64(i)})
		most = max(most, x)
	}
	for _, k := range kinds {
		values := make(plotter.Values, len(list))
		for i, res := range list {
			if res.Kind == k.kind {
				values[i] = ends[i].X
			}
		}
		if len(values) == 0 {
			break
		}
		b, err := plotter.NewBarChart(values, rowHeight*2/3)
		if err != nil {
			return nil, err
		}
		b.Horizontal, b.Color, b.LineStyle.Width = true, k.color, 0
		p.Add(b)
	}
	if err := label(p, ends, labels); err != nil {
		return nil, err
	}
	p.X.Min, p.X.Max = 0, 1.4*max(most, math.SmallestNonzeroFloat32) // room for the labels
	if r.Limits != nil {
		p.X.Max = max(100, 1.5*most)
	}
	if len(names) > 0 {
		p.NominalY(names...)
	}
	p.Y.Padding = vg.Points(8)
	return p, nil
}

// digits writes a rate with three digits at least.
func digits(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func label(p *plot.Plot, at plotter.XYs, labels []string) error {
	if len(at) == 0 {
		return nil
	}
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: labels})
	if err != nil {
		return err
	}
	for i := range l.TextStyle {
		l.TextStyle[i].Font.Variant = "Sans"
		l.TextStyle[i].YAlign = text.YCenter
	}
	p.Add(l)
	return nil
}
