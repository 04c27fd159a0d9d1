// Package chart draws line, scatter and bar charts as SVG.
//
// The output needs no script, style sheet or font file. All texts are escaped.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"io"
	"math"
)

// Colors is the palette of Okabe and Ito, which most people with a color vision
// deficiency can tell apart.
var Colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// Panel is one chart: an *XY or a *Bars.
type Panel interface {
	size() (width, height float64)
	draw(b *bytes.Buffer)
}

// Write writes an SVG document with the panels from left to right.
func Write(w io.Writer, panels ...Panel) error {
	_, err := w.Write(svg(` xmlns="http://www.w3.org/2000/svg"`, panels...))
	return err
}

// Inline returns an svg element for an HTML page.
func Inline(p Panel) template.HTML { return template.HTML(svg("", p)) }

func svg(namespace string, panels ...Panel) []byte {
	var body bytes.Buffer
	width, height := 0.0, 0.0
	for _, p := range panels {
		w, h := p.size()
		fmt.Fprintf(&body, "<g transform=\"translate(%v 0)\">\n", width)
		p.draw(&body)
		body.WriteString("</g>\n")
		width, height = width+w, max(height, h)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg%s viewBox=\"0 0 %v %v\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n", namespace, width, height)
	fmt.Fprintf(&b, "<rect width=\"%v\" height=\"%v\" fill=\"#fff\"/>\n%s</svg>\n", width, height, body.Bytes())
	return b.Bytes()
}

// XY is a chart with two numeric axes and a legend.
type XY struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// Axis is one axis of an XY. Values outside of Min and Max are drawn at the border.
type Axis struct {
	Label    string
	Log      bool
	Min, Max float64 // Min < Max; both > 0 if Log
	Ticks    []Tick
}

// Tick is a labeled value of an axis.
type Tick struct {
	Value float64
	Label string
}

// Decades returns a logarithmic axis from the power of ten at or below low to the one at
// or above high, with a tick at each power. low and high must be positive and finite.
func Decades(label string, low, high float64) Axis {
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	to = max(to, from+1)
	a := Axis{Label: label, Log: true, Min: math.Pow(10, from), Max: math.Pow(10, to)}
	for p := from; p <= to; p++ {
		a.Ticks = append(a.Ticks, Tick{math.Pow(10, p), fmt.Sprintf("1e%+03.0f", p)})
	}
	return a
}

// at returns where between Min (0) and Max (1) the value v lies.
func (a Axis) at(v float64) float64 {
	from, to := a.Min, a.Max
	if a.Log {
		v, from, to = math.Log10(v), math.Log10(from), math.Log10(to)
	}
	if f := (v - from) / (to - from); f >= 0 {
		return min(f, 1)
	}
	return 0 // also for NaN
}

// Series is points of one color, with an entry in the legend if it has a name.
type Series struct {
	Name, Color string
	Points      []Point
	Line        bool // connect the points
	Dashed      bool // with a dashed line
	Dots        bool
}

// Point is a value of a Series. Title is shown when the mouse is over its dot.
type Point struct {
	X, Y  float64
	Title string
	Large bool
}

// The plot area of an XY, in pixels.
const (
	xyWidth, xyHeight        = 800, 390
	left, right, top, bottom = 70, 620, 30, 345
)

func (c *XY) size() (width, height float64) { return xyWidth, xyHeight }

func (c *XY) x(v float64) float64 { return tenths(left + (right-left)*c.X.at(v)) }
func (c *XY) y(v float64) float64 { return tenths(bottom - (bottom-top)*c.Y.at(v)) }

func tenths(x float64) float64 { return math.Round(10*x) / 10 }

func (c *XY) draw(b *bytes.Buffer) {
	for _, t := range c.Y.Ticks {
		y := c.y(t.Value)
		fmt.Fprintf(b, "<line x1=\"%d\" y1=\"%v\" x2=\"%d\" y2=\"%[2]v\" stroke=\"#e4e4e4\"/>\n", left, y, right)
		text(b, left-8, y, "end", t.Label)
	}
	for _, t := range c.X.Ticks {
		text(b, c.x(t.Value), bottom+14, "middle", t.Label)
	}
	text(b, (left+right)/2, 12, "middle", c.Title)
	text(b, (left+right)/2, bottom+34, "middle", c.X.Label)
	text(b, left-8, 12, "end", c.Y.Label)
	named := 0
	for _, s := range c.Series {
		c.drawSeries(b, s)
		if s.Name == "" {
			continue
		}
		y := float64(top + 10 + 20*named)
		fmt.Fprintf(b, "<circle cx=\"%d\" cy=\"%v\" r=\"4\" fill=\"%s\"/>\n", right+20, y, s.Color)
		text(b, right+32, y, "start", s.Name)
		named++
	}
}

func (c *XY) drawSeries(b *bytes.Buffer, s Series) {
	if s.Line {
		style := `stroke-width="1.5"`
		if s.Dashed {
			style = `stroke-dasharray="4 4" stroke-opacity=".45"`
		}
		fmt.Fprintf(b, "<polyline fill=\"none\" stroke=\"%s\" %s points=\"", s.Color, style)
		for _, p := range s.Points {
			fmt.Fprintf(b, "%v,%v ", c.x(p.X), c.y(p.Y))
		}
		b.WriteString("\"/>\n")
	}
	if !s.Dots {
		return
	}
	for _, p := range s.Points {
		radius := 3
		if p.Large {
			radius = 6
		}
		fmt.Fprintf(b, "<circle cx=\"%v\" cy=\"%v\" r=\"%d\" fill=\"%s\"><title>%s</title></circle>\n", c.x(p.X), c.y(p.Y), radius, s.Color, html.EscapeString(p.Title))
	}
}

// Bars is a chart of horizontal bars, the first at the top.
type Bars struct {
	Title string
	Unit  string  // of the values
	Max   float64 // value of a bar that has the full width; > 0
	Bars  []Bar
}

// Bar is one bar with its name on the left and its label behind it.
type Bar struct {
	Name, Label, Color string
	Value              float64
}

const barWidth, barHeight, barLeft, barFull, barTop = 640, 26, 150, 320, 40

func (c *Bars) size() (width, height float64) {
	return barWidth, float64(barTop + barHeight*len(c.Bars) + 20)
}

func (c *Bars) draw(b *bytes.Buffer) {
	text(b, barLeft, 12, "start", c.Title)
	text(b, barLeft, 28, "start", c.Unit)
	for i, bar := range c.Bars {
		y := barTop + barHeight*i
		width := tenths(barFull * Axis{Max: c.Max}.at(bar.Value))
		fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%v\" height=\"%d\" fill=\"%s\"/>\n", barLeft, y, width, barHeight*2/3, bar.Color)
		middle := float64(y) + barHeight/3
		text(b, barLeft-8, middle, "end", bar.Name)
		text(b, barLeft+width+6, middle, "start", bar.Label)
	}
}

func text(b *bytes.Buffer, x, y float64, anchor, s string) {
	if s != "" {
		fmt.Fprintf(b, "<text x=\"%v\" y=\"%v\" text-anchor=\"%s\" dominant-baseline=\"middle\" fill=\"#333\">%s</text>\n", x, y, anchor, html.EscapeString(s))
	}
}
