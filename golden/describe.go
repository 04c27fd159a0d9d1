package golden

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
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

// marshal writes the manifest for people and version control: one line a token
// list.
func marshal(doc manifest) ([]byte, error) {
	var out bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&out, format, args...) }
	head, err := json.Marshal(doc.Provenance)
	if err != nil {
		return nil, err
	}
	line("{\n  \"provenance\": %s,\n  \"models\": {\n", head)
	for i, file := range sortedKeys(doc.Models) {
		line("    %q: %q%s\n", file, doc.Models[file], comma(i, len(doc.Models)))
	}
	line("  },\n  \"files\": [\n")
	for i, e := range doc.Files {
		text, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		line("    %s%s\n", text, comma(i, len(doc.Files)))
	}
	line("  ]\n}\n")
	if !json.Valid(out.Bytes()) {
		return nil, fmt.Errorf("golden: the manifest is not valid JSON")
	}
	return out.Bytes(), nil
}

func comma(i, n int) string {
	if i < n-1 {
		return ","
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
