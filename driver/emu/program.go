package emu

import (
	"strings"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

const (
	warpSize = 32
	allLanes = 1<<warpSize - 1 // the mask of a full warp
)

// vec is a register of a warp: one value per lane, zero-extended to 64 bits.
type vec [warpSize]uint64

// opKind tells how the interpreter executes an op.
type opKind uint8

const (
	opVec    opKind = iota // d = vec(a, b, c)
	opCmp                  // predicate d = cmp(a, b)
	opSel                  // d = predicate c ? a : b
	opBranch               // jump to target
	opExit                 // end the lanes
	opRun                  // call run
)

// op is a decoded instruction. Registers are indices into the register files of a warp.
// Constants, parameters and special registers are registers, too.
type op struct {
	vec func(d, a, b, c *vec)
	cmp func(a, b *vec) uint32
	run func(w *warp, o *op, m uint32) result

	kind     opKind
	negated  bool // the guard is @!p
	signed   bool // a load sign-extends the value
	shared   bool // the access is to shared memory, not to global memory
	constant bool // a load requires that the memory is constant during the kernel: ld.global.nc
	uniform  bool // all lanes must take the branch or none: bra.uni
	aligned  bool // all lanes of the warp must execute the op together
	syncOnly bool // bar.warp.sync
	order    order

	guard      int32 // predicate; 0 is always true
	d, a, b, c int32
	target     int32 // index of the op that a branch jumps to
	size       int32 // bytes of an element in memory
	line       int32
	imm        int64    // offset of the address in a
	keep       uint64   // mask of the destination register of a sign-extending load
	product    *product // of wgmma.mma_async
	list       []int32  // registers of a vector operand
	more       []int32  // registers of further operands
}

// constant is a register that holds the same value in all lanes from the start.
type constant struct {
	reg   int32
	value uint64
}

// argument is a register that holds bytes of the parameter block.
type argument struct {
	reg    int32
	offset int
	bytes  int
}

// program is a decoded kernel. Launches share it and do not change it.
type program struct {
	name      string
	entry     *syntax.Entry
	lines     []string // of the text
	ops       []op
	regs      int              // number of registers; register 0 is constant zero
	preds     int              // number of predicates; predicate 0 is always true
	names     map[int32]string // of registers, and of predicates by their negated index
	consts    []constant
	arguments []argument
	specials  [numSpecials]int32 // registers that hold special registers, -1 if unused
	static    int                // bytes of static shared memory, padded to 16 if dynamic shared memory follows
	dynamic   int                // offset of dynamic shared memory
	target    int                // .target, major×10 + minor
	wgmma     bool               // the program has wgmma.mma_async
	setMost   int                // the largest number of a setmaxnreg
	registers int                // per thread at entry, if the program has setmaxnreg
}

// text is a line of the PTX text, counted from 1.
func (p *program) text(line int) string { return strings.TrimSpace(p.lines[line-1]) }

// special numbers the special registers.
type special int

const (
	tidX special = iota
	tidY
	tidZ
	ntidX
	ntidY
	ntidZ
	ctaidX
	ctaidY
	ctaidZ
	nctaidX
	nctaidY
	nctaidZ
	laneID
	warpID
	lanemaskEq
	lanemaskLe
	lanemaskLt
	lanemaskGe
	lanemaskGt
	numSpecials
)

var specialNames = map[string]special{
	"%tid.x": tidX, "%tid.y": tidY, "%tid.z": tidZ,
	"%ntid.x": ntidX, "%ntid.y": ntidY, "%ntid.z": ntidZ,
	"%ctaid.x": ctaidX, "%ctaid.y": ctaidY, "%ctaid.z": ctaidZ,
	"%nctaid.x": nctaidX, "%nctaid.y": nctaidY, "%nctaid.z": nctaidZ,
	"%laneid": laneID, "%warpid": warpID,
	"%lanemask_eq": lanemaskEq, "%lanemask_le": lanemaskLe, "%lanemask_lt": lanemaskLt,
	"%lanemask_ge": lanemaskGe, "%lanemask_gt": lanemaskGt,
}

// volume is the number of threads or CTAs in an extent.
func volume(d driver.Dim3) int { return int(d.X) * int(d.Y) * int(d.Z) }
