// Package ptx builds PTX kernels from Go: typed values, structured control flow, a verifier and
// a deterministic printer.
//
// A kernel is a Go function that calls methods of a [Builder] and of the values they return. Each
// method documents the PTX instruction that it emits. The instructions and their constraints
// follow NVIDIA's PTX ISA. [Declare] declares the parameters of a kernel, and [Kernel.Launch] packs
// their values.
//
// # Values
//
// A Go type per register type ([U32], [S32], [U64], [F32], [F64], [F16], [F16x2], [BF16x2],
// [Pred]) and per state space ([Global], [Shared]) makes most type errors compile errors. Values
// are immutable: each operation returns a new one. [Var] makes a variable that [Set] assigns, for
// accumulators and loop state. Functions that work for several register types, such as Var, Set
// and [Select], are generic over [Value].
//
// A suffix N means that an operand is a Go constant: x.MulN(4). Sums, differences, products, quotients and
// masks of U32 constants are evaluated when the kernel is built.
//
// # Parameters
//
// [Declare] declares a kernel's parameters, the fields of a struct. [Kernel.Launch] takes the same
// struct, whose fields then hold arguments: results of [Addr], [Uint], [Uint64] and [Float].
//
// # Control flow
//
// A Go for loop is unrolled. [Builder.For] and [Builder.While] emit loops, [Builder.If] emits a
// branch and [Builder.When] predicates instructions.
//
// # Errors
//
// No method returns an error. The Builder keeps the first failure, with the file and line of the
// caller outside this package, and [Builder.Finish] returns it.
package ptx
