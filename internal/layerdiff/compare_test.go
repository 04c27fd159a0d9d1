package layerdiff

import (
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/quant"
)

const (
	testLayers    = 3
	testPositions = 9
	testWidth     = 16
	testVocab     = 24
)

// made returns the trace of a model with three layers, computed in two passes. share
// scales a relative error of each value.
func made(share float64) *Trace {
	t := NewTrace()
	seed := uint64(1)
	pass := func(layer int, op string, position, positions, width int) {
		x := make([]float64, positions*width)
		for i := range x {
			seed = seed*6364136223846793005 + 1442695040888963407
			x[i] = (float64(seed>>11)/(1<<52) - 1) * (1 + share*float64(i%3-1))
		}
		t.Add(layer, op, position, width, x)
	}
	for _, p := range [][2]int{{0, 4}, {4, testPositions - 4}} {
		pass(-1, "embed", p[0], p[1], testWidth)
		for layer := range testLayers {
			for _, op := range []string{"query", "key", "value", "attention", "layer"} {
				pass(layer, op, p[0], p[1], testWidth)
			}
		}
		pass(-1, "logits", p[0], p[1], testVocab)
	}
	return t
}

func at(t *Trace, layer int, op string, position, element int) *float64 {
	return &t.rows[Op{layer, op}][position][element]
}

var inFloats = Numerics{KV: quant.F32, Input: quant.F32}

func TestCompareFindsFaults(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	set := func(layer int, op string, position, element int, x float64) func(*Trace) {
		return func(g *Trace) { *at(g, layer, op, position, element) = x }
	}
	all := func(plants ...func(*Trace)) func(*Trace) {
		return func(g *Trace) {
			for _, p := range plants {
				p(g)
			}
		}
	}
	tests := []struct {
		name, reason string
		want, got    func(*Trace)
		first        Mismatch // its location; zero: none
	}{
		{"nothing", "equal traces pass", nil, nil, Mismatch{}},
		{"one element", "one value differs", nil, set(1, "attention", 5, 7, 3), Mismatch{Op: Op{1, "attention"}, Position: 5, Element: 7}},
		{"embed", "before all layers", nil, set(-1, "embed", 0, 15, 3), Mismatch{Op: Op{-1, "embed"}, Element: 15}},
		{"logits", "after all layers", nil, set(-1, "logits", 8, 23, 3), Mismatch{Op: Op{-1, "logits"}, Position: 8, Element: 23}},
		{"two layers", "the first computed comes first, at whatever position", nil,
			all(set(2, "query", 0, 1, 9), set(1, "layer", 8, 2, 3)), Mismatch{Op: Op{1, "layer"}, Position: 8, Element: 2}},
		{"two positions", "the lowest position, not the largest error", nil,
			all(set(0, "key", 6, 1, 9), set(0, "key", 3, 2, 3)), Mismatch{Op: Op{0, "key"}, Position: 3, Element: 2}},
		{"two elements", "the largest error", nil,
			all(set(0, "key", 3, 1, 4), set(0, "key", 3, 5, 30)), Mismatch{Op: Op{0, "key"}, Position: 3, Element: 5}},
		{"NaN", "a NaN where there should be none", nil, set(2, "value", 4, 3, nan), Mismatch{Op: Op{2, "value"}, Position: 4, Element: 3}},
		{"missing NaN", "a number where there should be a NaN", set(2, "value", 4, 3, nan), nil, Mismatch{Op: Op{2, "value"}, Position: 4, Element: 3}},
		{"NaN in both", "in the same place", set(2, "value", 4, 3, nan), set(2, "value", 4, 3, nan), Mismatch{}},
		{"NaN elsewhere", "in another position of the row", set(2, "value", 4, 3, nan), set(2, "value", 4, 5, nan), Mismatch{Op: Op{2, "value"}, Position: 4, Element: 3}},
		{"infinity", "overflow", nil, set(0, "query", 1, 0, inf), Mismatch{Op: Op{0, "query"}, Position: 1}},
		{"infinity in both", "the same sign", set(0, "query", 1, 0, -inf), set(0, "query", 1, 0, -inf), Mismatch{}},
		{"another infinity", "another sign", set(0, "query", 1, 0, -inf), set(0, "query", 1, 0, inf), Mismatch{Op: Op{0, "query"}, Position: 1}},
		{"error beside an infinity", "an infinite row does not make errors small", set(0, "query", 1, 0, inf),
			all(set(0, "query", 1, 0, inf), set(0, "query", 1, 9, 3)), Mismatch{Op: Op{0, "query"}, Position: 1, Element: 9}},
		{"error beside a NaN", "a NaN does not make errors small", set(0, "query", 1, 0, nan),
			all(set(0, "query", 1, 0, nan), set(0, "query", 1, 9, 3)), Mismatch{Op: Op{0, "query"}, Position: 1, Element: 9}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, got := made(0), made(1e-7)
			if tt.want != nil {
				tt.want(want)
			}
			if tt.got != nil {
				tt.got(got)
			}
			r, err := Compare(want, got, inFloats, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.first.Op.Name == "" {
				if r.First != nil {
					t.Errorf("%s: %v", tt.reason, r.First)
				}
				return
			}
			if d := r.First; d == nil || d.Op != tt.first.Op || d.Position != tt.first.Position || d.Element != tt.first.Element {
				t.Fatalf("%s: %v, want %v at position %d, element %d", tt.reason, d, tt.first.Op, tt.first.Position, tt.first.Element)
			}
			if r.Err() == nil || !strings.Contains(r.Verdict(), tt.first.Op.String()) {
				t.Errorf("verdict %q, error %v", r.Verdict(), r.Err())
			}
		})
	}
}

// TestCompareBounds checks that both the row and each element have a tolerance.
func TestCompareBounds(t *testing.T) {
	const n = 10000
	ones := func(f func(i int) float64) *Trace {
		x := make([]float64, n)
		for i := range x {
			x[i] = 1 + f(i)
		}
		tr := NewTrace()
		tr.Add(0, "layer", 0, n, x)
		return tr
	}
	zero := func(int) float64 { return 0 }
	tests := []struct {
		name, reason string
		errors       func(i int) float64
		exceeded     bool
	}{
		{"within", "half the bound everywhere", func(i int) float64 { return 0.5 * floatBound }, false},
		{"all", "each element is within its own bound, the row is not", func(i int) float64 { return 1.5 * floatBound }, true},
		{"one", "the row is within its bound, an element is not", func(i int) float64 {
			if i == 77 {
				return 20 * floatBound
			}
			return 0
		}, true},
	}
	for _, tt := range tests {
		r, err := Compare(ones(zero), ones(tt.errors), inFloats, nil)
		if err != nil {
			t.Fatal(err)
		}
		if (r.First != nil) != tt.exceeded {
			t.Errorf("%s: %s: %v", tt.name, tt.reason, r.First)
		}
		if tt.name == "one" && r.First != nil && (r.First.Element != 77 || !(r.First.RowError < floatBound)) {
			t.Errorf("%s: %v", tt.name, r.First)
		}
	}
}

func TestBounds(t *testing.T) {
	const f, s16, sb = floatBound, 1.0 / 1024, 1.0 / 128
	half, brain := Numerics{KV: quant.F16}, Numerics{KV: quant.F16, Input: quant.BF16}
	followed := Numerics{KV: quant.F16, Input: quant.BF16, Followed: true}
	tests := []struct {
		name, reason string
		n            Numerics
		op           Op
		effect, want float64
	}{
		{"float32", "no effect counts", inFloats, Op{2, "layer"}, 1e-3, f},
		{"first query", "no cache before it", half, Op{0, "query"}, 0, f},
		{"first key", "stored in the cache", half, Op{0, "key"}, 0, f + s16},
		{"after the cache", "the larger: the spacing", half, Op{0, "attention"}, 1e-4, f + s16},
		{"after the cache, sensitive", "the larger: the effect", half, Op{2, "layer"}, 5e-3, f + 5e-3},
		{"embed", "nothing before it is rounded", brain, Op{-1, "embed"}, 0, f},
		{"first query of inputs", "its input is rounded", brain, Op{0, "query"}, 0, f + sb},
		{"first value of inputs", "the coarser of both", brain, Op{0, "value"}, 0, f + sb},
		{"after inputs", "a multiple of the effect", Numerics{Input: quant.F16}, Op{0, "attention"}, 1.0 / 256, f + inputFactor/256.0},
		{"given float tolerance", "replaces the default", Numerics{KV: quant.F16, Float: 1e-6}, Op{0, "key"}, 0, 1e-6 + s16},
		{"followed query", "no cache in it", followed, Op{2, "query"}, 1, f + sb},
		{"followed key", "the coarser of both", Numerics{KV: quant.BF16, Followed: true}, Op{2, "key"}, 1, f + sb},
		{"followed attention", "weights have the format of the cache", Numerics{KV: quant.BF16, Input: quant.F16, Followed: true}, Op{2, "attention"}, 1, f + sb},
		{"followed logits", "its input is rounded", followed, Op{-1, "logits"}, 1, f + sb},
		{"infinite effect", "the effect is limited", half, Op{2, "layer"}, math.Inf(1), f + maxEffect},
	}
	for _, tt := range tests {
		if got := tt.n.bound(tt.op, tt.effect); got != tt.want {
			t.Errorf("%s: %s: %g, want %g", tt.name, tt.reason, got, tt.want)
		}
	}
}

// TestFollow checks that a followed fault shows only at the operation that causes it.
func TestFollow(t *testing.T) {
	// Each operation doubles its input; the operation named fault adds an error.
	run := func(fault string, tap func(layer int, op string, position, width int, values []float64)) {
		x := []float64{1, 2, 3, 4}
		for _, op := range []string{"query", "attention", "layer"} {
			for i := range x {
				x[i] *= 2
			}
			if op == fault {
				x[3]++
			}
			tap(0, op, 6, 2, x)
		}
	}
	got := NewTrace()
	run("attention", got.Add)
	for _, c := range []struct {
		name   string
		follow *Trace
		wrong  string
	}{{"followed", got, "attention "}, {"following nothing", NewTrace(), "attention layer "}} {
		want := NewTrace()
		run("", want.Follow(c.follow))
		r, err := Compare(want, got, inFloats, nil)
		if err != nil {
			t.Fatal(err)
		}
		wrong := ""
		for _, res := range r.Ops {
			if res.Exceeded > 0 {
				wrong += res.Op.Name + " "
				if res.Elements != 1./4 {
					t.Errorf("%s: %v: %v of the elements are out of tolerance, want 1/4", c.name, res.Op, res.Elements)
				}
			}
		}
		if wrong != c.wrong || r.First.Position != 7 || r.First.Element != 1 {
			t.Errorf("%s: mismatches %s, want %s; first %v", c.name, wrong, c.wrong, r.First)
		}
	}
}

func TestEffects(t *testing.T) {
	exact, rounded := made(0), made(0)
	rounded.Round(quant.BF16, "key")
	*at(rounded, 1, "value", 2, 0) = math.Inf(1)
	effects, err := Effects(exact, rounded)
	if err != nil {
		t.Fatal(err)
	}
	for o, e := range effects {
		switch {
		case o.Name == "key":
			if !(e > 1e-4 && e < 1.0/256) {
				t.Errorf("%v: effect %g, want that of rounding to bf16", o, e)
			}
		case o == Op{1, "value"}:
			if !math.IsInf(e, 1) {
				t.Errorf("%v: %g", o, e)
			}
		case e != 0:
			t.Errorf("%v: effect %g, want 0", o, e)
		}
	}
}

func TestCompareRefuses(t *testing.T) {
	tests := []struct {
		name    string
		spoil   func(*Trace)
		wantErr string
	}{
		{"missing operation", func(g *Trace) { delete(g.rows, Op{1, "key"}) }, "layer 1, key"},
		{"additional operation", func(g *Trace) { g.Add(1, "norm", 0, 1, []float64{1}) }, "layer 1, norm"},
		{"missing position", func(g *Trace) { delete(g.rows[Op{0, "key"}], 8) }, "layer 0, key"},
		{"another position", func(g *Trace) {
			rows := g.rows[Op{0, "key"}]
			rows[9] = rows[8]
			delete(rows, 8)
		}, "layer 0, key"},
		{"another width", func(g *Trace) { g.rows[Op{2, "layer"}][3] = make([]float64, 5) }, "layer 2, layer, position 3"},
	}
	for _, tt := range tests {
		got := made(0)
		tt.spoil(got)
		_, err := Compare(made(0), got, inFloats, nil)
		if err == nil || !strings.HasPrefix(err.Error(), tt.wantErr) {
			t.Errorf("%s: %v, want prefix %q", tt.name, err, tt.wantErr)
		}
	}
}
