package layerdiff

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/chart/charttest"
)

// logitsOf returns traces with two positions; the second has the given logits.
func logitsOf(want, got []float64) (w, g *Trace) {
	w, g = NewTrace(), NewTrace()
	same := make([]float64, len(want))
	same[0] = 5
	w.Add(-1, "logits", 0, len(want), append(append([]float64(nil), same...), want...))
	g.Add(-1, "logits", 0, len(want), append(append([]float64(nil), same...), got...))
	return w, g
}

func TestLogits(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	tests := []struct {
		name, reason      string
		want, got         []float64
		decided, disagree int
		max               float64
		wantErr           string // of the logits; "" if they pass
	}{
		{"equal", "nothing differs", []float64{1, 2, 4}, []float64{1, 2, 4}, 2, 0, 0, ""},
		{"another top token", "the margin decides", []float64{1, 2, 4}, []float64{1, 5, 4}, 2, 1, -1, "first at position 1"},
		{"a tie", "no margin: not compared", []float64{1, 4, 4}, []float64{1, 4, 4}, 1, 0, 0, ""},
		{"a margin below the bound", "not compared, though the top tokens differ", []float64{1, 4, 4.00001}, []float64{1, 4.00001, 4}, 1, 0, -1, ""},
		{"divergence", "log 2: half of the probability moved", []float64{100, 0, 0}, []float64{100, 100, 0}, 2, 0, math.Ln2, "mean KL divergence"},
		{"NaN", "is out of bounds", []float64{1, 2, 4}, []float64{1, nan, 4}, 2, 0, nan, "NaN"},
		{"NaN without probability", "is out of bounds too", []float64{1, -inf, 4}, []float64{1, nan, 4}, 2, 0, nan, "NaN"},
		{"minus infinity in both", "no probability in either", []float64{1, -inf, 4}, []float64{1, -inf, 4}, 2, 0, 0, ""},
		{"all NaN", "there is no top token", []float64{1, 2, 4}, []float64{nan, nan, nan}, 2, 1, nan, "top tokens differ at 1 of 2"},
		{"lost token", "its probability becomes 0", []float64{1, 3, 4}, []float64{1, -inf, 4}, 2, 0, inf, "+Inf"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, g := logitsOf(tt.want, tt.got)
			r, err := Compare(w, g, inFloats, nil)
			if err != nil {
				t.Fatal(err)
			}
			l := r.Logits
			if l.Positions != 2 || l.Decided != tt.decided || l.Disagree != tt.disagree {
				t.Errorf("%s: %+v", tt.reason, l)
			}
			if tt.max >= 0 && !(math.Abs(l.MaxKL-tt.max) < 1e-12) && !(math.IsInf(tt.max, 1) && math.IsInf(l.MaxKL, 1)) || math.IsNaN(tt.max) != math.IsNaN(l.MaxKL) {
				t.Errorf("%s: divergence %g, want %g", tt.reason, l.MaxKL, tt.max)
			}
			if err := l.Err(); (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("%s: %v, want %q", tt.reason, err, tt.wantErr)
			}
		})
	}
}

// subject has characters that a page must escape.
var subject = Subject{Model: "<b>&.gguf", Device: `emu "sm_90"`, KV: "f16", Steps: true, Tokens: testPositions}

// reports returns one report within bounds and two out of bounds.
func reports(t *testing.T) map[string]*Report {
	t.Helper()
	all := map[string]*Report{}
	for name, x := range map[string]float64{"equal": 0, "off": 2.5, "NaN": math.NaN()} {
		want, got := made(0), made(0)
		if x != 0 {
			*at(got, 1, "attention", 5, 7) = x
			*at(got, -1, "logits", 5, 7) = x
		}
		r, err := Compare(want, got, inFloats, nil)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = r
	}
	return all
}

func TestText(t *testing.T) {
	for name, r := range reports(t) {
		var out bytes.Buffer
		if err := r.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		first := "all 17 operations stay within their bounds at all 9 positions"
		marks := 0
		if name != "equal" {
			first, marks = "first out of bounds: layer 1, attention, position 5, element 7: got ", 2
		}
		if !strings.HasPrefix(out.String(), first) {
			t.Errorf("%s: it begins with %.90q", name, out.String())
		}
		if n := strings.Count(out.String(), " !"); n != marks {
			t.Errorf("%s: %d numbers are marked, want %d:\n%s", name, n, marks, out.String())
		}
		for _, want := range []string{"layer  embed", "\n2 ", "\nKL divergence", "top token"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q is not in\n%s", name, want, out.String())
			}
		}
	}
}

func TestJSON(t *testing.T) {
	for name, r := range reports(t) {
		text, err := r.JSON(subject)
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			Model  string
			Within bool `json:"within_bounds"`
			First  *struct {
				Layer, Position, Element int
				Op                       string
				Got                      any
			}
			Operations []struct {
				Op  string
				Out int `json:"positions_out_of_bound"`
			}
		}
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if back.Model != subject.Model || len(back.Operations) != 17 || back.Within != (name == "equal") || (back.First == nil) != back.Within {
			t.Errorf("%s: %+v", name, back)
		}
		got := map[string]any{"equal": nil, "off": 2.5, "NaN": "NaN"}[name]
		if f := back.First; f != nil && (f.Layer != 1 || f.Op != "attention" || f.Position != 5 || f.Element != 7 || f.Got != got) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestHTML checks that the page is self-contained and that its chart has one dot per result.
func TestHTML(t *testing.T) {
	for name, r := range reports(t) {
		var out bytes.Buffer
		if err := r.WriteHTML(&out, subject); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for _, bad := range []string{"<script", "http:", "https:", "src=", "href=", "url(", "<b>&", "NaN\"", "Inf\"", "ZgotmplZ"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: the page has %q", name, bad)
			}
		}
		for _, want := range []string{"&lt;b&gt;&amp;.gguf", "</html>", r.Verdict()[:20], "layer 1, attention"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page has no %q", name, want)
			}
		}
		begin, end := strings.Index(text, "<svg"), strings.Index(text, "</svg>")
		if begin < 0 || end < begin {
			t.Fatalf("%s: no chart", name)
		}
		counts := charttest.Elements(t, text[begin:end+len("</svg>")])
		if counts["polyline"] != 2*7 || counts["circle"] != 17+7 || counts["title"] != 17 {
			t.Errorf("%s: the chart has %v", name, counts)
		}
	}
}

// TestChartRange checks the axis for errors that a logarithmic axis cannot show.
func TestChartRange(t *testing.T) {
	for _, tt := range []struct {
		errors   []float64
		min, max float64
	}{
		{[]float64{0, 2e-7, 2e-3, math.Inf(1)}, 1e-7, 1e-2},
		{[]float64{0}, 1e-8, 1e-7},
	} {
		g := grid{names: []string{"layer"}, cells: map[Op]Result{}}
		for layer, e := range tt.errors {
			g.layers = append(g.layers, layer)
			g.cells[Op{layer, "layer"}] = Result{Op: Op{layer, "layer"}, Error: e}
		}
		c := g.chart()
		if c.Y.Min != tt.min || c.Y.Max != tt.max || len(c.Series) != 2 || len(c.Series[1].Points) != len(tt.errors) {
			t.Errorf("%v: axis %+v, series %+v", tt.errors, c.Y, c.Series)
		}
	}
}
