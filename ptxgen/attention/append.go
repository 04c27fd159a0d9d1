package attention

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/heads"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
)

// appendParams are the kernel parameters that only a Decode with Shape.Append has.
type appendParams struct {
	Rotated ptx.Global
}

// appender rotates the queries of a CTA of Decode, and appends the key and the value of their position. Each CTA that has
// the block of the position computes both, and keeps them in shared memory. The first of those of a KV head writes them to the cache.
type appender struct {
	d     *decodeGenerator
	p     appendParams
	heads *heads.Heads

	ownsBlock  ptx.Pred // the CTA has the block of the position
	writes     ptx.Pred // the CTA writes key and value to the cache: it is the first of those of its KV head
	block      ptx.U32  // of the position
	entry      ptx.U32  // number of its page
	row        ptx.U32  // of the position in the page
	key, value int      // offsets of the position's key and value in dynamic shared memory
}

// newAppender declares the parameters.
func newAppender(d *decodeGenerator) *appender {
	a := &appender{d: d, key: d.shape.bufferBytes()}
	a.value = a.key + d.shape.kv.rowBytes()
	ptx.Declare(d.b, &a.p)
	a.heads = heads.New(d.b, d.shape.kv.headDim/2, d.shape.threads())
	return a
}

// ownBytes is the size of a position's key and value in shared memory.
func (d decodeShape) ownBytes() int {
	if !d.append {
		return 0
	}
	return 2 * d.kv.rowBytes()
}

// prepare finds the block of the position. It reads nothing that prior kernels write.
func (a *appender) prepare() {
	d, b := a.d, a.d.b
	position := d.length.Max(b.U32(1)).AddN(-1) // of an inactive sequence: any
	a.block, a.row = d.end.AddN(-1), position.RemN(d.shape.kv.page)
	a.ownsBlock = d.begin.Lt(d.end).And(a.block.DivN(splitBlocks).Sub(d.begin.DivN(splitBlocks)).Rem(b.GridX()).EqN(0))
	a.writes = d.kvHead.Mul(d.p.HeadParts).Eq(b.BlockY())
	a.entry = ptx.Var(b.U32(0))
	b.If(a.ownsBlock, func() { ptx.Set(a.entry, d.pageOf(a.block).LoadU32()) })
	a.heads.Load(position)
}

// rawBytes is the size of the heads of a group in shared memory, before queries are rounded: queries, and with Shape.Append key and value.
func (d decodeShape) rawBytes(group int) int {
	if d.append {
		group += 2
	}
	return 4 * d.kv.headDim * group
}

// fetch starts the copies of the queries of the CTA, and of the key and the value of their position, to shared memory.
func (a *appender) fetch() {
	d, b, dim := a.d, a.d.b, a.d.b.N(a.d.shape.kv.headDim)
	b.Comment("the queries of the group, then the key and the value of their position")
	d.copyRows(d.queriesAt(), b.U32(0), d.p.Group)
	d.copyRows(a.heads.KeyAt(d.sequence, d.kvHead, dim), d.p.Group, b.U32(1))
	d.copyRows(a.heads.ValueAt(d.sequence, d.kvHead, dim), d.p.Group.AddN(1), b.U32(1))
	b.CopyCommit()
}

// run rotates the queries and appends. A warp takes one head at a time.
func (a *appender) run() {
	d, b, dim := a.d, a.d.b, a.d.b.N(a.d.shape.kv.headDim)
	size := 4 * d.shape.kv.headDim
	items := d.p.Group.Add(ptx.Select(a.ownsBlock, b.U32(2), b.U32(0)))
	d.eachRow(items, func(row ptx.U32) {
		b.IfElse(row.Lt(d.p.Group), func() {
			a.rotate(row)
			d.roundQuery(row)
		}, func() {
			b.IfElse(row.Eq(d.p.Group), func() {
				a.heads.Key(d.raw.At(row, size), dim, a.store(d.p.K, a.key))
			}, func() {
				a.heads.Value(d.raw.At(row, size), dim, a.store(d.p.V, a.value))
			})
		})
	})
}

// rotate rotates a query in place.
func (a *appender) rotate(head ptx.U32) {
	d, b, size := a.d, a.d.b, 4*a.d.shape.kv.headDim
	copied := a.ownsBlock.And(device.NonNil(b, a.p.Rotated))
	x := d.raw.At(head, size)
	a.heads.Query(x, b.N(d.shape.kv.headDim), func(i ptx.U32, y ptx.F32) {
		x.At(i, 4).StoreF32(y)
		rotated := a.p.Rotated.At(d.head.Add(head), size).At(i, 4)
		b.When(copied, func() { rotated.StoreF32(y) })
	})
	b.WarpSync()
}

// store returns a function that stores an element of the position's vector in a cache, and in shared memory.
func (a *appender) store(cache ptx.Global, offset int) func(i ptx.U32, y ptx.F32) {
	kv, d := a.d.shape.kv, a.d
	line := cache.At(a.entry.Mul(d.p.KVHeads).Add(d.kvHead), kv.page*kv.rowBytes()).At(a.row, kv.rowBytes())
	return func(i ptx.U32, y ptx.F32) {
		a.d.b.When(a.writes, func() { device.StoreAs(kv.format, line.At(i, 2), y) })
		device.StoreAs(kv.format, d.shared.Plus(offset).At(i, 2), y)
	}
}

// patch writes the position's key and value into the copies of its block, whose row is 0 so far. A
// thread stores the chunks that it has copied itself.
func (a *appender) patch(block ptx.U32) {
	d, s := a.d, a.d.shape
	chunks, row := s.kv.chunks(), a.row.RemN(s.blockK)
	chunk := d.b.ThreadX().Sub(row.MulN(chunks)).AndN(uint32(s.threads() - 1))
	d.b.If(block.Eq(a.block).And(chunk.LtN(chunks)), func() {
		own := d.shared.At(chunk, 16)
		d.keys.At(d.stage, s.stageBytes()).At(row, s.stride()).At(chunk, 16).StoreU32x4(own.Plus(a.key).LoadU32x4())
		d.values.At(d.stage, s.stageBytes()).At(row, s.stride()).At(chunk, 16).StoreU32x4(own.Plus(a.value).LoadU32x4())
	})
}

// appendChecks returns the checks of Append and Rotated.
func (a DecodeArgs) appendChecks(s decodeShape) []host.Check {
	r := a.Append
	if !s.append {
		return []host.Check{host.Refuse(r != rope.AppendArgs{}, "Append", "only a kernel of Shape.Append takes it"), host.Refuse(a.Rotated != 0, "Rotated", "only a kernel of Shape.Append takes it")}
	}
	same := r.Q == a.Q && r.QStride == a.QStride && r.Tokens == a.Sequences && r.Heads == a.Heads && r.KVHeads == a.KV.KVHeads &&
		r.HeadDim == s.kv.headDim && (r.ValueDim == 0 || r.ValueDim == r.HeadDim) && r.KCache == a.KV.K && r.VCache == a.KV.V &&
		r.Table == a.KV.Table && r.Lengths == a.KV.Lengths && r.MaxPages == a.KV.MaxPages
	list := append(r.Checks(s.kv.page), host.Refuse(r.Key%16 != 0, "Key", "%#x is no multiple of 16", r.Key), host.Refuse(r.Value%16 != 0, "Value", "%#x is no multiple of 16", r.Value),
		host.Refuse(r.KStride%4 != 0, "KStride", "%d is no multiple of 4", r.KStride), host.Refuse(r.VStride%4 != 0, "VStride", "%d is no multiple of 4", r.VStride))
	return append(list,
		host.Refuse(!same, "Append", "queries, cache or sequences are not those of the other arguments"),
		host.Refuse(a.Fresh != 0, "Fresh", "%d, but no prior kernel writes to the cache", a.Fresh))
}
