package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// stagedUnit is where the lane finds its unit of the staged vectors, and what is known
// of it.
type stagedUnit struct {
	at     ptx.Shared // quad j of column c is 512j + c*stride further on
	stride int
	init   [][4]ptx.F32 // by column, of quantised weights: I0, I1, X0, X1
	scale  []ptx.F32    // by column: what the unit was divided by
}

func (u stagedUnit) quad(column, j int) quad { return u.at.Plus(column*u.stride + 512*j).LoadF32x4() }

// stagedAt is the lane's unit of a group.
func (g *gemv) stagedAt(group ptx.U32) stagedUnit {
	staged := g.staged.At(group, g.columns()*g.stride())
	u := stagedUnit{at: staged.At(g.lane, 16), stride: g.stride()}
	if g.d.quantised() {
		for c := range g.columns() {
			u.init = append(u.init, u.at.Plus(c*u.stride+groupSums).LoadF32x4())
			u.scale = append(u.scale, staged.At(g.lane, 4).Plus(c*u.stride+groupScale).LoadF32())
		}
	}
	return u
}

// accumulate multiplies the fetched units with the staged x of group step, adds to
// sums, and fetches the units that come after. The group is the (step - first)-th of
// those staged.
//
// With one column the unit's x stays in registers while each row goes through all of
// it, and is fetched anew as soon as it has; with more, each quad of x goes through all
// rows.
func (g *gemv) accumulate(first ptx.U32) {
	columns := g.columns()
	x := g.stagedAt(g.step.Sub(first))
	inside := g.step.MulN(32).Add(g.lane).Lt(g.unitCount)
	g.advance()

	const count = UnitLen / 4
	atOnce := 1
	if columns == 1 {
		atOnce = count
	}
	halves := make([][2]ptx.F32, len(g.sums)) // sums of half a unit, by stream and column
	for from := 0; from < count; from += atOnce {
		xs := make([][]quad, columns)
		for c := range xs {
			for j := range atOnce {
				xs[c] = append(xs[c], x.quad(c, from+j))
			}
		}
		for s, u := range g.units {
			mine := halves[s*columns : (s+1)*columns]
			for j := range atOnce {
				w := u.factors(from + j)
				for c := range mine {
					x.multiply(&mine[c], c, from+j, w, xs[c][j])
				}
			}
			if from+atOnce == count {
				g.settle(s, mine, x, inside)
				g.fetch(s)
			}
		}
	}
	ptx.Set(g.step, g.step.Add(g.split))
}

// multiply adds quad j of a unit to the sum of its half, which begins with I.
func (u stagedUnit) multiply(halves *[2]ptx.F32, column, j int, w, x quad) {
	half := j / (UnitLen / 8)
	sum := &halves[half]
	for i := range w {
		switch {
		case j%(UnitLen/8) != 0 || i > 0:
			*sum = w[i].FMA(x[i], *sum)
		case u.init != nil:
			*sum = w[i].FMA(x[i], u.init[column][half])
		default:
			*sum = w[i].Mul(x[i])
		}
	}
}

// factors gives what the staged x is multiplied by for weights 4j to 4j+3.
func (u unit) factors(j int) [4]ptx.F32 {
	if u.d.quantised() {
		return u.fields(j)
	}
	return u.d.single(u, j)
}

// advance moves index and pointers to what is fetched next, perhaps of the next tile's
// rows. After the last there is one more fetch, of the same unit by all lanes: a branch
// around it would cost more.
func (g *gemv) advance() {
	b := g.b
	group := g.step.Add(g.split)
	ptx.Set(g.index, g.indexIn(group))
	b.If(group.Ge(g.groups), func() {
		next := g.tile.Add(b.GridX())
		ptx.Set(g.index, ptx.Select(next.Lt(g.tiles), g.indexIn(g.part), b.U32(0)))
		g.point(next)
	})
}

// settle turns the sums of the halves of a stream's unit into those of its weights
// and adds them up.
func (g *gemv) settle(stream int, halves [][2]ptx.F32, x stagedUnit, inside ptx.Pred) {
	b, sums := g.b, g.sums[stream*g.columns():]
	if !g.d.quantised() {
		for c, h := range halves {
			unit := h[0].Add(h[1])
			b.When(inside, func() { ptx.Set(sums[c], sums[c].Add(unit)) })
		}
		return
	}
	sc := g.d.scales(g.units[stream])
	var factors, minus []ptx.F32
	for i, s := range sc.scale {
		if sc.min != nil {
			minus = append(minus, s.FMA(b.F32(float32(g.d.middle())), sc.min[i].Neg()))
		}
		factors = append(factors, s.MulN(powerOfTwo(-sumLog)))
	}
	for c, h := range halves {
		unit := unitSum(h, x.init[c], factors, minus)
		b.When(inside, func() { ptx.Set(sums[c], unit.FMA(x.scale[c], sums[c])) })
	}
}

// unitSum is sum of factor*half + minus*X over the sub-blocks of a unit.
func unitSum(halves [2]ptx.F32, init [4]ptx.F32, factors, minus []ptx.F32) ptx.F32 {
	parts, xs := halves[:], init[2:]
	if len(factors) == 1 {
		parts, xs = []ptx.F32{halves[0].Add(halves[1])}, []ptx.F32{init[2].Add(init[3])}
	}
	var sum ptx.F32
	for i, f := range factors {
		switch {
		case minus != nil && i == 0:
			sum = f.FMA(parts[i], minus[i].Mul(xs[i]))
		case minus != nil:
			sum = f.FMA(parts[i], minus[i].FMA(xs[i], sum))
		case i == 0:
			sum = f.Mul(parts[i])
		default:
			sum = f.FMA(parts[i], sum)
		}
	}
	return sum
}
