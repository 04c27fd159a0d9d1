// Package alu is the arithmetic of PTX instructions on plain values: what one lane
// computes from its registers, and what one warp computes from its fragments.
//
// Nothing here knows registers, predicates, memory or time. The same call gives
// the same bits on every machine: products are rounded explicitly, so that no
// compiler may fuse them, and every NaN that an operation makes is the canonical
// one, 0x7FFFFFFF in f32 and 0x7FFF in f16 and bf16.
//
// The semantics are those of NVIDIA's PTX ISA. Where it gives an exact result
// (fma.rn, cvt.rn, div.rn, the integer operations) so does this package. Where it
// gives an error bound, [Approx] gives the correctly rounded result, or any other
// within the bound. Where it gives nothing (the order and the width of the sum in
// mma), [Accumulate] has what is published about the hardware, and the exact sum.
package alu
