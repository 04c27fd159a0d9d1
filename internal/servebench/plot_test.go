package servebench

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/chart/charttest"
)

func TestPlot(t *testing.T) {
	rep := Report{Model: "a <model>", URL: "http://fake", Requests: []Record{
		{Due: 0, FirstToken: 0.1, EndToEnd: 2, PromptTokens: 5, OutputTokens: 7},
		{Due: 9, EndToEnd: 0, Error: "status 429"},
		{Due: 3, EndToEnd: 1e-9}, // tokens without text
	}, firstToken: []float64{0.1}, endToEnd: []float64{1e-9, 2}}
	draw := func() string {
		t.Helper()
		var b bytes.Buffer
		if err := rep.Plot(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := draw()
	// Dots: one first token, two ends, one failure; and 2 + 3 entries of legends.
	if n := charttest.Elements(t, text); n["circle"] != 4+2+3 || n["polyline"] != 2 || n["title"] != 4 {
		t.Errorf("%v in\n%s", n, text)
	}
	for _, want := range []string{"request 0: 5 tokens, then 7", "status 429", "a &lt;model&gt;", "arrival in seconds"} {
		if !strings.Contains(text, want) {
			t.Errorf("the chart has no %q", want)
		}
	}
	rep = Report{}
	if text := draw(); charttest.Elements(t, text)["circle"] != 0 || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Errorf("without requests:\n%s", text)
	}
}

// The timeline ends at the last arrival, and its axis has the latencies.
func TestTimelineAxes(t *testing.T) {
	rep := Report{Requests: []Record{{Due: 8, FirstToken: 0.02, EndToEnd: 30}}}
	c := rep.timeline()
	if c.X.Max != 8 || c.Y.Min > 0.02 || c.Y.Max < 30 || math.IsNaN(c.Y.Min) {
		t.Errorf("axes %+v and %+v", c.X, c.Y)
	}
}
