// Package ref computes transformers the way their formulas read: the oracle that
// everything faster is judged by.
//
// Activations are float64 and every sum is accumulated in float64; weights are
// dequantized exactly. One file holds one operation, whose doc comment is the
// formula with shapes. Each result is computed in one fixed order that depends on
// the model alone, never on how many positions are computed together, on the number
// of cores or on the architecture: prefill and single steps agree bit for bit, and
// so do two machines. Products are rounded before they are added, float64(a*b)+c,
// because Go would fuse them on some architectures.
package ref
