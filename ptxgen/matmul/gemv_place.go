package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// lanePlace is what the lane's place decides, which is worth its registers.
type lanePlace struct {
	// Of a staged block, where the lane stores its first digit, a mean's first byte, and
	// zeros; see stageQuads, stageMean and stageZeros.
	stagedAt, meanAt, zerosAt ptx.U32
	one                       ptx.U32 // 1, which ptxas does not know
	digitStride               int     // from a digit of a staged quad to the next
	// Of a fragment.
	digitsAt    ptx.U32    // where the digits of its column begin
	halvesAt    [2]ptx.U32 // the same with halves, for either; see halfDigits
	second      ptx.U32    // with halves which of them its columns are of; see joinHalves
	level       [2]ptx.U32 // what the sums of its half, and of the other, are to be multiplied by
	bytesAt     ptx.U32    // see loadBytes
	raise       ptx.U32    // 2^raised, of quants in place
	subBlocks   ptx.U32    // selects the scales of the half that its products are of; see subScales
	joinsHalves bool       // whether its columns are of the two halves of units, which those of GemvBatch never are; see joinHalves
	digit       ptx.F32    // what the lower of the two digits of its results counts: 2^16 or 1
	// What minimums, or scales for the center, are multiplied by, and what a block's sum is.
	offset, shrink ptx.F32
}

// firstHalves selects the scales of the first halves of four units; those of the second
// ones are one further on.
const firstHalves = 0x6420

// kept is a value that ptxas does not compute anew wherever it is used.
func (n *gemvInteger) kept(x ptx.U32) ptx.U32 { return ptx.ShuffleIdx(x, n.lane) }

// place fills in the lane's place. A launch has one vector, which is a 1 that ptxas does not
// know.
func (n *gemvInteger) place() {
	n.digitsAt = n.lane.AndN(15).MulN(16)
	n.digit = n.lowerDigit()
	n.placeBytes()
	n.placeStaged(n.columnCount)
	n.placeHalves()
}

// lowerDigit is what the lower of the two digits of the lane's results counts.
func (n *gemvInteger) lowerDigit() ptx.F32 {
	return ptx.Select(n.quad.AndN(1).EqN(0), n.b.F32(1<<16), n.b.F32(1))
}

// placeBytes is place for the format whose quants are bytes.
func (n *gemvInteger) placeBytes() {
	if n.Format == quant.Q8_0 {
		n.bytesAt = n.lane.AndN(15).MulN(16).Add(n.lane.ShrN(4).MulN(n.d.start(1, n.d.units)))
	}
}

// placeStaged is place for what is staged: the lane has one quad of unit lane/8, and with
// it one of the unit four further on. one is as in lanePlace.
func (n *gemvInteger) placeStaged(one ptx.U32) {
	n.one, n.digitStride = n.kept(one), 64
	unit, half, word := n.lane.ShrN(3), n.lane.ShrN(2).AndN(1), n.quad.MulN(16)
	if n.d.halves() {
		n.stagedAt = n.kept(word.Add(half.MulN(256)).Add(unit.MulN(4)))
	} else {
		n.stagedAt = n.kept(word.Add(unit.ShrN(1).MulN(256)).Add(unit.AndN(1).MulN(8)).Add(half.MulN(4)))
	}
	if !n.d.offset() || !n.d.super() {
		return
	}
	n.meanAt = n.kept(n.subBlock(n.lanesOfSum()))
	n.zerosAt = n.kept(n.lane.ShrN(1).MulN(16).Add(n.lane.AndN(1).MulN(4)))
}

// subBlock is the unit or sub-block that the lane has a sum of, which so many lanes have.
func (n *gemvInteger) subBlock(lanes int) ptx.U32 {
	return n.lane.DivN(lanes).Add(n.lane.AndN(1).MulN(32 / lanes))
}

// placeHalves is place for what only formats with halves have, and the powers of two.
func (n *gemvInteger) placeHalves() {
	b, log := n.b, n.quantLogs()[1]
	n.shrink = b.F32(powerOfTwo(-powerLog - log))
	if !n.d.halves() {
		return
	}
	n.second = n.kept(n.quad.ShrN(1))
	// The staged means are 16 times smaller than sums.
	n.offset = b.F32(-16 * float32(max(n.d.center, 1)) * powerOfTwo(log))
	if n.inPlace() {
		n.raise = n.kept(n.one.ShlN(n.raised()))
	}
	logs := n.quantLogs()
	if difference := logs[1] - logs[0]; difference > 0 {
		up := n.kept(n.one.ShlN(difference))
		n.level = [2]ptx.U32{ptx.Select(n.second.EqN(0), up, n.one), ptx.Select(n.second.EqN(0), n.one, up)}
	}
	n.subBlocks, n.joinsHalves = n.kept(n.second.MulN(0x1111).AddN(firstHalves)), true
	at := n.digitsAt.Add(n.lane.ShrN(4).MulN(256))
	n.halvesAt = [2]ptx.U32{at, n.kept(at)}
}
