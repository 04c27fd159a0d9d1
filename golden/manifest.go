package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

const manifestName = "manifest.json"

const provenance = "Logits of this module's reference engine (package ref), float32 .npy files; " +
	"made by `go test ./golden -update`, the same bytes on every machine. " +
	"The models below arch/ and quant/ come from another engine: see README.md."

// manifest is the content of manifest.json.
type manifest struct {
	Provenance string            `json:"provenance"`
	Models     map[string]string `json:"models"` // file: SHA-256
	Files      []entry           `json:"files"`
}

type entry struct {
	File   string `json:"file"`
	Model  string `json:"model"`
	Reason string `json:"reason"`
	Prompt string `json:"prompt,omitempty"`
	Tokens []int  `json:"tokens"`
	Shape  []int  `json:"shape"` // the last positions, vocabulary
	SHA256 string `json:"sha256"`
}

// manifestWith returns manifest.json after the computed cases. If other cases exist, it
// keeps their entries from the directory.
func (s Store) manifestWith(computed manifest) ([]byte, error) {
	if !s.partial() {
		return marshal(computed)
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return marshal(computed)
	}
	if err != nil {
		return nil, err
	}
	var doc manifest
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("golden: %s: %w", manifestName, err)
	}
	return marshal(doc.with(computed))
}

// with replaces and adds the entries of part, and sorts in the order of Cases.
func (m manifest) with(part manifest) manifest {
	models := map[string]string{}
	maps.Copy(models, m.Models)
	maps.Copy(models, part.Models)
	files := slices.Clone(m.Files)
	for _, e := range part.Files {
		if i := slices.IndexFunc(files, func(old entry) bool { return old.File == e.File }); i >= 0 {
			files[i] = e
		} else {
			files = append(files, e)
		}
	}
	place, all := map[string]int{}, Cases()
	for i, c := range all {
		place[c.file()] = i - len(all) // unknown files are at 0, which is last
	}
	slices.SortStableFunc(files, func(a, b entry) int { return place[a.File] - place[b.File] })
	return manifest{part.Provenance, models, files}
}

func (s Store) verifyManifest(computed manifest) error {
	want, err := s.manifestWith(computed)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(filepath.Join(s.Dir, manifestName))
	if err != nil {
		return err
	}
	if !bytes.Equal(have, want) {
		return errors.New(manifestName + ": differs from the cases and models")
	}
	return nil
}

// marshal formats the manifest with one line per case.
func marshal(doc manifest) ([]byte, error) {
	var out bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&out, format, args...) }
	head, err := json.Marshal(doc.Provenance)
	if err != nil {
		return nil, err
	}
	line("{\n  \"provenance\": %s,\n  \"models\": {\n", head)
	for i, file := range slices.Sorted(maps.Keys(doc.Models)) {
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
