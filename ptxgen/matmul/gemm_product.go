package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// gemmProduct is a warp's part of the tile: the sums, and where its fragments are.
type gemmProduct[T ptx.Half2] struct {
	*gemm
	sums [][][4]ptx.F32 // variables: [16 rows][8 columns]
	a, w []ptx.U32      // offsets in a tile of x and of w, by 16 of k

	ahead gemmFragments[T] // variables: the next step's first
}

func newGemmProduct[T ptx.Half2](g *gemm) *gemmProduct[T] {
	b := g.b
	b.Comment("the warp's part of the tile")
	p := &gemmProduct[T]{gemm: g}
	lane, rowM, rowN := b.Lane(), p.originM(), p.originN()
	// The lanes of an eighth name the rows of one of four 8x8 matrices: of x those of
	// rows 0 and 8 at k 0, then at k 8; of w those of k 0 and 8 at row 0, then at row 8.
	aRow, aChunk := rowM.Add(lane.AndN(15)), lane.ShrN(4)
	wRow, wChunk := rowN.Add(lane.AndN(7)).Add(lane.ShrN(4).MulN(8)), lane.ShrN(3).AndN(1)
	for k := range g.BlockK / 16 {
		p.a = append(p.a, g.chunkAt(aRow, aChunk).Xor(b.N(32*k)))
		p.w = append(p.w, g.chunkAt(wRow, wChunk).Xor(b.N(32*k)))
	}
	for range g.warpM() / 16 {
		var row [][4]ptx.F32
		for range g.warpN() / 8 {
			var four [4]ptx.F32
			for i := range four {
				four[i] = ptx.Var(b.F32(0))
			}
			row = append(row, four)
		}
		p.sums = append(p.sums, row)
	}
	return p
}

// originM and originN are the warp's first row and column in the tile.
func (p *gemmProduct[T]) originM() ptx.U32 { return p.b.Warp().DivN(p.WarpsN).MulN(p.warpM()) }
func (p *gemmProduct[T]) originN() ptx.U32 { return p.b.Warp().RemN(p.WarpsN).MulN(p.warpN()) }

// gemmFragments are what a warp multiplies at a time: 16 of k.
type gemmFragments[T ptx.Half2] struct {
	a [][4]T // by 16 rows
	w [][2]T // by 8 columns
}

func newGemmFragments[T ptx.Half2](p *gemmProduct[T]) gemmFragments[T] {
	f := gemmFragments[T]{make([][4]T, p.warpM()/16), make([][2]T, p.warpN()/8)}
	for i := range f.a {
		for j := range f.a[i] {
			f.a[i][j] = ptx.Undefined[T](p.b)
		}
	}
	for i := range f.w {
		f.w[i] = [2]T{ptx.Undefined[T](p.b), ptx.Undefined[T](p.b)}
	}
	return f
}

// load loads the fragments of 16 of k of the step that is read.
func (p *gemmProduct[T]) load(k int) gemmFragments[T] {
	f := gemmFragments[T]{make([][4]T, p.warpM()/16), make([][2]T, p.warpN()/8)}
	p.eachLoad(k, func(a []T, i int) { f.a[i] = [4]T(a) }, func(w []T, i int) { f.w[i] = [2]T(w) })
	return f
}

// loadAhead loads the first of a step to variables.
func (p *gemmProduct[T]) loadAhead() {
	set := func(dst, src []T) {
		for i := range dst {
			ptx.Set(dst[i], src[i])
		}
	}
	p.eachLoad(0, func(a []T, i int) { set(p.ahead.a[i][:], a) }, func(w []T, i int) { set(p.ahead.w[i][:], w) })
}

// eachLoad hands out fragments as they are loaded.
func (p *gemmProduct[T]) eachLoad(k int, toA, toW func(list []T, i int)) {
	x := p.memory.AtBytes(p.read).Aligned(16)
	w := x.Plus(p.xTile())
	if !p.direct() {
		w = p.memory.AtBytes(p.decoded).Aligned(16).Plus(p.tiles())
	}
	x, w = x.AtBytes(p.a[k]).Aligned(16), w.AtBytes(p.w[k]).Aligned(16)
	for i := range p.warpM() / 16 {
		toA(ptx.LoadMatrices[T](x.Plus(16*i*p.rowBytes()), 4, false), i)
	}
	for i := range p.warpN() / 16 {
		four := ptx.LoadMatrices[T](w.Plus(16*i*p.rowBytes()), 4, false)
		toW(four[:2], 2*i)
		toW(four[2:], 2*i+1)
	}
}

// first waits for the first step's tiles and loads its first fragments.
func (p *gemmProduct[T]) first() {
	p.b.CopyWait(p.Stages - 2)
	p.b.Barrier()
	p.ahead = newGemmFragments(p)
	p.loadAhead()
}

// step multiplies a step's tiles. Fragments are loaded while those before are
// multiplied, the next step's first ones too. Meanwhile the next step's weights are
// decoded, in the first half, so that those after have the other half to arrive.
func (p *gemmProduct[T]) step() {
	b := p.b
	p.fetch()
	n := p.BlockK / 16
	f := p.ahead
	for k := range n {
		b.Comment("k from %d on", 16*k)
		var next gemmFragments[T]
		if k+1 < n {
			next = p.load(k + 1)
		} else {
			b.Comment("all warps have loaded from this step's tiles, and the next step's are there")
			b.CopyWait(p.Stages - 2)
			b.Barrier()
			p.advance()
			p.loadAhead()
		}
		for j := range f.w {
			if slots := (n - 1) * len(f.w); k*len(f.w)+j < slots {
				p.decodePart(k*len(f.w)+j, slots)
			}
			for i := range f.a {
				ptx.MMA(p.sums[i][j], f.a[i], f.w[j])
			}
		}
		f = next
	}
}

// advance goes on to the next step's tiles.
func (g *gemm) advance() {
	g.next(g.read)
	if !g.direct() {
		ptx.Set(g.decoded, g.decoded.Xor(g.b.N(g.wTile())))
	}
}
