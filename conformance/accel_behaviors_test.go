package conformance

import (
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/tiny"
)

// enoughPages is enough for the behavior with the most sequences, which need a page each.
const enoughPages = 600

// slowBehaviors take minutes on the emulator.
var slowBehaviors = []string{"batch equals alone", "500 concurrent calls", "truncate", "canceled during a step", "greedy paths agree", "stop string across tokens",
	"whole characters", "seeds", "prefill in parts", "loop left early", "canceled at each token", "request after an error", "each token computed once", "stop token later",
	"interleaved sequences", "generation fills the context"}

// TestAccelBehaviors checks the behaviors of the accelerator. A default run uses one
// architecture with one layer.
func TestAccelBehaviors(t *testing.T) {
	slowParallel(t)
	archs := []string{"llama"}
	if *longCases {
		archs = fullArchitectures
	}
	for _, arch := range archs {
		spec := tiny.New(arch, 1)
		if !*longCases {
			spec.OneLayer()
		}
		e := accelEngine(t, withText(t, spec), smallDevice, accel.Options{KVPages: enoughPages, Chunk: 16})
		for _, b := range Behaviors() {
			if !*longCases && slices.Contains(slowBehaviors, b.Name) {
				continue
			}
			t.Run(arch+"/"+b.Name, func(t *testing.T) { b.Check(t, e) })
		}
		if used := e.Stats().PagesInUse; used != 0 {
			t.Errorf("%s: %d pages were not released", arch, used)
		}
	}
}
