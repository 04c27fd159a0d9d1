package conformance

import (
	"fmt"

	"github.com/lockstep-go/lockstep/quant"
)

var attentionFormats = []quant.Format{quant.F32, quant.F16, quant.BF16}

// attentionDims are head dims that models have, and one that is no multiple of 16.
var attentionDims = []int{32, 64, 72, 80, 96, 128, 256}

// lengthsAround are lengths around the head dim, around the page and some pages long.
func lengthsAround(dim int) []int { return []int{1, dim - 1, dim, dim + 1, 127, 128, 129, 300} }

func decodeCases() []attentionCase {
	var all []attentionCase
	add := func(c attentionCase) { all = append(all, c) }
	for _, dim := range attentionDims {
		for _, f := range attentionFormats {
			add(attentionCase{name: fmt.Sprintf("%v/d=%d", f, dim), reason: "lengths around the head dim, the page and 128, with two KV heads",
				kv: f, headDim: dim, group: 1 + 64/max(dim, 64), lengths: lengthsAround(dim)})
		}
	}
	for _, group := range []int{1, 3, 4, 5, 6, 7, 8, 12, 16} {
		add(attentionCase{name: fmt.Sprintf("group=%d", group), reason: "query heads that share a KV head; above 8 in two turns",
			kv: quant.F16, headDim: 64, group: group, lengths: []int{5, 129}})
	}
	for _, page := range []int{16, 32, 128, 256} {
		add(attentionCase{name: fmt.Sprintf("page=%d", page), reason: "pages of another size",
			kv: quant.BF16, headDim: 64, group: 3, page: page, lengths: []int{1, 15, 16, 17, 255, 300}})
	}
	for _, dim := range []int{8, 16, 24, 40, 56, 104, 120, 160, 192, 248} {
		add(attentionCase{name: fmt.Sprintf("d=%d", dim), reason: "a head dim of any multiple of 8",
			kv: quant.F16, headDim: dim, group: 2, lengths: []int{1, 70}})
	}
	common := attentionCase{kv: quant.F16, headDim: 64, group: 2, lengths: []int{1, 63, 64, 65, 200}}
	for _, window := range []int{1, 2, 63, 64, 65, 100, 1000} {
		c := common
		c.name, c.reason, c.window = fmt.Sprintf("window=%d", window), "pages before the window are skipped, and may be somebody else's", window
		add(c)
	}
	for _, v := range []struct {
		name, reason string
		change       func(*attentionCase)
	}{
		{"softcap", "large scores come near the cap", func(c *attentionCase) { c.softcap, c.scale = 5, 10 }},
		{"softcap, small scores", "a tanh of small numbers keeps their precision", func(c *attentionCase) { c.softcap, c.scale = 50, 0.1 }},
		{"softcap and window", "Gemma 2", func(c *attentionCase) { c.softcap, c.window = 50, 70 }},
		{"peaked", "one weight is nearly 1, most are nearly 0", func(c *attentionCase) { c.scale = 30 }},
		{"loud queries", "beyond what a half holds", func(c *attentionCase) { c.loud = 0x1p90 }},
		{"outliers", "keys and values 30 times larger", func(c *attentionCase) { c.dist = Outliers }},
		{"canceling", "sums much smaller than their terms", func(c *attentionCase) { c.dist = Canceling }},
		{"same sign", "values of one sign: the sums grow", func(c *attentionCase) { c.dist = SameSign }},
		{"constant", "all scores are equal", func(c *attentionCase) { c.dist = Constant }},
		{"idle slots", "a sequence of length 0 is neither read nor written", func(c *attentionCase) { c.only = []int{1, 4} }},
		{"wide table", "most CTAs have no page", func(c *attentionCase) { c.spare = 9 }},
	} {
		c := common
		c.name, c.reason = v.name, v.reason
		v.change(&c)
		add(c)
	}
	return append(append(all, fewCTACases()...), attentionCase{name: "8192 positions", reason: "128 pages, more than the combining sums",
		kv: quant.F16, headDim: 128, kvHeads: 8, group: 4, lengths: []int{8192, 5000}, long: true})
}

// fewCTACases are those in which a CTA takes several pages, one after the other.
func fewCTACases() []attentionCase {
	var all []attentionCase
	common := attentionCase{kv: quant.F16, headDim: 64, group: 2, lengths: []int{64, 128, 192, 1, 65, 190}, sms: 1}
	for _, v := range []struct {
		name, reason string
		change       func(*attentionCase)
	}{
		{"", "one to three pages, of which the last is full or not", func(c *attentionCase) {}},
		{"two of each head", "a CTA has the even pages, another the odd ones", func(c *attentionCase) { c.sms = 3 }},
		{"group=12", "heads in two turns, on every page", func(c *attentionCase) { c.group = 12 }},
		{"window=100", "the first page is visible from its middle on", func(c *attentionCase) { c.window = 100 }},
		{"window=64", "two pages, or one whole one", func(c *attentionCase) { c.window = 64 }},
		{"window=130, two of each head", "the pages are counted from the first visible one", func(c *attentionCase) { c.window, c.sms = 130, 3 }},
		{"idle slots", "a sequence of length 0 between others", func(c *attentionCase) { c.only = []int{1, 2, 5} }},
		{"wide table", "entries beyond the length are not used", func(c *attentionCase) { c.spare = 9 }},
		{"read early", "all pages but those with the last two positions are read before the kernel waits", func(c *attentionCase) { c.fresh = 2 }},
		{"read early, window=130", "the first page that is read early has another entry", func(c *attentionCase) { c.fresh, c.window = 1, 130 }},
		{"read early, F32/d=256", "keys are read early, values are not", func(c *attentionCase) { c.fresh, c.kv, c.headDim = 64, quant.F32, 256 }},
		{"F32/d=256", "keys and values go through one buffer", func(c *attentionCase) { c.kv, c.headDim, c.group = quant.F32, 256, 5 }},
		{"BF16/d=80", "threads have rows beyond the page", func(c *attentionCase) { c.kv, c.headDim = quant.BF16, 80 }},
		{"F16/d=128", "an 8B model's head", func(c *attentionCase) { c.headDim, c.group = 128, 4 }},
		{"page=16", "more pages than a CTA takes", func(c *attentionCase) { c.page, c.lengths = 16, []int{300, 129, 16, 17} }},
		{"d=8", "a tiny model's head", func(c *attentionCase) { c.headDim = 8 }},
		{"d=16", "a tiny model's head", func(c *attentionCase) { c.headDim = 16 }},
		{"d=32", "a tiny model's head", func(c *attentionCase) { c.headDim, c.kv = 32, quant.F32 }},
	} {
		c := common
		v.change(&c)
		c.name, c.reason = "few CTAs, "+v.name, v.reason
		if v.name == "" {
			c.name = "few CTAs"
		}
		all = append(all, c)
	}
	return all
}

func flashCases() []attentionCase {
	var all []attentionCase
	add := func(c attentionCase) { all = append(all, c) }
	for _, dim := range attentionHeadDims() {
		for _, f := range attentionFormats {
			add(attentionCase{name: fmt.Sprintf("%v/d=%d", f, dim), reason: "the tile that the engine uses, behind a cache",
				kv: f, headDim: dim, group: 1, lengths: []int{75}, queries: []int{9}})
		}
	}
	small := attentionCase{kv: quant.F16, headDim: 32, group: 2, page: 32, blockQ: 16, blockK: 16, lengths: []int{45, 20}, queries: []int{37, 20}}
	for _, dim := range append(attentionDims, 8, 24, 40) {
		for _, f := range attentionFormats {
			c := small
			c.name, c.reason = fmt.Sprintf("small tiles/%v/d=%d", f, dim), "many tiles: the head dim, or its remainder to 16, is not the tile's"
			c.kv, c.headDim, c.kvHeads, c.lengths, c.queries = f, dim, 1, []int{39}, []int{22}
			add(c)
		}
	}
	for _, group := range []int{1, 3, 6, 7, 8} {
		c := small
		c.name, c.reason, c.group, c.lengths, c.queries = fmt.Sprintf("group=%d", group), "query heads that share a KV head", group, []int{20}, []int{17}
		add(c)
	}
	for _, n := range []int{1, 15, 16, 17, 31, 32, 33, 63, 64, 65} {
		c := small
		c.name, c.reason = fmt.Sprintf("prompt of %d", n), "around tiles, blocks and pages, alone and behind a cache"
		c.lengths, c.queries = []int{n, n + 23}, []int{n, n}
		add(c)
	}
	for _, window := range []int{1, 2, 15, 16, 17, 40} {
		c := small
		c.name, c.reason, c.window = fmt.Sprintf("window=%d", window), "blocks before the window are skipped, and may be somebody else's", window
		add(c)
	}
	for _, tile := range [][2]int{{16, 32}, {32, 16}, {64, 32}, {128, 16}} {
		c := small
		c.name, c.reason = fmt.Sprintf("tile %d×%d", tile[0], tile[1]), "the same by other tiles"
		c.blockQ, c.blockK = tile[0], tile[1]
		add(c)
	}
	for _, v := range []struct {
		name, reason string
		change       func(*attentionCase)
	}{
		{"ragged", "sequences of different lengths, in part with a cache", func(c *attentionCase) { c.lengths, c.queries = []int{1, 40, 33, 7}, []int{1, 17, 33, 2} }},
		{"idle slots", "a sequence without queries", func(c *attentionCase) { c.only = []int{1} }},
		{"softcap", "large scores come near the cap", func(c *attentionCase) { c.softcap, c.scale = 5, 10 }},
		{"softcap and window", "Gemma 2", func(c *attentionCase) { c.softcap, c.window = 50, 18 }},
		{"peaked", "one weight is nearly 1, most are nearly 0", func(c *attentionCase) { c.scale = 30 }},
		{"loud queries", "beyond what a half holds: each has a power of two of its own", func(c *attentionCase) { c.loud = 0x1p90 }},
		{"faint queries", "below what a half holds", func(c *attentionCase) { c.loud = 0x1p-60 }},
		{"outliers", "elements 30 times larger", func(c *attentionCase) { c.dist = Outliers }},
		{"same sign", "values of one sign: the sums grow", func(c *attentionCase) { c.dist = SameSign }},
		{"constant", "all scores are equal", func(c *attentionCase) { c.dist = Constant }},
	} {
		c := small
		c.name, c.reason = v.name, v.reason
		v.change(&c)
		add(c)
	}
	return append(all, attentionCase{name: "256 of 4096", reason: "a long prompt behind a long cache", kv: quant.F16, headDim: 128, kvHeads: 1, group: 2,
		lengths: []int{4096}, queries: []int{256}, long: true})
}

// attentionHeadDims are those of the reachable kernels.
func attentionHeadDims() []int { return []int{64, 80, 96, 128, 256} }

// attentionInvariants are cases that compare runs with one another.
func attentionInvariants() []KernelCase {
	decode := attentionCase{kv: quant.F16, headDim: 64, group: 2, lengths: []int{1, 66, 130}}
	flash := attentionCase{kv: quant.F16, headDim: 32, page: 32, blockQ: 16, blockK: 16, lengths: []int{40, 9, 50}, queries: []int{20, 9, 35}}
	with := func(c attentionCase, name, reason string, change func(*attentionCase)) attentionCase {
		c.name, c.reason = name, reason
		if change != nil {
			change(&c)
		}
		return c
	}
	const share = "a page's result does not depend on which CTA takes it, and after which"
	const same = "a result depends neither on neighbors nor on where pages lie"
	neighbors := func(c attentionCase) KernelCase {
		return c.kernelCase("attention decode", checkNeighbors(attentionCase.decode))
	}
	shares := func(c attentionCase) KernelCase { return c.kernelCase("attention decode", checkShares(1, 3, 5)) }
	tiles := func(c attentionCase) KernelCase {
		return c.kernelCase("attention prefill", checkNeighbors(attentionCase.flash))
	}
	var all []KernelCase
	const cut = "a prompt cut anywhere gives the same bits"
	return append(all,
		neighbors(with(decode, "neighbors", same, nil)),
		neighbors(with(decode, "neighbors, window", same, func(c *attentionCase) { c.window = 70 })),
		shares(with(decode, "any number of CTAs", share, func(c *attentionCase) { c.lengths = []int{1, 66, 130, 320, 64, 300} })),
		shares(with(decode, "any number of CTAs, window", share, func(c *attentionCase) { c.lengths, c.window = []int{1, 66, 130, 320, 64, 300}, 200 })),
		tiles(with(flash, "neighbors", same, nil)),
		with(flash, "chunks", cut, nil).kernelCase("attention prefill", checkChunks(7)),
		with(flash, "chunks, window and softcap", cut, func(c *attentionCase) { c.window, c.softcap, c.kv = 21, 20, quant.BF16 }).kernelCase("attention prefill", checkChunks(5)),
		with(flash, "chunks, float32", cut, func(c *attentionCase) { c.kv = quant.F32 }).kernelCase("attention prefill", checkChunks(16)),
		with(decode, "the same as prefill", "one position by both kinds of kernels", nil).kernelCase("attention decode", checkBoth),
		with(decode, "the same as prefill, BF16", "one position by both kinds of kernels", func(c *attentionCase) { c.kv = quant.BF16 }).kernelCase("attention decode", checkBoth),
	)
}
