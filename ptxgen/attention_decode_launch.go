package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// AttentionDecodeArgs are a launch's arguments.
type AttentionDecodeArgs struct {
	Q       Address // f32 [Sequences] rows of [Heads][HeadDim], QStride apart
	Scratch Address // ScratchBytes, 16-byte aligned; AttentionCombine reads it
	PagedKV
	Scoring
	Sequences, Heads int
	QStride          int // in elements, a multiple of 4
	Pages            int // that the longest sequence has, or more up to MaxPages; 0: MaxPages
	SMs              int // of the device: about as many CTAs as run at a time; 0: one a page
	Shared           int // bytes of shared memory that a CTA may have; 0: any number
	// Fresh is how many of a sequence's last positions kernels may be writing that have
	// not ended when this one begins; pages without any are read at once. 0: no matter how many.
	Fresh int
}

// ScratchBytes is the size of what AttentionDecode leaves to AttentionCombine.
func (s AttentionDecode) ScratchBytes(sequences, heads, maxPages int) int64 {
	return scratchSums(sequences, heads, maxPages) + 4*int64(s.HeadDim)*int64(sequences)*int64(heads)*int64(maxPages)
}

// scratchSums is the size of the part that holds (m, l) of each page of each head
// of each sequence; the part with o follows.
func scratchSums(sequences, heads, maxPages int) int64 {
	return (8*int64(sequences)*int64(heads)*int64(maxPages) + 15) / 16 * 16
}

// decodePages is how many pages a CTA takes at most, lest a launch wait for the CTAs of
// one sequence that is much longer than the others.
const decodePages = 8

// ctas is how many CTAs share the pages of a KV head of a sequence.
func (d decodeShape) ctas(a AttentionDecodeArgs, pages int) int {
	if a.Window > 0 {
		pages = min(pages, ceilDiv(a.Window-1, d.page)+1)
	}
	if a.SMs == 0 {
		return pages
	}
	share := a.SMs * d.resident() / (a.KVHeads * a.Sequences)
	return min(pages, max(share, ceilDiv(pages, decodePages)))
}

// Launch makes a launch.
func (s AttentionDecode) Launch(k *ptx.Kernel, a AttentionDecodeArgs) (ptx.Launch, error) {
	d, pages := s.shape(), orElse(a.Pages, a.MaxPages)
	longest := maxSize / max(a.Sequences, 1) // stride, for rows to be counted in 32 bits
	if err := firstError(a.PagedKV.check(k, a.Sequences, a.Heads, d.page), a.Scoring.check(k),
		checkStride(k, "QStride", a.QStride, a.Heads*s.HeadDim, longest), checkBounds(k, bound{"Pages", pages, 1, a.MaxPages}, bound{"SMs", a.SMs, 0, maxSize}, bound{"Fresh", a.Fresh, 0, 65535}),
		checkPointers(k, pointer{"Q", a.Q}, pointer{"Scratch", a.Scratch})); err != nil {
		return ptx.Launch{}, err
	}
	group := a.Heads / a.KVHeads
	shared := d.bufferBytes() + 4*group*(d.headDim+d.scores) + min(group, d.heads)*d.mergedBytes()
	if a.Shared > 0 && shared > a.Shared {
		return ptx.Launch{}, argumentError(k, "Shared", "%d bytes, of which %d query heads for each KV head take %d", a.Shared, group, shared)
	}
	args := []ptx.Arg{
		ptx.Addr(a.Q), ptx.Addr(a.K), ptx.Addr(a.V), ptx.Addr(a.Table), ptx.Addr(a.Lengths),
		ptx.Addr(a.Scratch), ptx.Addr(a.Scratch + uint64(scratchSums(a.Sequences, a.Heads, a.MaxPages))),
		ptx.Uint(a.QStride), ptx.Uint(group), ptx.Uint(a.MaxPages), ptx.Uint(a.Window), ptx.Uint(a.Fresh),
		ptx.Float(a.Scale), ptx.Float(a.Softcap),
	}
	return k.Launch([3]uint32{uint32(d.ctas(a, pages)), uint32(a.KVHeads), uint32(a.Sequences)}, d.threads, shared, args...)
}
