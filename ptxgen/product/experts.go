package product

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// A Tile of experts multiplies slots: pairs of a token and an expert. moe.Group sorts them by expert. A token tile has
// slots of one expert. The last token tile of an expert is filled up with zeros. Routes tell Tile what each
// token tile holds. They are u32: the number of token tiles and a word that is not used, and then of each token tile
//
//	the expert, and a word that is not used
//	the slot of each position, or noSlot
//	with a norm, the factor of each position, a float32
type routes struct {
	round round
}

// noSlot is the slot of a position that fills up a token tile.
const noSlot = math.MaxUint32

// bytes is the size of a token tile's route.
func (r routes) bytes() int {
	n := 8 + 4*r.round.tokens
	if r.round.norm {
		n += 4 * r.round.tokens
	}
	return n
}

// of returns the address of a token tile's route.
func (r routes) of(all ptx.Global, tokenTile ptx.U32) ptx.Global {
	return all.Plus(8).At(tokenTile, r.bytes())
}

// slot and factor return the addresses of those of a position in a token tile's route.
func (r routes) slot(route ptx.Global, position ptx.U32) ptx.Global {
	return route.Plus(8).At(position, 4)
}

func (r routes) factor(route ptx.Global, position ptx.U32) ptx.Global {
	return route.Plus(8+4*r.round.tokens).At(position, 4)
}

// PaddedSlots returns the largest number of positions of whole token tiles that some slots of a number of experts have. It
// takes the place of the number of tokens in RoundedBytes.
func (s Tile) PaddedSlots(slots, experts int) int {
	return s.round().paddedSlots(slots, experts)
}

func (s round) paddedSlots(slots, experts int) int {
	partial := min(slots, experts) // at most as many token tiles are not full: the last one of each expert that has slots
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

// chooseSlot finds the slot of a position and writes its part of the routes. The CTA ends if the position is in no token tile.
// It returns the slot, and whether there is one.
func (n *rounding) chooseSlot(position ptx.U32) (slot ptx.U32, live ptx.Pred) {
	b, r := n.b, &n.route
	tokens := n.spec.tokens
	found := b.Shared("found", 12, 8) // {expert, slot, token tiles of all experts}
	b.If(b.Warp().EqN(0), func() {
		b.If(b.Lane().EqN(0), func() { found.StoreU32x2([2]ptx.U32{b.U32(noSlot), b.U32(noSlot)}) })
		b.WarpSync()
		tokenTiles := ptx.Var(b.U32(0)) // of the experts before
		tokenTile, at := position.DivN(tokens), position.RemN(tokens)
		b.For(b.U32(0), r.Experts, b.U32(lanes), func(first ptx.U32) {
			expert := first.Add(b.Lane())
			offsets := r.Offsets.At(expert.Min(r.Experts.AddN(-1)), 4)
			from, to := offsets.LoadU32(), offsets.Plus(4).LoadU32()
			own := ptx.Select(expert.Lt(r.Experts), to.Sub(from).CeilDivN(tokens), b.U32(0)) // token tiles
			end := tokenTiles.Add(device.PrefixSum(b, own))
			begin := end.Sub(own)
			b.If(tokenTile.Ge(begin).And(tokenTile.Lt(end)), func() {
				i := from.Add(tokenTile.Sub(begin).MulN(tokens)).Add(at)
				slot := ptx.Var(b.U32(noSlot))
				b.If(i.Lt(to), func() { ptx.Set(slot, r.Order.At(i, 4).LoadU32()) })
				found.StoreU32x2([2]ptx.U32{expert, slot})
			})
			ptx.Set(tokenTiles, ptx.ShuffleIdx(end, b.U32(lanes-1)))
		}, ptx.NoUnroll)
		b.If(b.Lane().EqN(0), func() { found.Plus(8).StoreU32(tokenTiles) })
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
		tokenTiles := found.Plus(8).LoadU32()
		b.If(position.AddN(1).Eq(tokenTiles.MulN(tokens)), func() { r.Routes.StoreU32(tokenTiles) })
	})
	return slot, slot.Ne(b.U32(noSlot))
}

// routeOf returns the address of the route of a position's token tile.
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

// countTiles sets the numbers of token tiles and of output tiles to those of the routes. The CTA ends if it has none.
func (n *tile) countTiles() {
	if !n.spec.Experts {
		return
	}
	n.own.TokenTiles = n.moe.Experts.LoadU32()
	n.own.OutputTiles = n.own.OutputTiles.Mul(n.own.TokenTiles)
	n.b.ReturnIf(n.b.BlockX().Ge(n.own.OutputTiles))
}

// routeOf returns the address of a token tile's route.
func (n *tile) routeOf(tokenTile ptx.U32) ptx.Global {
	return routes{n.spec.round()}.of(n.moe.Experts, tokenTile)
}

// matrixOf returns the weights of a token tile.
func (n *tile) matrixOf(tokenTile ptx.U32) ptx.Global {
	if !n.spec.Experts {
		return n.p.W
	}
	return n.p.W.AtBytes(n.expertOffset(n.routeOf(tokenTile).LoadU32())).Aligned(16)
}

// rowsOf returns the scales and the biases of the rows of weights of a token tile.
func (n *tile) rowsOf(tokenTile ptx.U32) (scales, bias ptx.Global) {
	if !n.spec.Experts {
		return n.p.Scales, n.p.Bias
	}
	expert := n.routeOf(tokenTile).LoadU32()
	return n.p.Scales.AtBytes(n.expertOffset(expert)).Aligned(4), n.spec.Epilogue.biasOf(n.b, n.p.Bias, expert, n.p.Columns)
}

// expertOffset returns the distance of an expert's matrix from the first one in bytes.
func (n *tile) expertOffset(expert ptx.U32) ptx.U64 { return expert.U64().Mul(n.moe.ExpertBytes) }
