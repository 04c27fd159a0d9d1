package emu_test

import (
	"encoding/binary"
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

type rowSumsParams struct {
	X, Y ptx.Global
	N    ptx.U32
}

// rowSums is the kernel y[r] = x[r][0] + ... + x[r][n-1], with one warp per row.
func rowSums() (*ptx.Kernel, error) {
	b := ptx.New("row_sums")
	var p rowSumsParams
	ptx.Declare(b, &p)
	row := p.X.AtBytes(b.BlockX().MulWide(p.N).ShlN(2)).Aligned(4)
	sum := ptx.Var(b.F32(0))
	b.For(b.Lane(), p.N, b.U32(32), func(i ptx.U32) { ptx.Set(sum, sum.Add(row.At(i, 4).LoadF32())) })
	total := ptx.WarpSum(sum)
	b.If(b.Lane().EqN(0), func() { p.Y.At(b.BlockX(), 4).StoreF32(total) })
	return b.Finish(ptx.MaxThreads(32))
}

// Example runs a kernel, and then runs it again with an n that exceeds the rows.
func Example() {
	k := must(rowSums())
	dev := must(emu.Open(emu.Options{})) // or cuda.Open(0)
	defer dev.Close()
	f := must(must(dev.Load(must(k.Text(ptx.Target{})))).Function(k.Name))
	s, x, y := must(dev.NewStream()), must(dev.Alloc(2*3*4)), must(dev.Alloc(2*4))
	check(s.Write(x.Address(), must(binary.Append(nil, binary.LittleEndian, []float32{1, 2, 3, 4, 5, 6}))))

	for _, n := range []int{3, 4} {
		l := must(k.Launch([3]uint32{2, 1, 1}, 32, 0, &rowSumsParams{
			X: ptx.Addr(x.Address()), Y: ptx.Addr(y.Address()), N: ptx.Uint(n),
		}))
		err := s.Launch(driver.Launch{Function: f, Grid: dim3(l.Grid), Block: dim3(l.Block), Params: l.Params})
		sums, bytes := make([]float32, 2), make([]byte, 2*4)
		if err == nil {
			err = s.Read(bytes, y.Address())
		}
		must(binary.Decode(bytes, binary.LittleEndian, sums))
		fmt.Println(sums, err)
	}
	// Output:
	// [6 15] <nil>
	// [0 0] emu: access out of bounds: kernel row_sums, line 32 (ld.global.f32 %f1, [%d5];), CTA (1,0,0), thread (2,0,0), warp 0 lane 2: 4 bytes at 0x7f0000000018: offset 24 of buffer 1 of 24 bytes
}

func dim3(d [3]uint32) driver.Dim3 { return driver.Dim3{X: d[0], Y: d[1], Z: d[2]} }

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
