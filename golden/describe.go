package golden

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/internal/npy"
)

// describe says how one .npy file differs from another.
func describe(have, want []byte) string {
	haveShape, a, err := npy.Read(bytes.NewReader(have))
	if err != nil {
		return err.Error()
	}
	wantShape, b, err := npy.Read(bytes.NewReader(want))
	if err != nil {
		return err.Error()
	}
	if !slices.Equal(haveShape, wantShape) {
		return fmt.Sprintf("has the shape %v, and %v is computed", haveShape, wantShape)
	}
	differ, largest, finite := 0, 0.0, true
	for i := range a {
		if math.Float32bits(a[i]) == math.Float32bits(b[i]) {
			continue
		}
		differ++
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if !(d <= math.MaxFloat64) {
			finite = false
		}
		largest = max(largest, d)
	}
	if !finite {
		return fmt.Sprintf("%d of %d numbers differ, some of them not finite", differ, len(a))
	}
	return fmt.Sprintf("%d of %d numbers differ, by %.3g at most", differ, len(a), largest)
}
