package kernelcases

import (
	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

var attentionFaults = []struct {
	name  string
	plant func(*attentionLaunch)
	clean bool // no fault
}{
	{"nothing", func(*attentionLaunch) {}, true},
	{"scale off by a thousandth", func(l *attentionLaunch) { l.scoring.Scale *= 1.001 }, false},
	{"no scale", func(l *attentionLaunch) { l.scoring.Scale = 1 }, false},
	{"no softcap", func(l *attentionLaunch) { l.scoring.Softcap = 0 }, false},
	{"softcap off by a thousandth", func(l *attentionLaunch) { l.scoring.Softcap *= 1.001 }, false},
	{"no sinks", func(l *attentionLaunch) { l.scoring.Sinks = 0 }, false},
	{"the sinks of the next head", func(l *attentionLaunch) { l.scoring.Sinks += 4 }, false},
	{"window one too wide", func(l *attentionLaunch) { l.scoring.Window++ }, false},
	{"window one too narrow", func(l *attentionLaunch) { l.scoring.Window-- }, false},
	{"no window", func(l *attentionLaunch) { l.scoring.Window = 0 }, false},
	{"one position too few", func(l *attentionLaunch) { l.lengths.SetU32s(0, []uint32{69, 38}) }, false},
	{"one position too many", func(l *attentionLaunch) { l.lengths.SetU32s(0, []uint32{71, 40}) }, false},
	{"keys of the other head", func(l *attentionLaunch) { l.cache.K += otherHead(l) }, false},
	{"values of the other head", func(l *attentionLaunch) { l.cache.V += otherHead(l) }, false},
	{"keys for values", func(l *attentionLaunch) { l.cache.V = l.cache.K }, false},
	{"no grouped queries", func(l *attentionLaunch) { l.cache.KVHeads = l.heads }, false},
	{"one group", func(l *attentionLaunch) { l.cache.KVHeads = 1 }, false},
	{"the table of a narrower batch", func(l *attentionLaunch) { l.cache.MaxPages-- }, false},
	{"the other sequence's pages", func(l *attentionLaunch) { l.cache.Table += 4 * uint64(l.cache.MaxPages) }, false},
}

// otherHead returns the distance between two KV heads within a page.
func otherHead(l *attentionLaunch) ptx.Address { return uint64(faultPage * l.rowBytes) }

const faultPage = 32

// PlantedFault is a case whose launch has one wrong argument, unless it is Clean. The case
// must fail.
type PlantedFault struct {
	Name  string
	Clean bool
	Case  harness.Case
}

// AttentionFaults plants each fault into a decode and into a prefill.
func AttentionFaults() []PlantedFault {
	base := attentionCase{
		reason: "a planted fault", kv: quant.F16, headDim: 32, group: 2, page: faultPage, blockQ: 16, blockK: 16,
		lengths: []int{70, 39}, window: 50, softcap: 3, scale: 2, sinks: true, extraPages: 1,
	}
	prefill := base
	prefill.queries = []int{3, 17}
	var all []PlantedFault
	for _, kind := range []struct {
		name string
		c    attentionCase
		run  func(*harness.Fixture, attentionCase)
	}{
		{"decode", base, checkDecode},
		{"prefill", prefill, checkFlash},
	} {
		for _, fault := range attentionFaults {
			c := kind.c
			c.name, c.plant = fault.name, fault.plant
			all = append(all, PlantedFault{kind.name + "/" + fault.name, fault.clean, c.kernelCase("attention", kind.run)})
		}
	}
	return all
}
