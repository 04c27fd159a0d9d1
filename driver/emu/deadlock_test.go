package emu

import (
	"errors"
	"testing"
)

// Waiting for a slow warp is not a livelock, however many lanes wait.
func TestSlowWarpIsNoDeadlock(t *testing.T) {
	body := `
	mov.u32 %r0, 0; mov.u32 %r2, bar; setp.eq.u32 %p1, %r1, 0;
	@%p1 mbarrier.init.shared.b64 [%r2], 1;
	bar.sync 0;
	@!%p1 bra WAIT;
SLOW:
	add.u32 %r0, %r0, 1;
	setp.lt.u32 %p3, %r0, 60000;
	@%p3 bra SLOW;
	mbarrier.arrive.shared.b64 _, [%r2];
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
	@!%p2 bra WAIT;`
	k := trapCase{header: sm90, decls: ".shared .align 8 .b8 bar[8];", body: body}
	if _, err := (kernelRun{opts: Options{IgnoreRaces: true}, ptx: k.faulty(), block: 256, args: []any{256}}).run(t); err != nil {
		t.Error(err)
	}
}

// A livelock is found in any schedule.
func TestDeadlockInAnyOrder(t *testing.T) {
	body := `
	mov.u32 %r0, 0; mov.u32 %r2, bar; setp.eq.u32 %p1, %r1, 0;
	@%p1 mbarrier.init.shared.b64 [%r2], 2;
	bar.sync 0;
	@%p1 mbarrier.arrive.shared.b64 _, [%r2];
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
	@!%p2 bra WAIT;`
	k := trapCase{header: sm90, decls: ".shared .align 8 .b8 bar[8];", body: body}
	for seed := range uint64(4) {
		opts := Options{Schedule: Schedule{seed > 0, seed}, MaxInstructions: 1 << 22}
		_, err := kernelRun{opts: opts, ptx: k.faulty(), block: 96, args: []any{96}}.run(t)
		var trap *Trap
		if !errors.As(err, &trap) || trap.Kind != TrapDeadlock {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
