package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// heldUnit is a unit of weights that a thread has loaded and will decode.
type heldUnit struct {
	g     *gemm
	row   packedRow
	at    ptx.U32 // variable: which unit of the row, or one past its end
	unit  unit    // its registers are variables, its index too: the last unit at most
	next  *unit   // of the step after, where Ahead is 2
	to    ptx.U32 // offset of its row in a decoded tile
	chunk ptx.U32 // of its first chunk there, swizzled

	quad  func(j int) [2]ptx.U32 // emits weights 4j to 4j+3
	words []ptx.U32              // decoded, not yet stored
}

const (
	piecesPerUnit = unitLen / 8                   // chunks that a unit is stored in
	partsPerPiece = 3                             // two quads, and storing them
	partsPerUnit  = piecesPerUnit * partsPerPiece // that decoding is cut into
)

func (g *gemm) prepareUnits() {
	b := g.b
	for j := range g.BlockN * g.BlockK / unitLen / g.threads() {
		at := g.place(g.thread.AddN(j*g.threads()), 1)
		h := &heldUnit{g: g, row: g.decoding.rowOf(g.w, g.weightRow(at.row), g.tileBytes, g.units)}
		h.at = ptx.Var(at.unit)
		h.unit = g.decoding.variables(b, ptx.Undefined[ptx.U32](b))
		if g.Ahead == 2 {
			next := g.decoding.variables(b, ptx.Undefined[ptx.U32](b))
			h.next = &next
		}
		h.to = at.row.MulN(g.rowBytes())
		h.chunk = at.unit.MulN(piecesPerUnit).Xor(g.swizzle(at.row))
		g.held = append(g.held, h)
	}
	g.decoded = ptx.Var(b.U32(0))
}

// load begins to load the unit that comes so many steps after the one at h.at.
func (h *heldUnit) load(u unit, steps int) {
	index := h.at.AddN(steps * h.g.BlockK / unitLen).Min(h.g.units.AddN(-1))
	ptx.Set(u.index, index)
	u.set(h.row.load(h.g.b, u.index))
}

// begin loads the first units.
func (h *heldUnit) begin() {
	h.load(h.unit, 0)
	if h.next != nil {
		h.load(*h.next, 1)
	}
}

// following goes on to the next step's unit.
func (h *heldUnit) following() {
	ptx.Set(h.at, h.at.AddN(h.g.BlockK/unitLen))
	if h.next == nil {
		h.load(h.unit, 0)
		return
	}
	ptx.Set(h.unit.index, h.next.index)
	h.unit.set(*h.next)
	h.load(*h.next, 1)
}

// decode does a part of the unit's decoding into the tile at an offset. Past the row's
// end it stores zeros.
func (h *heldUnit) decode(tile ptx.U32, part int) {
	if part == 0 {
		h.quad = h.g.rounded(h.unit)
	}
	piece, part := part/partsPerPiece, part%partsPerPiece
	if part < partsPerPiece-1 {
		two := h.quad(2*piece + part)
		h.words = append(h.words, two[:]...)
		return
	}
	b := h.g.b
	chunk := h.chunk.Xor(b.N(piece)).MulN(16)
	to := h.g.memory.AtBytes(tile.Add(h.to).Add(chunk)).Aligned(16)
	inside, zero := h.at.Lt(h.g.units), b.U32(0)
	b.When(inside, func() { to.StoreU32x4([4]ptx.U32(h.words)) })
	b.Unless(inside, func() { to.StoreU32x4([4]ptx.U32{zero, zero, zero, zero}) })
	h.words = nil
}

// tiles is the offset of the decoded tiles, which follow the ring.
func (s GEMM) tiles() int { return s.Stages * s.stage() }

// decodeFirst decodes the first step's weights and begins to load those after.
func (g *gemm) decodeFirst() {
	for _, h := range g.held {
		h.begin()
		for part := range partsPerUnit {
			h.decode(g.b.N(g.tiles()), part)
		}
		h.following()
	}
}

// decodePart does part i of n of the decoding of the next step's weights, and loads
// others as soon as a unit's registers are free.
func (g *gemm) decodePart(i, n int) {
	if g.direct() {
		return
	}
	all := len(g.held) * partsPerUnit
	tile := g.decoded.Xor(g.b.N(g.wTile())).AddN(g.tiles())
	for part := all * i / n; part < all*(i+1)/n; part++ {
		h := g.held[part/partsPerUnit]
		h.decode(tile, part%partsPerUnit)
		if part%partsPerUnit == partsPerUnit-1 {
			h.following()
		}
	}
}
