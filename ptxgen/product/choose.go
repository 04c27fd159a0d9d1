package product

import (
	"math"
	"math/bits"
	"slices"

	"github.com/lockstep-go/lockstep/internal/sizeclass"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// streamTokens is the largest number of tokens that Stream multiplies faster than Tile.
const streamTokens = 4

// maxStageBytes bounds the size of a stage of Stream. Warps wait longer for a larger stage. Smaller ones are more copies
// for the one lane that makes them.
const maxStageBytes = 15 << 10

// staticShared is at least the static shared memory of a kernel, which its shared method does not count.
const staticShared = 4 << 10

// StreamFor returns the Stream for up to four tokens and rows of k weights, if a CTA may have shared bytes of shared
// memory. ok is false if there are more tokens, which Tile multiplies faster, if the activations do not fit, or if the
// target has no bulk copies.
//
// An SM has one CTA, which rounds the activations once for all warps.
func StreamFor(f quant.Format, e Epilogue, tokens, k int, target ptx.Target, shared int) (s Stream, ok bool) {
	if tokens > streamTokens || !target.HasBulkLoad() {
		return Stream{}, false
	}
	s = Stream{Format: f, Tokens: 1 << bits.Len(uint(tokens-1)), Ring: 2, Stage: 4, CTAs: 1, Epilogue: e}
	for s.Stage > 1 && s.stageBytes() > maxStageBytes {
		s.Stage /= 2
	}
	// If segments are large, so that a stage has fewer, shared memory suffices for the rings of fewer warps.
	s.Warps = maxStreamWarps - 4*(4-s.Stage)
	for {
		for _, s.Hold = range []bool{false, true} {
			if s.shared(Packing{f, k}.segments()) <= shared-staticShared {
				return s, true
			}
		}
		switch {
		case s.Ring > 1:
			s.Ring /= 2
		case s.Warps > s.Stage:
			s.Warps -= s.Stage
		default:
			return Stream{}, false
		}
	}
}

// tileFor returns a Tile with the Experts and the Epilogue of like for a number of tokens and rows, if a GPU of the target has
// sms SMs and a CTA may have shared bytes of shared memory.
func tileFor(f quant.Format, like Tile, tokens, rows int, target ptx.Target, sms, shared int) Tile {
	return TilesFor([]quant.Format{f}, like, tokens, rows, target, sms, shared)[0]
}

// TilesFor returns Tiles for matrices of several formats, so that Beside multiplies the same rounded activations by all of
// them. They have the Experts and the Epilogue of like, and differ in Format and XSumLayouts alone. rows is the sum of the
// matrices' rows, with Experts over all experts.
//
// With few tokens, time goes into decoding weights: then one set has all warps, if there are rows enough, or several sets slice K.
// With more tokens, time goes into multiplying: then two warpgroups multiply, with TwoRowTiles if SMs have output tiles enough, or one
// warpgroup if shared memory suffices for no more. If a wave would leave too many SMs idle, output tiles have half or a quarter of the
// tokens, down to 32 or 24. A target without wgmma has one shape.
//
// The choice is the same for all numbers of tokens in a size class: see package sizeclass.
func TilesFor(formats []quant.Format, like Tile, tokens, rows int, target ptx.Target, sms, shared int) (list []Tile) {
	tokens = sizeclass.Of(tokens)
	s, layouts := Tile{Tokens: maxTileTokens, Experts: like.Experts, Epilogue: like.Epilogue}, 0
	for _, f := range formats {
		s.Tokens, layouts = min(s.Tokens, tileTokensFor(f, tokens)), layouts|offsetSteps(f)
	}
	of := func(f quant.Format) Tile {
		t := s
		if t.Format = f; offsetSteps(f) != layouts {
			t.XSumLayouts = layouts
		}
		return t
	}
	stageBytes := func() (n int) {
		for _, f := range formats {
			n = max(n, of(f).stageBytes())
		}
		return n
	}
	fits := func() bool {
		return !slices.ContainsFunc(formats, func(f quant.Format) bool { return !of(f).valid() || of(f).shared() > shared-staticShared })
	}
	s.shape(rows, tokens, target, sms, fits, stageBytes)
	for _, f := range formats {
		list = append(list, of(f))
	}
	return list
}

// shape chooses the fields of a Tile but those that TilesFor sets. It may have fewer tokens than it had. fits reports whether
// the registers and the shared memory suffice for the formats that it is for, and stageBytes is the size of their largest stage.
func (s *Tile) shape(rows, tokens int, target ptx.Target, sms int, fits func() bool, stageBytes func() int) {
	if !target.HasWGMMA() {
		s.Warps, s.RingX, s.Tokens = maxMMAWarps, 2, min(s.Tokens, 64)
		return
	}
	if s.chooseOneSet(rows, tokens, sms, fits) {
		return
	}
	s.Tokens = cheapestTokens(s.Tokens, rows, tokens, sms)
	if s.Tokens <= maxSetsTokens {
		tokenTiles := host.CeilDiv(tokens, s.Tokens)
		var whole []int // numbers of warps that are whole warpgroups: for wgmma, the busiest SM may have a third more rows
		if s.Tokens >= setWGMMATokens {
			whole = slices.DeleteFunc(setWarps(rows, tokenTiles, sms, 1./3), func(warps int) bool { return warps%warpgroup != 0 })
		}
		if s.chooseSets(whole, fits, stageBytes) || s.chooseSets(setWarps(rows, tokenTiles, sms, 1./20), fits, stageBytes) {
			return
		}
	}
	s.Warpgroups, s.TwoRowTiles = 2, s.hasTwoRowTiles(rows, host.CeilDiv(tokens, s.Tokens), sms)
	for s.Ring, s.RingX = 4, 2; !fits(); {
		switch {
		case s.Ring > 2 && s.TwoRowTiles: // with three stages, some compilers spill registers
			s.Ring /= 2
		case s.Ring > 2:
			s.Ring--
		case s.RingX > 1:
			s.RingX--
		case s.TwoRowTiles:
			s.TwoRowTiles, s.Ring, s.RingX = false, 4, 2
		case s.Warpgroups > 1:
			s.Warpgroups--
		case s.Tokens > 8:
			s.Tokens = max(8, s.Tokens/16*8)
		default:
			return
		}
	}
}

// hasTwoRowTiles reports whether two warpgroups should have TwoRowTiles. The busiest SM may have a twentieth more row tiles than with one per
// warp. It must have several output tiles, because an SM copies for the next one while it stores one.
func (s *Tile) hasTwoRowTiles(rows, tokenTiles, sms int) bool {
	const warps = 2 * warpgroup
	n := busiestRowTiles(2*warps, rows, tokenTiles, sms)
	return !s.Experts && n > 2*warps && 20*n <= 21*busiestRowTiles(warps, rows, tokenTiles, sms)
}

// cheapestTokens returns perTile tokens per output tile, or half or a quarter of them, with which the busiest SM takes the least time.
// Fewer make more output tiles, so that more SMs have one, but each decodes its weights anew. Fewer are chosen only if
// they save a tenth of the time.
func cheapestTokens(perTile, rows, tokens, sms int) int {
	// The time to decode a row tile, in units of the time to multiply it by a token. Sets also hand on their totals.
	const decodingBySets, decodingByWarpgroups = 40, 32
	cost := func(perTile int) int {
		tokenTiles := host.CeilDiv(tokens, perTile)
		if perTile <= maxSetsTokens {
			return fewestRowTiles(rows, tokenTiles, sms) * (perTile + decodingBySets)
		}
		return busiestRowTiles(2*warpgroup, rows, tokenTiles, sms) * (perTile + decodingByWarpgroups)
	}
	best := perTile
	for perTile > maxSetsTokens {
		if perTile /= 2; 10*cost(perTile) < 9*cost(best) {
			best = perTile
		}
	}
	return best
}

// busiestRowTiles is the number of row tiles that the busiest SM multiplies, each by one token tile, if an output tile has perOutput of
// them. It bounds the time of the product.
func busiestRowTiles(perOutput, rows, tokenTiles, sms int) int {
	return perOutput * host.CeilDiv(host.CeilDiv(rowTiles(rows), perOutput)*tokenTiles, sms)
}

// fewestRowTiles is the smallest value of busiestRowTiles over all numbers of warps per set.
func fewestRowTiles(rows, tokenTiles, sms int) int {
	fewest := math.MaxInt
	for warps := 1; warps <= maxWarpsPerSet; warps++ {
		fewest = min(fewest, busiestRowTiles(warps, rows, tokenTiles, sms))
	}
	return fewest
}

// The warps of a single set, the fewest segments of its ring, and the largest one that helps.
const (
	oneSetWarps   = 4 * warpgroup
	oneSetRing    = 3
	maxOneSetRing = 6
)

// chooseOneSet chooses a single set, if there are rows enough: the busiest SM has at most a third more row tiles than
// fewestRowTiles. Then all warps multiply by one copy of the activations, and no totals are handed on. If not, if it does
// not fit, or for experts, ok is false and s does not change.
func (s *Tile) chooseOneSet(rows, tokens, sms int, fits func() bool) (ok bool) {
	before, tokenTiles := *s, host.CeilDiv(tokens, s.Tokens)
	if s.Experts || 3*busiestRowTiles(oneSetWarps, rows, tokenTiles, sms) > 4*fewestRowTiles(rows, tokenTiles, sms) {
		return false
	}
	s.Warps, s.Sets = oneSetWarps, 1
	for s.Ring = maxOneSetRing; s.Ring >= oneSetRing; s.Ring-- {
		if fits() {
			return true
		}
	}
	*s = before
	return false
}

// maxWarpsPerSet bounds the warps of a set.
const maxWarpsPerSet = 8

// setAhead is the least number of bytes of stages in flight beyond one stage per set, for at least setWGMMATokens. It hides the
// latency of memory.
const setAhead = 48 << 10

// maxNarrowWarps bounds the warps of several sets together if an output tile is narrow. Registers suffice for more, which are slower: each
// takes longer for a segment, and a row may not have segments for all.
const maxNarrowWarps = 16

// narrow reports whether an output tile has fewer tokens than setWGMMATokens, and no experts.
func (s *Tile) narrow() bool { return s.Tokens < setWGMMATokens && !s.Experts }

// maxWarpsOfAllSets is the largest number of warps of several sets together that is chosen.
func (s *Tile) maxWarpsOfAllSets() int {
	if s.narrow() {
		return min(maxNarrowWarps, s.maxWarpsByRegisters())
	}
	return s.maxWarpsByRegisters()
}

// hasMoreWarps reports whether all sets have more warps together than another choice has: in narrow output tiles by more than a third, because
// larger sets copy the activations less often.
func (s *Tile) hasMoreWarps(than Tile) bool {
	if s.narrow() {
		return 3*s.Sets*s.Warps > 4*than.Sets*than.Warps
	}
	return s.Sets*s.Warps > than.Sets*than.Warps
}

// chooseSets chooses Warps, one of some numbers, and Sets and Ring, so that no other choice hasMoreWarps. Of equal choices, the first
// number is the best. If nothing fits, ok is false and s does not change.
func (s *Tile) chooseSets(numbers []int, fits func() bool, stageBytes func() int) (ok bool) {
	best := *s
	for _, warps := range numbers {
		s.Warps = warps
		for s.Sets = min(maxSets, s.maxWarpsOfAllSets()/s.Warps); s.Sets > 1 && s.hasMoreWarps(best); s.Sets-- {
			decrement, least := producers, s.Sets // of Ring
			if s.Tokens >= setWGMMATokens {
				decrement, least = 1, s.Sets+host.CeilDiv(setAhead, stageBytes())
			}
			for s.Ring = host.CeilDiv(2*s.Sets, producers) * producers; s.Ring >= least && !fits(); s.Ring -= decrement {
			}
			if s.Ring >= least {
				best = *s
			}
		}
	}
	*s = best
	return s.Sets > 0
}

// setWarps returns the numbers of warps per set with which the busiest SM has at most 1+excess times the fewest rows that it
// has with any number. The largest is first, because a CTA then copies the activations once for the most rows.
func setWarps(rows, tokenTiles, sms int, excess float64) (list []int) {
	fewest := fewestRowTiles(rows, tokenTiles, sms)
	for warps := maxWarpsPerSet; warps > 0; warps-- {
		if float64(busiestRowTiles(warps, rows, tokenTiles, sms)) <= (1+excess)*float64(fewest) {
			list = append(list, warps)
		}
	}
	return list
}

// tileTokensFor is the number of tokens of an output tile for a size class of tokens: all of them, or the largest power of two for which the
// registers of two warpgroups suffice. If there are more tokens than that but less than twice as many, it is half of them.
func tileTokensFor(f quant.Format, tokens int) int {
	most := 1 << bits.Len(uint(maxTileTokensOf(f))) / 2
	if tokens > most && tokens < 2*most {
		return tokens / 2
	}
	return max(8, min(most, tokens))
}
