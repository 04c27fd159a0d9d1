package layerdiff

import (
	"cmp"
	"maps"
	"math"

	"github.com/lockstep-go/lockstep/quant"
)

// Numerics lists the formats that both engines round to: F32, F16 or BF16.
type Numerics struct {
	KV       quant.Format // keys and values in the cache
	Input    quant.Format // inputs and weights of matrix products
	Float    float64      // tolerance of float32 arithmetic, relative L2 per row; 0: 1e-5
	Followed bool         // one engine used the other's inputs, see Trace.Follow
}

// floatBound is the default of Numerics.Float.
const floatBound = 1e-5

// limits are the tolerances that a format implies.
//
// spacing is the largest relative distance between neighboring numbers of the format. Two
// values that are nearly equal in float32 can round to different neighbors, and then differ
// by one spacing.
//
// meanKL and maxKL, in nats, limit the divergence of the predictions. It grows with the
// square of the error: the spacing of BF16 is 8 times that of F16, so its limits are 64
// times as large.
type limits struct {
	spacing       float64
	meanKL, maxKL float64
}

var limitsOf = map[quant.Format]limits{
	quant.F32:  {0, 1e-9, 50e-9},
	quant.F16:  {1.0 / (1 << 10), 2e-6, 100e-6},
	quant.BF16: {1.0 / (1 << 7), 64 * 2e-6, 64 * 100e-6},
}

// maxEffect limits a measured effect: a larger tolerance would accept anything.
const maxEffect = 1.0 / 8

// elementSigmas is the tolerance of one element in units of the row's tolerance times the
// row's root mean square. Normally distributed errors exceed 8 standard deviations with a
// probability below 1e-14.
const elementSigmas = 8

// Effects returns how much rounding changes each operation: the largest relative L2 of a
// row between an exact and a rounded run of the same engine.
func Effects(exact, rounded *Trace) (map[Op]float64, error) {
	if err := exact.match(rounded); err != nil {
		return nil, err
	}
	effects := map[Op]float64{}
	for _, o := range exact.order {
		for p, row := range exact.rows[o] {
			effects[o] = math.Max(effects[o], relative(sumSquares(row, rounded.rows[o][p])))
		}
	}
	return effects, nil
}

// limits returns the limits of the coarser format.
func (n Numerics) limits() limits {
	a, b := limitsOf[n.KV], limitsOf[n.Input]
	if a.spacing > b.spacing {
		return a
	}
	return b
}

// Rounds reports whether a format is narrower than F32. Compare then needs Effects.
func (n Numerics) Rounds() bool { return n.limits().spacing > 0 }

// inputFactor multiplies the effect of rounded inputs. After some layers the two engines
// round independently of each other, so their difference is √2 times one engine's effect;
// 2 leaves a margin.
const inputFactor = 2

// bound returns the tolerance of an operation, as relative L2 of a row.
//
// If both engines compute the operation from the same inputs, only its own rounding counts.
// The tolerance is Float plus ownSpacing. The inputs are the same for embed, for the query,
// key and value of layer 0, and with Followed for all operations.
//
// Otherwise earlier rounding counts too. With effect limited to maxEffect, the tolerance is
// Float plus:
//
//	16-bit cache only   max(spacing, effect)
//	16-bit inputs       max(spacing, inputFactor × effect)
//
// The effect is measured and not derived from the spacing, because attention can amplify an
// error of the keys.
func (n Numerics) bound(o Op, effect float64) float64 {
	float := cmp.Or(n.Float, floatBound)
	projected := o.Name == "query" || o.Name == "key" || o.Name == "value"
	if n.Followed || !n.Rounds() || o.Name == "embed" || o.Layer == 0 && projected {
		return float + n.ownSpacing(o.Name)
	}
	if limitsOf[n.Input].spacing > 0 {
		effect *= inputFactor
	}
	return float + math.Max(n.limits().spacing, math.Min(effect, maxEffect))
}

// ownSpacing returns the spacing of the format that the operation itself rounds to: 0 for
// embed, else the input format. Keys and values are rounded to that of the cache as well, and so are
// the queries and the weights of attention.
func (n Numerics) ownSpacing(op string) float64 {
	switch op {
	case "embed":
		return 0
	case "key", "value", "attention":
		return n.limits().spacing
	}
	return limitsOf[n.Input].spacing
}

// valid reports whether both formats have limits.
func (n Numerics) valid() bool {
	_, kv := limitsOf[n.KV]
	_, input := limitsOf[n.Input]
	return kv && input
}

// bounds returns the tolerance of every operation of t.
func (n Numerics) bounds(t *Trace, effects map[Op]float64) map[Op]float64 {
	all := maps.Clone(effects)
	if all == nil {
		all = map[Op]float64{}
	}
	for _, o := range t.order {
		all[o] = n.bound(o, effects[o])
	}
	return all
}
