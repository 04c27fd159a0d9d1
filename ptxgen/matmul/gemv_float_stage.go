package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// stage puts the groups from first on of all vectors into shared memory. A warp takes 8
// units at a time, a lane the quarter of one: two quads. Lanes that share a unit are 8
// apart, so that neighbors store to neighboring places.
func (g *gemvFloat) stage(first ptx.U32) {
	b := g.b
	octets := g.groups.Sub(first).Min(g.chunk).MulN(4)
	b.For(b.U32(0), b.N(g.columns()), b.U32(1), func(c ptx.U32) {
		b.IfElse(g.norm.Ne(b.U32(0)), func() {
			b.Comment("stage a vector, normalized")
			g.stageVector(c, first, octets, true)
		}, func() {
			b.Comment("stage a vector as it is")
			g.stageVector(c, first, octets, false)
		})
	}, ptx.NoUnroll)
}

// stageVector stages vector c. A lane loads a few parts before it uses the first: as
// many as there are registers for, beside those of the weights under way.
func (g *gemvFloat) stageVector(c, first, octets ptx.U32, norm bool) {
	b := g.b
	batch := make([]stagedPart, 4)
	if norm {
		batch = batch[:2]
	}
	x, used := g.xAt(c), c.Lt(g.columnCount)
	quads := ptx.Select(used, x.Vec4s(), b.U32(0)) // unused columns are zeros
	to := g.staged.At(c, stagedGroup)
	b.For(g.warp, octets, b.N(floatWarps*len(batch)), func(i ptx.U32) {
		for n := range batch {
			batch[n] = g.loadPart(x, first, i.AddN(n*floatWarps), quads, norm)
		}
		for n, p := range batch {
			b.If(i.AddN(n*floatWarps).Lt(octets), func() {
				if norm {
					for j := range p.v {
						at := p.quad.AddN(j)
						b.If(at.Lt(quads), func() { g.normalize(p.v[j], p.gain[j], at, c) })
					}
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
	v, gain    [2]device.Vec4
}

// loadPart loads the lane's part of 8 units.
func (g *gemvFloat) loadPart(x device.Row, first, octet, quads ptx.U32, norm bool) stagedPart {
	p := stagedPart{unit: octet.MulN(8).Add(g.lane.AndN(7)), part: g.lane.ShrN(3)}
	p.quad = first.MulN(groupQuads).Add(p.unit.MulN(unitLen / 4)).Add(p.part.MulN(2))
	for i := range p.v {
		p.v[i] = g.loadQuad(x, p.quad.AddN(i), quads, 0)
		if norm {
			p.gain[i] = g.loadGain(p.quad.AddN(i))
		}
	}
	return p
}

// storePart stores a part.
func (g *gemvFloat) storePart(p stagedPart, to ptx.Shared) {
	to = to.At(p.unit.ShrN(5), g.columns()*stagedGroup)
	lane := p.unit.AndN(31)
	for i := range p.v {
		to.At(p.part.MulN(2).AddN(i), 512).At(lane, 16).StoreF32x4(p.v[i])
	}
}
