package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestPull: the name of a download is the name of the model, and its output the file.
func TestPull(t *testing.T) {
	home(t)
	files, siblings := map[string]string{}, []map[string]any{}
	for i, part := range splitTiny(t) {
		data := read(t, part)
		sum := sha256.Sum256([]byte(data))
		name := fmt.Sprintf("War-Q8_0-%05d-of-00003.gguf", i+1)
		files["/me/War/resolve/"+strings.Repeat("c", 40)+"/"+name] = data
		siblings = append(siblings, map[string]any{"rfilename": name, "size": len(data), "lfs": map[string]any{"sha256": hex.EncodeToString(sum[:])}})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := files[r.URL.Path]
		switch {
		case r.URL.Path == "/api/models/me/War/revision/main":
			json.NewEncoder(w).Encode(map[string]any{"sha": strings.Repeat("c", 40), "siblings": siblings})
		case ok:
			fmt.Fprint(w, data)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	t.Setenv("HF_ENDPOINT", server.URL)
	for range 2 {
		r := succeed(t, "", "pull", "hf:me/War:Q8_0")
		if strings.Count(r.err, "\n") != 3 || !strings.HasPrefix(r.err, "War-Q8_0-00001-of-00003.gguf: ") {
			t.Errorf("standard error %q, want a line per file", r.err)
		}
		file := strings.TrimSuffix(r.out, "\n")
		if filepath.Base(file) != "War-Q8_0-00001-of-00003.gguf" {
			t.Errorf("standard output %q, want the first part", r.out)
		}
		want := succeed(t, "", "tokenize", "--model", tinyModel, "Well, Prince").out
		for _, model := range []string{file, "hf:me/War:Q8_0"} {
			if got := succeed(t, "", "tokenize", "--model", model, "Well, Prince").out; got != want {
				t.Errorf("%s: %q, want %q", model, got, want)
			}
		}
	}
	refused(t, runCommand(t, "", "pull", "hf:me/none"), exitError, "hf:me/none", server.URL+"/api/models/me/none/", "404 Not Found")
	refused(t, runCommand(t, "", "pull", "War.gguf"), exitUsage, `"War.gguf": want hf:ORGANIZATION/REPOSITORY`)
	t.Setenv("HF_ENDPOINT", "none")
	refused(t, runCommand(t, "", "pull", "hf:me/War"), exitError, `HF_ENDPOINT: "none"`)
}
