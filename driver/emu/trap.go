package emu

import (
	"fmt"
	"strings"

	"github.com/lockstep-go/lockstep/driver"
)

// TrapKind is what a kernel did wrong.
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
	TrapDivergence    TrapKind = "divergence"  // lanes part where the instruction wants them together
	TrapLane          TrapKind = "absent lane" // a collective instruction without the lanes it names
	TrapDeadlock      TrapKind = "deadlock"    //
	TrapRunaway       TrapKind = "runaway"     // Options.MaxInstructions
	TrapDivision      TrapKind = "division by zero"
	TrapExplicit      TrapKind = "trap"         // the instruction of that name
	TrapArgument      TrapKind = "bad argument" // a pointer parameter that points nowhere
	TrapAsync         TrapKind = "asynchronous copy misused"
	TrapProduct       TrapKind = "asynchronous product misused"
	TrapInvalidBranch TrapKind = "divergent bra.uni"
)

// Trap is a fault in a kernel. Like a fault on a GPU it takes the device: every
// later call fails with it. It is an ErrDeviceLost.
type Trap struct {
	Kind   TrapKind
	Kernel string
	Line   int         // of the PTX text, from 1; 0 if it is about the launch
	Text   string      // that line
	CTA    driver.Dim3 // %ctaid
	Thread driver.Dim3 // %tid
	Warp   int         // in the CTA
	Lane   int
	Detail string
}

// Error names the fault, where it happened and what was wrong.
func (t *Trap) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "emu: %s: kernel %s", t.Kind, t.Kernel)
	if t.Line > 0 {
		fmt.Fprintf(&b, ", line %d (%s), CTA (%d,%d,%d), thread (%d,%d,%d), warp %d lane %d", t.Line, t.Text,
			t.CTA.X, t.CTA.Y, t.CTA.Z, t.Thread.X, t.Thread.Y, t.Thread.Z, t.Warp, t.Lane)
	}
	return b.String() + ": " + t.Detail
}

// Unwrap makes a trap an ErrDeviceLost.
func (t *Trap) Unwrap() error { return driver.ErrDeviceLost }

// trap records a fault of a lane at an op.
func (w *warp) trap(kind TrapKind, o *op, lane int, format string, args ...any) step {
	if w.fault != nil {
		return stepFault
	}
	w.fault = w.newTrap(kind, o, lane, format, args...)
	return stepFault
}

func (w *warp) newTrap(kind TrapKind, o *op, lane int, format string, args ...any) *Trap {
	p := w.cta.grid.prog
	return &Trap{
		Kind: kind, Kernel: p.name, Line: int(o.line), Text: p.text(int(o.line)),
		CTA: w.cta.id, Thread: w.thread(lane), Warp: w.index, Lane: lane, Detail: fmt.Sprintf(format, args...),
	}
}

// text is a line of the PTX, from 1.
func (p *program) text(line int) string { return strings.TrimSpace(p.lines[line-1]) }

// thread is %tid of a lane.
func (w *warp) thread(lane int) driver.Dim3 {
	n, b := uint32(w.index*warpSize+lane), w.cta.grid.block
	return driver.Dim3{X: n % b.X, Y: n / b.X % b.Y, Z: n / b.X / b.Y}
}
