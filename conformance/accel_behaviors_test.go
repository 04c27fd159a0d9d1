package conformance

import (
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/tiny"
)

// prefillModes are the prefill modes to test.
var prefillModes = []struct {
	name   string
	o      accel.Options
	except []string   // behaviors that compare prefill with decode, which rounds differently
	few    []Behavior // the behaviors of a default run
}{
	{"exact prefill", accel.Options{Prefill: accel.PrefillExact, KVPages: enoughPages}, nil, slices.Concat(sequenceBehaviors, errorBehaviors, generationBehaviors)},
	{
		"float16 prefill", accel.Options{KVPages: enoughPages, Chunk: 16},
		[]string{"prefill equals decode", "prefill in parts", "results agree"},
		slices.Concat(prefixBehaviors, textBehaviors, parallelBehaviors),
	},
}

// enoughPages is enough for the behavior with the most sequences, which need a page each.
const enoughPages = 600

// slowBehaviors take minutes on the emulator.
var slowBehaviors = []string{"batch equals alone", "500 concurrent calls", "truncate", "canceled during a step", "greedy paths agree", "stop string across tokens",
	"whole characters", "seeds", "prefill in parts", "loop left early", "canceled at each token", "request after an error", "each token computed once", "stop token later",
	"interleaved sequences", "generation fills the context"}

// TestAccelBehaviors checks the behaviors of the accelerator. A default run uses one
// architecture with one layer, and checks each behavior in one prefill mode: see few.
func TestAccelBehaviors(t *testing.T) {
	slowParallel(t)
	archs := []string{"llama"}
	if *longCases {
		archs = fullArchitectures
	}
	for _, arch := range archs {
		for _, mode := range prefillModes {
			spec := tiny.New(arch, 1)
			if !*longCases {
				spec.OneLayer()
			}
			e := accelEngine(t, withText(t, spec), smallDevice, mode.o)
			list := mode.few
			if *longCases {
				list = Behaviors()
			}
			for _, b := range list {
				if slices.Contains(mode.except, b.Name) || !*longCases && slices.Contains(slowBehaviors, b.Name) {
					continue
				}
				t.Run(arch+"/"+mode.name+"/"+b.Name, func(t *testing.T) { b.Check(t, e) })
			}
			if used := e.Stats().PagesInUse; used != 0 {
				t.Errorf("%s, %s: %d pages were not released", arch, mode.name, used)
			}
		}
	}
}
