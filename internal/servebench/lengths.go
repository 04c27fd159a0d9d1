package servebench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/internal/portable"
)

// MaxTokens is the largest length of a prompt or an answer.
const MaxTokens = 1 << 20

// Lengths is a distribution of lengths in tokens. Its text form is one of
//
//	256                      always 256
//	100..400                 uniform, both ends included
//	lognormal:256:0.5        log-normal: median 256, sigma 0.5 of the natural logarithm
//	lognormal:256:0.5:4096   the same; longer lengths become 4096
type Lengths struct {
	low, high     int
	median, sigma float64 // of a log-normal distribution; sigma 0: uniform
}

// UnmarshalText parses the text form.
func (l *Lengths) UnmarshalText(text []byte) error {
	parsed, ok := parseLengths(string(text))
	if !ok {
		return fmt.Errorf("%q, want N, A..B or lognormal:MEDIAN:SIGMA[:MAX], each length from 1 to %d", text, MaxTokens)
	}
	*l = parsed
	return nil
}

func parseLengths(text string) (l Lengths, ok bool) {
	if name, rest, found := strings.Cut(text, ":"); found {
		parts := strings.Split(rest, ":")
		if name != "lognormal" || len(parts) < 2 || len(parts) > 3 {
			return l, false
		}
		l.low, l.high = 1, MaxTokens
		if len(parts) == 3 {
			if l.high, ok = parseLength(parts[2]); !ok {
				return l, false
			}
		}
		median, errM := strconv.ParseFloat(parts[0], 64)
		sigma, errS := strconv.ParseFloat(parts[1], 64)
		l.median, l.sigma = median, sigma
		return l, errM == nil && errS == nil && median >= 1 && median <= MaxTokens && sigma > 0 && sigma <= 10
	}
	low, high, found := strings.Cut(text, "..")
	if !found {
		high = low
	}
	var okLow, okHigh bool
	l.low, okLow = parseLength(low)
	l.high, okHigh = parseLength(high)
	return l, okLow && okHigh && l.low <= l.high
}

func parseLength(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1 && n <= MaxTokens
}

// String returns the text form.
func (l Lengths) String() string {
	switch {
	case l.sigma > 0 && l.high < MaxTokens:
		return fmt.Sprintf("lognormal:%v:%v:%d", l.median, l.sigma, l.high)
	case l.sigma > 0:
		return fmt.Sprintf("lognormal:%v:%v", l.median, l.sigma)
	case l.low < l.high:
		return fmt.Sprintf("%d..%d", l.low, l.high)
	}
	return strconv.Itoa(l.low)
}

// draw returns a random length.
func (l Lengths) draw(r *rand.Rand) int {
	if l.sigma > 0 {
		x := l.median * portable.Exp(l.sigma*r.NormFloat64())
		return int(min(max(math.Round(x), float64(l.low)), float64(l.high)))
	}
	return l.low + r.IntN(l.high-l.low+1)
}
