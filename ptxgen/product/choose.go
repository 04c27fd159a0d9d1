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
	fits := func() bool { return s.shared(Packing{f, k}.segments()) <= shared-staticShared }
	for s.Ring > 1 && !fits() {
		s.Ring /= 2
	}
	for s.Warps > s.Stage && !fits() {
		s.Warps -= s.Stage
	}
	return s, fits()
}

// tileFor returns a Tile with the Experts and the Epilogue of like for a number of tokens and rows, if a GPU of the target has
// sms SMs and a CTA may have shared bytes of shared memory.
func tileFor(f quant.Format, like Tile, tokens, rows int, target ptx.Target, sms, shared int) Tile {
	return TilesFor([]quant.Format{f}, like, tokens, rows, target, sms, shared)[0]
}

// TilesFor returns Tiles for matrices of several formats, so that Beside multiplies the same rounded activations by all of
// them. They have the Experts and the Epilogue of like, and differ in Format and OffsetSteps alone. rows is the sum of the
// matrices' rows, with Experts over all experts.
//
// With few tokens, time goes into decoding weights: then one set has all warps, if there are rows enough, or several sets take
// segments by turns, up to maxWarpsOfSets. With more tokens, time goes into multiplying: then two warpgroups multiply by wgmma,
// or one if shared memory suffices for no more. They have TwoTiles if there are rows enough. If SMs would have too few tiles of that
// many tokens, tiles have half or a quarter of them, down to 32 or 24. A target without wgmma has one shape.
//
// The choice is the same for all numbers of tokens in a size class: see package sizeclass.
func TilesFor(formats []quant.Format, like Tile, tokens, rows int, target ptx.Target, sms, shared int) (list []Tile) {
	tokens = sizeclass.Of(tokens)
	s, steps := Tile{Tokens: maxTileTokens, Experts: like.Experts, Epilogue: like.Epilogue}, 0
	for _, f := range formats {
		s.Tokens, steps = min(s.Tokens, tileTokensFor(f, tokens)), steps|offsetSteps(f)
	}
	of := func(f quant.Format) Tile {
		t := s
		if t.Format = f; offsetSteps(f) != steps {
			t.OffsetSteps = steps
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
		blocks := host.CeilDiv(tokens, s.Tokens)
		var whole []int // numbers of warps that are whole warpgroups: for wgmma, the busiest SM may have a third more rows
		if s.Tokens >= setWGMMATokens {
			whole = slices.DeleteFunc(setWarps(rows, blocks, sms, 1./3), func(warps int) bool { return warps%warpgroup != 0 })
		}
		if s.chooseSets(whole, fits, stageBytes) || s.chooseSets(setWarps(rows, blocks, sms, 1./20), fits, stageBytes) {
			return
		}
	}
	s.Warpgroups, s.TwoTiles = 2, hasTwoTiles(rows, host.CeilDiv(tokens, s.Tokens), sms)
	for s.Ring, s.RingX = 4, 2; !fits(); {
		switch {
		case s.Ring > 2:
			s.Ring--
		case s.RingX > 1:
			s.RingX--
		case s.TwoTiles:
			s.TwoTiles, s.Ring, s.RingX = false, 4, 2
		case s.Warpgroups > 1:
			s.Warpgroups--
		case s.Tokens > 8:
			s.Tokens = max(8, s.Tokens/16*8)
		default:
			return
		}
	}
}

// hasTwoTiles reports whether each warp of two warpgroups has two tiles of weights: if the busiest SM then has at most a twentieth more
// of them than with one per warp, and several tiles of results, because an SM copies for the next one while it stores one.
func hasTwoTiles(rows, blocks, sms int) bool {
	const warps = 2 * warpgroup
	n := busiest(2*warps, rows, blocks, sms)
	return n > 2*warps && 20*n <= 21*busiest(warps, rows, blocks, sms)
}

// cheapestTokens returns the number of tokens per tile, or half or a quarter of it, with which the busiest SM takes the least time.
// Fewer make more tiles, so that more SMs have one, but each tile decodes its weights anew. Fewer are chosen only if
// they save a tenth of the time.
func cheapestTokens(perTile, rows, tokens, sms int) int {
	// The time to decode a tile of weights, in units of the time to multiply it by a token. Sets also hand on their sums.
	const decodingBySets, decodingByWarpgroups = 40, 32
	cost := func(perTile int) int {
		blocks := host.CeilDiv(tokens, perTile)
		if perTile <= maxSetsTokens {
			return fewestTiles(rows, blocks, sms) * (perTile + decodingBySets)
		}
		return busiest(2*warpgroup, rows, blocks, sms) * (perTile + decodingByWarpgroups)
	}
	best := perTile
	for perTile > maxSetsTokens {
		if perTile /= 2; 10*cost(perTile) < 9*cost(best) {
			best = perTile
		}
	}
	return best
}

// busiest is the number of tiles of weights that the busiest SM multiplies, if a CTA has perCTA of them.
func busiest(perCTA, rows, blocks, sms int) int {
	return perCTA * host.CeilDiv(host.CeilDiv(tiles(rows), perCTA)*blocks, sms)
}

// fewestTiles is the smallest value of busiest over all numbers of warps per set.
func fewestTiles(rows, blocks, sms int) int {
	fewest := math.MaxInt
	for warps := 1; warps <= maxSetWarps; warps++ {
		fewest = min(fewest, busiest(warps, rows, blocks, sms))
	}
	return fewest
}

// The warps of a single set, the fewest segments of its ring, and the largest one that helps.
const (
	oneSetWarps   = 4 * warpgroup
	oneSetRing    = 3
	maxOneSetRing = 6
)

// chooseOneSet chooses a single set, if there are rows enough: the busiest SM has at most a third more tiles of weights than
// fewestTiles. Then all warps multiply by one copy of the activations, and no sums are handed on. If not, if it does
// not fit, or for experts, ok is false and s does not change.
func (s *Tile) chooseOneSet(rows, tokens, sms int, fits func() bool) (ok bool) {
	before, blocks := *s, host.CeilDiv(tokens, s.Tokens)
	if s.Experts || 3*busiest(oneSetWarps, rows, blocks, sms) > 4*fewestTiles(rows, blocks, sms) {
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

// maxSetWarps bounds the warps of a set.
const maxSetWarps = 8

// setAhead is the least number of bytes of stages in flight beyond one stage per set, for at least setWGMMATokens. It hides the
// latency of memory.
const setAhead = 48 << 10

// maxNarrowWarps bounds the warps of several sets together if a tile is narrow. Registers suffice for more, which are slower: each
// takes longer for a segment, and a row may not have segments for all.
const maxNarrowWarps = 16

// narrow reports whether a tile has fewer tokens than setWGMMATokens, and no experts.
func (s *Tile) narrow() bool { return s.Tokens < setWGMMATokens && !s.Experts }

// maxWarpsOfSets is the largest number of warps of several sets together that is chosen.
func (s *Tile) maxWarpsOfSets() int {
	if s.narrow() {
		return min(maxNarrowWarps, s.maxTileWarps())
	}
	return s.maxTileWarps()
}

// hasMoreWarps reports whether all sets have more warps together than another choice has: in narrow tiles by more than a third, because
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
		for s.Sets = min(maxSets, s.maxWarpsOfSets()/s.Warps); s.Sets > 1 && s.hasMoreWarps(best); s.Sets-- {
			step, least := producers, s.Sets // of Ring
			if s.Tokens >= setWGMMATokens {
				step, least = 1, s.Sets+host.CeilDiv(setAhead, stageBytes())
			}
			for s.Ring = host.CeilDiv(2*s.Sets, producers) * producers; s.Ring >= least && !fits(); s.Ring -= step {
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
func setWarps(rows, blocks, sms int, excess float64) (list []int) {
	fewest := fewestTiles(rows, blocks, sms)
	for warps := maxSetWarps; warps > 0; warps-- {
		if float64(busiest(warps, rows, blocks, sms)) <= (1+excess)*float64(fewest) {
			list = append(list, warps)
		}
	}
	return list
}

// tileTokensFor is the number of tokens of a tile for a size class of tokens: all of them, or the largest power of two for which the
// registers of two warpgroups suffice. If there are more tokens than that but less than twice as many, it is half of them.
func tileTokensFor(f quant.Format, tokens int) int {
	most := 1 << bits.Len(uint(maxTileTokensOf(f))) / 2
	if tokens > most && tokens < 2*most {
		return tokens / 2
	}
	return max(8, min(most, tokens))
}
