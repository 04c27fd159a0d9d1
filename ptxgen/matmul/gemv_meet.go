package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// The slices of a row meet in pairs, up a binary tree, in the workspace, which has a place
// for each pair: the first to come leaves its sum there, the second finds it, leaves the
// place empty again, adds the two up and goes on to the next pair. An exchange is all that
// either does, and the order of their coming has no part in the sum of two numbers. So
// there are no fences, and nobody waits.
//
// Empty is zero. A sum is left with its bits inverted, and none has all bits set: the NaN
// that arithmetic gives is 0x7FFFFFFF.

// meet adds up the slices of a result that have come before this one, in sums, which are
// variables, and reports whether those are all.
func (n *gemvInteger) meet(r integerResult, sums []ptx.F32) ptx.Pred {
	b := n.b
	node := ptx.Var(n.slices.Add(n.slice)) // of the tree: 1 is the root, below i are 2i and 2i+1
	b.While(func() ptx.Pred { return node.Gt(b.U32(1)) }, func() {
		ptx.Set(node, node.ShrN(1))
		others, found := n.exchange(n.meeting(r, node), sums)
		b.IfElse(found, func() {
			for m, other := range others {
				ptx.Set(sums[m], sums[m].Add(other))
			}
		}, func() { ptx.Set(node, b.U32(0)) })
	}, ptx.NoUnroll)
	return node.EqN(1)
}

// meeting is where the slices below a node meet for a result: {slot, group, node, team,
// row}, nodes from 1, with the sums of all matrices.
func (n *gemvInteger) meeting(r integerResult, node ptx.U32) ptx.Global {
	group := n.slot.Mul(n.groups).Add(r.group)
	pair := group.Mul(n.slices.AddN(-1)).Add(node.AddN(-1))
	return n.workspace.At(pair.Mul(n.teams.MulN(tileRows)).Add(r.place), 4*n.matrixCount())
}

// exchange leaves sums where others may be, which it gives and takes away.
func (n *gemvInteger) exchange(at ptx.Global, sums []ptx.F32) (others []ptx.F32, found ptx.Pred) {
	b := n.b
	mine := sums[0].Bits().Not()
	if !n.Gated {
		other := at.ExchangeU32(mine)
		found = other.Ne(b.U32(0))
		b.When(found, func() { at.StoreU32(b.U32(0), ptx.Volatile) })
		return []ptx.F32{other.Not().AsF32()}, found
	}
	other := at.ExchangeU64(mine.U64().Or(sums[1].Bits().Not().U64().ShlN(32)))
	found = other.Ne(b.U64(0))
	b.When(found, func() { at.StoreU64(b.U64(0), ptx.Volatile) })
	return []ptx.F32{other.Low().Not().AsF32(), other.ShrN(32).Low().Not().AsF32()}, found
}
