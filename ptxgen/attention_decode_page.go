package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The parts of AttentionDecode.

// span is the visible positions of a page, counted in it: from ≤ position < to.
type span struct{ from, to ptx.U32 }

func (d *decoding) visible(page ptx.U32) span {
	base := page.MulN(d.page)
	return span{d.first.Max(base).Sub(base), d.length.Sub(base).Min(d.b.N(d.page))}
}

func (s span) holds(position ptx.U32) ptx.Pred {
	return position.Ge(s.from).And(position.Lt(s.to))
}

// visibleBytes is how many of the 16 bytes at a position are to be copied.
func (d *decoding) visibleBytes(s span, position ptx.U32) ptx.U32 {
	return ptx.Select(s.holds(position), d.b.U32(16), d.b.U32(0))
}

// keyLane is the lane among those that share a row of K, and the first such row.
func (d *decoding) keyLane() (lane, row ptx.U32) {
	t := d.b.ThreadX()
	return t.RemN(d.lanes), t.DivN(d.lanes)
}

// keyStep is how many rows of K the CTA takes at a time.
func (d *decoding) keyStep() int { return d.threads / d.lanes }

// fetchKeys copies slices times 16 bytes, lanes apart, of each of the thread's rows, 0
// where a position is not visible. It looks up where the CTA's page after this one lies,
// which is known by the time it is needed.
func (d *decoding) fetchKeys(page ptx.U32) {
	b := d.b
	b.Comment("K: %d lanes a row, %d rows a thread", d.lanes, d.keys)
	ptx.Set(d.row, d.entry.Mul(d.kvHeads).Add(d.kvHead))
	lane, row := d.keyLane()
	k := d.keyCache.At(d.row, d.page*d.rowBytes()).At(row, d.rowBytes()).At(lane, 16)
	seen := d.visible(page)
	for r := range d.keys {
		bytes := d.visibleBytes(seen, row.AddN(r*d.keyStep()))
		for j := range d.slices {
			from := k.Plus(r*d.keyStep()*d.rowBytes() + 16*d.lanes*j)
			b.CopyAsyncZeroFill(d.keySlots.Plus((r*d.slices+j)*d.slotBytes()), from, bytes)
		}
	}
	after := page.Add(d.step).Min(d.end.AddN(-1))
	ptx.Set(d.entry, d.table.At(after, 4).LoadU32())
}

// unpackKeys gives the elements of the thread's rows of K.
func (d *decoding) unpackKeys() [][][]ptx.F32 {
	keys := make([][][]ptx.F32, d.keys)
	for r := range keys {
		for j := range d.slices {
			bits := d.keySlots.Plus((r*d.slices + j) * d.slotBytes()).LoadU32x4()
			keys[r] = append(keys[r], unpackKV(d.format, bits))
		}
	}
	return keys
}

// valueLane is which 16 bytes of its rows of V the thread has, and which group of
// threads it is in. Threads of a last, incomplete group load what nobody uses.
func (d *decoding) valueLane() (chunk, group ptx.U32) {
	t := d.b.ThreadX()
	return t.RemN(d.chunks()), t.DivN(d.chunks())
}

// fetchValues copies 16 bytes of each of the thread's rows of the page whose keys were
// copied last. What is not visible becomes 0: its weight is 0, but there might be an
// infinity.
func (d *decoding) fetchValues(page ptx.U32) {
	b := d.b
	b.Comment("V: %d threads a row, %d rows a thread", d.chunks(), d.values)
	chunk, group := d.valueLane()
	first := group.MulN(d.values)
	v := d.valueCache.At(d.row, d.page*d.rowBytes()).At(first, d.rowBytes()).At(chunk, 16)
	seen := d.visible(page)
	for r := range d.values {
		b.CopyAsyncZeroFill(d.valueSlots.Plus(r*d.slotBytes()), v.Plus(r*d.rowBytes()), d.visibleBytes(seen, first.AddN(r)))
	}
}

// unpackValues gives the elements of the thread's rows of V.
func (d *decoding) unpackValues() [][]ptx.F32 {
	values := make([][]ptx.F32, d.values)
	for r := range values {
		values[r] = unpackKV(d.format, d.valueSlots.Plus(r*d.slotBytes()).LoadU32x4())
	}
	return values
}

// Rows of float32 that threads access by the elements of 16 bytes of the cache are
// stored in planes: all first fours of those elements, then all second fours, so that
// neighboring threads are 16 bytes apart.

// inPlanes is where four elements from 4·quad on lie, in bytes.
func (d *decoding) inPlanes(quad ptx.U32) ptx.U32 {
	if d.pack() == 4 {
		return quad.MulN(16)
	}
	return quad.AndN(1).MulN(16 * d.chunks()).Add(quad.ShrN(1).MulN(16))
}

// stageQueries copies the group's queries to shared memory, in planes: before the keys
// and values, behind which they would have to wait.
func (d *decoding) stageQueries() {
	b := d.b
	b.Comment("the queries of the group")
	quads := d.headDim / 4
	source := d.q.At(d.sequence.Mul(d.stride), 4).Aligned(16).At(d.kvHead.Mul(d.group), 4*d.headDim)
	b.For(b.ThreadX(), d.group.MulN(quads), b.N(d.threads), func(i ptx.U32) {
		head, quad := i.DivN(quads), i.RemN(quads)
		to := d.queries.At(head, 4*d.headDim).AtBytes(d.inPlanes(quad)).Aligned(16)
		b.CopyAsync(to, source.At(i, 16))
	}, ptx.NoUnroll)
	b.CopyCommit()
}

// scoreKeys leaves the scores of each head in shared memory, -Inf where a position
// is not visible.
func (d *decoding) scoreKeys(page ptx.U32, keys [][][]ptx.F32) {
	b := d.b
	b.Comment("scores: serial sums over a lane's part of the row, then a tree over the lanes")
	lane, row := d.keyLane()
	tree := newLaneSum(b, lane, d.lanes, d.keys)
	capped, seen := d.cap.Ne(b.F32(0)), d.visible(page)
	b.For(b.U32(0), d.group, b.U32(1), func(head ptx.U32) {
		query := d.queries.At(head, 4*d.headDim).At(lane, 16)
		scores := tree.add(d.products(query, keys))
		line := d.weights.At(head, 4*d.scores)
		for i, x := range scores {
			position := row.Add(tree.first.AddN(i).MulN(d.keyStep()))
			score := ptx.Var(x.Mul(d.scale))
			b.If(capped, func() { ptx.Set(score, softcap(b, score, d.cap)) })
			write := position.LtN(d.page)
			if tree.copies {
				write = write.And(tree.only)
			}
			score = ptx.Select(seen.holds(position), score, minusInf(b))
			b.When(write, func() { line.At(position, 4).StoreF32(score) })
		}
	})
}

// products are the lane's parts of q·K for each of its rows.
func (d *decoding) products(query ptx.Shared, keys [][][]ptx.F32) []ptx.F32 {
	sums := make([]ptx.F32, len(keys))
	for j := range d.slices {
		for plane := range d.pack() / 4 {
			q := query.Plus(16 * (plane*d.chunks() + j*d.lanes)).LoadF32x4()
			for r := range keys {
				for i := range q {
					x := keys[r][j][4*plane+i]
					if j+plane+i == 0 {
						sums[r] = x.Mul(q[i])
					} else {
						sums[r] = x.FMA(q[i], sums[r])
					}
				}
			}
		}
	}
	return sums
}

// softmax turns the scores into weights, a warp a head, and stores m and l.
func (d *decoding) softmax(page ptx.U32) {
	b := d.b
	b.Comment("weights exp(s - m), a warp a head; a lane has every 32nd position")
	lane, warp := b.Lane(), b.Warp()
	b.For(warp, d.group, b.N(d.threads/32), func(head ptx.U32) {
		line := d.weights.At(head, 4*d.scores)
		var list []ptx.F32
		most := minusInf(b)
		for i := 0; i < d.page; i += 32 {
			x := line.At(lane.AddN(i).Min(b.N(d.page-1)), 4).LoadF32()
			if i+32 > d.page {
				x = ptx.Select(lane.LtN(d.page-i), x, minusInf(b))
			}
			list = append(list, x)
			most = x.Max(most)
		}
		most = ptx.WarpMax(most)
		around := numberOrZero(b, most)
		b.WarpSync()
		sum := b.F32(0)
		for i := 0; i < d.scores; i += 32 {
			w := b.F32(0)
			if i < d.page {
				w = list[i/32].Sub(around).MulN(math.Log2E).Ex2Approx()
				sum = w.Add(sum)
			}
			at := lane.AddN(i)
			b.When(at.LtN(d.scores), func() { line.At(at, 4).StoreF32(w) })
		}
		sum = ptx.WarpSum(sum)
		place := d.sums.At(d.head.Add(head).Mul(d.maxPages).Add(page), 8)
		b.When(lane.EqN(0), func() { place.StoreF32x2([2]ptx.F32{most, sum}) })
	})
}

// addValues adds the weighted values: each thread over its consecutive positions,
// then the groups of threads in order.
func (d *decoding) addValues(page ptx.U32, values [][]ptx.F32) {
	b := d.b
	b.Comment("values: serial sums over a thread's positions, of %d heads at a time", d.heads)
	b.For(b.U32(0), d.group, b.N(d.heads), func(first ptx.U32) {
		b.If(first.Ne(b.U32(0)), b.Barrier) // the sums of the heads before are merged
		heads := d.group.Sub(first).Min(b.N(d.heads))
		d.weigh(first, heads, values)
		b.Barrier()
		d.storeParts(page, first, heads)
	}, ptx.NoUnroll)
}

// weigh leaves the thread's sums of heads first, first+1, ... in shared memory.
func (d *decoding) weigh(first, heads ptx.U32, values [][]ptx.F32) {
	b := d.b
	chunk, group := d.valueLane()
	whole := group.LtN(d.groups)
	b.For(b.U32(0), heads, b.U32(1), func(i ptx.U32) {
		sums := d.weighted(d.weights.At(first.Add(i), 4*d.scores).At(group, 4*d.values), values)
		to := d.merged.At(i, d.mergedBytes()).At(group, 4*d.headDim).At(chunk, 16)
		b.When(whole, func() {
			for p := range d.pack() / 4 {
				to.Plus(16 * p * d.chunks()).StoreF32x4([4]ptx.F32(sums[4*p:]))
			}
		})
	})
}

// weighted is Σ w[r]·V[r] over the thread's rows, for its elements.
func (d *decoding) weighted(weights ptx.Shared, values [][]ptx.F32) []ptx.F32 {
	sums := make([]ptx.F32, d.pack())
	var four [4]ptx.F32
	for r := range values {
		w := four[r%4]
		switch {
		case d.values%4 != 0:
			w = weights.Plus(4 * r).LoadF32()
		case r%4 == 0:
			four = weights.Plus(4 * r).LoadF32x4()
			w = four[0]
		}
		for i, x := range values[r] {
			if r == 0 {
				sums[i] = w.Mul(x)
			} else {
				sums[i] = w.FMA(x, sums[i])
			}
		}
	}
	return sums
}

// storeParts adds the groups' sums and stores o of heads first, first+1, ...
func (d *decoding) storeParts(page, first, heads ptx.U32) {
	b := d.b
	b.Comment("o: the sums of %d groups of threads, in order", d.groups)
	quads := d.headDim / 4
	b.For(b.ThreadX(), heads.MulN(quads), b.N(d.threads), func(i ptx.U32) {
		head, quad := i.DivN(quads), i.RemN(quads)
		from := d.merged.At(head, d.mergedBytes()).AtBytes(d.inPlanes(quad)).Aligned(16)
		sum := from.LoadF32x4()
		for g := 1; g < d.groups; g++ {
			x := from.Plus(4 * d.headDim * g).LoadF32x4()
			for j := range sum {
				sum[j] = sum[j].Add(x[j])
			}
		}
		row := d.head.Add(first).Add(head).Mul(d.maxPages).Add(page)
		d.parts.At(row, 4*d.headDim).At(quad, 16).StoreF32x4(sum)
	})
}
