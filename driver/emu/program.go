package emu

import (
	"github.com/lockstep-go/lockstep/driver"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// warpSize is the number of lanes in a warp.
const warpSize = 32

// allLanes is the mask of a full warp.
const allLanes = 1<<warpSize - 1

// vec is a register of a warp: one value a lane, zero-extended to 64 bits.
type vec [warpSize]uint64

// opKind says how the interpreter's loop runs an op.
type opKind uint8

const (
	opVec    opKind = iota // d = vec(a, b, c)
	opCmp                  // predicate d = cmp(a, b)
	opSel                  // d = predicate c ? a : b
	opBranch               // to target
	opExit
	opRun // run
)

// op is a decoded instruction. Registers are indices into a warp's register
// files; constants, parameters and special registers are registers too.
type op struct {
	vec func(d, a, b, c *vec)
	cmp func(a, b *vec) uint32
	run func(w *warp, o *op, m uint32) step

	kind     opKind
	negated  bool // the guard
	signed   bool
	shared   bool // an access to shared memory, else to global memory
	constant bool // a load that takes its memory for constant
	uniform  bool // a branch that all lanes must take alike
	aligned  bool // a barrier that all lanes of a warp must reach together
	syncOnly bool // bar.warp.sync
	order    order
	mode     uint8 // of a family of instructions that share run

	guard      int32 // predicate; 0 is always true
	d, a, b, c int32
	target     int32
	size       int32 // bytes of an element in memory
	line       int32
	imm        int64   // offset of an address
	keep       uint64  // bits that the destination has
	list       []int32 // registers of a vector operand
	more       []int32 // registers of further operands
}

// constant is a register that holds the same value in all lanes from the start.
type constant struct {
	reg   int32
	value uint64
}

// argument is a register that holds a parameter.
type argument struct {
	reg    int32
	offset int
	bytes  int
}

// program is a decoded kernel.
type program struct {
	name      string
	entry     *syntax.Entry
	lines     []string
	ops       []op
	regs      int // registers that hold values; 0 is a constant zero
	names     map[int32]string
	preds     int // predicates; 0 is always true
	consts    []constant
	arguments []argument
	specials  [numSpecials]int32 // registers, -1 where unused
	static    int                // bytes of static shared memory
	dynamic   int                // where dynamic shared memory begins
	target    int                // .target, major×10 + minor
	products  bool               // it has wgmma.mma_async
}

// special is a special register.
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

// specialNames are the special registers that can be read.
var specialNames = map[string]special{
	"%tid.x": tidX, "%tid.y": tidY, "%tid.z": tidZ,
	"%ntid.x": ntidX, "%ntid.y": ntidY, "%ntid.z": ntidZ,
	"%ctaid.x": ctaidX, "%ctaid.y": ctaidY, "%ctaid.z": ctaidZ,
	"%nctaid.x": nctaidX, "%nctaid.y": nctaidY, "%nctaid.z": nctaidZ,
	"%laneid": laneID, "%warpid": warpID,
	"%lanemask_eq": lanemaskEq, "%lanemask_le": lanemaskLe, "%lanemask_lt": lanemaskLt,
	"%lanemask_ge": lanemaskGe, "%lanemask_gt": lanemaskGt,
}

// threads is the number of threads that a Dim3 counts.
func threads(d driver.Dim3) int { return int(d.X) * int(d.Y) * int(d.Z) }

// maxThreads is the largest number of threads per CTA that the entry and the device allow.
func (p *program) maxThreads() int {
	if n := p.entry.MaxThreads(); n != 0 {
		return n
	}
	return maxThreadsPerCTA
}

const maxThreadsPerCTA = 1024
