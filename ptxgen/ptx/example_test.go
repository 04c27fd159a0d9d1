package ptx_test

import (
	"fmt"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The kernel computes y[i] *= c for i < n, with one thread per element.
func Example() {
	var params struct {
		Y ptx.Global
		N ptx.U32
		C ptx.F32
	}
	b := ptx.New("scale")
	ptx.Declare(b, &params)
	i := b.BlockX().MulN(256).Add(b.ThreadX())
	b.ReturnIf(i.Ge(params.N))
	p := params.Y.At(i, 4)
	p.StoreF32(p.LoadF32().Mul(params.C))
	k, err := b.Finish(ptx.MaxThreads(256))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := k.Text(ptx.Target{SM: 90})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, body, _ := strings.Cut(string(text), "{\n")
	fmt.Print(strings.ReplaceAll(body, "\t", ""))
	// Output:
	// .reg .pred %p<1>;
	// .reg .b32 %r<5>;
	// .reg .f32 %f<3>;
	// .reg .b64 %d<2>;
	//
	// ld.param.u64 %d0, [y];
	// ld.param.u32 %r0, [n];
	// ld.param.f32 %f0, [c];
	// mov.u32 %r1, %ctaid.x;
	// shl.b32 %r2, %r1, 8;
	// mov.u32 %r3, %tid.x;
	// add.u32 %r4, %r2, %r3;
	// setp.ge.u32 %p0, %r4, %r0;
	// @%p0 ret;
	// mad.wide.u32 %d1, %r4, 4, %d0;
	// ld.global.f32 %f1, [%d1];
	// mul.rn.f32 %f2, %f1, %f0;
	// st.global.f32 [%d1], %f2;
	// ret;
	// }
}

// A type error that Go cannot express is reported by Finish, with the line of the caller.
func ExampleBuilder_Finish() {
	b := ptx.New("k")
	b.Global("y", 4).Plus(2).StoreU32(b.U32(1))
	_, err := b.Finish(ptx.MaxThreads(32))
	_, reason, _ := strings.Cut(err.Error(), "kernel ")
	fmt.Println(reason)
	// Output: k: store of 4 bytes through a pointer known to be aligned to 2
}
