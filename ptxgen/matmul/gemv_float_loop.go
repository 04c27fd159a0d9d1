package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// stagedAt is the lane's unit of a group: quad j of column c is 512j + c*stagedGroup
// further on.
func (g *gemvFloat) stagedAt(group ptx.U32) ptx.Shared {
	return g.staged.At(group, g.columns()*stagedGroup).At(g.lane, 16)
}

// accumulate multiplies the fetched units with the staged x of group step, adds to
// sums, and fetches the units that come after. The group is the (step - first)-th of
// those staged.
//
// With one column the unit's x stays in registers while each row goes through all of
// it, and is fetched anew as soon as it has; with more, each quad of x goes through all
// rows.
func (g *gemvFloat) accumulate(first ptx.U32) {
	columns := g.columns()
	x := g.stagedAt(g.step.Sub(first))
	inside := g.step.MulN(32).Add(g.lane).Lt(g.span)
	g.advance()

	const count = unitLen / 4
	atOnce := 1
	if columns == 1 {
		atOnce = count
	}
	halves := make([][2]ptx.F32, len(g.sums)) // sums of half a unit, by stream and column
	for from := 0; from < count; from += atOnce {
		xs := make([][]device.Vec4, columns)
		for c := range xs {
			for j := range atOnce {
				xs[c] = append(xs[c], x.Plus(c*stagedGroup+512*(from+j)).LoadF32x4())
			}
		}
		for s, u := range g.units {
			mine := halves[s*columns : (s+1)*columns]
			for j := range atOnce {
				w := g.d.single(u, from+j)
				for c := range mine {
					multiply(&mine[c], from+j, w, xs[c][j])
				}
			}
			if from+atOnce == count {
				g.settle(s, mine, inside)
				g.fetch(s)
			}
		}
	}
	ptx.Set(g.step, g.step.Add(g.split))
}

// multiply adds quad j of a unit to the sum of its half.
func multiply(halves *[2]ptx.F32, j int, w, x device.Vec4) {
	const quads = unitLen / 8 // of a half
	sum := &halves[j/quads]
	for i := range w {
		if j%quads == 0 && i == 0 {
			*sum = w[i].Mul(x[i])
		} else {
			*sum = w[i].FMA(x[i], *sum)
		}
	}
}

// advance moves index and pointers to what is fetched next, perhaps of the next tile's
// rows. After the last there is one more fetch, of the same unit by all lanes: a branch
// around it would cost more.
func (g *gemvFloat) advance() {
	b := g.b
	group := g.step.Add(g.split)
	ptx.Set(g.index, g.indexIn(group))
	b.If(group.Ge(g.groups), func() {
		next := g.tile.Add(b.GridX())
		ptx.Set(g.index, ptx.Select(next.Lt(g.tiles), g.indexIn(g.part), b.U32(0)))
		g.point(next)
	})
}

// settle adds the halves of a stream's unit to its sums.
func (g *gemvFloat) settle(stream int, halves [][2]ptx.F32, inside ptx.Pred) {
	sums := g.sums[stream*g.columns():]
	for c, h := range halves {
		unit := h[0].Add(h[1])
		g.b.When(inside, func() { ptx.Set(sums[c], sums[c].Add(unit)) })
	}
}
