package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/peak"
)

func TestPTXList(t *testing.T) {
	names := strings.Fields(succeed(t, "", "ptx", "--list").out)
	if len(names) != len(ptxgen.Reachable()) {
		t.Errorf("%d names of %d kernels", len(names), len(ptxgen.Reachable()))
	}
	for _, n := range names {
		if s := kernelNamed(n); s == nil || s.Name() != n {
			t.Errorf("%s is listed and found as %v", n, s)
		}
	}
}

// --kernel prints attention kernels for every head dimension that an engine may use.
func TestPTXHeadDims(t *testing.T) {
	for _, family := range []string{"attention_combine", "attention_decode_f16", "flash_attention_bf16"} {
		for _, dim := range []int{8, 16, 24, 32, 112, 224} {
			name := fmt.Sprintf("%s_d%d", family, dim)
			if r := succeed(t, "", "ptx", "--kernel", name, "--target", "sm_80"); !strings.Contains(r.out, ".entry "+name+"(") || r.err != "" {
				t.Errorf("%s: %.200q, standard error %q", name, r.out, r.err)
			}
		}
	}
}

// fewKernels replaces the kernels of --all by three small ones. One needs sm_90.
func fewKernels(t *testing.T) []kernel.Spec {
	few := []kernel.Spec{peak.Read(), kernelNamed("peak_bulk_read"), kernelNamed("rmsnorm")}
	kernels = func() []kernel.Spec { return few }
	t.Cleanup(func() { kernels = ptxgen.Reachable })
	return few
}

func TestPTXRefuses(t *testing.T) {
	fewKernels(t)
	dir := filepath.Join(t.TempDir(), "kernels")
	for _, tt := range []struct {
		name, reason string
		args         []string
		status       int
		want         []string
	}{
		{"unknown", "there is none", []string{"--kernel", "frobnicate"}, exitUsage, []string{`--kernel: there is no kernel "frobnicate"`, "--list"}},
		{"kernel without a head dimension", "the suffix has no meaning", []string{"--kernel", "rmsnorm_d64"}, exitUsage, []string{"--kernel", "rmsnorm_d64"}},
		{"leading zero", "a kernel has one name", []string{"--kernel", "attention_combine_d064"}, exitUsage, []string{"--kernel", "d064"}},
		{"odd head dim", "no kernel takes it", []string{"--kernel", "attention_decode_f16_d12"}, exitError, []string{"--kernel", "12 is no multiple of 8"}},
		{"large head dim", "no kernel takes it", []string{"--kernel", "flash_attention_f16_d264"}, exitError, []string{"--kernel", "264 is no multiple of 8 up to 128, or of 32 up to 512"}},
		{"huge head dim", "too large to try", []string{"--kernel", "flash_attention_f16_d999999999"}, exitError, []string{"--kernel", "up to 512"}},
		{"old target", "it lacks instructions", []string{"--kernel", "rmsnorm", "--target", "sm_70"}, exitError, []string{"--target", "sm_80", "sm_70"}},
		{"no target", "not a target name", []string{"--kernel", "rmsnorm", "--target", "90"}, exitUsage, []string{"--target", "sm_90a"}},
		{"all for an old target", "an empty directory is no success", []string{"--all", "--out", dir, "--target", "sm_70"}, exitError, []string{"--target: no kernel runs on sm_70", "sm_80"}},
		{"all to nowhere", "a directory is needed", []string{"--all"}, exitUsage, []string{"--all", "--out"}},
		{"list for a target", "names have none", []string{"--list", "--target", "sm_80"}, exitUsage, []string{"--list"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, runCommand(t, "", append([]string{"ptx"}, tt.args...)...), tt.status, tt.want...)
		})
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder for no kernel: %v", err)
	}
}

// --all names the kernels that it skips.
func TestPTXAll(t *testing.T) {
	few, dir := fewKernels(t), t.TempDir()
	for target, left := range map[string]int{"sm_80": 1, "sm_90": 0} {
		r := succeed(t, "", "ptx", "--all", "--out", filepath.Join(dir, target), "--target", target)
		files, err := os.ReadDir(filepath.Join(dir, target))
		if err != nil || len(files) != len(few)-left || strings.Count(r.err, "left out: ptx: kernel peak_bulk_read needs sm_90 at least, not sm_80\n") != left ||
			!strings.Contains(r.err, fmt.Sprintf("%d kernels in %s", len(files), dir)) {
			t.Errorf("%s: %d files, %v: %q", target, len(files), err, r.err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "sm_80", "rmsnorm.ptx"))
	if one := succeed(t, "", "ptx", "--kernel", "rmsnorm", "--target", "sm_80"); err != nil || one.out != string(text) {
		t.Errorf("the file and the kernel alone differ, %v", err)
	}
}
