package golden

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A case that is updated alone keeps its place among all cases.
func TestManifestKeepsTheOrderOfCases(t *testing.T) {
	var all []entry
	for _, c := range Cases() {
		all = append(all, entry{File: c.file()})
	}
	changed := entry{File: all[2].File, SHA256: "new"}
	own := entry{File: "logits/of no case.npy"}
	old := manifest{Models: map[string]string{"a": "1", "b": "2"}, Files: slices.Delete(slices.Clone(all), 5, 6)}
	got := old.with(manifest{provenance, map[string]string{"b": "3"}, []entry{own, all[5], changed}})

	files := append(slices.Clone(all), own)
	files[2] = changed
	want := manifest{provenance, map[string]string{"a": "1", "b": "3"}, files}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("manifest (-want +got):\n%s", d)
	}
	if old.Models["b"] != "2" || len(old.Files) != len(all)-1 || old.Files[2].SHA256 != "" {
		t.Error("the manifest that it was made from has changed")
	}
}
