package ptx

import (
	"fmt"
	"strings"
)

// Target is what a text is for.
type Target struct {
	Version int  // of PTX: major×10 + minor
	SM      int  // 80 for sm_80
	Arch    bool // the architecture's own features: sm_90a
}

func (t Target) String() string {
	s := fmt.Sprintf("sm_%d", t.SM)
	if t.Arch {
		s += "a"
	}
	return s
}

// For is what a kernel is printed for if a device of t runs the text itself: with the
// architecture's own features where the kernel needs them.
func (t Target) For(k *Kernel) Target {
	t.Arch = t.Arch || k.Least.Arch && t.SM == k.Least.SM
	return t
}

// form is what an instruction needs.
type form struct {
	version, sm int
	arch        bool
}

// forms maps the beginning of an instruction to what it needs; the longest wins.
var forms = map[string]form{
	"mov.": {}, "ld.": {}, "st.": {}, "add.": {}, "sub.": {}, "mul.": {}, "mad.": {}, "fma.": {}, "div.": {}, "rem.": {},
	"min.": {}, "max.": {}, "and.": {}, "or.": {}, "xor.": {}, "not.": {}, "neg.": {}, "abs.": {}, "shl.": {}, "shr.": {},
	"bfe.": {}, "bfi.": {}, "lop3.": {}, "prmt.": {}, "popc.": {}, "clz.": {}, "dp4a.": {}, "cvt.": {}, "setp.": {},
	"selp.": {}, "sqrt.": {}, "rcp.": {}, "rsqrt.": {}, "ex2.": {}, "lg2.": {}, "ret": {}, "bar.": {}, "fence.": {},
	"shfl.": {}, "vote.": {}, "redux.": {}, "atom.": {}, "red.": {}, "cp.async.": {}, "ldmatrix.": {}, "mma.": {},
	"mbarrier.": {version: 80, sm: 90}, "cp.async.bulk.": {version: 80, sm: 90}, "fence.mbarrier_init.": {version: 80, sm: 90},
	"fence.proxy.": {version: 80, sm: 90}, "griddepcontrol.": {version: 78, sm: 90},
	wgmma: {version: 80, sm: 90, arch: true}, wgmma + mixedProduct: {version: 84, sm: 90, arch: true},
}

func formOf(op string) (form, bool) {
	for p := op; p != ""; p = p[:len(p)-1] {
		if f, ok := forms[p]; ok {
			return f, true
		}
	}
	return form{}, false
}

// leastVersion is the PTX version that first knew a target, from the release notes
// of the PTX ISA.
func leastVersion(t Target) int {
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

// ParseTarget reads a target such as "sm_90" or "sm_90a".
func ParseTarget(s string) (Target, error) {
	var t Target
	digits, arch := strings.CutSuffix(s, "a")
	if n, err := fmt.Sscanf(digits, "sm_%d", &t.SM); n != 1 || err != nil || t.SM < 50 || t.SM > 999 || fmt.Sprintf("sm_%d", t.SM) != digits {
		return Target{}, fmt.Errorf("ptx: %q is no target, want one such as sm_80 or sm_90a", s)
	}
	t.Arch = arch
	t.Version = leastVersion(t)
	return t, nil
}

// TargetError is a target that a kernel cannot be printed for.
type TargetError struct {
	Kernel    string
	Need, Ask Target
}

func (e *TargetError) Error() string {
	only := " at least"
	if e.Need.Arch {
		only = " and runs on nothing else"
	}
	return fmt.Sprintf("ptx: kernel %s needs %v%s, not %v", e.Kernel, e.Need, only, e.Ask)
}

// reach raises what is asked for to what the kernel needs.
func (k *Kernel) reach(ask Target) (Target, error) {
	need := k.Least
	if ask.SM != 0 && (ask.SM < need.SM || need.Arch && (ask.SM != need.SM || !ask.Arch)) {
		return ask, &TargetError{k.Name, need, ask}
	}
	ask.SM = max(ask.SM, need.SM)
	ask.Arch = ask.Arch || need.Arch
	ask.Version = max(ask.Version, need.Version, leastVersion(ask))
	return ask, nil
}
