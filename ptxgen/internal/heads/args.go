package heads

import (
	"cmp"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// AppendArgs are the arguments of a launch of rope.Append. The heads of a token lie side by side;
// Q, Key and Value may point into one fused buffer. The kernel reads Freq, QScales, Positions,
// Sequences, Lengths and Table before it waits for prior kernels (ptx.Builder.WaitForPrior), so none of
// these may write them.
type AppendArgs struct {
	Q         ptx.Address // f32 [Tokens, Heads, HeadDim], rotated in place
	Key       ptx.Address // f32 [Tokens, KVHeads, HeadDim]
	Value     ptx.Address // f32 [Tokens, KVHeads, ValueDim]
	QStride   int         // elements from token to token; 0: Heads*HeadDim
	KStride   int         // elements from token to token; 0: KVHeads*HeadDim
	VStride   int         // elements from token to token; 0: KVHeads*ValueDim
	QNorm     ptx.Address // f32 [HeadDim]; 0: no norm of the queries
	KNorm     ptx.Address // f32 [HeadDim]; 0: no norm of the keys
	VNorm     ptx.Address // f32 [ValueDim]; 0: no norm of the values
	Freq      ptx.Address // f64 [Rot/2], radians per position
	Positions ptx.Address // u32 [Tokens]
	Sequences ptx.Address // u32 [Tokens]; 0: all tokens are of sequence 0
	Lengths   ptx.Address // u32 [sequences], 0 for an inactive one; address 0: all are active
	Table     ptx.Address // u32 [sequences, MaxPages], page numbers
	KCache    ptx.Address // [pages, KVHeads, page, HeadDim]
	VCache    ptx.Address // [pages, KVHeads, page, ValueDim]
	Tokens    int
	Heads     int     // 0: no queries
	KVHeads   int     // 0: nothing to append
	HeadDim   int     // even
	ValueDim  int     // 0: HeadDim
	Rot       int     // even, at most HeadDim and 512; 0: no rotation
	NeoX      bool    // pairs are (j, j+Rot/2)
	MaxPages  int     // pages per sequence in Table
	Factor    float32 // of sine and cosine; 0: 1
	Eps       float32 // of the norms

	QScales      ptx.Address // f32, at least 1 + (p+QScaleOffset)/QScaleBlock for the last position p; 0: queries are not scaled
	QScaleBlock  int         // positions
	QScaleOffset int         // positions
}

// Filled returns the arguments with their defaults filled in.
func (a AppendArgs) Filled() AppendArgs {
	a.ValueDim = cmp.Or(a.ValueDim, a.HeadDim)
	a.QStride, a.KStride, a.VStride = cmp.Or(a.QStride, a.Heads*a.HeadDim), cmp.Or(a.KStride, a.KVHeads*a.HeadDim), cmp.Or(a.VStride, a.KVHeads*a.ValueDim)
	a.Factor = cmp.Or(a.Factor, 1)
	if a.QScales == 0 {
		a.QScaleBlock, a.QScaleOffset = 1, 0
	}
	return a
}

// Checks returns the checks of the arguments for pages of page positions.
func (a AppendArgs) Checks(page int) []host.Check {
	a = a.Filled()
	const most = 1 << 14 // heads, and elements of a head
	list := []host.Check{
		host.Bound("Tokens", a.Tokens, 1, host.MaxSize), host.Bound("Heads", a.Heads, 0, most), host.Bound("KVHeads", a.KVHeads, 0, most),
		host.Bound("Heads + KVHeads", a.Heads+a.KVHeads, 1, 2*most),
		host.Bound("HeadDim", a.HeadDim, 2, most), host.Bound("ValueDim", a.ValueDim, 1, most), host.Bound("Rot", a.Rot, 0, min(a.HeadDim, 2*MaxPairs)),
		host.Bound("QStride", a.QStride, a.Heads*a.HeadDim, host.MaxSize), host.Bound("KStride", a.KStride, a.KVHeads*a.HeadDim, host.MaxSize),
		host.Bound("VStride", a.VStride, a.KVHeads*a.ValueDim, host.MaxSize),
		host.Refuse(a.HeadDim%2 != 0, "HeadDim", "%d is odd, but elements are rotated in pairs", a.HeadDim),
		host.Refuse(a.Rot%2 != 0, "Rot", "%d is odd, but elements are rotated in pairs", a.Rot),
		host.Bound("MaxPages", a.MaxPages, min(a.KVHeads, 1), host.MaxSize/page), host.NonNegative("Eps", a.Eps), host.NonNil("Positions", a.Positions),
	}
	if a.Heads > 0 {
		list = append(list, host.NonNil("Q", a.Q))
	}
	if a.QScales != 0 {
		list = append(list, host.Bound("QScaleBlock", a.QScaleBlock, 1, host.MaxSize), host.Bound("QScaleOffset", a.QScaleOffset, 0, host.MaxSize))
	}
	if a.Rot > 0 {
		list = append(list, host.NonNil("Freq", a.Freq))
	}
	if a.KVHeads > 0 {
		list = append(list, host.NonNil("Key", a.Key), host.NonNil("Value", a.Value), host.NonNil("Table", a.Table),
			host.NonNil("KCache", a.KCache), host.NonNil("VCache", a.VCache))
	}
	return list
}
