package conformance

import (
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// formNeeds are the instructions that need more than sm_80, by the beginning of the
// form; PTX ISA, "Target ISA Notes".
var formNeeds = map[string]int{
	"griddepcontrol.": 90, "fence.proxy.async": 90, "fence.mbarrier_init.": 90, "cp.async.bulk.": 90, "mbarrier.try_wait.": 90,
	"mbarrier.arrive.shared.b64 3 operands": 90, "mbarrier.arrive.expect_tx.": 90, "mbarrier.expect_tx.": 90, "cvt.f32.bf16": 90,
	"add.rn.bf16x2": 90, "sub.rn.bf16x2": 90, "mul.rn.bf16x2": 90, "add.rn.bf16": 90, "sub.rn.bf16": 90, "mul.rn.bf16": 90,
}

// needs is the target that a form's kernel is written for.
func (f form) needs() ptx.Target {
	if strings.HasPrefix(f.op, "wgmma.") { // PTX 8.4 for factors of two types
		return ptx.Target{SM: 90, Arch: true, Version: 84}
	}
	for prefix, sm := range formNeeds {
		if strings.HasPrefix(f.String(), prefix) {
			return formTarget(sm)
		}
	}
	return formTarget(80)
}

// formTarget is what a kernel for sm_80, sm_90... is written for.
func formTarget(sm int) ptx.Target {
	if sm > 80 {
		return ptx.Target{SM: sm, Version: 80}
	}
	return ptx.Target{SM: sm, Version: 74}
}

// untried are the forms that no kernel of this table runs, with the reason.
var untried = map[string]string{
	"trap": "ends the launch with an error by design; the emulator's own tests show it",
}
