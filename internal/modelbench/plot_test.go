package modelbench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/kernelbench"
)

// textsOf returns the texts of an SVG document.
func textsOf(t *testing.T, svg []byte) string {
	t.Helper()
	var all strings.Builder
	root, in := "", false
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the chart is not XML: %v", err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			if root == "" {
				root = x.Name.Space + " " + x.Name.Local
			}
			in = x.Name.Local == "text"
		case xml.EndElement:
			in = false
		case xml.CharData:
			if in {
				all.Write(x)
				all.WriteByte('\n')
			}
		}
	}
	if root != "http://www.w3.org/2000/svg svg" {
		t.Errorf("the root is %q", root)
	}
	return all.String()
}

// drawn returns a report with results of each kind.
func drawn(limits *kernelbench.Limits) Report {
	r := Report{Model: Model{Name: "A <model> & more", Quant: "q4_k_m"}, Limits: limits}
	r.Device.Name = "Some GPU"
	for _, res := range []Result{
		{Case: Case{Kind: Prefill, Prompt: 512, Sequences: 1}, Rate: 12000, Bytes: 4.6e9, FLOP: 7e12},
		{Case: Case{Kind: Prefill, Prompt: 2048, Sequences: 1}, Rate: 15000, Bytes: 4.6e9, FLOP: 2.8e13},
		{Case: Case{Kind: Decode, Sequences: 1}, Rate: 500, Bytes: 4.6e9, FLOP: 1.5e10},
		{Case: Case{Kind: Decode, Depth: 8192, Sequences: 1}, Skipped: "no room"},
		{Case: Case{Kind: Batch, Sequences: 64}, Rate: 5000, Bytes: 4.6e9, FLOP: 9.6e11},
	} {
		res.judge(limits)
		r.Results = append(r.Results, res)
	}
	return r
}

func TestPlot(t *testing.T) {
	limits := &kernelbench.Limits{ReadBulk: 4.6e12, MMA: 6e14}
	for _, c := range []struct {
		name   string
		r      Report
		want   []string
		absent []string
	}{
		{
			"with limits", drawn(limits),
			[]string{"A <model> & more, q4_k_m", "Some GPU", "4.60 TB/s, 600 TFLOP/s", "percent of the limit", "decode at 0", "50%  500 tokens/s", "prefill 512", "27%  12000 tokens/s", "batch 64", "FLOP/s"},
			[]string{"8192"},
		},
		{
			"without", drawn(nil),
			[]string{"A <model> & more, q4_k_m", "tokens/s", "decode at 0", "5000"},
			[]string{"Some GPU", "%", "FLOP"},
		},
		{"nothing measured", Report{Limits: limits}, []string{"percent of the limit"}, nil},
		{"nothing at all", Report{}, []string{"tokens/s"}, nil},
	} {
		var svg bytes.Buffer
		if err := c.r.Plot(&svg); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		texts := textsOf(t, svg.Bytes())
		for _, w := range c.want {
			if !strings.Contains(texts, w) {
				t.Errorf("%s: %q is not in the chart:\n%s", c.name, w, texts)
			}
		}
		for _, w := range c.absent {
			if strings.Contains(texts, w) {
				t.Errorf("%s: %q is in the chart", c.name, w)
			}
		}
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestPlotError(t *testing.T) {
	if err := drawn(nil).Plot(closedPipe{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v", err)
	}
}
