package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestPerplexity(t *testing.T) {
	text := put(t, "text", "It was the best of times, said the prince, and looked at the princess.\n")
	r := succeed(t, "", "perplexity", "--text", text)
	if !strings.HasPrefix(r.out, "perplexity ") || !strings.Contains(r.out, " ± ") || !strings.Contains(r.out, " 71 bytes, 1 windows") {
		t.Errorf("output %q", r.out)
	}
	var d map[string]float64
	if err := json.Unmarshal([]byte(succeed(t, "", "perplexity", "--text", text, "--json", "--context", "8").out), &d); err != nil {
		t.Fatal(err)
	}
	if d["windows"] < 2 || d["bytes"] != 71 || !(d["perplexity"] > 1 && d["perplexity"] < 4096) || !(d["nats_stderr"] > 0) {
		t.Errorf("%v", d)
	}
	refused(t, runCommand(t, "", "perplexity", "--text", filepath.Join(t.TempDir(), "none")), exitError, "--text", "none")
	refused(t, runCommand(t, "", "perplexity", "--text", t.TempDir()), exitError, "--text", "directory")
	empty := put(t, "empty", "")
	refused(t, runCommand(t, "", "perplexity", "--text", empty), exitError, "--text", empty)
}

// A perplexity that is no number is printed, and is an error.
func TestPerplexityNotFinite(t *testing.T) {
	broken, text := brokenModel(t, tinyModel), put(t, "text", "It was the best of times.")
	r := runCommand(t, "", "perplexity", "--device", "cpu", "--model", broken, "--text", text)
	if r.status != exitError || !strings.HasPrefix(r.out, "perplexity NaN") || !strings.Contains(r.err, broken+": the perplexity is NaN: logits are not finite") {
		t.Errorf("status %d, %q, %q", r.status, r.out, r.err)
	}
}
