// Package alu is the arithmetic of PTX instructions on plain values: what one lane computes from
// its registers, and what a warp computes from matrix fragments.
//
// The semantics are those of NVIDIA's PTX ISA. If it defines the result, as for fma.rn, cvt.rn,
// div.rn and integers, so does this package. If it bounds the error, [Approx] returns the correctly
// rounded result or another one within the bound. If it defines neither the order nor the width of
// a sum, as for mma, [Accumulate] follows published measurements of the hardware.
//
// Results have the same bits on every machine: explicit conversions keep the compiler from fusing a
// product and a sum. Each NaN that an operation returns is the canonical one, 0x7FFFFFFF in f32 and
// 0x7FFF in f16 and bf16.
package alu
