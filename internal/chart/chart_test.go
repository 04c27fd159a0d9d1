package chart

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/chart/charttest"
)

var xy = &XY{
	Title: "A <title> & more", X: Axis{Label: "x", Max: 3}, Y: Decades("y", 2e-7, 3e-3),
	Series: []Series{{Name: "s", Color: Colors[0], Line: true, Dots: true, Points: []Point{
		{0, 0, "zero", false}, {1, 1e-6, "a", false}, {2, 1e-4, `"b"`, true}, {3, math.Inf(1), "infinite", false}, {3, math.NaN(), "NaN", false},
	}}},
}

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, xy, &Bars{Title: "bars", Max: 10, Bars: []Bar{{Name: "<n>", Label: "l", Color: Colors[1], Value: 20}, {Value: math.NaN()}}}); err != nil {
		t.Fatal(err)
	}
	counts := charttest.Elements(t, b.String())
	if counts["polyline"] != 1 || counts["circle"] != 5+1 || counts["title"] != 5 || counts["rect"] != 1+2 {
		t.Errorf("the document has %v", counts)
	}
	for _, bad := range []string{"NaN\"", "Inf", "<title>zero</title></title>", "<n>"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("the document has %q", bad)
		}
	}
}

// TestInline checks that an element for a page refers to nothing outside of it.
func TestInline(t *testing.T) {
	text := string(Inline(xy))
	charttest.Elements(t, text)
	if strings.Contains(text, "http") {
		t.Errorf("it has an address:\n%s", text)
	}
}

func TestDecades(t *testing.T) {
	for _, tt := range []struct {
		low, high, min, max float64
		ticks               int
	}{
		{2e-7, 3e-3, 1e-7, 1e-2, 6},
		{1, 1, 1, 10, 2}, // never empty
		{1, 100, 1, 100, 3},
	} {
		a := Decades("", tt.low, tt.high)
		if a.Min != tt.min || a.Max != tt.max || len(a.Ticks) != tt.ticks {
			t.Errorf("%g to %g: %+v", tt.low, tt.high, a)
		}
	}
}

// TestPlotArea checks that all values lie in the plot area, larger ones higher.
func TestPlotArea(t *testing.T) {
	last := math.Inf(1)
	for _, v := range []float64{0, 1e-9, 1e-6, 1e-4, 1, math.Inf(1)} {
		y := xy.y(v)
		if y < top || y > bottom || y > last {
			t.Errorf("%g is at %g, the value before at %g", v, y, last)
		}
		last = y
	}
	if xy.y(1e-4) >= xy.y(1e-6) {
		t.Error("a larger value is not higher")
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriteError(t *testing.T) {
	if err := Write(closedPipe{}, xy); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v", err)
	}
}
