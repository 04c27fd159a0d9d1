package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// Rows of a tile lie one after the other in shared memory in chunks of 16 bytes, which
// are exchanged within a row so that eight rows' chunks of one column, what a matrix
// fragment is loaded from, lie in different banks.

// chunks is how many chunks of 8 numbers a row of a tile has.
func (s GEMM) chunks() int { return s.BlockK / 8 }

// rowsPerPass is how many rows of x all threads together copy at a time.
func (s GEMM) rowsPerPass() int { return s.threads() / s.chunks() }

// swizzle is what the index of a chunk is exclusive-ored with; it depends on the row
// modulo 8.
func (s GEMM) swizzle(row ptx.U32) ptx.U32 {
	if s.chunks() >= 8 {
		return row.AndN(7)
	}
	return row.DivN(8 / s.chunks()).AndN(uint32(s.chunks() - 1))
}

// chunkAt is the offset of a chunk in a tile.
func (g *gemm) chunkAt(row, chunk ptx.U32) ptx.U32 {
	return row.MulN(g.rowBytes()).Add(chunk.Xor(g.swizzle(row)).MulN(16))
}

// gemmPlace is where a thread's share of the weights lies: threads that follow one another
// have the units of a pair, so that they read whole sectors, then the pieces of a unit,
// then rows, then the next pair.
type gemmPlace struct {
	row  ptx.U32 // in the tile
	unit ptx.U32 // in the row of the tile
	rest ptx.U32 // which of the pieces
}

func (g *gemm) place(id ptx.U32, pieces int) gemmPlace {
	pair := min(2, g.BlockK/unitLen)
	rest := id.DivN(pair).RemN(pieces)
	row := id.DivN(pair * pieces)
	return gemmPlace{
		row:  row.RemN(g.BlockN),
		unit: id.RemN(pair).Add(row.DivN(g.BlockN).MulN(pair)),
		rest: rest,
	}
}

// weightRow returns the index of a row of the packed matrix, at most that of the last row. Results
// beyond it are not stored.
func (g *gemm) weightRow(row ptx.U32) ptx.U32 { return g.column.Add(row).Min(g.n.AddN(-1)) }

// prepare computes what a thread copies and decodes.
func (g *gemm) prepare() {
	b := g.b
	b.Comment("the thread's part of the copies")
	g.read, g.write = ptx.Var(b.U32(0)), ptx.Var(b.U32(0))
	g.xChunk = ptx.Var(g.thread.RemN(g.chunks()))
	row := g.thread.DivN(g.chunks())
	g.xFrom = ptx.VarGlobal(g.x.At(g.xChunk, 16))
	g.xTo = g.chunkAt(row, g.xChunk)
	g.sources = g.sources.At(row, g.BlockM/g.rowsPerPass()*sourceBytes)
	if g.direct() {
		g.prepareCopies()
	} else {
		g.prepareUnits()
	}
}

// fetch starts to copy the next step's tiles to the next stage. Chunks past the rows'
// ends become zeros.
func (g *gemm) fetch() {
	b := g.b
	inside := ptx.Select(g.xChunk.Lt(g.padded.DivN(8)), b.U32(16), b.U32(0))
	to := g.memory.AtBytes(g.write.Add(g.xTo)).Aligned(16)
	for j, source := range g.sourceRows() {
		from := g.xFrom.AtBytes(source.MulWide(g.padded.MulN(2))).Aligned(16)
		b.CopyAsyncZeroFill(to.Plus(j*g.rowsPerPass()*g.rowBytes()), from, inside)
	}
	if g.direct() {
		g.fetchWeights()
	}
	b.CopyCommit()
	ptx.SetGlobal(g.xFrom, g.xFrom.Plus(g.rowBytes()))
	ptx.Set(g.xChunk, g.xChunk.AddN(g.chunks()))
	g.next(g.write)
}

// sourceRows are the rows of x that the thread copies a chunk of.
func (g *gemm) sourceRows() []ptx.U32 {
	var rows []ptx.U32
	n := g.BlockM / g.rowsPerPass()
	for j := 0; j < n; j += 4 {
		if n%4 != 0 {
			for i := range min(4, n-j) {
				rows = append(rows, g.sources.Plus(4*(j+i)).LoadU32())
			}
			continue
		}
		four := g.sources.Plus(4 * j).Aligned(16).LoadU32x4()
		rows = append(rows, four[:]...)
	}
	return rows
}

// next moves the offset of a stage to the next one.
func (g *gemm) next(stage ptx.U32) {
	following := stage.AddN(g.stage())
	end := g.b.N(g.Stages * g.stage())
	ptx.Set(stage, ptx.Select(following.Eq(end), g.b.U32(0), following))
}

// chunkCopy is a chunk of weights that a thread copies at each step.
type chunkCopy struct {
	row  ptx.U32 // of the matrix
	to   ptx.U32 // offset in a stage
	unit int     // from the thread's first unit on
}

// prepareCopies: a unit's 32 numbers are four pieces in four planes.
func (g *gemm) prepareCopies() {
	const pieces = unitLen / 8
	at := g.place(g.thread, pieces)
	for j := range g.BlockN * g.chunks() / g.threads() {
		// Passes over the tile move on by whole rows, then by pairs of units.
		rows := j * g.threads() / (pieces * min(2, g.BlockK/unitLen))
		unit := rows / g.BlockN * 2
		row := at.row.AddN(rows % g.BlockN)
		chunk := at.unit.AddN(unit).MulN(pieces).Add(at.rest)
		g.copies = append(g.copies, chunkCopy{g.weightRow(row), g.chunkAt(row, chunk).AddN(g.xTile()), unit})
	}
	g.wUnit = ptx.Var(at.unit)
	g.wFrom = ptx.VarGlobal(g.w.At(at.rest.Mul(g.units).Add(at.unit), 16))
}

func (g *gemm) fetchWeights() {
	b := g.b
	for _, c := range g.copies {
		inside := ptx.Select(g.wUnit.AddN(c.unit).Lt(g.units), b.U32(16), b.U32(0))
		from := g.wFrom.AtBytes(c.row.MulWide(g.tileBytes)).Aligned(16).Plus(16 * c.unit)
		b.CopyAsyncZeroFill(g.memory.AtBytes(g.write.Add(c.to)).Aligned(16), from, inside)
	}
	ptx.Set(g.wUnit, g.wUnit.AddN(g.BlockK/unitLen))
	ptx.SetGlobal(g.wFrom, g.wFrom.Plus(16*g.BlockK/unitLen))
}
