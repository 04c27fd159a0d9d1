package library

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put writes a file below dir and returns its path.
func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// link makes a link below dir to a path that is relative to it, as Hugging Face does.
func link(t *testing.T, dir, name, to string) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.FromSlash(to), path); err != nil {
		t.Skipf("this system has no links: %v", err)
	}
	return path
}

const someDigest = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// manifest is the text of a manifest with layers of a model and of a template.
func manifest(digest string, size int) string {
	return fmt.Sprintf(`{"schemaVersion": 2, "layers": [
		{"mediaType": "application/vnd.ollama.image.model", "digest": %q, "size": %d},
		{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:0", "size": 1}]}`, digest, size)
}

const registry = "manifests/registry.ollama.ai/library/"

func TestOllama(t *testing.T) {
	dir := t.TempDir()
	blob := put(t, dir, "blobs/"+strings.Replace(someDigest, ":", "-", 1), "model")
	good := manifest(someDigest, 5)
	put(t, dir, registry+"llama3.2/latest", good)
	put(t, dir, registry+"llama3.2/1b", good)
	put(t, dir, registry+"llama3.2/.DS_Store", "x")
	put(t, dir, "manifests/registry.ollama.ai/someone/own/latest", good)
	put(t, dir, "manifests/hf.co/org/repo-GGUF/Q4_K_M", good)
	c := Caches{Ollama: []string{filepath.Join(dir, "none"), dir}}
	list, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	want := []Model{
		{Name: "ollama:hf.co/org/repo-GGUF:Q4_K_M", Path: blob}, {Name: "ollama:llama3.2:1b", Path: blob},
		{Name: "ollama:llama3.2:latest", Path: blob}, {Name: "ollama:someone/own:latest", Path: blob},
	}
	if diff := cmp.Diff(want, list, cmp.AllowUnexported(Model{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, name := range []string{
		"ollama:llama3.2", "ollama:llama3.2:1b", "ollama:Llama3.2:1B", "ollama:library/llama3.2", "ollama:registry.ollama.ai/library/llama3.2:latest",
		"ollama:someone/own", "ollama:hf.co/org/repo-GGUF:q4_k_m",
	} {
		if path, err := c.Find(name); path != blob || err != nil {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
	for _, name := range []string{"ollama:llama3.2:3b", "ollama:", "ollama:own", "ollama:../llama3.2"} {
		if path, err := c.Find(name); path != "" || !errors.Is(err, ErrNotFound) || !strings.HasPrefix(err.Error(), "library: "+name+": no such model in "+c.Ollama[0]) {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
}

// A broken entry has an error that names its file, and hides no other.
func TestMalformedManifests(t *testing.T) {
	other := strings.Replace(someDigest, "0", "1", 1)
	for _, tt := range []struct{ name, reason, text, want string }{
		{"empty", "an interrupted download", "", "unexpected end of JSON input"},
		{"text", "no JSON", "hello", "invalid character 'h'"},
		{"array", "another document", "[]", "cannot unmarshal array"},
		{"no layers", "another document", "{}", "no layer with a model"},
		{"no model", "layers of other types", `{"layers": [{"mediaType": "application/vnd.ollama.image.tensor", "digest": "` + someDigest + `"}]}`, "no layer with a model in one GGUF file"},
		{"two models", "it is unknown which one counts", strings.Replace(manifest(someDigest, 5), "image.template", "image.model", 1), "several layers with a model"},
		{"adapter", "the model would be another one", strings.Replace(manifest(someDigest, 5), "image.template", "image.adapter", 1), "adapter, which is not supported"},
		{"digest as a path", "it must not lead out of the folder", manifest("sha256:../../../etc/passwd", 5), `digest of the model is "sha256:../../../etc/passwd"`},
		{"short digest", "64 digits", manifest("sha256:00", 5), "want sha256: and 64 digits"},
		{"no blob", "a blob that was removed", manifest(other, 5), "no such file"},
		{"short blob", "an incomplete blob", manifest(someDigest, 6), "has 5 bytes, want 6"},
		{"size as text", "a wrong type", strings.Replace(manifest(someDigest, 5), "5}", `"5"}`, 1), "cannot unmarshal string"},
		{"huge", "no manifest", strings.Repeat(" ", maxManifest+1), "more than 1048576 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			blob := put(t, dir, "blobs/"+strings.Replace(someDigest, ":", "-", 1), "model")
			bad := put(t, dir, registry+"bad/latest", tt.text)
			put(t, dir, registry+"good/latest", manifest(someDigest, 5))
			c := Caches{Ollama: []string{dir}}
			list, err := c.List()
			if err != nil || len(list) != 2 || list[1].Path != blob || list[1].Err != nil {
				t.Fatalf("%+v, %v", list, err)
			}
			_, found := c.Find("ollama:bad")
			for prefix, err := range map[string]error{"library: ": list[0].Err, "library: ollama:bad: ": found} {
				if list[0].Path != "" || err == nil || !strings.HasPrefix(err.Error(), prefix+bad+": ") || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: error %v, want one with %q", tt.reason, err, tt.want)
				}
			}
		})
	}
}

func TestLMStudio(t *testing.T) {
	dir, older := t.TempDir(), t.TempDir()
	first := put(t, dir, "someone/Tiny-GGUF/Tiny-Q4_K_M.gguf", "model")
	split := put(t, dir, "someone/Large-GGUF/Large-Q8_0-00001-of-00002.gguf", "part")
	put(t, dir, "someone/Large-GGUF/Large-Q8_0-00002-of-00002.gguf", "part")
	put(t, dir, "someone/Tiny-GGUF/mmproj-F16.gguf", "projector")
	put(t, dir, "someone/Tiny-GGUF/README.md", "text")
	put(t, dir, "someone/stray.gguf", "not in a repository")
	put(t, older, "someone/Tiny-GGUF/Tiny-Q4_K_M.gguf", "hidden by the other folder")
	only := put(t, older, "someone/Old-GGUF/Old.gguf", "model")
	linked := link(t, dir, "linked/repo/own.gguf", "../../someone/Tiny-GGUF/Tiny-Q4_K_M.gguf")
	link(t, dir, "linked/repo/lost.gguf", "none.gguf")
	c := Caches{LMStudio: []string{dir, older}}
	for name, want := range map[string]string{
		"lmstudio:someone/Tiny-GGUF/Tiny-Q4_K_M": first, "lmstudio:someone/Tiny-GGUF/Tiny-Q4_K_M.gguf": first,
		"lmstudio:someone/Large-GGUF/Large-Q8_0": split, "lmstudio:someone/Large-GGUF/Large-Q8_0-00001-of-00002.gguf": split,
		"lmstudio:someone/Old-GGUF/Old": only, "lmstudio:linked/repo/own": linked, "lmstudio:someone/Old-GGUF": only,
	} {
		if path, err := c.Find(name); path != want || err != nil {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
	list, err := c.List()
	if err != nil || len(list) != 5 {
		t.Errorf("%d models, %v, want 5 and no error: %+v", len(list), err, list)
	}
	if _, err := c.Find("lmstudio:linked/repo/lost"); err == nil || !strings.HasPrefix(err.Error(), "library: lmstudio:linked/repo/lost: ") || !strings.Contains(err.Error(), "lost.gguf: no such file") {
		t.Errorf("a link that leads nowhere: %v", err)
	}
}

func TestHuggingFace(t *testing.T) {
	dir := t.TempDir()
	const repo = "models--org--Tiny--x-GGUF/"
	put(t, dir, repo+"blobs/1", "model")
	put(t, dir, repo+"refs/main", "bbb\n")
	link(t, dir, repo+"snapshots/aaa/Tiny-Q4_K_M.gguf", "../../blobs/1")
	current := link(t, dir, repo+"snapshots/bbb/Tiny-Q4_K_M.gguf", "../../blobs/1")
	old := link(t, dir, repo+"snapshots/aaa/Tiny.f16.gguf", "../../blobs/1")
	part := link(t, dir, repo+"snapshots/bbb/Q8_0/Tiny-Q8_0-00001-of-00002.gguf", "../../../blobs/1")
	link(t, dir, repo+"snapshots/bbb/Q8_0/Tiny-Q8_0-00002-of-00002.gguf", "../../../blobs/1")
	first := link(t, dir, repo+"snapshots/bbb/A-Q6_K.gguf", "../../blobs/1")
	link(t, dir, repo+"snapshots/bbb/B-Q6_K.gguf", "../../blobs/1")
	link(t, dir, repo+"snapshots/bbb/lost-IQ2_XXS.gguf", "../../blobs/2")
	put(t, dir, repo+"snapshots/bbb/config.json", "{}")
	one := put(t, dir, "models--one/snapshots/ccc/one-BF16.gguf", "model")
	put(t, dir, "models--one/snapshots/ccc/mmproj-F16.gguf", "projector")
	put(t, dir, "datasets--org--x/snapshots/ddd/x-F16.gguf", "no model")
	put(t, dir, "version.txt", "1")
	c := Caches{HuggingFace: []string{dir}}
	for name, want := range map[string]string{
		"hf:org/Tiny--x-GGUF:Q4_K_M": current, "hf:org/tiny--x-gguf:q4_k_m": current, "hf:org/Tiny--x-GGUF:Tiny-Q4_K_M.gguf": current,
		"hf:org/Tiny--x-GGUF:f16": old, "hf:org/Tiny--x-GGUF:Q8_0": part, "hf:org/Tiny--x-GGUF:Q8_0/Tiny-Q8_0-00001-of-00002.gguf": part,
		"hf:org/Tiny--x-GGUF:A-Q6_K": first, "hf:one": one, "hf:one:BF16": one,
	} {
		if path, err := c.Find(name); path != want || err != nil {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
	list, err := c.List()
	var names []string
	for _, m := range list {
		names = append(names, strings.TrimPrefix(m.Name, "hf:org/Tiny--x-GGUF:"))
	}
	if want := []string{"hf:one:BF16", "A-Q6_K", "B-Q6_K", "IQ2_XXS", "Q4_K_M", "Q8_0", "f16"}; err != nil || !cmp.Equal(names, want) {
		t.Errorf("%q, %v, want %q", names, err, want)
	}
	for name, want := range map[string]string{
		"hf:org/Tiny--x-GGUF":         "several models have this name: hf:org/Tiny--x-GGUF:A-Q6_K, ",
		"hf:org/Tiny--x-GGUF:Q6_K":    "several models have this name: hf:org/Tiny--x-GGUF:A-Q6_K, hf:org/Tiny--x-GGUF:B-Q6_K",
		"hf:org/Tiny--x-GGUF:IQ2_XXS": "lost-IQ2_XXS.gguf: no such file",
		"hf:":                         "no such model in " + dir,
		"hf:org/none":                 "no such model in " + dir,
	} {
		if path, err := c.Find(name); path != "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want an error with %q", name, path, err, want)
		}
	}
}

// A folder that cannot be read is an error and hides no other.
func TestUnreadableFolders(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "locked/repo/a.gguf", "model")
	put(t, dir, "someone/repo/b.gguf", "model")
	locked := filepath.Join(dir, "locked")
	if err := os.Chmod(locked, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(locked, 0o700) })
	if _, err := os.ReadDir(locked); err == nil {
		t.Skip("this user reads every folder")
	}
	list, err := Caches{LMStudio: []string{dir}}.List()
	if len(list) != 1 || err == nil || !strings.Contains(err.Error(), locked) {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestFromEnvironment(t *testing.T) {
	home := filepath.FromSlash("/users/x")
	for _, tt := range []struct {
		name      string
		variables map[string]string
		ollama    string
		hub       string
	}{
		{"defaults", nil, "/users/x/.ollama/models", "/users/x/.cache/huggingface/hub"},
		{"XDG", map[string]string{"XDG_CACHE_HOME": "/c"}, "/users/x/.ollama/models", "/c/huggingface/hub"},
		{"home of Hugging Face", map[string]string{"HF_HOME": "/hf", "XDG_CACHE_HOME": "/c"}, "/users/x/.ollama/models", "/hf/hub"},
		{"older name", map[string]string{"HF_HOME": "/hf", "HUGGINGFACE_HUB_CACHE": "/hub"}, "/users/x/.ollama/models", "/hub"},
		{"tilde", map[string]string{"HF_HOME": "~/hf"}, "/users/x/.ollama/models", "/users/x/hf/hub"},
		{"all", map[string]string{"HF_HOME": "/hf", "HF_HUB_CACHE": "/hub", "OLLAMA_MODELS": "/o"}, "/o", "/hub"},
	} {
		c := FromEnvironment(func(name string) string { return tt.variables[name] }, home)
		if c.Ollama[0] != filepath.FromSlash(tt.ollama) || c.HuggingFace[0] != filepath.FromSlash(tt.hub) || len(c.LMStudio) != 2 {
			t.Errorf("%s: %+v", tt.name, c)
		}
	}
}

// LM Studio may have its home folder elsewhere, and its models in yet another folder.
func TestMovedLMStudio(t *testing.T) {
	home, elsewhere := t.TempDir(), t.TempDir()
	folders := func() []string { return FromEnvironment(func(string) string { return "" }, home).LMStudio }
	usual := []string{filepath.Join(home, ".lmstudio", "models"), filepath.Join(home, ".cache", "lm-studio", "models")}
	check := func(reason string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append(want, usual...), folders()); diff != "" {
			t.Errorf("%s, -want +got:\n%s", reason, diff)
		}
	}
	check("without settings")
	put(t, home, ".lmstudio/settings.json", `{"downloadsFolder": "/models", "language": "en"}`)
	check("with settings", "/models")
	put(t, home, ".lmstudio/settings.json", `{`)
	check("with malformed settings")
	put(t, home, ".lmstudio-home-pointer", filepath.Join(home, ".lmstudio"))
	check("with a pointer to the usual folder")
	put(t, home, ".lmstudio-home-pointer", elsewhere+"\r\n")
	check("with a pointer", filepath.Join(elsewhere, "models"))
	put(t, home, ".lmstudio-home-pointer", " \n")
	check("with an empty pointer")
}

func TestIsName(t *testing.T) {
	for text, want := range map[string]bool{
		"ollama:llama3.2": true, "hf:org/repo": true, "lmstudio:a/b/c": true, "model.gguf": false, "./hf:x": false, "C:\\models\\m.gguf": false, "": false,
		"ollama": false,
	} {
		if IsName(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// A name in the case of the file counts before the same name in another case.
func TestExactName(t *testing.T) {
	dir := t.TempDir()
	upper := put(t, dir, "a/b/X.gguf", "model")
	lower := put(t, dir, "a/b/x.gguf", "model")
	if a, err := os.ReadDir(filepath.Dir(upper)); err != nil || len(a) != 2 {
		t.Skip("names of files have no case here")
	}
	c := Caches{LMStudio: []string{dir}}
	for name, want := range map[string]string{"lmstudio:a/b/X": upper, "lmstudio:a/b/x": lower} {
		if path, err := c.Find(name); path != want || err != nil {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
}

// A broken entry does not hide a model of the same name in another folder.
func TestBrokenDuplicate(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	link(t, dir, "a/b/x.gguf", "none")
	want := put(t, other, "a/b/x.gguf", "model")
	if path, err := (Caches{LMStudio: []string{dir, other}}).Find("lmstudio:a/b/x"); path != want || err != nil {
		t.Errorf("%q, %v", path, err)
	}
}

func TestFilesBesideModels(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"llava-mmproj-f16.gguf", "mmproj-F16.gguf", "imatrix_x.gguf", "x-imatrix.gguf"} {
		put(t, dir, "a/b/"+name, "x")
	}
	if list, err := (Caches{LMStudio: []string{dir}}).List(); len(list) != 0 || err != nil {
		t.Errorf("%+v, %v", list, err)
	}
}

// A model may be in a folder that cannot be read, so that it is unknown whether it exists.
func TestNotFoundWithUnreadableFolder(t *testing.T) {
	dir := t.TempDir()
	link(t, dir, "loop", "loop")
	if _, err := (Caches{LMStudio: []string{dir}}).Find("lmstudio:a/b/x"); err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "loop") {
		t.Errorf("error %v, want one that names the folder", err)
	}
}

// The current commit must be known, but may be missing.
func TestUnreadableCurrentCommit(t *testing.T) {
	dir := t.TempDir()
	link(t, dir, "models--a--b/refs/main", "main")
	put(t, dir, "models--a--b/snapshots/c/m-F16.gguf", "model")
	if list, err := (Caches{HuggingFace: []string{dir}}).List(); len(list) != 1 || err == nil || !strings.Contains(err.Error(), "main") {
		t.Errorf("%+v, %v", list, err)
	}
}

// The manifests may be on another disk.
func TestLinkedManifests(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	blob := put(t, dir, "blobs/"+strings.Replace(someDigest, ":", "-", 1), "model")
	put(t, other, registry+"x/latest", manifest(someDigest, 5))
	link(t, dir, "manifests", filepath.Join(other, "manifests"))
	if path, err := (Caches{Ollama: []string{dir}}).Find("ollama:x"); path != blob || err != nil {
		t.Errorf("%q, %v", path, err)
	}
}

// Every file has a name of its own.
func TestFilesWithOneName(t *testing.T) {
	studio, hub := t.TempDir(), t.TempDir()
	c := Caches{LMStudio: []string{studio}, HuggingFace: []string{hub}}
	const snapshots = "models--o--r/snapshots/"
	put(t, hub, "models--o--r/refs/main", "new")
	for name, want := range map[string]string{
		"lmstudio:a/b/X":                   put(t, studio, "a/b/X.gguf", "model"),
		"lmstudio:a/b/X-00001-of-00002":    put(t, studio, "a/b/X-00001-of-00002.gguf", "part"),
		"lmstudio:a/b/only-00001-of-00002": put(t, studio, "a/b/only-00001-of-00002.gguf", "part"),
		"hf:o/r:f16":                       put(t, hub, snapshots+"new/f16.gguf", "model"),
		"hf:o/r:m-f16":                     put(t, hub, snapshots+"new/m-f16.gguf", "model"),
		"hf:o/r:Q8_0":                      put(t, hub, snapshots+"new/m-Q8_0.gguf", "model"),
		"hf:o/r:before-Q8_0":               put(t, hub, snapshots+"before/before-Q8_0.gguf", "model"),
		"hf:o/r:m-Q4_0":                    put(t, hub, snapshots+"new/m-Q4_0.gguf", "model"),
		"hf:o/r:m-Q4_0-00001-of-00002":     put(t, hub, snapshots+"new/m-Q4_0-00001-of-00002.gguf", "part"),
	} {
		if path, err := c.Find(name); path != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, path, err, want)
		}
	}
	if list, err := c.List(); len(list) != 9 || err != nil {
		t.Errorf("%+v, %v, want 9 models", list, err)
	}
}

func TestSelect(t *testing.T) {
	files := []string{
		"README.md", "mmproj-F16.gguf", "m-Q4_K_M.gguf", "a/x-Q6_K.gguf", "b/x-Q6_K.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf",
		"m-F32-00001-of-00002.gguf", "m-UD-Q4_K_M.gguf", "m-UD-IQ1_S.gguf", "m-fp16.gguf", "m_q5_k_m.gguf",
		"m_v2_Q4_K_M.gguf", "n-ud-q3_k_m.gguf",
	}
	for want, parts := range map[string][]string{
		"UD-Q4_K_M": {"m-UD-Q4_K_M.gguf"}, "UD-IQ1_S": {"m-UD-IQ1_S.gguf"}, "iq1_s": {"m-UD-IQ1_S.gguf"}, "FP16": {"m-fp16.gguf"},
		"F16": {"m-fp16.gguf"}, "Q3_K_M": {"n-ud-q3_k_m.gguf"}, "Q5_K_M": {"m_q5_k_m.gguf"}, "Q4_K_M": {"m-Q4_K_M.gguf"}, "q4_k_m": {"m-Q4_K_M.gguf"}, "m-Q4_K_M.gguf": {"m-Q4_K_M.gguf"}, "a/x-Q6_K": {"a/x-Q6_K.gguf"},
		"Q8_0":             {"Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"},
		"Q8_0/m-Q8_0.gguf": {"Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"},
	} {
		if got, err := Select("hf:o/r:"+want, files); err != nil || !cmp.Equal(got, parts) {
			t.Errorf("%s: %q, %v, want %q", want, got, err, parts)
		}
	}
	for want, text := range map[string]string{
		"hf:o/r:Q6_K": "library: hf:o/r:Q6_K: several models have this name: hf:o/r:a/x-Q6_K, hf:o/r:b/x-Q6_K",
		"hf:o/r:F32":  "library: hf:o/r:F32: m-F32-00001-of-00002.gguf: the repository has no m-F32-00002-of-00002.gguf",
		"hf:o/r:Q2_K": "library: hf:o/r:Q2_K: no such model: the repository has hf:o/r:F32, hf:o/r:Q4_K_M, hf:o/r:Q8_0, hf:o/r:UD-IQ1_S, hf:o/r:UD-Q4_K_M, " +
			"hf:o/r:a/x-Q6_K, hf:o/r:b/x-Q6_K, hf:o/r:fp16, hf:o/r:m_q5_k_m, hf:o/r:m_v2_Q4_K_M, hf:o/r:ud-q3_k_m",
	} {
		if got, err := Select(want, files); got != nil || err == nil || err.Error() != text {
			t.Errorf("%s: %q, %v, want %s", want, got, err, text)
		}
	}
}
