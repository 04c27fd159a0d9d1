package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// NormKind is a normalisation, chosen at launch.
type NormKind uint32

// The normalisations; see Norm.
const (
	NoNorm NormKind = iota
	RMSNorm
	LayerNorm
)

// A staged group: quad j of the unit of lane l at (32j + l) quads. For quantised
// weights then follow, for each lane, {I0, I1, X0, X1} of the two halves of its unit
// and the power of two that the unit was divided by.
const (
	groupSums  = 4 * groupLen
	groupScale = groupSums + 16*32
	groupBytes = groupScale + 4*32
)

// stride is the size of a staged group of one vector.
func (s Gemv) stride() int {
	if decoderOf(s.Format).quantised() {
		return groupBytes
	}
	return groupSums
}

const (
	// stagedLog scales a staged x of about 1 so that its products with quants, which
	// are multiples of 2^-149, are far from both ends of the exponents.
	stagedLog = 120
	// sumLog is the scale that the sums of products have then.
	sumLog = stagedLog - 149
)

// stage puts the groups from first on of all vectors into shared memory. A warp takes 8
// units at a time, a lane the quarter of one: two quads. Lanes that share a unit are 8
// apart, so that neighbours store to neighbouring places.
func (g *gemv) stage(first ptx.U32) {
	b := g.b
	octets := g.groups.Sub(first).Min(g.chunk).MulN(4)
	b.For(b.U32(0), b.N(g.columns()), b.U32(1), func(c ptx.U32) {
		b.IfElse(g.norm.Ne(b.U32(0)), func() {
			b.Comment("stage a vector, normalised")
			g.stageVector(c, first, octets, true)
		}, func() {
			b.Comment("stage a vector as it is")
			g.stageVector(c, first, octets, false)
		})
	}, ptx.NoUnroll)
}

// stageVector stages vector c. A lane loads a few parts before it uses the first: as
// many as there are registers for, beside those of the weights under way.
func (g *gemv) stageVector(c, first, octets ptx.U32, norm bool) {
	b := g.b
	batch := make([]stagedPart, 4)
	if norm {
		batch = batch[:2]
	}
	x, used := g.xAt(c), c.Lt(g.columnCount)
	quads := ptx.Select(used, x.quads(), b.U32(0)) // unused columns are zeros
	to := g.staged.At(c, g.stride())
	b.For(b.Warp(), octets, b.N(gemvWarps*len(batch)), func(i ptx.U32) {
		for n := range batch {
			batch[n] = g.loadPart(x, first, i.AddN(n*gemvWarps), quads, norm)
		}
		for n, p := range batch {
			b.If(i.AddN(n*gemvWarps).Lt(octets), func() {
				if norm {
					stats := g.stats.At(ptx.Select(used, c, b.U32(0)), 16).LoadF32x4()
					g.normalise(&p, moments{scale: stats[0], inverse: stats[1], mean: stats[2], rest: stats[3], layer: true}, x, quads)
				}
				g.storePart(p, to)
			})
		}
	}, ptx.NoUnroll)
}

// stagedPart is a lane's quarter of a unit.
type stagedPart struct {
	unit, part ptx.U32 // the unit's place among those staged, the quarter
	quad       ptx.U32 // the first quad's place in the row
	v, gain    [2]quad
}

// loadPart loads the lane's part of 8 units.
func (g *gemv) loadPart(x row, first, octet, quads ptx.U32, norm bool) stagedPart {
	p := stagedPart{unit: octet.MulN(8).Add(g.lane.AndN(7)), part: g.lane.ShrN(3)}
	p.quad = first.MulN(groupQuads).Add(p.unit.MulN(UnitLen / 4)).Add(p.part.MulN(2))
	weight := rowAt(g.b, x.format, g.normWeight, x.width)
	weights := ptx.Select(g.normWeight.Address().Ne(g.b.U64(0)), quads, g.b.U32(0))
	for i := range p.v {
		p.v[i] = g.loadQuad(x, p.quad.AddN(i), quads, 0)
		if norm {
			p.gain[i] = g.loadQuad(weight, p.quad.AddN(i), weights, 1, ptx.ReadOnly)
		}
	}
	return p
}

// loadQuad is quad i, and fill from quads on.
func (g *gemv) loadQuad(x row, i, quads ptx.U32, fill float32, cache ...ptx.Cache) quad {
	var v quad
	for j := range v {
		v[j] = ptx.Var(g.b.F32(fill))
	}
	g.b.If(i.Lt(quads), func() {
		for j, e := range x.load(i, 0, cache...) {
			ptx.Set(v[j], e)
		}
	})
	return v
}

// storePart stores a part.
func (g *gemv) storePart(p stagedPart, to ptx.Shared) {
	to = to.At(p.unit.ShrN(5), g.columns()*g.stride())
	lane := p.unit.AndN(31)
	if g.d.quantised() {
		g.sumsOf(&p.v, to, lane, p.part)
	}
	for i := range p.v {
		to.At(p.part.MulN(2).AddN(i), 512).At(lane, 16).StoreF32x4(p.v[i])
	}
}

// normalise replaces the quads of a part that are in the row.
func (g *gemv) normalise(p *stagedPart, st moments, x row, quads ptx.U32) {
	b := g.b
	for i, v := range p.v {
		b.If(p.quad.AddN(i).Lt(quads), func() {
			for j := range v {
				ptx.Set(v[j], st.normal(v[j]).Mul(p.gain[i][j]))
			}
			b.If(g.normBias.Address().Ne(b.U64(0)), func() {
				for j, c := range rowAt(b, x.format, g.normBias, x.width).load(p.quad.AddN(i), 0, ptx.ReadOnly) {
					ptx.Set(v[j], v[j].Add(c))
				}
			})
		})
	}
}

// sumsOf scales the part of a unit that the thread holds for the products, and stores
// the unit's sums and scale.
func (g *gemv) sumsOf(v *[2]quad, to ptx.Shared, lane, part ptx.U32) {
	b := g.b
	most := v[0][0].Abs()
	for _, e := range append(v[0][1:], v[1][:]...) {
		most = most.Max(e.Abs())
	}
	most = most.Max(ptx.ShuffleXor(most, 8))
	most = most.Max(ptx.ShuffleXor(most, 16))
	// The exponent, where its reciprocal is a number too.
	exponent := most.Bits().ShrN(23).Max(b.U32(1)).Min(b.U32(253))
	down := b.U32(254).Sub(exponent).ShlN(23).AsF32()

	var plain, flip ptx.F32
	for i := range v {
		for f := range v[i] {
			v[i][f] = v[i][f].Mul(down)
		}
		p, q := v[i][0].Add(v[i][3]), v[i][1].Add(v[i][2])
		if i == 0 {
			plain, flip = p, q
		} else {
			plain, flip = plain.Add(p), flip.Add(q)
		}
		for f, shift := range fieldShift {
			v[i][f] = v[i][f].MulN(sign(f) * powerOfTwo(stagedLog-shift))
		}
	}
	sum := plain.Add(flip)
	centre := float32(g.d.middle())
	start := flip.MulN((float32(g.d.top) - centre) * powerOfTwo(sumLog)).Add(plain.MulN(-centre * powerOfTwo(sumLog)))
	sum = sum.Add(ptx.ShuffleXor(sum, 8))
	start = start.Add(ptx.ShuffleXor(start, 8))
	half := to.At(lane, 16).At(part.ShrN(1), 4)
	b.If(part.AndN(1).EqN(0), func() {
		half.Plus(groupSums).StoreF32(start)
		half.Plus(groupSums + 8).StoreF32(sum)
	})
	b.If(part.EqN(0), func() {
		to.At(lane, 4).Plus(groupScale).StoreF32(exponent.ShlN(23).AsF32())
	})
}

// middle is what is subtracted from stored quants before they are multiplied: the
// format's centre, or, where a minimum puts right what is chosen, the middle.
func (d *decoder) middle() int { return int(d.top+1) / 2 }
