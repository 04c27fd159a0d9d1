package product

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// A Tile of experts multiplies slots: pairs of a token and an expert. moe.Group sorts them by expert. A block has
// slots of one expert. The last block of an expert is filled up with zeros. Routes tell Tile what each
// block holds. They are u32: the number of blocks and a word that is not used, and then of each block
//
//	the expert, and a word that is not used
//	the slot of each position, or noSlot
//	with a norm, the factor of each position, a float32
type routes struct {
	round round
}

// noSlot is the slot of a position that fills up a block.
const noSlot = math.MaxUint32

// bytes is the size of a block's route.
func (r routes) bytes() int {
	n := 8 + 4*r.round.tokens
	if r.round.norm {
		n += 4 * r.round.tokens
	}
	return n
}

// of returns the address of a block's route.
func (r routes) of(all ptx.Global, block ptx.U32) ptx.Global { return all.Plus(8).At(block, r.bytes()) }

// slot and factor return the addresses of those of a position in a block's route.
func (r routes) slot(route ptx.Global, position ptx.U32) ptx.Global {
	return route.Plus(8).At(position, 4)
}
func (r routes) factor(route ptx.Global, position ptx.U32) ptx.Global {
	return route.Plus(8+4*r.round.tokens).At(position, 4)
}

// PaddedSlots returns the largest number of positions of whole blocks that some slots of a number of experts have. It
// takes the place of the number of tokens in RoundedBytes.
func (s Tile) PaddedSlots(slots, experts int) int {
	return s.round().paddedSlots(slots, experts)
}

func (s round) paddedSlots(slots, experts int) int {
	partial := min(slots, experts) // at most as many blocks are not full: the last one of each expert that has slots
	return (slots + (s.tokens-1)*partial) / s.tokens * s.tokens
}

// RouteBytes returns the size of the routes of some slots.
func (s Tile) RouteBytes(slots, experts int) int {
	return 8 + s.PaddedSlots(slots, experts)/s.Tokens*routes{s.round()}.bytes()
}

// routeParams are parameters of a round of experts.
type routeParams struct {
	Routes             ptx.Global `align:"8"`
	Offsets, Order     ptx.Global
	Experts, SlotsPerX ptx.U32
}

// tileExpertParams are parameters of a Tile of experts.
type tileExpertParams struct {
	Experts     ptx.Global `align:"8"` // routes
	ExpertBytes ptx.U64
}

// chooseSlot finds the slot of a position and writes its part of the routes. The CTA ends if the position is in no block.
// It returns the slot, and whether there is one.
func (n *rounding) chooseSlot(position ptx.U32) (slot ptx.U32, live ptx.Pred) {
	b, r := n.b, &n.route
	tokens := n.spec.tokens
	found := b.Shared("found", 12, 8) // {expert, slot, blocks of all experts}
	b.If(b.Warp().EqN(0), func() {
		b.If(b.Lane().EqN(0), func() { found.StoreU32x2([2]ptx.U32{b.U32(noSlot), b.U32(noSlot)}) })
		b.WarpSync()
		blocks := ptx.Var(b.U32(0)) // of the experts before
		block, at := position.DivN(tokens), position.RemN(tokens)
		b.For(b.U32(0), r.Experts, b.U32(lanes), func(first ptx.U32) {
			expert := first.Add(b.Lane())
			offsets := r.Offsets.At(expert.Min(r.Experts.AddN(-1)), 4)
			from, to := offsets.LoadU32(), offsets.Plus(4).LoadU32()
			own := ptx.Select(expert.Lt(r.Experts), to.Sub(from).CeilDivN(tokens), b.U32(0)) // blocks
			end := blocks.Add(device.PrefixSum(b, own))
			begin := end.Sub(own)
			b.If(block.Ge(begin).And(block.Lt(end)), func() {
				i := from.Add(block.Sub(begin).MulN(tokens)).Add(at)
				slot := ptx.Var(b.U32(noSlot))
				b.If(i.Lt(to), func() { ptx.Set(slot, r.Order.At(i, 4).LoadU32()) })
				found.StoreU32x2([2]ptx.U32{expert, slot})
			})
			ptx.Set(blocks, ptx.ShuffleIdx(end, b.U32(lanes-1)))
		}, ptx.NoUnroll)
		b.If(b.Lane().EqN(0), func() { found.Plus(8).StoreU32(blocks) })
	})
	b.Barrier()
	pair := found.LoadU32x2()
	expert := pair[0]
	slot = pair[1]
	b.ReturnIf(expert.EqN(noSlot))
	b.If(b.ThreadX().EqN(0), func() {
		route := n.routeOf(position)
		b.If(position.RemN(tokens).EqN(0), func() { route.StoreU32(expert) })
		routes{n.spec}.slot(route, position.RemN(tokens)).StoreU32(slot)
		blocks := found.Plus(8).LoadU32()
		b.If(position.AddN(1).Eq(blocks.MulN(tokens)), func() { r.Routes.StoreU32(blocks) })
	})
	return slot, slot.Ne(b.U32(noSlot))
}

// routeOf returns the address of the route of a position's block.
func (n *rounding) routeOf(position ptx.U32) ptx.Global {
	return routes{n.spec}.of(n.route.Routes, position.DivN(n.spec.tokens))
}

// expertChecks returns the checks of the arguments of a round that belong to experts.
func (s round) expertChecks(a RoundArgs) []host.Check {
	if !s.experts {
		return []host.Check{host.Refuse(a.Offsets != 0 || a.Order != 0 || a.Routes != 0 || a.Experts != 0 || a.SlotsPerX != 0, "Experts",
			"only kernels of experts take it")}
	}
	return []host.Check{
		host.NonNil("Offsets", a.Offsets), host.NonNil("Order", a.Order), host.NonNil("Routes", a.Routes),
		host.Bound("Experts", a.Experts, 1, maxGridY), host.Bound("SlotsPerX", a.SlotsPerX, 1, max(a.Tokens, 1)),
	}
}

// countTiles sets the number of blocks and of tiles to those that the routes have. The CTA ends if it has none.
func (n *tile) countTiles() {
	if !n.spec.Experts {
		return
	}
	n.own.Blocks = n.moe.Experts.LoadU32()
	n.own.Tiles = n.own.Tiles.Mul(n.own.Blocks)
	n.b.ReturnIf(n.b.BlockX().Ge(n.own.Tiles))
}

// routeOf returns the address of a block's route.
func (n *tile) routeOf(block ptx.U32) ptx.Global {
	return routes{n.spec.round()}.of(n.moe.Experts, block)
}

// matrixOf returns the weights of a block of tokens.
func (n *tile) matrixOf(block ptx.U32) ptx.Global {
	if !n.spec.Experts {
		return n.p.W
	}
	return n.p.W.AtBytes(n.expertOffset(n.routeOf(block).LoadU32())).Aligned(16)
}

// rowsOf returns the factors and the biases of the rows of weights of a block of tokens.
func (n *tile) rowsOf(block ptx.U32) (scales, bias ptx.Global) {
	if !n.spec.Experts {
		return n.p.Scales, n.p.Bias
	}
	expert := n.routeOf(block).LoadU32()
	return n.p.Scales.AtBytes(n.expertOffset(expert)).Aligned(4), n.spec.Epilogue.biasOf(n.b, n.p.Bias, expert, n.p.Columns)
}

// expertOffset returns the distance of an expert's matrix from the first one in bytes.
func (n *tile) expertOffset(expert ptx.U32) ptx.U64 { return expert.U64().Mul(n.moe.ExpertBytes) }

// laneTokens are a lane's tokens of a block: two of each eight, from the first one on.
type laneTokens struct {
	tile  *tile
	token ptx.U32    // the first one
	slots ptx.Global // with experts: address of the slot of the first position
}

// tokensOf returns a lane's tokens of a block, from a position of the block on.
func (n *tile) tokensOf(block, position ptx.U32) laneTokens {
	if n.spec.Experts {
		return laneTokens{tile: n, slots: routes{n.spec.round()}.slot(n.routeOf(block), position)}
	}
	return laneTokens{tile: n, token: block.MulN(n.spec.Tokens).Add(position)}
}

// rowOfY returns the row of y of the lane's token i, and whether there is one.
func (c laneTokens) rowOfY(i int) (row ptx.U32, live ptx.Pred) {
	distance := i/2*8 + i%2 // from the first token
	if c.tile.spec.Experts {
		row = c.slots.Plus(4 * distance).LoadU32()
		return row, row.Ne(c.tile.b.U32(noSlot))
	}
	row = c.token.AddN(distance)
	return row, row.Lt(c.tile.p.Tokens)
}

// factors returns the address of the factors of a norm.
func (c laneTokens) factors() ptx.Global {
	if c.tile.spec.Experts {
		return c.slots.Plus(4 * c.tile.spec.Tokens)
	}
	return c.tile.norm.Factors.At(c.token, 4)
}
