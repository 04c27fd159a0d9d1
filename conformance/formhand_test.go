package conformance

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// handForm is a small kernel around instructions that are no function of a lane's
// operands: memory, barriers, copies, matrices.
type handForm struct {
	covers  *regexp.Regexp // of a form's String
	sm      int            // what the kernel needs beyond the form
	body    func(f form) string
	outSize func(f form) int // bytes a thread
	// want computes the output of thread i, from its index and the inputs; nil where
	// check compares instead.
	want  func(f form, in [][]byte, i int) []byte
	check func(f form, in [][]byte, got []byte) (worst float64, err error)
	fill  func(f form, r *rand.Rand, in [][]byte) // changes the inputs
}

const (
	formCTAs  = 2
	formBytes = 16 << 10 // of each array of a handForm
	formParam = 0x3fc00000_40490fdb
)

func sized(n int) func(form) int { return func(form) int { return n } }

// own is the word that a thread has in p0.
func own(_ form, in [][]byte, i int) []byte { return in[0][4*i:][:4] }

// neighbors is the word of the thread beside.
func neighbors(_ form, in [][]byte, i int) []byte { return in[0][4*(i^1):][:4] }

// loadWord brings a thread's word of p0 to %r1.
func loadWord() string { return address("%d9", "%d0", 4) + "\tld.global.b32 %r1, [%d9];\n" }

const memoryOrder = `((volatile|(relaxed|acquire|release)\.(cta|gpu|sys))\.)?`

// handForms come in order; the first that covers a form is its own.
var handForms = []handForm{
	{covers: regexp.MustCompile(`^ld\.param\.`), outSize: storedSize, body: func(f form) string {
		return "\t" + f.op + " " + target(f.op) + ", [p3];\n" + storeBits(f.op, target(f.op))
	}, want: func(f form, _ [][]byte, _ int) []byte { return extended(f, packed("b64", []uint64{formParam})) }},

	{covers: regexp.MustCompile(`^ld\.` + memoryOrder + `global[^ ]*$`), outSize: storedSize, body: func(f form) string {
		before, operand := policy(f)
		return before + address("%d9", "%d0", accessSize(f)) + "\tsub.u64 %d9, %d9, 48;\n\t" +
			f.op + " " + target(f.op) + ", [%d9+48]" + operand + ";\n" + storeBits(f.op, target(f.op))
	}, want: func(f form, in [][]byte, i int) []byte { return extended(f, in[0][i*accessSize(f):]) }},

	{covers: regexp.MustCompile(`^(ld|st)\.` + memoryOrder + `shared`), outSize: storedSize, body: sharedBody, want: sharedWant},

	{covers: regexp.MustCompile(`^st\.` + memoryOrder + `global[^ ]*( number [01]+)?$`), outSize: accessSize, body: func(f form) string {
		before, operand := policy(f)
		return before + address("%d9", "%d0", accessSize(f)) + "\t" + plain("ld", "global", f.op) + " " + target(f.op) + ", [%d9];\n" +
			address("%d9", formOut, accessSize(f)) + "\tadd.u64 %d9, %d9, 48;\n\t" + f.op + " [%d9+-48], " + source(f) + operand + ";\n"
	}, want: func(f form, in [][]byte, i int) []byte { return stored(f, in[0][i*accessSize(f):]) }},

	{covers: regexp.MustCompile(`^(createpolicy\.fractional\.|prefetch\.global\.)`), outSize: sized(4), body: func(f form) string {
		try := "\t" + f.op + " [%d9];\n\tld.global.b32 %r1, [%d9];\n"
		if n := f.count(" operands"); n > 0 {
			fraction := map[bool]string{true: ", 0f3F000000"}[n == 2]
			try = "\t" + f.op + " %d20" + fraction + ";\n\tld.global.L2::cache_hint.b32 %r1, [%d9], %d20;\n"
		}
		return address("%d9", "%d0", 4) + try + storeBits("st.b32", "%r1")
	}, want: own},

	{covers: regexp.MustCompile(`^(bar\.(sync|warp\.sync)|barrier\.sync(\.aligned)?) `), outSize: sized(4), body: barrierBody, want: barrierWant},

	{covers: regexp.MustCompile(`^(membar\.(gl|sys)|fence\.(acq_rel|sc)\.(gpu|sys))$`), outSize: sized(4), body: fenceBody, want: own,
		fill: func(_ form, _ *rand.Rand, in [][]byte) { clear(in[1]) }},

	// A fence within a CTA, and a wait for a kernel that is not there, must change no value.
	{covers: regexp.MustCompile(`^(membar\.cta|fence\.(acq_rel|sc)\.cta|griddepcontrol\.(wait|launch_dependents)|fence\.proxy\.async[^ ]*)$`), outSize: sized(4),
		body: func(f form) string { return loadWord() + "\t" + f.op + ";\n" + storeBits("st.b32", "%r1") }, want: own},

	{covers: regexp.MustCompile(`^(bra|ret|exit)(\.uni)?$`), outSize: sized(4), body: branchBody, want: branchWant},

	{covers: regexp.MustCompile(`^activemask\.b32$`), outSize: sized(4), body: func(f form) string {
		return "\t" + f.op + " %r1;\n" + storeBits("st.b32", "%r1")
	}, check: ownBitCheck},

	{covers: regexp.MustCompile(`^(atom|red)\.`), outSize: sized(16), body: atomicBody, want: atomicWant, fill: func(_ form, _ *rand.Rand, in [][]byte) {
		for at := 0; at < len(in[0]); at += 48 { // where the operation finds what it compares with
			copy(in[0][at+8:at+16], in[0][at:at+8])
		}
	}},

	{covers: regexp.MustCompile(`^mov\.u32 r,%warpid$`), outSize: sized(4), body: specialBody, check: warpCheck},
	{covers: regexp.MustCompile(`^mov\.[bu]32 r,%`), outSize: sized(4), body: specialBody, want: specialWant},
	{covers: regexp.MustCompile(`^mov\.[bu]32 r,symbol`), outSize: sized(4), body: func(f form) string {
		return strings.Replace(sharedBody(form{op: "ld.shared.u32"}), "mov.u32 %r20, sm", f.op+" %r20, sm", 1)
	}, want: neighbors},
	{covers: regexp.MustCompile(`^mov\.b(32|64) (r,{}|{},r)`), outSize: accessSize, body: halvesBody, want: halvesWant},

	{covers: regexp.MustCompile(`^cp\.async\.(c[ag]\.|commit_group|wait_group|wait_all)`), outSize: sized(64), body: copyBody, want: copyWant},
	{covers: regexp.MustCompile(`^(cp\.async\.bulk\.shared::cluster\.global\.mbarrier|mbarrier\.(arrive\.)?expect_tx|fence\.mbarrier_init)`), sm: 90,
		outSize: sized(16), body: bulkBody, want: func(_ form, in [][]byte, i int) []byte { return in[0][16*i:][:16] }},
	{covers: regexp.MustCompile(`^mbarrier\.(init|inval|arrive|(test|try)_wait\.parity)\.`), outSize: sized(8), body: arriveBody, want: arriveWant},

	{covers: regexp.MustCompile(`^ldmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.shared(::cta)?\.b16$`), outSize: func(f form) int { return 4 * matrices(f) },
		body: ldmatrixBody, want: ldmatrixWant},
	{covers: regexp.MustCompile(`^mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(f16\.f16|bf16\.bf16)\.f32$`), outSize: sized(16), body: mmaBody, check: mmaCheck, fill: mmaFill},
	{covers: regexp.MustCompile(`^mma\.sync\.aligned\.m16n8k(16|32)\.row\.col\.s32\.[su]8\.[su]8\.s32$`), outSize: sized(16), body: mmaBody, want: integerMMAWant},
	{covers: regexp.MustCompile(`^wgmma\.(fence|commit_group|wait_group|mma_async\.sync\.aligned\.m64n64k32\.s32\.[su]8\.s8)`), outSize: sized(wgmmaSize),
		body: wgmmaBody, want: wgmmaWant},
}

// handFormOf finds the kernel that shows a form.
func handFormOf(f form) (handForm, bool) {
	for _, h := range handForms {
		if h.covers.MatchString(f.String()) {
			return h, true
		}
	}
	return handForm{}, false
}

func (h handForm) needs(f form) ptx.Target {
	if target := f.needs(); target.SM >= h.sm {
		return target
	}
	return formTarget(h.sm)
}

func (h handForm) text(f form) string {
	return formHeader(h.needs(f)) + h.body(f) + "\tret;\n}\n"
}

// inputs are p0 to p2: words at random and directed ones.
func (h handForm) inputs(f form, seed uint64) [][]byte {
	random := rand.New(rand.NewPCG(seed, 4))
	in := make([][]byte, 3)
	for i := range in {
		in[i] = make([]byte, formBytes)
		for at := 0; at < formBytes; at += 4 {
			v := random.Uint32()
			if words := pool("u32"); random.IntN(3) == 0 {
				v = uint32(words[random.IntN(len(words))])
			}
			binary.LittleEndian.PutUint32(in[i][at:], v)
		}
	}
	if h.fill != nil {
		h.fill(f, random, in)
	}
	return in
}

// ownBitCheck demands that each thread is among those that its mask names.
func ownBitCheck(_ form, _ [][]byte, got []byte) (float64, error) {
	for i, mask := range unpacked(4, got) {
		if mask>>(i%32)&1 == 0 {
			return 1, fmt.Errorf("thread %d is not in its mask %#x", i, mask)
		}
	}
	return 0, nil
}

func specialBody(f form) string {
	return "\t" + f.op + " %r1, " + f.list()[1] + ";\n" + storeBits("st.b32", "%r1")
}

// warpCheck demands a number that a warp's threads share and no other warp of the
// CTA has: PTX promises no more of it.
func warpCheck(_ form, _ [][]byte, got []byte) (float64, error) {
	numbers := unpacked(4, got)
	for i := range numbers {
		for j := i / formThreads * formThreads; j < i; j++ {
			if (numbers[i] == numbers[j]) != (i/32 == j/32) {
				return 1, fmt.Errorf("threads %d and %d have %d and %d", j, i, numbers[j], numbers[i])
			}
		}
	}
	return 0, nil
}

// specialWant is a special register of thread i; nil for one that is not known.
func specialWant(f form, _ [][]byte, i int) []byte {
	lane := i % 32
	coordinate := map[string]int{
		"%tid.x": i % formThreads, "%ctaid.x": i / formThreads, "%ntid.x": formThreads, "%nctaid.x": formCTAs,
		"%tid.y": 0, "%tid.z": 0, "%ctaid.y": 0, "%ctaid.z": 0, "%ntid.y": 1, "%ntid.z": 1, "%nctaid.y": 1, "%nctaid.z": 1,
		"%laneid": lane, "%lanemask_eq": 1 << lane, "%lanemask_lt": 1<<lane - 1, "%lanemask_le": 2<<lane - 1,
		"%lanemask_gt": -2 << lane, "%lanemask_ge": -1 << lane,
	}
	v, ok := coordinate[f.list()[1]]
	if !ok {
		return nil
	}
	return packed("u32", []uint64{uint64(v)})
}
