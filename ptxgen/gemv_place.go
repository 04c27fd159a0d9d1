package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// lanePlace is what the lane's place decides, which is worth its registers.
type lanePlace struct {
	// Of a staged block, where the lane stores its first digit, a mean's first byte, and
	// zeros; see stageQuads, stageMean and stageZeros.
	stagedAt, meanAt, zerosAt ptx.U32
	one                       ptx.U32 // 1, which ptxas does not know
	// Of a fragment.
	digitsAt   ptx.U32    // where the digits of its column begin among those of a column group
	halvesAt   [2]ptx.U32 // the same, for digits of either half; see halfDigits
	subsAt     ptx.U32    // where its digits of means are; with halves
	bytesAt    ptx.U32    // see loadBytes
	raise      ptx.U32    // 2^raised, of quants in place
	halfScales ptx.U32    // selects the scales of the half that its results are of; see subScales
	digit      ptx.F32    // what the lower of the two digits of its results counts: 2^16 or 1
	// What minimums, or scales for the centre, are multiplied by, and what a block's sum is.
	offset, shrink ptx.F32
}

// kept is a value that ptxas does not compute anew wherever it is used.
func (n *gemvInteger) kept(x ptx.U32) ptx.U32 { return ptx.ShuffleIdx(x, n.lane) }

func (n *gemvInteger) place() (p lanePlace) {
	b, low, high := n.b, n.lane.AndN(15).MulN(16), n.lane.ShrN(4)
	p.digitsAt = low
	switch {
	case n.d.halves():
		p.digitsAt = low.Add(high.MulN(256))
	case n.Gemv.columns() > 1:
		p.digitsAt = low.Add(high.MulN(n.digitBytes()))
	}
	p.bytesAt = low.Add(high.MulN(n.d.start(1, n.d.units)))
	p.digit = ptx.Select(n.quad.AndN(1).EqN(0), b.F32(1<<16), b.F32(1))
	p.one = n.kept(n.columnCount.Min(b.U32(1)))
	n.placeStaged(&p)
	n.placeHalves(&p)
	return p
}

// placeStaged is place for what is staged: the lane has one quad of unit lane/8, and with
// it one of the unit four further on.
func (n *gemvInteger) placeStaged(p *lanePlace) {
	unit, half, word := n.lane.ShrN(3), n.lane.ShrN(2).AndN(1), n.quad.MulN(16)
	if n.d.halves() {
		p.stagedAt = n.kept(word.Add(half.MulN(256)).Add(unit.MulN(4)))
	} else {
		p.stagedAt = n.kept(word.Add(unit.ShrN(1).MulN(256)).Add(unit.AndN(1).MulN(8)).Add(half.MulN(4)))
	}
	if !n.d.offset() || !n.d.super() {
		return
	}
	second := n.lane.AndN(1)
	p.meanAt = n.subBlock(n.lanesOfSum())
	if n.d.halves() {
		// Sub-blocks 0 to 7 are for the columns of the first half.
		p.meanAt = p.meanAt.Add(p.meanAt.ShrN(3).MulN(64))
	}
	p.meanAt = n.kept(p.meanAt)
	p.zerosAt = n.kept(n.lane.ShrN(1).MulN(16).Add(second.MulN(4)))
}

// subBlock is the unit or sub-block that the lane has a sum of, which so many lanes have.
func (n *gemvInteger) subBlock(lanes int) ptx.U32 {
	return n.lane.DivN(lanes).Add(n.lane.AndN(1).MulN(32 / lanes))
}

// placeHalves is place for what only formats with halves have, and the powers of two.
func (n *gemvInteger) placeHalves(p *lanePlace) {
	b, second := n.b, n.quad.ShrN(1)
	either := func(value func(log int) float32) ptx.F32 {
		logs := n.quantLogs()
		if logs[0] == logs[1] {
			return b.F32(value(logs[0]))
		}
		return ptx.Select(second.EqN(0), b.F32(value(logs[0])), b.F32(value(logs[1])))
	}
	p.shrink = either(func(log int) float32 { return powerOfTwo(-powerLog - log) })
	if !n.d.halves() {
		return
	}
	// The staged sums are 16 times smaller.
	p.offset = either(func(log int) float32 { return -16 * float32(max(n.d.centre, 1)) * powerOfTwo(log) })
	if n.inPlace() {
		p.raise = n.kept(p.one.ShlN(n.raised()))
	}
	p.halfScales = n.kept(second.MulN(0x1111).AddN(0x6420))
	p.subsAt = n.kept(n.row.AndN(3).MulN(16).Add(n.quad.MulN(4)).Add(n.row.ShrN(2).MulN(64)))
	p.halvesAt = [2]ptx.U32{p.digitsAt, n.kept(p.digitsAt)}
}
