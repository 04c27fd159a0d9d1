package layerdiff

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

type page struct {
	Subject Subject
	Verdict string
	Bad     bool
	Chart   *chart
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

// WriteHTML writes a report as a page that needs nothing else: the error by layer as a
// drawing, and the table.
func (r *Report) WriteHTML(w io.Writer, s Subject) error {
	g := r.grid()
	p := page{Subject: s, Verdict: r.Verdict(), Bad: r.Err() != nil, Chart: draw(&g), Names: g.names}
	for _, layer := range g.layers {
		row := pageRow{Layer: layerName(layer)}
		for _, name := range g.names {
			res, ok := g.cells[Op{layer, name}]
			c := pageCell{Text: g.cell(layer, name), Bad: res.Left > 0}
			if ok {
				c.Title = res.title()
			}
			row.Cells = append(row.Cells, c)
		}
		p.Rows = append(p.Rows, row)
	}
	if r.Logits != nil {
		p.Lines = r.Logits.lines()
	}
	return pageTemplate.Execute(w, p)
}

func (r Result) title() string {
	text := fmt.Sprintf("%v: %s at position %d, bound %s", r.Op, number(r.Error), r.Position, number(r.Bound))
	if r.Left > 0 {
		text += fmt.Sprintf("; %d of %d positions left it", r.Left, r.Positions)
	}
	return text
}
