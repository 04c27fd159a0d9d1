package ptx

import (
	"fmt"
	"strings"
)

// Target is the PTX version and the architecture that a text is printed for.
type Target struct {
	Version int  // of PTX: 10*major + minor
	SM      int  // 80 for sm_80
	Arch    bool // with the architecture-specific features: sm_90a
}

// String returns the name of the architecture, such as "sm_90a".
func (t Target) String() string {
	s := fmt.Sprintf("sm_%d", t.SM)
	if t.Arch {
		s += "a"
	}
	return s
}

// For returns the target to pass to k.Text if a device of target t will run the kernel: t, with
// architecture-specific features if the kernel needs those of t.SM.
func (t Target) For(k *Kernel) Target {
	t.Arch = t.Arch || k.MinTarget.Arch && t.SM == k.MinTarget.SM
	return t
}

// requirement is the minimum PTX version and architecture of an instruction.
type requirement struct {
	version, sm int
	arch        bool
}

// requirements maps prefixes of instructions to their requirements. The longest match applies.
// The zero requirement is PTX 7.4 and sm_80.
var requirements = map[string]requirement{
	"mov.": {}, "ld.": {}, "st.": {}, "add.": {}, "sub.": {}, "mul.": {}, "mad.": {}, "fma.": {}, "div.": {}, "rem.": {},
	"min.": {}, "max.": {}, "and.": {}, "or.": {}, "xor.": {}, "not.": {}, "neg.": {}, "abs.": {}, "shl.": {}, "shr.": {},
	"bfe.": {}, "lop3.": {}, "prmt.": {}, "popc.": {}, "cvt.": {}, "setp.": {},
	"selp.": {}, "sqrt.": {}, "rcp.": {}, "ex2.": {}, "ret": {}, "bar.": {},
	"shfl.": {}, "vote.": {}, "redux.": {}, "atom.": {}, "red.": {}, "createpolicy.": {}, "prefetch.": {}, "cp.async.": {}, "ldmatrix.": {}, "mma.": {},
	"mbarrier.": {version: 80, sm: 90}, "cp.async.bulk.": {version: 80, sm: 90}, "fence.mbarrier_init.": {version: 80, sm: 90},
	"fence.proxy.": {version: 80, sm: 90}, "griddepcontrol.": {version: 78, sm: 90},
	"setmaxnreg.": {version: 80, sm: 90, arch: true}, wgmma: {version: 80, sm: 90, arch: true},
}

// minVersion returns the first PTX version that supports a target, from the release notes of the
// PTX ISA.
func minVersion(t Target) int {
	if t.Arch {
		return 80
	}
	for _, s := range []struct{ sm, version int }{{120, 87}, {100, 86}, {89, 78}, {86, 71}, {80, 70}} {
		if t.SM >= s.sm {
			return s.version
		}
	}
	return 63
}

// ParseTarget parses a target such as "sm_90" or "sm_90a".
func ParseTarget(s string) (Target, error) {
	var t Target
	digits, arch := strings.CutSuffix(s, "a")
	if n, err := fmt.Sscanf(digits, "sm_%d", &t.SM); n != 1 || err != nil || t.SM < 50 || t.SM > 999 || fmt.Sprintf("sm_%d", t.SM) != digits {
		return Target{}, fmt.Errorf("ptx: invalid target: %q: want one such as sm_80 or sm_90a", s)
	}
	t.Arch = arch
	t.Version = minVersion(t)
	return t, nil
}

// TargetError means that a kernel cannot be printed for a target.
type TargetError struct {
	Kernel       string
	Need, Wanted Target
}

// Error names the kernel, the target it needs and the wanted target.
func (e *TargetError) Error() string {
	only := " at least"
	if e.Need.Arch {
		only = " and runs on nothing else"
	}
	return fmt.Sprintf("ptx: kernel %s needs %v%s, not %v", e.Kernel, e.Need, only, e.Wanted)
}

// resolve raises a target to what the kernel needs.
func (k *Kernel) resolve(want Target) (Target, error) {
	need := k.MinTarget
	if want.SM != 0 && (want.SM < need.SM || need.Arch && (want.SM != need.SM || !want.Arch)) {
		return want, &TargetError{k.Name, need, want}
	}
	want.SM = max(want.SM, need.SM)
	want.Arch = want.Arch || need.Arch
	want.Version = max(want.Version, need.Version, minVersion(want))
	return want, nil
}
