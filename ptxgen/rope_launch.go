package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// RopeAppendArgs are a launch's arguments. The vectors of a token's heads lie side by
// side; Q, K and V may point into one fused buffer of all three. Freq, Positions,
// Sequences, Lengths and Table are read early (ptx.Builder.WaitForPrior): no kernel that
// may still run may write them.
type RopeAppendArgs struct {
	Q, K, V                   Address // f32 [Tokens, heads, dim]; Q is written; K and V are not
	QStride, KStride, VStride int     // elements between tokens; 0 means heads * dim
	QNorm, KNorm              Address // f32 [HeadDim], or 0: not normalized
	Freq                      Address // f64 [Rot/2]: radians a position
	Positions                 Address // u32 [Tokens]
	Sequences                 Address // u32 [Tokens], or 0: all of sequence 0
	Lengths                   Address // u32 by sequence, or 0: all are active
	Table                     Address // u32 [sequences, MaxPages]
	KCache, VCache            Address // [pages, KVHeads, Page, HeadDim or ValueDim]
	Tokens                    int
	Heads                     int // 0: no queries
	KVHeads                   int // 0: nothing to append
	HeadDim                   int // even
	ValueDim                  int // 0 means HeadDim
	Rot                       int // even, at most HeadDim and 512; 0: no rotation
	NeoX                      bool
	MaxPages                  int
	Factor                    float32 // of sine and cosine; 0 means 1
	Eps                       float32 // of the norms
}

// Launch makes a launch.
func (s RopeAppend) Launch(k *ptx.Kernel, a RopeAppendArgs) (ptx.Launch, error) {
	a.ValueDim = orElse(a.ValueDim, a.HeadDim)
	a.QStride, a.KStride, a.VStride = orElse(a.QStride, a.Heads*a.HeadDim), orElse(a.KStride, a.KVHeads*a.HeadDim), orElse(a.VStride, a.KVHeads*a.ValueDim)
	if a.Factor == 0 {
		a.Factor = 1
	}
	if err := s.check(k, a); err != nil {
		return ptx.Launch{}, err
	}
	half, step, gap := a.Rot/2, 2, 1
	if a.NeoX {
		step, gap = 1, a.Rot/2
	}
	items := a.Heads + 2*a.KVHeads
	// Few tokens are spread over more CTAs, which each compute the angles.
	parts := 1
	if a.Tokens < 64 {
		parts = min(ceilDiv(items, ropeWarps), 65535)
	}
	return k.Launch([3]uint32{uint32(a.Tokens), uint32(parts), 1}, 32*ropeWarps, 0,
		ptx.Addr(a.Q), ptx.Addr(a.K), ptx.Addr(a.V), ptx.Addr(a.QNorm), ptx.Addr(a.KNorm), ptx.Addr(a.Freq),
		ptx.Addr(a.Positions), ptx.Addr(a.Sequences), ptx.Addr(a.Lengths), ptx.Addr(a.Table), ptx.Addr(a.KCache), ptx.Addr(a.VCache),
		ptx.Uint(a.Heads), ptx.Uint(a.KVHeads), ptx.Uint(a.HeadDim), ptx.Uint(a.ValueDim),
		ptx.Uint(half), ptx.Uint(step), ptx.Uint(gap), ptx.Uint(a.MaxPages),
		ptx.Uint(a.QStride), ptx.Uint(a.KStride), ptx.Uint(a.VStride), ptx.Float(a.Eps), ptx.Float(a.Factor))
}

func (s RopeAppend) check(k *ptx.Kernel, a RopeAppendArgs) error {
	const most = 1 << 14
	err := checkBounds(k, bound{"Tokens", a.Tokens, 1, maxSize}, bound{"Heads", a.Heads, 0, most}, bound{"KVHeads", a.KVHeads, 0, most},
		bound{"Heads + KVHeads", a.Heads + a.KVHeads, 1, 2 * most},
		bound{"HeadDim", a.HeadDim, 2, most}, bound{"ValueDim", a.ValueDim, 1, most}, bound{"Rot", a.Rot, 0, min(a.HeadDim, 2*maxRopePairs)},
		bound{"QStride", a.QStride, a.Heads * a.HeadDim, maxSize}, bound{"KStride", a.KStride, a.KVHeads * a.HeadDim, maxSize},
		bound{"VStride", a.VStride, a.KVHeads * a.ValueDim, maxSize})
	if err != nil {
		return err
	}
	for _, f := range []bound{{field: "HeadDim", value: a.HeadDim}, {field: "Rot", value: a.Rot}} {
		if f.value%2 != 0 {
			return argumentError(k, f.field, "%d is odd, and elements are taken in pairs", f.value)
		}
	}
	pages := bound{"MaxPages", a.MaxPages, 0, maxSize / s.page()}
	need := []pointer{{"Positions", a.Positions}}
	if a.Heads > 0 {
		need = append(need, pointer{"Q", a.Q})
	}
	if a.Rot > 0 {
		need = append(need, pointer{"Freq", a.Freq})
	}
	if a.KVHeads > 0 {
		need = append(need, pointer{"K", a.K}, pointer{"V", a.V}, pointer{"Table", a.Table}, pointer{"KCache", a.KCache}, pointer{"VCache", a.VCache})
		pages.low = 1
	}
	return firstError(checkBounds(k, pages), checkNumbers(k, number{"Eps", a.Eps}), checkPointers(k, need...))
}
