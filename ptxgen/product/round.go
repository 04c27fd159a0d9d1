package product

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// round rounds activations for Tile, as package internal/product defines. Tokens are cut into token tiles, the last
// one filled with zeros. A position is the index of a token, or of zeros that fill a token tile.
type round struct {
	tokens      int // tokens per token tile
	xSumLayouts int // as Tile.XSumLayouts, without 0
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
	return fmt.Sprintf("product_tile_round_%d_%d%s%s", s.tokens, s.xSumLayouts, expertName(s.experts), Epilogue{Norm: s.norm}.name())
}

const (
	groups     = 4 // of steps in a segment
	groupSteps = steps / groups
	maxGridY   = 1<<16 - 1          // CTAs
	maxK       = maxGridY * segment // a CTA of round has one segment
)

// maxTileTokens is the largest number of tokens per output tile: with more, inner sums and totals do not fit the registers.
const maxTileTokens = 128

// validTileTokens reports whether an output tile may have n tokens.
func validTileTokens(n int) bool { return n%8 == 0 && n >= 8 && n <= maxTileTokens }

// operandLayout is the layout of the activations of a token tile for a group of steps.
func operandLayout(tokens int) ptx.MatrixLayout {
	return ptx.MatrixLayout{Rows: tokens, Depth: segment / groups, Line: 128}
}

// groupBytes is the size of the activations of a token tile for a group of steps.
func (s round) groupBytes() int { return operandLayout(s.tokens).Bytes() }

// xSumsLayout is the layout of the sums of sub-blocks of a token tile, for formats with 1 or 2 offset steps.
func (s round) xSumsLayout(offsetSteps int) ptx.MatrixLayout {
	return ptx.MatrixLayout{Rows: s.tokens, Depth: 16 * offsetSteps, Line: 32 * offsetSteps}
}

// xSumsAt is where the sums for 1 or 2 offset steps begin in a segment of a token tile. Those for 2, which have the larger
// alignment, come first.
func (s round) xSumsAt(offsetSteps int) int {
	at := groups * s.groupBytes()
	if offsetSteps < 2 && s.xSumLayouts&2 != 0 {
		at += s.xSumsLayout(2).Bytes()
	}
	return at
}

// xScalesAt is where the E of each token begin in a segment of a token tile.
func (s round) xScalesAt() int {
	at := s.xSumsAt(1) // where the sums for 1 begin, or would
	if s.xSumLayouts&1 != 0 {
		at += s.xSumsLayout(1).Bytes()
	}
	return at
}

// segmentBytes is the size of a segment of a token tile.
func (s round) segmentBytes() int { return s.xScalesAt() + 4*s.tokens }

// padded returns the number of tokens of whole token tiles.
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
	if !validTileTokens(s.tokens) || s.xSumLayouts < 0 || s.xSumLayouts > allXSumLayouts {
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

// kMultiple divides K: a segment if a format with two offset steps reads the activations, else 32 with one step and
// 1 with none.
func (s round) kMultiple() int { return []int{1, 32, segment, segment}[s.xSumLayouts] }

// loadNormWeights loads the weights of a norm for a segment. Those of the warp's first one are loaded before the wait for the
// kernel that writes x.
func (n *rounding) loadNormWeights(seg ptx.U32) {
	if !n.spec.norm {
		return
	}
	column := laneColumn(seg, n.b.Lane())
	w := loadSegment(n.b, n.norm.NormWeight.At(column, 4), seg.Lt(n.segments()), column, n.p.K, n.spec.kMultiple())
	assign(n.weights[:], w[:])
}

// round rounds a segment of a row of x into a position. Without live, that gets zeros.
func (n *rounding) round(position, row ptx.U32, live ptx.Pred, seg ptx.U32) {
	b, s, p, lane := n.b, n.spec, &n.p, n.b.Lane()
	column := laneColumn(seg, lane)
	x := loadSegment(b, p.X.At(row.Mul(p.K).Add(column), 4), live, column, p.K, s.kMultiple())
	if s.norm {
		sum := squares(x)
		b.If(lane.EqN(0), func() { n.squares.At(seg, 4).StoreF32(sum) })
		for i, w := range n.weights {
			x[i] = x[i].Mul(w)
		}
	}
	r := roundSegment(b, lane, x, s.xSumLayouts)
	tokenTile, line := position.DivN(s.tokens), position.RemN(s.tokens)
	to := p.Y.At(tokenTile.Mul(n.segments()).Add(seg), s.segmentBytes())
	group := to.At(lane.AndN(3), s.groupBytes())
	for i, word := range r.words {
		chunk := lane.ShrN(2).AndN(1).ShlN(2).AddN(i)
		lineChunk(operandLayout(s.tokens), group, line, chunk).At(lane.ShrN(3), 4).StoreU32(word.Bits())
	}
	for _, sums := range r.sums {
		for i := range sums.offsetSteps {
			b.If(lane.AndN(7).EqN(sumLane(i, sums.offsetSteps)), func() {
				for j, word := range sums.words {
					chunk := b.N(2*i + j)
					lineChunk(s.xSumsLayout(sums.offsetSteps), to.Plus(s.xSumsAt(sums.offsetSteps)), line, chunk).At(lane.ShrN(3), 4).StoreU32(word.Bits())
				}
			})
		}
	}
	b.If(lane.EqN(0), func() { to.Plus(s.xScalesAt()).At(line, 4).StoreF32(r.e) })
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
		host.Bound("K", a.K, 1, longest), host.Refuse(a.K%s.kMultiple() != 0, "K", "%d is no multiple of %d", a.K, s.kMultiple()),
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
