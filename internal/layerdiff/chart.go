package layerdiff

import (
	"fmt"
	"math"
	"strings"
)

// chart is a drawing of errors by layer: what the page's SVG is made of.
type chart struct {
	Width, Height int
	Across        []chartLine // at powers of ten
	Ticks         []chartText // below layers
	Series        []chartSeries
}

type chartText struct {
	X, Y float64
	Text string
}

type chartLine struct {
	X1, Y1, X2, Y2, TextX, TextY float64
	Text                         string
}

type chartSeries struct {
	Name, Color  string
	Line, Bounds string // points
	Dots         []chartDot
	KeyX, KeyY   float64
}

// TextX is where the name is in the key.
func (s chartSeries) TextX() float64 { return s.KeyX + 10 }

type chartDot struct {
	X, Y, R float64
	Text    string
}

const (
	chartWidth, chartHeight    = 900, 380
	left, right, upper, bottom = 60.0, 780.0, 15.0, 345.0
	mostTicks                  = 20
)

// colors are told apart by most people (Okabe and Ito's palette).
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// scale maps a grid to a drawing: layers from left to right with embed before them and
// logits behind, powers of ten from below.
type scale struct {
	layers    int
	low, high float64 // powers of ten
}

func (s scale) x(o Op) float64 {
	place := o.Layer
	if o == logitsOp {
		place = s.layers
	}
	return tenths(left + (right-left)*float64(place+1)/float64(s.layers+1))
}

// y clamps to the drawing what it has no room for: 0, infinities.
func (s scale) y(v float64) float64 {
	power := min(max(math.Log10(v), s.low), s.high)
	return tenths(bottom - (bottom-upper)*(power-s.low)/(s.high-s.low))
}

// tenths keeps the page short.
func tenths(x float64) float64 { return math.Round(10*x) / 10 }

func scaleOf(g *grid) scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1)}
	for _, res := range g.cells {
		s.layers = max(s.layers, res.Op.Layer+1)
		for _, v := range []float64{res.Error, res.Bound} {
			if v > 0 && !math.IsInf(v, 0) {
				s.low, s.high = min(s.low, math.Floor(math.Log10(v))), max(s.high, math.Ceil(math.Log10(v)))
			}
		}
	}
	if !(s.low <= s.high) {
		s.low, s.high = -8, -7
	}
	s.high = max(s.high, s.low+1)
	return s
}

// draw makes the drawing of a grid; nil of an empty one.
func draw(g *grid) *chart {
	if len(g.cells) == 0 {
		return nil
	}
	s := scaleOf(g)
	c := &chart{Width: chartWidth, Height: chartHeight}
	for power := s.low; power <= s.high; power++ {
		y := s.y(math.Pow(10, power))
		c.Across = append(c.Across, chartLine{left, y, right, y, left - 8, y, fmt.Sprintf("1e%+03.0f", power)})
	}
	step := (s.layers + mostTicks - 1) / mostTicks
	for layer := 0; layer < s.layers; layer += max(step, 1) {
		c.Ticks = append(c.Ticks, chartText{s.x(Op{Layer: layer}), bottom + 20, layerName(layer)})
	}
	for i, name := range g.names {
		c.Series = append(c.Series, s.series(g, name, i))
	}
	return c
}

func (s scale) series(g *grid, name string, i int) chartSeries {
	out := chartSeries{Name: name, Color: colors[i%len(colors)], KeyX: right + 25, KeyY: upper + 10 + 20*float64(i)}
	var line, bounds []string
	for _, layer := range g.layers {
		res, ok := g.cells[Op{layer, name}]
		if !ok {
			continue
		}
		d := chartDot{s.x(res.Op), s.y(res.Error), 2.5, res.title()}
		if res.Left > 0 {
			d.R = 6
		}
		out.Dots = append(out.Dots, d)
		line = append(line, fmt.Sprintf("%v,%v", d.X, d.Y))
		bounds = append(bounds, fmt.Sprintf("%v,%v", d.X, s.y(res.Bound)))
	}
	out.Line, out.Bounds = strings.Join(line, " "), strings.Join(bounds, " ")
	return out
}
