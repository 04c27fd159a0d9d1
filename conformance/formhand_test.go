package conformance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// handForm is a small kernel around instructions that are no function of a lane's
// operands: memory, barriers, copies, matrices.
type handForm struct {
	covers  *regexp.Regexp // of a form's String
	arch    string
	body    func(f form) string
	outSize func(f form) int // bytes a thread
	// want computes the output of thread i, from its index and p0's bytes; nil where
	// check compares instead.
	want  func(f form, p0 []byte, i int) []byte
	check func(f form, in [][]byte, got []byte) (worst float64, err error)
}

const (
	formCTAs  = 2
	formBytes = 16 << 10 // of each array of a handForm
	formParam = 0x3fc00000_40490fdb
)

func sized(n int) func(form) int { return func(form) int { return n } }

// handForms come in order; the first that covers a form is its own.
var handForms = []handForm{
	{covers: regexp.MustCompile(`^ld\.param\.`), outSize: accessSize, body: func(f form) string {
		return "\t" + f.op + " " + target(f.op) + ", [p3];\n" + storeBits(f.op, target(f.op))
	}, want: func(f form, _ []byte, _ int) []byte { return packed("b64", []uint64{formParam})[:accessSize(f)] }},

	{covers: regexp.MustCompile(`^ld\.(volatile\.|relaxed\.gpu\.|acquire\.gpu\.)?global`), outSize: storedSize, body: func(f form) string {
		return address("%d9", "%d0", accessSize(f)) + "\t" + f.op + " " + target(f.op) + ", [%d9];\n" + storeBits(f.op, target(f.op))
	}, want: func(f form, p0 []byte, i int) []byte { return extended(f, p0[i*accessSize(f):]) }},

	{covers: regexp.MustCompile(`^(ld|st)\.(volatile\.)?shared`), outSize: storedSize, body: sharedBody,
		want: func(f form, p0 []byte, i int) []byte { return extended(f, p0[(i^1)*accessSize(f):]) }},

	{covers: regexp.MustCompile(`^st\.(volatile\.|relaxed\.gpu\.|release\.gpu\.)?global`), outSize: accessSize, body: func(f form) string {
		return address("%d9", "%d0", accessSize(f)) + "\t" + strings.Replace(plain(f.op), "st.", "ld.", 1) + " " + target(f.op) + ", [%d9];\n" +
			address("%d9", "%d4", accessSize(f)) + "\t" + f.op + " [%d9], " + target(f.op) + ";\n"
	}, want: func(f form, p0 []byte, i int) []byte { return p0[i*accessSize(f):][:accessSize(f)] }},

	{covers: regexp.MustCompile(`^bar\.(sync|warp\.sync)`), outSize: sized(4), body: barrierBody, want: func(f form, p0 []byte, i int) []byte {
		if n := barrierThreads(f); i%formThreads >= n {
			return p0[4*i:][:4]
		}
		return p0[4*(i^1):][:4]
	}},

	{covers: regexp.MustCompile(`^(fence\.(acq_rel|sc)\.|griddepcontrol\.|fence\.proxy\.)`), arch: "sm_90", outSize: sized(4), body: func(f form) string {
		return address("%d9", "%d0", 4) + "\tld.global.b32 %r1, [%d9];\n\t" + f.op + ";\n" + storeBits("st.b32", "%r1")
	}, want: func(_ form, p0 []byte, i int) []byte { return p0[4*i:][:4] }},

	{covers: regexp.MustCompile(`^(bra|ret)$`), outSize: sized(4), body: func(form) string {
		return "\tmov.u32 %r1, 0;\n\tmov.u32 %r2, 0;\n$L1:\n\tsetp.gt.u32 %p1, %r2, %i0;\n\t@%p1 bra $L2;\n" +
			"\tadd.u32 %r1, %r1, %r2;\n\tadd.u32 %r2, %r2, 1;\n\tbra $L1;\n$L2:\n" + storeBits("st.b32", "%r1") +
			"\tsetp.gt.u32 %p2, %i0, 40;\n\t@%p2 ret;\n\tadd.u32 %r1, %r1, 1;\n" + storeBits("st.b32", "%r1")
	}, want: func(_ form, _ []byte, i int) []byte {
		t := i % formThreads
		sum := t * (t + 1) / 2
		if t <= 40 {
			sum++
		}
		return packed("u32", []uint64{uint64(sum)})
	}},

	{covers: regexp.MustCompile(`^(atom|red)\.`), outSize: sized(16), body: atomicBody, want: atomicWant},

	{covers: regexp.MustCompile(`^mov\.u32 r,%`), outSize: sized(4), body: func(f form) string {
		_, special, _ := strings.Cut(f.args, ",")
		return "\tmov.u32 %r1, " + special + ";\n" + storeBits("st.b32", "%r1")
	}, want: func(f form, _ []byte, i int) []byte {
		_, special, _ := strings.Cut(f.args, ",")
		return packed("u32", []uint64{specialWant(special, i)})
	}},
	{covers: regexp.MustCompile(`^mov\.u32 r,symbol`), outSize: storedSize, body: func(form) string { return sharedBody(form{op: "ld.shared.u32"}) },
		want: func(_ form, p0 []byte, i int) []byte { return p0[4*(i^1):][:4] }},
	{covers: regexp.MustCompile(`^mov\.b32 r,\{\}`), outSize: sized(4), body: func(form) string {
		return address("%d9", "%d0", 4) + "\tld.global.v2.b16 {%h1, %h2}, [%d9];\n\tmov.b32 %r1, {%h2, %h1};\n" + storeBits("st.b32", "%r1")
	}, want: swappedHalves},
	{covers: regexp.MustCompile(`^mov\.b32 \{\},r`), outSize: sized(4), body: func(form) string {
		return address("%d9", "%d0", 4) + "\tld.global.b32 %r1, [%d9];\n\tmov.b32 {%h1, %h2}, %r1;\n" + address("%d9", "%d4", 4) + "\tst.global.v2.b16 [%d9], {%h2, %h1};\n"
	}, want: swappedHalves},

	{covers: regexp.MustCompile(`^cp\.async\.(c[ag]\.|commit_group|wait_group|wait_all)`), outSize: sized(64), body: copyBody, want: copyWant},
	{covers: regexp.MustCompile(`^(cp\.async\.bulk\.shared::cluster\.global\.mbarrier|mbarrier\.|fence\.mbarrier_init)`), arch: "sm_90", outSize: sized(16), body: bulkBody,
		want: func(_ form, p0 []byte, i int) []byte { return p0[16*i:][:16] }},
	{covers: regexp.MustCompile(`^ldmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.shared\.b16`), outSize: func(f form) int { return 4 * matrices(f) }, body: ldmatrixBody, want: ldmatrixWant},
	{covers: regexp.MustCompile(`^mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(f16\.f16|bf16\.bf16)\.f32`), outSize: sized(16), body: mmaBody, check: mmaCheck},
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

func (h handForm) text(f form) string {
	arch := h.arch
	if arch == "" {
		arch = "sm_80"
	}
	return formHeader(arch) + h.body(f) + "\tret;\n}\n"
}

// address computes where thread i's element of a size begins, into reg.
func address(reg, base string, size int) string {
	return fmt.Sprintf("\tmad.wide.u32 %s, %%i2, %d, %s;\n", reg, size, base)
}

// element gives the type and the vector length of an access.
func element(op string) (typ string, n int) {
	parts := strings.Split(op, ".")
	n = 1
	for _, p := range parts {
		if len(p) == 2 && p[0] == 'v' {
			n = int(p[1] - '0')
		}
	}
	return parts[len(parts)-1], n
}

func elementBytes(typ string) int {
	bits, _ := strconv.Atoi(typ[1:])
	return bits / 8
}

// accessSize is what an access moves, in bytes a thread.
func accessSize(f form) int {
	typ, n := element(f.op)
	return n * elementBytes(typ)
}

// storedSize is what is left of it in registers: bytes and halves as integers fill 32 bits.
func storedSize(f form) int {
	typ, n := element(f.op)
	if narrow(typ) {
		return 4
	}
	return n * elementBytes(typ)
}

func narrow(typ string) bool { return typ == "u8" || typ == "s8" || typ == "u16" || typ == "s16" }

// extended is a loaded element as its register holds it.
func extended(f form, b []byte) []byte {
	typ, _ := element(f.op)
	if !narrow(typ) {
		return b[:accessSize(f)]
	}
	v := uint64(b[0])
	if strings.HasSuffix(typ, "16") {
		v |= uint64(b[1]) << 8
	}
	switch typ {
	case "s8":
		v = u32(int64(int8(v)))
	case "s16":
		v = u32(int64(int16(v)))
	}
	return packed("b32", []uint64{v})
}

// target names the registers of an access.
func target(op string) string {
	typ, n := element(op)
	prefix := map[int]string{1: "%r", 2: "%r", 4: "%r", 8: "%d1"}[elementBytes(typ)]
	if typ == "b16" || typ == "f16" {
		prefix = "%h"
	}
	var regs []string
	for i := range n {
		regs = append(regs, fmt.Sprintf("%s%d", prefix, i+1))
	}
	if n == 1 {
		return regs[0]
	}
	return "{" + strings.Join(regs, ", ") + "}"
}

// plain is an access of the same size in global memory with nothing special.
func plain(op string) string {
	typ, n := element(op)
	vector := ""
	if n > 1 {
		vector = fmt.Sprintf("v%d.", n)
	}
	return op[:3] + "global." + vector + typ
}

// storeBits stores what an access left in registers to the thread's place in out.
func storeBits(op, regs string) string {
	typ, n := element(op)
	size := n * elementBytes(typ)
	if narrow(typ) {
		typ, size = "b32", 4
	}
	vector := ""
	if n > 1 {
		vector = fmt.Sprintf("v%d.", n)
	}
	return address("%d9", "%d4", size) + "\tst.global." + vector + "b" + typ[1:] + " [%d9], " + regs + ";\n"
}
