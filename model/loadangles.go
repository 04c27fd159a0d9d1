package model

import (
	"fmt"

	"github.com/lockstep-go/lockstep/internal/portable"
)

// factorSet is a list of frequency divisors and the positions that it serves.
type factorSet struct {
	tensor    string
	divisors  []float32 // nil: all 1
	positions int
}

func factorSets(m *Model) []factorSet {
	c, w := m.Config, m.Weights
	if w.LongRopeFactors == nil {
		return []factorSet{{"rope_freqs.weight", w.RopeFactors, c.Context}}
	}
	return []factorSet{
		{"rope_factors_short.weight", w.RopeFactors, min(c.Context, c.LongContext)},
		{"rope_factors_long.weight", w.LongRopeFactors, c.Context},
	}
}

// checkAngles refuses a model whose last position is rotated by an angle beyond
// those whose sine and cosine are computed.
func checkAngles(m *Model) error {
	c := m.Config
	if c.Rope == RopeNone {
		return nil
	}
	for _, set := range factorSets(m) {
		if err := c.checkAngles(set, "rope.freq_base", c.RopeTheta, c.RopeScale); err != nil {
			return err
		}
		if c.LocalRopeTheta == 0 {
			continue
		}
		if err := c.checkAngles(set, "rope.freq_base_swa", c.LocalRopeTheta, 1); err != nil {
			return err
		}
	}
	return nil
}

// checkAngles holds one base's angles, position · scale · theta^(−2i/dim) /
// divisor[i], to the bound. The error names what makes them large.
func (c Config) checkAngles(set factorSet, base string, theta, scale float64) error {
	for i := range c.RopeDim / 2 {
		freq := portable.Pow(theta, -float64(2*i)/float64(c.RopeDim))
		plain := float64(set.positions-1) * freq * scale
		angle := plain
		if set.divisors != nil {
			angle /= float64(set.divisors[i])
		}
		if angle <= portable.MaxAngle {
			continue
		}
		culprit := "key \"" + c.Arch + "."
		switch {
		case plain <= portable.MaxAngle: // it is the divisor
			culprit = "tensor \"" + set.tensor
		case freq > 1:
			culprit += base
		case scale > 1:
			culprit += "rope.scaling.factor"
		default:
			culprit += "context_length"
		}
		return fmt.Errorf("%s\": %w: position %d is rotated by %.3g, at most %.3g radians are possible",
			culprit, ErrBadKey, set.positions-1, angle, portable.MaxAngle)
	}
	return nil
}
