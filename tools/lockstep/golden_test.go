package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/golden"
)

func TestGolden(t *testing.T) {
	refused(t, runCommand(t, "", "golden", "--dir", "none"), exitError, "--dir", "none")
	dir := t.TempDir()
	refused(t, runCommand(t, "", "golden", "--dir", dir), exitError, filepath.Join(dir, "model"))
	if testing.Short() {
		t.Skip("the golden package computes its files itself")
	}
	want := "golden files are unchanged\n"
	if r := succeed(t, "", "golden", "--dir", "../../golden"); !strings.HasSuffix(r.out, want) {
		t.Errorf("output %q", r.out)
	}
	if err := os.CopyFS(dir, os.DirFS("../../golden")); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	spoilt := filepath.Join(dir, "logits", golden.Cases()[0].Name+".npy")
	if err := os.WriteFile(spoilt, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, runCommand(t, "", "golden", "--dir", dir), exitError, golden.Cases()[0].Name)
	succeed(t, "", "golden", "--dir", dir, "--update")
	succeed(t, "", "golden", "--dir", dir)
}
