package product

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// round rounds activations for Tile, as package internal/product defines. Tokens are cut into blocks, the last
// one filled with zeros. A position is the index of a token, or of zeros that fill a block.
type round struct {
	tokens      int // tokens per block
	offsetSteps int // set of numbers of offset steps, as Tile.OffsetSteps
	norm        bool
	experts     bool
}

// RoundArgs are the arguments of a launch of Tile.Round.
type RoundArgs struct {
	X         ptx.Address // f32 [Tokens, K]
	Y         ptx.Address // Tile.RoundedBytes(Tokens, K) bytes
	Tokens, K int

	NormWeight ptx.Address // f32 [K], with Epilogue.Norm
	Eps        float32     // of the norm

	// With Tile.Experts, Tokens is the number of slots. Slot i has row i/SlotsPerX of X.
	Offsets   ptx.Address // u32 [Experts+1]: where the slots of each expert begin in Order
	Order     ptx.Address // u32 [Tokens]: the slots sorted by expert, as moe.Group writes them
	Routes    ptx.Address // Tile.RouteBytes(Tokens, Experts) bytes, written
	Experts   int
	SlotsPerX int // slots that share a row of X
	// SlotFactors is f32 [Tokens], which multiplies f of each slot, with Epilogue.Norm. 0: all 1.
	SlotFactors ptx.Address
}

func (s round) name() string {
	return fmt.Sprintf("product_tile_round_%d_%d%s%s", s.tokens, s.offsetSteps, expertName(s.experts), Epilogue{Norm: s.norm}.name())
}

const (
	groups     = 4 // of steps in a segment
	groupSteps = steps / groups
	maxGridY   = 1<<16 - 1          // CTAs
	maxK       = maxGridY * segment // a CTA of round has one segment
)

// maxTileTokens is the largest number of tokens per tile: two accumulators per result, of the segment and of those before, do not fit the registers for more.
const maxTileTokens = 128

// validTileTokens reports whether a tile may have n tokens.
func validTileTokens(n int) bool { return n%8 == 0 && n >= 8 && n <= maxTileTokens }

// operandLayout is the layout of the activations of a block of tokens for a group of steps.
func operandLayout(tokens int) ptx.MatrixLayout {
	return ptx.MatrixLayout{Rows: tokens, Depth: segment / groups, Line: 128}
}

// stageBytes is the size of the activations of a block of tokens for a group of steps.
func (s round) stageBytes() int { return operandLayout(s.tokens).Bytes() }

// sumsLayout is the layout of the sums of sub-blocks of a block of tokens, for formats with 1 or 2 offset steps.
func (s round) sumsLayout(offsetSteps int) ptx.MatrixLayout {
	return ptx.MatrixLayout{Rows: s.tokens, Depth: 16 * offsetSteps, Line: 32 * offsetSteps}
}

// sumsAt is where the sums for 1 or 2 offset steps begin in a segment of a block of tokens. Those for 2, which have the larger
// alignment, come first.
func (s round) sumsAt(offsetSteps int) int {
	at := groups * s.stageBytes()
	if offsetSteps < 2 && s.offsetSteps&2 != 0 {
		at += s.sumsLayout(2).Bytes()
	}
	return at
}

// expsAt is where the E of each token begin in a segment of a block of tokens.
func (s round) expsAt() int {
	at := s.sumsAt(1) // where the sums for 1 begin, or would
	if s.offsetSteps&1 != 0 {
		at += s.sumsLayout(1).Bytes()
	}
	return at
}

// segmentBytes is the size of a segment of a block of tokens.
func (s round) segmentBytes() int { return s.expsAt() + 4*s.tokens }

// padded returns the number of tokens of whole blocks.
func (s round) padded(tokens int) int { return host.CeilDiv(tokens, s.tokens) * s.tokens }

// factorsAt is where the factors of a norm begin, f32 [padded(tokens)].
func (s round) factorsAt(tokens, k int) int {
	return s.padded(tokens) / s.tokens * host.CeilDiv(k, segment) * s.segmentBytes()
}

// bytes returns the size of rounded activations.
func (s round) bytes(tokens, k int) int {
	size := s.factorsAt(tokens, k)
	if s.norm && !s.experts { // the factors of experts are in their routes
		size += 4 * s.padded(tokens)
	}
	return size
}

// roundParams are the parameters of round.
type roundParams struct {
	X         ptx.Global
	Y         ptx.Global `align:"16"`
	Tokens, K ptx.U32
}

// factorParams are parameters of round and Tile with a norm.
type factorParams struct {
	Factors ptx.Global `align:"8"` // f32, f of each token
}

// Warps per CTA of round. Without norm and experts, each has one segment. With them, a CTA has a whole row.
const (
	roundWarps = 8
	rowWarps   = 16
)

// wholeRows reports whether a CTA rounds a whole row.
func (s round) wholeRows() bool { return s.norm || s.experts }

func (s round) threads() int {
	if s.wholeRows() {
		return lanes * rowWarps
	}
	return lanes * roundWarps
}

func (s round) build(b *ptx.Builder) (*ptx.Kernel, error) {
	if !validTileTokens(s.tokens) || s.offsetSteps < 0 || s.offsetSteps > bothOffsetSteps {
		b.Failf("%+v is no kernel", s)
		return nil, b.Err()
	}
	b.Doc("x in float16 with a power of two per token and segment of %d columns, in blocks of %d tokens", segment, s.tokens)
	n := &rounding{spec: s, b: b}
	ptx.Declare(b, &n.p)
	if s.norm {
		ptx.Declare(b, &n.norm)
		n.squares = b.DynamicShared(4)
	}
	switch {
	case s.experts:
		ptx.Declare(b, &n.route)
		if s.norm {
			ptx.Declare(b, &n.slot)
		}
	case s.norm:
		ptx.Declare(b, &n.factors)
	}
	b.LaunchDependents()
	n.loadNormWeights(b.Warp())
	b.WaitForPrior()
	position := b.BlockX()
	switch {
	case s.experts:
		slot, live := n.chooseSlot(position)
		n.roundRow(position, slot.Div(n.route.SlotsPerX), live)
		n.storeFactor(routes{s}.factor(n.routeOf(position), position.RemN(s.tokens)), func(f ptx.F32) ptx.F32 {
			return n.slot.scale(b, f, ptx.Select(live, slot, b.U32(0)))
		})
	case s.norm:
		n.roundRow(position, position, position.Lt(n.p.Tokens))
		n.storeFactor(n.factors.Factors.At(position, 4), func(f ptx.F32) ptx.F32 { return f })
	default:
		position = position.MulN(roundWarps).Add(b.Warp())
		n.round(position, position, position.Lt(n.p.Tokens), b.BlockY())
	}
	return b.Finish(ptx.MaxThreads(s.threads()))
}

// rounding is a round being built.
type rounding struct {
	spec    round
	b       *ptx.Builder
	p       roundParams
	norm    normParams
	factors factorParams
	route   routeParams
	slot    slotParams
	squares ptx.Shared // f32, with a norm: sums of the squares of segments
	// weights are those of the norm for the segment that the warp rounds next.
	weights [8]ptx.F32
}

// blockLen is a length that divides K: a segment if a format with two offset steps reads the activations, else 32 with one step and
// 1 with none.
func (s round) blockLen() int { return []int{1, 32, segment, segment}[s.offsetSteps] }

// loadNormWeights loads the weights of a norm for a segment. Those of the warp's first one are loaded before the wait for the
// kernel that writes x.
func (n *rounding) loadNormWeights(seg ptx.U32) {
	if !n.spec.norm {
		return
	}
	assign(&n.weights, loadSegment(n.b, n.norm.NormWeight, seg.Lt(n.segments()), seg, n.p.K, n.spec.blockLen()))
}

// assign sets variables to values that loadSegment returned. The first values become the variables.
func assign(variables *[8]ptx.F32, values [8]ptx.F32) {
	for i, v := range values {
		if variables[i] == (ptx.F32{}) {
			variables[i] = v
		} else {
			ptx.Set(variables[i], v)
		}
	}
}

// round rounds a segment of a row of x into a position. Without live, that gets zeros.
func (n *rounding) round(position, row ptx.U32, live ptx.Pred, seg ptx.U32) {
	b, s, p, lane := n.b, n.spec, &n.p, n.b.Lane()
	x := loadSegment(b, p.X.At(row.Mul(p.K), 4), live, seg, p.K, s.blockLen())
	if s.norm {
		sum := squares(x)
		b.If(lane.EqN(0), func() { n.squares.At(seg, 4).StoreF32(sum) })
		for i, w := range n.weights {
			x[i] = x[i].Mul(w)
		}
	}
	r := roundSegment(b, x, s.offsetSteps)
	block, line := position.DivN(s.tokens), position.RemN(s.tokens)
	to := p.Y.At(block.Mul(n.segments()).Add(seg), s.segmentBytes())
	group := to.At(lane.AndN(3), s.stageBytes())
	for i, word := range r.words {
		chunk := lane.ShrN(2).AndN(1).ShlN(2).AddN(i)
		lineChunk(operandLayout(s.tokens), group, line, chunk).At(lane.ShrN(3), 4).StoreU32(word.Bits())
	}
	for _, sums := range r.sums {
		for i := range sums.offsetSteps {
			b.If(lane.AndN(7).EqN(sumLane(i, sums.offsetSteps)), func() {
				for j, word := range sums.words {
					chunk := b.N(2*i + j)
					lineChunk(s.sumsLayout(sums.offsetSteps), to.Plus(s.sumsAt(sums.offsetSteps)), line, chunk).At(lane.ShrN(3), 4).StoreU32(word.Bits())
				}
			})
		}
	}
	b.If(lane.EqN(0), func() { to.Plus(s.expsAt()).At(line, 4).StoreF32(r.e) })
}

// segments returns the number of segments of a row.
func (n *rounding) segments() ptx.U32 { return n.p.K.CeilDivN(segment) }

// roundRow rounds all segments of a row of x into a position.
func (n *rounding) roundRow(position, row ptx.U32, live ptx.Pred) {
	b := n.b
	b.For(b.Warp(), n.segments(), b.U32(rowWarps), func(seg ptx.U32) {
		n.round(position, row, live, seg)
		n.loadNormWeights(seg.AddN(rowWarps))
	}, ptx.NoUnroll)
}

// storeFactor stores f of the row that roundRow rounded, after scale. Without a norm, there is no f.
func (n *rounding) storeFactor(to ptx.Global, scale func(f ptx.F32) ptx.F32) {
	b := n.b
	if !n.spec.norm {
		return
	}
	b.Barrier()
	b.If(b.ThreadX().EqN(0), func() {
		sum := ptx.Var(b.F32(0))
		addSquares(b, sum, n.segments(), n.squares, 4)
		to.StoreF32(scale(normFactor(sum, n.p.K, n.norm.Eps)))
	})
}

// lineChunk returns the address of 16 bytes of a line of a matrix in global memory.
func lineChunk(l ptx.MatrixLayout, p ptx.Global, line, chunk ptx.U32) ptx.Global {
	return p.At(line, l.Line).At(l.Swizzle(line, chunk), 16)
}

// loadSegment loads a segment of a row of k columns, in whole blocks of blockLen: the lane's eight columns in
// turn. Columns from k on are 0, and all are if live does not hold.
func loadSegment(b *ptx.Builder, row ptx.Global, live ptx.Pred, seg, k ptx.U32, blockLen int) (x [8]ptx.F32) {
	for j := range x {
		x[j] = ptx.Var(b.F32(0))
	}
	first := seg.MulN(segment).Add(b.Lane().MulN(8))
	from := row.At(first, 4)
	vectors := func() {
		for i := range 2 {
			for j, v := range from.Plus(16 * i).Aligned(16).LoadF32x4() {
				ptx.Set(x[4*i+j], v)
			}
		}
	}
	switch {
	case blockLen%segment == 0:
		b.If(live, vectors)
	case blockLen%8 == 0: // the row has all eight columns or none
		b.If(live.And(first.Lt(k)), vectors)
	default:
		whole := seg.AddN(1).MulN(segment).Le(k).And(k.AndN(3).EqN(0)) // rows are aligned to 16 bytes then
		b.If(live, func() {
			b.IfElse(whole, vectors, func() {
				for j := range x {
					b.When(first.AddN(j).Lt(k), func() { ptx.Set(x[j], from.Plus(4*j).LoadF32()) })
				}
			})
		})
	}
	return x
}

// squares returns the sum of the squares of what loadSegment loaded, the same bits in all lanes: those of a lane's
// columns in turn, then the lanes' as ptx.WarpSum adds them.
func squares(x [8]ptx.F32) ptx.F32 {
	sum := x[0].Mul(x[0])
	for _, v := range x[1:] {
		sum = v.FMA(v, sum)
	}
	return ptx.WarpSum(sum)
}

// roundedSegment is a lane's part of a rounded segment.
type roundedSegment struct {
	e ptx.F32
	// words has the registers of operand B that belong to the lanes 4g+i of an instruction, where i is lane/8:
	// both registers of step s, then of step s+1. s is 4·(lane%4), and in lanes 4 to 7 of 8 two more.
	words [4]ptx.F16x2
	sums  []segmentSums // one per bit of offsetSteps
}

// segmentSums are a lane's part of the sums of a segment.
type segmentSums struct {
	offsetSteps int          // 1 or 2
	words       [2]ptx.F16x2 // both registers of operand B of an offset step, for the lanes of roundedSegment.words: see sumLane
}

// sumLane is the lane, of each eight, in which roundedSegment has the sums of an offset step: the last lane of
// the later one of its two sub-blocks.
func sumLane(step, offsetSteps int) int { return 7 - 2*(offsetSteps-1-step) }

// roundSegment rounds what loadSegment loaded. If the segment has an infinity or a NaN, E may be anything: no
// result of the token is finite.
func roundSegment(b *ptx.Builder, x [8]ptx.F32, offsetSteps int) (r roundedSegment) {
	top := ptx.Var(x[0].Abs().Bits())
	for _, v := range x[1:] {
		ptx.Set(top, top.Max(v.Abs().Bits()))
	}
	ptx.Set(top, top.WarpReduce("max"))
	// Exponents are biased by 127, and in bits 23 and up. That of E is a multiple of 16 less 8.
	const one = 1 << 23
	plus8 := top.AddN(9 * one).AndN(^uint32(16*one - 1))
	plus8 = plus8.Max(b.U32((127 - 103 + 8) * one)).Min(b.U32((127 + 113 + 8) * one))
	r.e = ptx.Select(top.EqN(0), b.U32((127-7)*one), plus8.AddN(-8*one)).AsF32()
	inverse := b.U32((2*127 + 8) * one).Sub(plus8).AsF32()
	var pairs [4]ptx.F16x2 // neighbors
	for i := range pairs {
		pairs[i] = ptx.PackF16(x[2*i].Mul(inverse), x[2*i+1].Mul(inverse))
	}
	r.words = exchange(b, pairs)
	for n := 1; n <= 2; n++ {
		if offsetSteps&n != 0 {
			r.sums = append(r.sums, segmentSums{n, sumSegment(b, pairs, 2/n)})
		}
	}
	return r
}

// exchange pairs columns that are 32 apart. Lane l has columns 8l to 8l+7, so they are in lanes l and l+4. The earlier lane returns
// the pairs of its first four columns, {8l, 8l+32} and so on, the later one those of its last four, {8l-28, 8l+4} and so on.
func exchange(b *ptx.Builder, pairs [4]ptx.F16x2) (words [4]ptx.F16x2) {
	later := b.ThreadX().AndN(4).Ne(b.U32(0))
	// The bytes of {low half, high half} of the earlier lane's and the later one's numbers.
	firsts := ptx.Select(later, b.U32(0x1054), b.U32(0x5410))
	seconds := ptx.Select(later, b.U32(0x3276), b.U32(0x7632))
	for i := range 2 {
		keep := ptx.Select(later, pairs[2+i].Bits(), pairs[i].Bits())
		give := ptx.Select(later, pairs[i].Bits(), pairs[2+i].Bits())
		take := ptx.ShuffleXor(give, 4)
		words[2*i] = keep.Permute(take, firsts).AsF16x2()
		words[2*i+1] = keep.Permute(take, seconds).AsF16x2()
	}
	return words
}

// sumSegment adds up the columns of sub-blocks of 16·halves, and returns both parts of 1/32 of the sums: of the
// lane's sub-block in the high half, and of the one 32 columns earlier in the low half.
func sumSegment(b *ptx.Builder, pairs [4]ptx.F16x2, halves int) [2]ptx.F16x2 {
	var s [4]ptx.F32
	for i, p := range pairs {
		low, high := p.F32()
		s[i] = low.Add(high)
	}
	sum := s[0].Add(s[1]).Add(s[2].Add(s[3]))
	for i := range halves {
		sum = sum.Add(ptx.ShuffleUp(sum, 1<<i)) // the last lane of a sub-block has all of it
	}
	sum = sum.MulN(1.0 / offsetScale)
	high := sum.F16()
	own := ptx.PackF16(high.F32(), sum.Sub(high.F32())).Bits()
	earlier := ptx.ShuffleUp(own, 4)
	return [2]ptx.F16x2{earlier.Prmt(own, 0x5410).AsF16x2(), earlier.Prmt(own, 0x7632).AsF16x2()}
}

// maxNormK is the largest length of rows with a norm, so that the sums of the squares of all segments fit static limits
// of shared memory.
const maxNormK = 48 << 10 / 4 * segment

func (s round) launch(k *ptx.Kernel, a RoundArgs) (ptx.Launch, error) {
	longest := maxK
	if s.norm {
		longest = maxNormK
	}
	maxTokens := math.MaxUint32/max(a.K, 1) - 2*maxTileTokens // so that no index of a padded token overflows
	if err := host.Valid(k, append(append(normChecks(s.norm, a.NormWeight, a.Eps), s.expertChecks(a)...),
		slotCheck(s.experts, s.norm, a.SlotFactors),
		host.Bound("K", a.K, 1, longest), host.Refuse(a.K%s.blockLen() != 0, "K", "%d is no multiple of %d", a.K, s.blockLen()),
		host.Bound("Tokens", a.Tokens, 1, maxTokens),
		host.NonNil("X", a.X), host.NonNil("Y", a.Y))...); err != nil {
		return ptx.Launch{}, err
	}
	tokens, segments := s.padded(a.Tokens), host.CeilDiv(a.K, segment)
	params := []any{&roundParams{X: ptx.Addr(a.X), Y: ptx.Addr(a.Y), Tokens: ptx.Uint(a.Tokens), K: ptx.Uint(a.K)}}
	if s.experts {
		tokens = s.paddedSlots(a.Tokens, a.Experts)
	}
	if !s.wholeRows() {
		return k.Launch([3]uint32{uint32(tokens / roundWarps), uint32(segments), 1}, s.threads(), 0, params...)
	}
	shared := 0
	if s.norm {
		params, shared = append(params, &normParams{NormWeight: ptx.Addr(a.NormWeight), Eps: ptx.Float(a.Eps)}), 4*segments
	}
	if s.experts {
		params = append(params, &routeParams{
			Routes: ptx.Addr(a.Routes), Offsets: ptx.Addr(a.Offsets), Order: ptx.Addr(a.Order), Experts: ptx.Uint(a.Experts), SlotsPerX: ptx.Uint(a.SlotsPerX),
		})
		if s.norm {
			params = append(params, &slotParams{ptx.Addr(a.SlotFactors)})
		}
	} else {
		params = append(params, &factorParams{ptx.Addr(a.Y + uint64(s.factorsAt(a.Tokens, a.K)))})
	}
	return k.Launch([3]uint32{uint32(tokens), 1, 1}, s.threads(), shared, params...)
}
