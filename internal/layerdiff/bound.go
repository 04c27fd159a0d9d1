package layerdiff

import (
	"cmp"
	"maps"
	"math"

	"github.com/lockstep-go/lockstep/quant"
)

// Numerics says to what an engine rounds, F32, F16 or BF16, where the other rounds to
// the same.
type Numerics struct {
	KV       quant.Format // keys and values in the cache
	Input    quant.Format // what layers multiply, and their weights
	Float    float64      // what rounding to float32 may do to an operation, the relative L2 of a row; 0: 1e-5
	Followed bool         // the other engine computed each operation of what this one did, see Trace.Follow
}

// floatBound is Numerics.Float where nothing else is said.
const floatBound = 1e-5

// limits are what follows from rounding to a format on both sides. Numbers that float32
// put a little apart may be rounded to the two sides of a border: then they are one
// spacing apart, 2^-10 of them in F16, 2^-7 in BF16. The divergences of F16 are those of
// a whole model with a cache or inputs in F16. They grow with the square of an error, so
// that eight times the spacing gives 64 times as much in BF16; the largest that F32 may
// have is to its mean as in F16.
type limits struct {
	spacing         float64
	meanKL, largest float64 // nats, of the distributions that logits give
}

var limitsOf = map[quant.Format]limits{
	quant.F32:  {0, 1e-9, 50e-9},
	quant.F16:  {1.0 / (1 << 10), 2e-6, 100e-6},
	quant.BF16: {1.0 / (1 << 7), 64 * 2e-6, 64 * 100e-6},
}

// mostEffect is where a measured effect no longer says anything: a bound as large as what
// is bounded lets everything pass.
const mostEffect = 1.0 / 8

// spread is how far an element may be off, in units of the row's bound times the root
// mean square of the row, beside that share of itself. Errors that are spread like a
// Gaussian leave 8 standard deviations less than once in 10^14 elements.
const spread = 8

// Effects is by how much roundings move each operation, as the relative L2 of the row
// that they move most.
func Effects(exact, rounded *Trace) (map[Op]float64, error) {
	if err := exact.match(rounded); err != nil {
		return nil, err
	}
	effects := map[Op]float64{}
	for _, o := range exact.order {
		for p, row := range exact.rows[o] {
			effects[o] = math.Max(effects[o], relative(errorsOf(row, rounded.rows[o][p])))
		}
	}
	return effects, nil
}

// limits are those of the coarser of the formats.
func (n Numerics) limits() limits {
	a, b := limitsOf[n.KV], limitsOf[n.Input]
	if a.spacing > b.spacing {
		return a
	}
	return b
}

// Rounds says whether anything is rounded to less than F32, so that a bound needs the
// effects of it.
func (n Numerics) Rounds() bool { return n.limits().spacing > 0 }

// apart is by how many times what rounding of inputs does an engine may be off that
// rounds to the same: behind many layers hardly a number is rounded to the same side, and
// what two engines round away is √2 times what one does.
const apart = 2

// bound is the largest relative L2 of a row of an operation, beside Float:
//
//	embed; all if followed, but  0
//	query, attention, layer      spacing of what is multiplied
//	key, value                   the larger spacing
//	else, behind a 16-bit cache  the larger of its spacing and the effect
//	else, behind 16-bit inputs   the larger of the spacing and apart × the effect
//
// where the second and the third line are for layer 0's projections and for all if
// followed. Effects are what rounding does to the model as measured: attention can make
// more of an error in keys than its own size.
func (n Numerics) bound(o Op, effect float64) float64 {
	float := cmp.Or(n.Float, floatBound)
	projected := o.Name == "query" || o.Name == "key" || o.Name == "value"
	if n.Followed || !n.Rounds() || o.Name == "embed" || o.Layer == 0 && projected {
		return float + n.arising(o.Name)
	}
	if limitsOf[n.Input].spacing > 0 {
		effect *= apart
	}
	return float + math.Max(n.limits().spacing, math.Min(effect, mostEffect))
}

// arising is the spacing of what an operation itself rounds.
func (n Numerics) arising(op string) float64 {
	switch op {
	case "embed", "logits":
		return 0
	case "key", "value":
		return n.limits().spacing
	}
	return limitsOf[n.Input].spacing
}

// known says whether the formats are ones that engines round to.
func (n Numerics) known() bool {
	_, kv := limitsOf[n.KV]
	_, input := limitsOf[n.Input]
	return kv && input
}

// bounds are those of all operations of a trace.
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
