// Package ptx builds PTX kernels from Go: typed values, structured control flow,
// a verifier and a printer whose output is the same bytes every time.
//
// A kernel is a Go function that calls methods of a Builder and of the values it
// returns. Distinct Go types for what a register holds (U32, S32, U64, F32, F64,
// F16, F16x2, BF16x2, Pred) and for where a pointer points (Global, Shared) make
// a mixed operand a compile error. Go's own for loops unroll; Builder.For loops at
// run time. No method returns an error: the first failure is kept, with the file
// and line of the kernel's author, and comes back from Finish.
//
//	b := ptx.New("scale")
//	y, n, c := b.Global("y", 4), b.ParamU32("n"), b.ParamF32("c")
//	i := b.BlockX().MulN(256).Add(b.ThreadX())
//	b.ReturnIf(i.Ge(n))
//	p := y.At(i, 4)
//	p.StoreF32(p.LoadF32().Mul(c))
//	k, err := b.Finish(ptx.MaxThreads(256))
//
// Values are immutable: an operation gives a new one. Var makes a register that
// Set may change, for accumulators and other state that a loop carries.
//
// The instructions and their constraints follow NVIDIA's PTX ISA.
package ptx
