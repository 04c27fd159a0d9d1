package emu

import (
	"fmt"
	"strings"

	"github.com/lockstep-go/lockstep/driver"
)

// TrapKind classifies what a kernel did wrong.
type TrapKind string

// The kinds of traps.
const (
	TrapBounds        TrapKind = "access out of bounds"
	TrapFreed         TrapKind = "use after free"
	TrapAlignment     TrapKind = "misaligned access"
	TrapRegister      TrapKind = "uninitialized register"
	TrapMemory        TrapKind = "uninitialized memory"
	TrapRace          TrapKind = "race"
	TrapBarrier       TrapKind = "barrier misused"
	TrapDivergence    TrapKind = "divergence"  // some lanes of the warp do not come to an instruction that all must execute
	TrapLane          TrapKind = "absent lane" // a lane named by a member mask does not come
	TrapDeadlock      TrapKind = "deadlock"
	TrapRunaway       TrapKind = "runaway" // more instructions than Options.MaxInstructions
	TrapDivision      TrapKind = "division by zero"
	TrapExplicit      TrapKind = "trap"         // the trap instruction
	TrapArgument      TrapKind = "bad argument" // a pointer parameter is outside every buffer, or misaligned
	TrapAsync         TrapKind = "asynchronous copy misused"
	TrapWarpgroup     TrapKind = "warpgroup instruction misused"
	TrapInvalidBranch TrapKind = "divergent bra.uni"
	TrapPolicy        TrapKind = "invalid cache policy"
)

// Trap is a fault in a kernel. As on a GPU, the device is lost: every later call on it returns the
// same error. errors.Is finds driver.ErrDeviceLost.
type Trap struct {
	Kind   TrapKind
	Kernel string
	Line   int         // of the PTX text, from 1; 0 if the launch itself is at fault
	Text   string      // that line
	CTA    driver.Dim3 // %ctaid
	Thread driver.Dim3 // %tid
	Warp   int         // in the CTA
	Lane   int
	Detail string
}

// Error returns the kind, the location and the detail in one line.
func (t *Trap) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "emu: %s: kernel %s", t.Kind, t.Kernel)
	if t.Line > 0 {
		fmt.Fprintf(&b, ", line %d (%s), CTA (%d,%d,%d), thread (%d,%d,%d), warp %d lane %d", t.Line, t.Text,
			t.CTA.X, t.CTA.Y, t.CTA.Z, t.Thread.X, t.Thread.Y, t.Thread.Z, t.Warp, t.Lane)
	}
	return b.String() + ": " + t.Detail
}

// Unwrap returns driver.ErrDeviceLost.
func (t *Trap) Unwrap() error { return driver.ErrDeviceLost }

// trap records the first fault of a warp, and returns resultTrap.
func (w *warp) trap(kind TrapKind, o *op, lane int, format string, args ...any) result {
	if w.fault == nil {
		w.fault = w.newTrap(kind, o, lane, format, args...)
	}
	return resultTrap
}

func (w *warp) newTrap(kind TrapKind, o *op, lane int, format string, args ...any) *Trap {
	p := w.cta.grid.prog
	return &Trap{
		Kind: kind, Kernel: p.name, Line: int(o.line), Text: p.text(int(o.line)),
		CTA: w.cta.id, Thread: w.thread(lane), Warp: w.index, Lane: lane, Detail: fmt.Sprintf(format, args...),
	}
}
