package conformance

import (
	"fmt"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/model"
)

// TestAccelWindowChunks computes texts of many chunks of attention and of several factors of queries. The chunks are a part
// of a page and a whole page. A prompt cut in other ways must give the same bits.
func TestAccelWindowChunks(t *testing.T) {
	slowParallel(t)
	for _, window := range []int{16, 64} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			m := goldenModel(t, "arch/llama4.gguf")
			m.Config.Window, m.Config.QueryScale.Block = window, 24
			tokens := testTokens(m.Config.Vocab, 70)
			steps := accelTrace(t, m, smallDevice, accel.Options{}, tokens, 62, 1, 1, 1, 1, 1, 1)
			checkRounded(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, steps)
			prompt := accelTrace(t, m, smallDevice, accel.Options{}, tokens)
			checkRounded(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, prompt)

			e := accelEngine(t, m, smallDevice, accel.Options{})
			want := teacherForced(t, e, tokens)
			for _, parts := range [][]int{{17, 40}, {64}, {61, 1, 1, 1, 1, 1, 1, 1, 1}} {
				if at := firstDifference(want, teacherForced(t, e, tokens, parts...)); at >= 0 {
					t.Errorf("parts %v: position %d differs", parts, at/m.Config.Vocab)
				}
			}
		})
	}
}
