// Package product holds the kernels of the matrix product that package internal/product defines, and the
// packed layout of its weights.
//
// [Stream] multiplies by a few tokens and is bound by memory, [Tile] by many and is bound by tensor cores. On GPUs
// before Hopper, a Tile of warps multiplies by any number.
//
// [Tile.Round] prepares the activations of Tile. Both kinds give the same bits: they share the code that decodes
// weights, and mma.sync and wgmma add in the same way. [Beside] multiplies matrices of several formats in one launch.
// [Embed] decodes rows of weights.
//
// Comments use the letters of internal/product: ŵ and x̂ are weights and activations in float16, D is the scale of a row or a
// block of weights, E the power of two of a token's segment, o and X are offsets and the sums that they are multiplied by. f is the
// factor of a norm for a token.
package product
