package quant

import (
	"math"
	"testing"

	"github.com/lockstep-go/lockstep/internal/float16"
)

// roundTrips lists the relative error of encoding and decoding Gaussian weights, and the same
// with one in a hundred 30 times larger.
var roundTrips = []struct {
	format             Format
	gaussian, outliers float64
	naive              func(x []float32) []float32 // encodes by the range of the weights; nil if there is no search
}{
	{F32, 0, 0, nil},
	{F16, 2.1e-4, 2.1e-4, nil},
	{BF16, 1.7e-3, 1.7e-3, nil},
	{Q8_0, 5.3e-3, 1.2e-2, nil},
	{Q4_0, 8.1e-2, 1.2e-1, naiveQ4_0},
	{Q4_K, 7.0e-2, 9.2e-2, naiveQ4_K},
	{Q6_K, 1.7e-2, 3.3e-2, naiveQ6_K},
	{MXFP4, 1.14e-1, 1.61e-1, nil},
}

func TestRoundTripError(t *testing.T) {
	r := random(10)
	const n = 1 << 18
	plain, spiked := gaussian(r, n), outliers(r, n)
	covered := map[Format]bool{}
	for _, tt := range roundTrips {
		t.Run(tt.format.String(), func(t *testing.T) {
			covered[tt.format] = true
			checkRoundTrip(t, tt.format, plain, tt.gaussian, tt.naive, 0.05)
			checkRoundTrip(t, tt.format, spiked, tt.outliers, tt.naive, 0.01)
		})
	}
	for _, f := range encodable() {
		if !covered[f] {
			t.Errorf("%v: no error is stated", f)
		}
	}
}

// checkRoundTrip compares the error with the stated one, and with that of naive.
func checkRoundTrip(t *testing.T, f Format, x []float32, stated float64, naive func([]float32) []float32, gain float64) {
	t.Helper()
	got := relative(x, decoded[float32](f, encoded(t, f, x)))
	t.Logf("error %.4g", got)
	if !(math.Abs(got-stated) <= 0.04*stated) {
		t.Errorf("error %.4g, stated as %.3g", got, stated)
	}
	if naive == nil {
		return
	}
	if without := relative(x, naive(x)); !(got <= without*(1-gain)) {
		t.Errorf("error %.4g, and %.4g without a search", got, without)
	}
}

// peak returns the value of largest magnitude.
func peak(x []float32) (p float32) {
	for _, v := range x {
		if math.Abs(float64(v)) > math.Abs(float64(p)) {
			p = v
		}
	}
	return p
}

// snap rounds v to a multiple of step between lo and hi steps.
func snap(v, step float32, lo, hi float64) float32 {
	if step == 0 {
		return 0
	}
	return step * float32(math.Max(lo, math.Min(hi, math.Round(float64(v/step)))))
}

// naiveQ4_0 maps the weight of largest magnitude to −8.
func naiveQ4_0(x []float32) (y []float32) {
	for ; len(x) > 0; x = x[32:] {
		d := float16.FromF16(float16.ToF16(peak(x[:32]) / -8))
		for _, v := range x[:32] {
			y = append(y, snap(v, d, -8, 7))
		}
	}
	return y
}

// naiveQ6_K maps the weight of largest magnitude of each sub-block to −32, and rounds the
// scales.
func naiveQ6_K(x []float32) (y []float32) {
	for ; len(x) > 0; x = x[256:] {
		unit := float16.FromF16(float16.ToF16(peak(x[:256]) / -32 / -128))
		for s := range 16 {
			sub := x[16*s : 16*s+16]
			d := snap(peak(sub)/-32, unit, -128, 127)
			for _, v := range sub {
				y = append(y, snap(v, d, -32, 31))
			}
		}
	}
	return y
}

// naiveQ4_K maps the range of each sub-block to 0–15, and rounds scales and minimums.
func naiveQ4_K(x []float32) (y []float32) {
	for ; len(x) > 0; x = x[256:] {
		var step, low [8]float32
		for j, v := range x[:256] {
			low[j/32] = max(low[j/32], -v)
		}
		for j, v := range x[:256] {
			step[j/32] = max(step[j/32], (v+low[j/32])/15)
		}
		d, dmin := float16.FromF16(float16.ToF16(peak(step[:])/63)), float16.FromF16(float16.ToF16(peak(low[:])/63))
		for j, v := range x[:256] {
			m := snap(low[j/32], dmin, 0, 63)
			y = append(y, snap(v+m, snap(step[j/32], d, 0, 63), 0, 15)-m)
		}
	}
	return y
}

// The searches try tens of scales. Thousands are hardly better.
func TestSearchIsNearTheBest(t *testing.T) {
	r := random(13)
	var scale, line, bestScale, bestLine float64
	for range 40 {
		x := make([]float64, 32)
		widen(x, outliers(r, 32))
		scale += scaleDistance(x, fitScale(x, 8))
		line += fitLine(x, 15).distance(x, 15)
		bestScale += densestScale(x)
		bestLine += densestLine(x)
	}
	if !(scale <= 1.01*bestScale) {
		t.Errorf("scales leave %v, the best %v", scale, bestScale)
	}
	if !(line <= 1.02*bestLine) {
		t.Errorf("lines leave %v, the best %v", line, bestLine)
	}
}

// scaleDistance returns Σ(x − s·q)² for the best integers −8 ≤ q < 8.
func scaleDistance(x []float64, s float64) (sum float64) {
	for _, v := range x {
		d := v - s*math.Max(-8, math.Min(7, math.Round(v/s)))
		sum += d * d
	}
	return sum
}

// densestScale returns the least scaleDistance of many scales of both signs.
func densestScale(x []float64) float64 {
	var top float64
	for _, v := range x {
		top = math.Max(top, math.Abs(v))
	}
	least := math.Inf(1)
	for i := 1; i <= 4000; i++ {
		s := top / 4 * float64(i) / 4000
		least = math.Min(least, math.Min(scaleDistance(x, s), scaleDistance(x, -s)))
	}
	return least
}

// densestLine returns the least distance of many lines.
func densestLine(x []float64) float64 {
	lo, hi := 0.0, 0.0
	for _, v := range x {
		lo, hi = math.Min(lo, v), math.Max(hi, v)
	}
	least := math.Inf(1)
	for i := 50; i <= 120; i++ {
		scale := (hi - lo) / 15 * float64(i) / 100
		for j := range 60 {
			l := line{scale, -lo - scale*(float64(j)/20-1)}
			if l.low >= 0 {
				least = math.Min(least, l.distance(x, 15))
			}
		}
	}
	return least
}
