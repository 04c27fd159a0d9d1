package product

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Tile multiplies a matrix of weights by many tokens:
//
//	p[t,r] = Σ_k W[r,k]·x[t,k]
//
// as package internal/product defines, and stores what its Epilogue makes of p.
//
// The kernel is persistent: the results are cut into output tiles, and a CTA computes several, one after another. An output tile
// has Tokens tokens, and the rows of some row tiles, which are 16 rows of weights each. There are four ways to compute it:
//
//   - By wgmma: a warpgroup of producers issues bulk copies of weights and activations, those of the next output tile while results are
//     stored. One or two warpgroups of consumers multiply. Each has 64 rows, and decodes the next weights into operands in registers
//     while the tensor cores multiply those before. With TwoRowTiles it has 128 rows, and multiplies both halves by the same copy of
//     the activations.
//   - Sliced-K: each set of Warps warps takes every Sets-th segment of the CTA, a row tile per warp. The reduction is serial, in the
//     order of the segments: a set adds its segment to the totals that the set before has left in shared memory, and hands them on.
//     From 24 tokens on, sets of whole warpgroups multiply by wgmma, which reads activations once per warpgroup. Others multiply by
//     mma.sync.
//   - One set takes all segments by wgmma, and keeps the totals in registers.
//   - By mma.sync, for targets without wgmma and bulk copies: all warps copy by cp.async and multiply the same segment.
//
// The fields that choose the way:
//
//	          Warpgroups  Warps            Sets     Ring           RingX
//	wgmma     1 or 2      0                0        2 or more      1 or more
//	sliced-K  0           per set          2 to 15  Sets or more   0
//	one set   0           a multiple of 4  1        2 or more      0
//	mma.sync  0           1 to 8           0        0              2 or more
type Tile struct {
	Format      quant.Format
	Tokens      int  // per output tile, a multiple of 8: to 128, for F32 weights to 96, with Sets to 32, with one set to 64 if registers suffice
	Warpgroups  int  // of consumers
	TwoRowTiles bool // with two Warpgroups, without Experts: a warp has two row tiles, not one
	Warps       int  // instead of Warpgroups; with Sets those of a set: registers bound Warps·Sets, see maxWarpsByRegisters
	Sets        int
	Ring        int // segments of weights in shared memory, with TwoRowTiles of one row tile per warp; with Sets segments of activations, too
	RingX       int // segments of activations in shared memory

	// Experts has one matrix per expert, and multiplies slots instead of tokens. Slot i writes row i of Y. Round has put
	// the slots of an expert into token tiles of their own.
	Experts bool

	// XSumLayouts is a bit set of the layouts in which the activations have their sums, for all formats of a launch: 1 for formats
	// with one offset step per segment, 2 for formats with two, 3 for both. 0: what Format needs.
	XSumLayouts int

	Epilogue Epilogue
}

// Kernel returns the kernel that multiplies.
func (s Tile) Kernel() kernel.Typed[Args] { return kernelOf(s) }

// Round returns the kernel that rounds activations for the product. Products with the same Tokens, Experts and
// Epilogue.Norm, in formats with the same number of offset steps per segment or with XSumLayouts, have the same one.
func (s Tile) Round() kernel.Typed[RoundArgs] {
	r := s.round()
	return kernel.New(r.name(), r.build, r.launch)
}

// RoundedBytes returns the size of rounded activations.
func (s Tile) RoundedBytes(tokens, k int) int { return s.round().bytes(tokens, k) }

// name returns product_tile_FORMAT_ROWSxTOKENS, where ROWS are those of an output tile, and then rRING_RINGX with Warpgroups, pSETS_rRING
// with Sets, or mma_RINGX; oN for XSumLayouts that Format does not need; experts; and the parts of the epilogue.
func (s Tile) name() string {
	pipeline := fmt.Sprintf("r%d_%d", s.Ring, s.RingX)
	switch {
	case s.Sets > 0:
		pipeline = fmt.Sprintf("p%d_r%d", s.Sets, s.Ring)
	case s.Warps > 0:
		pipeline = fmt.Sprintf("mma_%d", s.RingX)
	}
	if n := s.round().xSumLayouts; n > offsetSteps(s.Format) {
		pipeline += fmt.Sprintf("_o%d", n)
	}
	rows := tileRows * s.rowTilesPerOutput()
	return fmt.Sprintf("product_tile_%s_%dx%d_%s%s%s", host.FormatName(s.Format), rows, s.Tokens, pipeline, expertName(s.Experts), s.Epilogue.name())
}

// tileParams are the parameters of Tile alone.
type tileParams struct {
	RowTiles    ptx.U32 // of the matrix
	TokenTiles  ptx.U32 // of Tokens tokens; with experts 0: see countTiles
	OutputTiles ptx.U32 // with experts, those of one token tile
}

// tile is a Tile being built.
type tile struct {
	spec Tile
	l    layout
	p    productParams
	own  tileParams
	norm factorParams
	epi  epilogueParams
	moe  tileExpertParams
	b    *ptx.Builder
	c    *constants

	set, warp   ptx.U32 // with Sets the set of warps, and the warp's number in it
	lane        ptx.U32
	totals      ptx.Shared // {four sums, thread of a set}: totals that sets hand on
	weights     ptx.Shared // {stage, row tile}
	xScales     ptx.Shared // {stage, token}: E
	acts        ptx.Shared // {stage, group of columns}
	operand     ptx.SharedMatrix[ptx.F16x2]
	xSums       ptx.Shared // {stage}: X, the sums of activations
	xSumOperand ptx.SharedMatrix[ptx.F16x2]
	full        ptx.Shared // barriers, {stage}: weights and E have arrived
	empty       ptx.Shared // barriers, {stage}: all warps have read them
	fullX       ptx.Shared // barriers, {stage, group}: activations have arrived
	emptyX      ptx.Shared // barriers, {stage, group}: all warps have multiplied by them
}

func (s Tile) emit(b *ptx.Builder) {
	if !s.valid() {
		b.Failf("%+v is no kernel", s)
		return
	}
	b.Doc("%s\nW packed, of %v; x of %s", s.Epilogue.doc(), s.Format, s.round().name())
	switch {
	case s.Sets > 0:
		s.emitSets(b)
	case s.Warps > 0:
		s.emitMMA(b)
	default:
		s.emitWGMMA(b)
	}
}

func (s Tile) valid() bool {
	_, ok := layouts[s.Format]
	ok = ok && validTileTokens(s.Tokens) && s.Tokens <= maxTileTokensOf(s.Format) && s.Epilogue.valid()
	ok = ok && (!s.TwoRowTiles || s.Warpgroups == 2 && !s.Experts && s.Tokens <= s.maxTokensOfTwoRowTiles())
	ok = ok && s.XSumLayouts >= 0 && s.XSumLayouts <= allXSumLayouts && (s.XSumLayouts == 0 || s.XSumLayouts&offsetSteps(s.Format) == offsetSteps(s.Format))
	switch {
	case s.Warps == 0:
		return ok && s.Sets == 0 && s.Warpgroups >= 1 && s.Warpgroups <= 2 && s.Ring >= 2 && s.RingX >= 1
	case s.Sets == 0:
		return ok && s.Warpgroups == 0 && s.Warps <= maxMMAWarps && s.Ring == 0 && s.RingX >= 2
	}
	ok = ok && s.Warpgroups == 0 && s.Warps > 0 && s.Sets > 0 && s.Sets <= maxSets && s.Warps*s.Sets <= s.maxWarpsByRegisters()
	return ok && s.Ring >= max(2, s.Sets) && s.RingX == 0 && (s.Sets > 1 || s.Warps%warpgroup == 0 && !s.Experts)
}

// allXSumLayouts has all bits of XSumLayouts.
const allXSumLayouts = 3

// maxTileTokensOf is the largest number of tokens for a format, so that the registers suffice. F32 has two operands per
// step.
func maxTileTokensOf(f quant.Format) int {
	if f == quant.F32 {
		return 96
	}
	return maxTileTokens
}

// maxTokensOfTwoRowTiles is the largest number of tokens with TwoRowTiles, so that the registers suffice.
func (s Tile) maxTokensOfTwoRowTiles() int {
	switch s.Format {
	case quant.Q4_1, quant.Q5_1, quant.Q2_K, quant.Q3_K, quant.Q5_K, quant.Q6_K: // decoding these takes a few registers more
		return 96
	}
	return maxTileTokens
}

// maxSets bounds Sets: each has a named barrier. maxSetsTokens bounds the tokens of more than one set.
const (
	maxSets       = 15
	maxSetsTokens = 32
)

// maxWarpsByRegisters is the largest number of warps of all sets, so that the registers suffice: 0 if they suffice for none.
func (s Tile) maxWarpsByRegisters() int {
	switch {
	case s.Tokens <= 16, s.Tokens <= maxSetsTokens && s.Tokens >= setWGMMATokens && s.Warps%warpgroup == 0:
		return 24
	case s.Tokens <= maxSetsTokens:
		return 18
	case s.Tokens <= 64 && s.Sets == 1 && s.Format != quant.Q2_K && s.Format != quant.Q3_K: // these take a few registers more
		return 16
	}
	return 0
}

func (s Tile) threads() int {
	switch {
	case s.Sets > 0:
		return lanes * (s.Sets*s.Warps + producers)
	case s.Warps > 0:
		return lanes * s.Warps
	}
	return lanes * (s.warpsPerSegment() + producers)
}

func (s Tile) minCTAs() int { return 1 }

// work implements generator. An output tile counts the same in every format: with many tokens, tensor cores bound the time.
func (s Tile) work(a Args) (tasks, cost int) {
	return host.CeilDiv(a.Tokens, s.Tokens) * host.CeilDiv(rowTiles(a.Rows), s.rowTilesPerOutput()), 1
}

func (s Tile) round() round {
	return round{s.Tokens, s.XSumLayouts | offsetSteps(s.Format), s.Epilogue.Norm, s.Experts}
}

// warpsPerSegment is the number of warps that multiply a segment.
func (s Tile) warpsPerSegment() int { return warpgroup*s.Warpgroups + s.Warps }

// rowTilesPerWarp is the number of row tiles of a warp that multiplies.
func (s Tile) rowTilesPerWarp() int {
	if s.TwoRowTiles {
		return 2
	}
	return 1
}

// rowTilesPerOutput is the number of row tiles of an output tile: first one of each warp that multiplies, then their second ones.
func (s Tile) rowTilesPerOutput() int { return s.warpsPerSegment() * s.rowTilesPerWarp() }

// weightBytes is the size of a stage of weights: a segment of a row tile of each warp that multiplies it.
func (s Tile) weightBytes() int { return s.warpsPerSegment() * layouts[s.Format].segmentBytes() }

// actBytes is the size of a stage of activations: a segment of a token tile.
func (s Tile) actBytes() int { return groups * s.round().groupBytes() }

// xSumBytes is the size of the sums of activations in a stage.
func (s Tile) xSumBytes() int {
	if offsetSteps(s.Format) == 0 {
		return 0
	}
	return s.round().xSumsLayout(offsetSteps(s.Format)).Bytes()
}

// shared is the number of bytes of dynamic shared memory.
func (s Tile) shared() int {
	switch r := s.round(); {
	case s.Sets > 0:
		return s.Ring*s.stageBytes() + s.totalsBytes()
	case s.Warps > 0:
		return s.RingX * r.segmentBytes()
	default:
		return s.RingX*s.actBytes() + s.Ring*(s.xSumBytes()+s.weightBytes()+4*s.Tokens)
	}
}

// beginTile begins a kernel: it declares the parameters.
func beginTile(b *ptx.Builder, s Tile) *tile {
	n := &tile{spec: s, l: layoutOf(s.Format), b: b}
	ptx.Declare(b, &n.p)
	n.epi.declare(b, s.Epilogue)
	ptx.Declare(b, &n.own)
	if s.Epilogue.Norm && !s.Experts {
		ptx.Declare(b, &n.norm)
	}
	if s.Experts {
		ptx.Declare(b, &n.moe)
	}
	n.warp, n.lane = b.Warp(), b.Lane()
	n.c = newConstants(b, n.l)
	return n
}

// eachOutputTile emits a loop over the CTA's output tiles. Segments of all of them are counted together: begin is the first one
// of the output tile, and end the first one after it.
func (n *tile) eachOutputTile(body func(out, begin, end ptx.U32)) {
	b := n.b
	begin := ptx.Var(b.U32(0))
	b.For(b.BlockX(), n.own.OutputTiles, b.GridX(), func(out ptx.U32) {
		end := begin.Add(n.p.Segments)
		body(out, begin, end)
		ptx.Set(begin, end)
	}, ptx.NoUnroll)
}

// coords returns the token tile of an output tile, and the number of its row group: as many row tiles as an output tile has. CTAs
// that run together share a row group, so that L2 has its weights.
func (n *tile) coords(out ptx.U32) (tokenTile, rowGroup ptx.U32) {
	rowGroup = out.Div(n.own.TokenTiles)
	return out.Sub(rowGroup.Mul(n.own.TokenTiles)), rowGroup
}

// producers is the number of warps that copy: a warpgroup. By wgmma, each copies a group of the activations.
const producers = groups

// newAccumulators returns undefined registers for the sums of a row tile: four for each eight tokens.
func (n *tile) newAccumulators() []ptx.F32 {
	list := make([]ptx.F32, n.spec.Tokens/2)
	for i := range list {
		list[i] = ptx.Undefined[ptx.F32](n.b)
	}
	return list
}

// packedSegment returns the address of the segment of the warp's row tile in a stage of weights.
func (n *tile) packedSegment(stage ptx.U32) ptx.Shared {
	return n.weights.At(stage, n.spec.weightBytes()).At(n.warp, n.l.segmentBytes())
}

// comparedXScales are the E of a segment.
type comparedXScales struct {
	at     ptx.Shared // {token}
	first  ptx.F32    // of token 0
	differ ptx.Pred   // not all tokens have that one
}

// compareXScales compares the E of all tokens. All lanes of the warp take part.
func (n *tile) compareXScales(at ptx.Shared) comparedXScales {
	b, first, others := n.b, at.LoadF32(), n.b.U32(0)
	for i := 0; i < n.spec.Tokens; i += lanes {
		token := n.lane.AddN(i)
		if n.spec.Tokens-i < lanes {
			token = token.Min(b.N(n.spec.Tokens - 1))
		}
		others = others.Or(at.At(token, 4).LoadU32().Xor(first.Bits()))
	}
	return comparedXScales{at, first, others.Ne(b.U32(0)).Any()}
}

// add adds the inner sums of a segment, times D·E, to the totals. Nearly always all tokens have one E.
func (n *tile) add(e comparedXScales, r *segmentReader, acc, totals []ptx.F32) {
	n.b.IfElse(e.differ, func() { n.addScaled(e.at, r, acc, totals) }, func() {
		scales := [2]ptx.F32{r.timesD(0, e.first), r.timesD(1, e.first)}
		for i := range totals {
			ptx.Set(totals[i], acc[i].FMA(scales[i/2%2], totals[i]))
		}
	})
}

// addScaled is add for tokens with any E, which are at xScales.
func (n *tile) addScaled(xScales ptx.Shared, r *segmentReader, acc, totals []ptx.F32) {
	n.eachScale(xScales, r, func(i int, scale ptx.F32) { ptx.Set(totals[i], acc[i].FMA(scale, totals[i])) })
}

// eachScale calls do with D·E of each inner sum of a segment. E of all tokens is at xScales.
func (n *tile) eachScale(xScales ptx.Shared, r *segmentReader, do func(i int, scale ptx.F32)) {
	for j := range n.spec.Tokens / 8 {
		tokens := xScales.At(n.lane.AndN(3), 8).Plus(32 * j).LoadF32x2()
		for i := range 4 {
			do(4*j+i, r.timesD(i/2, tokens[i%2]))
		}
	}
}

func (s Tile) part(k *ptx.Kernel, a Args) (ptx.Part, error) {
	p, columns := Packing{s.Format, a.K}, s.Epilogue.columns(a.Rows)
	a.YStride = cmp.Or(a.YStride, columns)
	others := slices.Concat(s.Epilogue.checks(a), normChecks(false, a.NormWeight, a.Eps), expertChecks(s.Experts, a), []host.Check{slotCheck(false, false, a.SlotFactors)})
	if err := host.Valid(k, append(others,
		host.Refuse(a.Slots != 0 || a.SlotsPerX != 0, "Slots", "only kernels of Stream take it"),
		host.Bound("Rows", a.Rows, 1, maxRows), host.Bound("YStride", a.YStride, columns, maxRows),
		host.Bound("Tokens", a.Tokens, 1, math.MaxUint32/max(a.YStride, 1)), host.Bound("K", a.K, 1, maxK),
		host.Bound("CTAs", a.CTAs, 1, math.MaxInt32), wholeBlocks(s.Format, a.K),
		host.Refuse(a.X%16 != 0, "X", "%#x is no multiple of 16", a.X), host.NonNil("X", a.X), host.NonNil("W", a.W), host.NonNil("Y", a.Y))...); err != nil {
		return ptx.Part{}, err
	}
	rowGroups := host.CeilDiv(rowTiles(a.Rows), s.rowTilesPerOutput())
	tokenTiles := host.CeilDiv(a.Tokens, s.Tokens)
	all := tokenTiles * rowGroups
	ctas := min(a.CTAs, all)
	if err := host.Valid(k, host.Bound("CTAs", ctas, host.CeilDiv(all*p.segments()*s.rowTilesPerWarp(), math.MaxUint32), all)); err != nil {
		return ptx.Part{}, err
	}
	own := &tileParams{RowTiles: ptx.Uint(rowTiles(a.Rows)), TokenTiles: ptx.Uint(tokenTiles), OutputTiles: ptx.Uint(all)}
	params := append(paramsOf(s.Format, s.Epilogue, a), own)
	switch {
	case s.Experts:
		own.TokenTiles, own.OutputTiles = ptx.Uint(0), ptx.Uint(rowGroups)
		params = append(params, &tileExpertParams{ptx.Addr(a.Experts), ptx.Uint64(uint64(a.ExpertBytes))})
	case s.Epilogue.Norm:
		params = append(params, &factorParams{ptx.Addr(a.X + uint64(s.round().factorsAt(a.Tokens, a.K)))})
	}
	return ptx.Part{CTAs: ctas, Threads: s.threads(), Shared: s.shared(), Params: params}, nil
}
