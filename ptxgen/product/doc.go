// Package product holds the kernels of the matrix product that package internal/product defines, and the
// packed layout of its weights.
//
// [Stream] multiplies by a few tokens: a GEMV for one, bound by memory or by decoding weights. [Tile] is a GEMM, bound by decoding
// weights or by tensor cores. For few tokens its warps are in sets, which take segments in turn. GPUs before Hopper run Tile by
// mma.sync for any number of tokens. Both kernels give the same bits: they share the code that decodes weights, and mma.sync and wgmma
// add in the same order.
//
// [Tile.Round] is the kernel that prepares the activations for Tile. [Beside] multiplies matrices of several formats in one launch.
// [Embed] decodes rows of weights.
//
// A row tile is 16 rows of weights, as tensor cores take them; see [Packing]. A segment is 256 columns of a row tile or of a token.
// Its inner sums are what tensor cores add up; totals are sums of these, times scales, over the segments of a row.
//
// Comments use the letters of internal/product: ŵ and x̂ are weights and activations in float16, D is the scale of a row or a
// block of weights, E the power of two of a token's segment, o and X are offsets and the sums that they are multiplied by. f is the
// factor of a norm for a token.
package product
