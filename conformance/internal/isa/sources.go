package isa

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
)

// extraForms lists forms that are tested even if no kernel contains them: forms that the
// builder can emit, and variations of used forms.
const extraForms = `
	add.s64 %d1, %d2, %d3; sub.s64 %d1, %d2, %d3; mul.lo.s64 %d1, %d2, %d3; mul.hi.u64 %d1, %d2, %d3; mad.lo.s32 %r1, %r2, %r3, %r4;
	mad.lo.u64 %d1, %d2, %d3, %d4; mad.wide.s32 %d1, %r2, %r3, %d4; div.s64 %d1, %d2, %d3; div.u64 %d1, %d2, %d3; rem.s64 %d1, %d2, %d3;
	min.u64 %d1, %d2, %d3; min.s64 %d1, %d2, %d3; max.s64 %d1, %d2, %d3; neg.s64 %d1, %d2; abs.s64 %d1, %d2;
	and.b16 %h1, %h2, %h3; or.b16 %h1, %h2, %h3; xor.b16 %h1, %h2, %h3; and.b64 %d1, %d2, %d3; or.b64 %d1, %d2, %d3; not.b64 %d1, %d2;
	or.pred %p1, %p2, %p3; xor.pred %p1, %p2, %p3; shl.b64 %d1, %d2, %r3; shr.b32 %r1, %r2, %r3; shr.b64 %d1, %d2, %r3;
	shf.r.wrap.b32 %r1, %r2, %r3, %r4; shf.l.wrap.b32 %r1, %r2, %r3, 8; bfe.s32 %r1, %r2, %r3, 4; bfe.u32 %r1, %r2, %r3, %r4;
	lop3.b32 %r1, %r2, %r3, %r4, 0xEA; lop3.b32 %r1, %r2, %r3, %r4, 0xCA; lop3.b32 %r1, %r2, 15, 0x64006400, 0xEA; lop3.b32 %r1, %r2, 3, %r4, 0x6A;
	prmt.b32 %r1, %r2, %r3, 0x5410; prmt.b32 %r1, %r2, %r3, 0x7632; prmt.b32 %r1, %r2, 0x64646464, 0x4140; prmt.b32 %r1, 7, 9, %r4;
	dp4a.s32.s32 %r1, %r2, %r3, %r4; dp4a.u32.s32 %r1, %r2, %r3, %r4; dp4a.s32.u32 %r1, %r2, 0x01010101, 0;
	add.rn.f16x2 %r1, %r2, %r3; sub.rn.f16x2 %r1, %r2, %r3; mul.rn.f16x2 %r1, %r2, %r3; fma.rn.f16x2 %r1, %r2, %r3, %r4; fma.rn.bf16x2 %r1, %r2, %r3, %r4;
	add.rn.f64 %d1, %d2, %d3; sub.rn.f64 %d1, %d2, %d3; div.rn.f64 %d1, %d2, %d3; rcp.rn.f64 %d1, %d2; sqrt.rn.f64 %d1, %d2; abs.f64 %d1, %d2; neg.f64 %d1, %d2;
	cvt.f32.bf16 %f1, %h1; cvt.f64.f32 %d1, %f1; cvt.rn.f32.u64 %f1, %d1; cvt.rn.f32.s64 %f1, %d1; cvt.rn.f64.u64 %d1, %d2; cvt.rn.f64.s64 %d1, %d2; cvt.rn.f64.s32 %d1, %r1;
	cvt.rni.s32.f64 %r1, %d1; cvt.rzi.u64.f32 %d1, %f1; cvt.rzi.s64.f64 %d1, %d2; cvt.rpi.u32.f64 %r1, %d1; cvt.rmi.s64.f32 %d1, %f1;
	cvt.rzi.f32.f32 %f1, %f2; cvt.rmi.f32.f32 %f1, %f2; cvt.rpi.f32.f32 %f1, %f2; cvt.s32.s16 %r1, %h1; cvt.u32.u16 %r1, %h1; cvt.u16.u32 %h1, %r1; cvt.u64.u32 %d1, %r1;
	setp.ls.u32 %p1, %r1, %r2; setp.hi.u64 %p1, %d1, %d2; setp.hs.u32 %p1, %r1, 7; setp.ne.b32 %p1, %r1, %r2; setp.eq.b64 %p1, %d1, %d2; setp.ge.s64 %p1, %d1, %d2;
	setp.nan.f32 %p1, %f1, %f2; setp.num.f32 %p1, %f1, %f2; setp.neu.f64 %p1, %d1, %d2; setp.leu.f64 %p1, %d1, %d2; setp.gt.f64 %p1, %d1, 0d3FF0000000000000;
	selp.b16 %h1, %h2, %h3, %p1; selp.f64 %d1, %d2, %d3, %p1; selp.s32 %r1, -1, %r2, %p1; mov.b16 %h1, %h2; mov.s32 %r1, -5; mov.b32 %r1, {%h1, %h2};
	shfl.sync.bfly.b32 %r1, %r2, %r3, %r4, -1; shfl.sync.down.b32 %r1, %r2, 1, 0x181f, %r5; shfl.sync.up.b32 %r1|%p1, %r2, 2, 0, -1; shfl.sync.idx.b32 %r1|%p1, %r2, %r3, 31, -1;
	vote.sync.any.pred %p1, !%p2, %r1; vote.sync.all.pred %p1, %p2, %r1; vote.sync.ballot.b32 %r1, %p1, %r2;
	redux.sync.add.s32 %r1, %r2, %r3; redux.sync.min.u32 %r1, %r2, -1; redux.sync.and.b32 %r1, %r2, %r3; redux.sync.or.b32 %r1, %r2, -1;
	ld.global.u8 %r1, [%d1]; ld.global.v2.u16 %r1, [%d1]; ld.global.v4.u8 %r1, [%d1]; ld.global.cg.v2.f32 %f1, [%d1]; ld.relaxed.sys.global.u64 %d1, [%d2]; ld.global.v2.f64 %d1, [%d2];
	ld.shared.v4.b32 %r1, [%r2]; ld.volatile.shared.u32 %r1, [%r2]; ld.shared.s8 %r1, [%r2]; ld.shared.b16 %h1, [%r2]; ld.shared.u16 %r1, [%r2]; ld.shared.v2.b64 %d1, [%r2]; ld.acquire.cta.shared.u32 %r1, [%r2];
	st.global.v2.b64 [%d1], {%d2, %d3}; st.global.cs.v4.f32 [%d1], {%f1, %f2, %f3, %f4}; st.volatile.global.u32 [%d1], %r1; st.release.gpu.global.u32 [%d1], %r1;
	st.global.L2::cache_hint.v4.u32 [%d1], {%r1, %r2, %r3, %r4}, %d5; st.shared.b16 [%r1], %h1; st.volatile.shared.u32 [%r1], %r2; st.shared.v4.f32 [%r1], {%f1, 0f3F800000, %f2, %f3};
	atom.shared.add.u32 %r1, [%r2], %r3; atom.global.dec.u32 %r1, [%d1], %r2; atom.global.xor.b64 %d1, [%d2], %d3; atom.shared.cas.b64 %d1, [%r1], %d2, %d3; atom.global.max.s64 %d1, [%d2], %d3;
	red.relaxed.gpu.global.max.u64 [%d1], %d2; red.global.add.u32 [%d1], 1; red.shared.min.s32 [%r1], %r2; atom.global.or.b32 %r1, [%d1], %r2;
	fence.acq_rel.gpu; fence.sc.gpu; fence.acq_rel.sys; fence.acq_rel.cta; membar.sys; griddepcontrol.launch_dependents; fence.proxy.async.shared::cta; bra.uni $L1;
	bar.arrive 1, 128; bar.arrive %r1, 64; bar.arrive %r1, %r2; barrier.arrive.aligned 3, 64; bar.sync %r1, 128;
	setmaxnreg.inc.sync.aligned.u32 240; setmaxnreg.dec.sync.aligned.u32 24; createpolicy.fractional.L2::evict_first.b64 %d1; prefetch.global.L2 [%d1];
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%d1], %r2, [%r3], %d2;
	ld.acquire.gpu.global.u32 %r1, [%d1]; red.release.gpu.global.add.u32 [%d1], %r1;
	createpolicy.fractional.L2::evict_last.b64 %d1, 0f3F000000; prefetch.global.L1 [%d1]; barrier.sync 2, 64; barrier.sync.aligned 1;
	cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.ca.shared.global [%r1], [%d1], 8, %r2; cp.async.ca.shared.global.L2::128B [%r1], [%d1], 16; cp.async.cg.shared.global.L2::256B [%r1], [%d1], 16;
	cp.async.wait_group 1; cp.async.wait_group 2; mbarrier.arrive.shared.b64 %d1, [%r1], 2;
	ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r1, [%r2]; ldmatrix.sync.aligned.m8n8.x2.shared.b16 %r1, [%r2]; ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 %r1, [%r2]; ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 %r1, [%r2];
	wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; wgmma.wait_group.sync.aligned 1;
	wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%r1}, {%r2}, %d1, %p1; wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8 {%r1}, {%r2}, %d1, %p1;
	wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%r1}, %d2, %d1, %p1; wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8 {%r1}, %d2, %d1, %p1;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, {%r2}, %d1, %p1, 1, 1, 0; wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 {%f1}, {%r2}, %d1, %p1, 1, 1, 1;
	wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1}, %d2, %d1, %p1, 1, 1, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f1}, %d2, %d1, %p1, 1, 1, 0, 1;
	wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}, %d2, %d1, %p1, 1, 1, 1, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {%f1}, %d2, %d1, %p1, 1, 1, 1, 1;
	wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%f1}, {%r2}, %d1, %p1, 1, 1, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {%f1}, {%r2}, %d1, %p1, 1, 1, 1;
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 %r1, %r2, %r3, %r4; mov.u32 %r1, %laneid; mov.u32 %r1, %nctaid.z; mov.u32 %r1, %tid.y;
`

func extraUses(t harness.T) Uses {
	t.Helper()
	all := Uses{}
	addText(t, all, "the list of further forms", extraForms)
	return all
}

// AllForms returns the forms of all kernels that an engine may ask for, of the emulator's
// own tests, and extraForms.
func AllForms(t harness.T) Uses {
	t.Helper()
	kernels, err := kernelUses()
	if err != nil {
		t.Fatalf("%v", err)
	}
	all := extraUses(t)
	all.merge(emulatorUses(t))
	all.merge(kernels)
	return all
}

// kernelUses returns the forms of all kernels that an engine may ask for.
var kernelUses = sync.OnceValues(func() (Uses, error) {
	specs := ptxgen.Reachable()
	var next, all sync.Mutex
	var group sync.WaitGroup
	var failed error
	total := Uses{}
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			own := Uses{}
			for {
				next.Lock()
				if len(specs) == 0 || failed != nil {
					next.Unlock()
					break
				}
				spec := specs[0]
				specs = specs[1:]
				next.Unlock()
				if err := own.addKernel(spec); err != nil {
					next.Lock()
					failed = err
					next.Unlock()
				}
			}
			all.Lock()
			total.merge(own)
			all.Unlock()
		})
	}
	group.Wait()
	return total, failed
})

func (u Uses) addKernel(spec kernel.Spec) error {
	k, err := spec.Build()
	if err != nil {
		return err
	}
	text, err := k.Text(harness.EmulatorTarget.For(k))
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if s, ok := ptxtext.Parse(line); ok {
			u.add(s, k.Name)
		} else if strings.HasSuffix(line, ";") && !strings.HasPrefix(strings.TrimSpace(line), ".") {
			return fmt.Errorf("%s: %q is no instruction", k.Name, line)
		}
	}
	return nil
}

// emulatorTests matches the sources of the emulator's tests, relative to the package under
// test.
const emulatorTests = "../driver/emu/*_test.go"

// invalidTexts lists functions of the emulator's tests with instructions that must be
// rejected, or with arbitrary texts.
var invalidTexts = map[string]bool{"TestRejected": true, "TestWGMMARejected": true, "TestSetMaxNRegRejected": true, "FuzzLoad": true}

// placeholder replaces an expression that is no constant string.
const placeholder = "\x00"

// formattedOpcodes lists the opcodes that the emulator's tests assemble from strings.
var formattedOpcodes = map[string][]string{
	"setp." + placeholder + ".s32":  {"eq", "ne", "lt", "le", "gt", "ge"},
	"setp." + placeholder + ".f32":  {"eq", "ne", "lt", "le", "gt", "ge"},
	"setp." + placeholder + "u.f32": {"eq", "ne", "lt", "le", "gt", "ge"},
}

var (
	testLabel  = regexp.MustCompile(`^\s*(\w+:\s*)?`)
	testOpcode = regexp.MustCompile(`^(@!?%\w+ )?([a-z][a-z0-9]*\.[^ ]+|bra|ret|exit|trap)( |$)`)
	testGuard  = regexp.MustCompile(`^@!?%\w+ `)
)

// emulatorUses returns the forms in the texts of the emulator's tests.
func emulatorUses(t harness.T) Uses {
	t.Helper()
	files, err := filepath.Glob(emulatorTests)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", emulatorTests, err)
	}
	all, skipped := Uses{}, 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && invalidTexts[f.Name.Name] {
				skipped++
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool { return inspectText(t, all, filepath.Base(name), n) })
		}
	}
	if skipped != len(invalidTexts) {
		t.Errorf("%d of %d functions in invalidTexts exist", skipped, len(invalidTexts))
	}
	return all
}

// inspectText adds the instructions of a string or of a sum of strings.
func inspectText(t harness.T, all Uses, where string, n ast.Node) bool {
	switch e := n.(type) {
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return true
		}
		addText(t, all, where, folded(e))
		return false
	case *ast.BasicLit:
		addText(t, all, where, folded(e))
	}
	return true
}

// folded evaluates an expression of strings.
func folded(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return folded(e.X) + folded(e.Y)
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	}
	return placeholder
}

// addText adds the instructions of a text. Each ends with a semicolon.
func addText(t harness.T, all Uses, where, text string) {
	text = strings.ReplaceAll(text, "%%", "%")
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "//")
		pieces := strings.Split(line, ";")
		for _, p := range pieces[:len(pieces)-1] {
			p = strings.TrimLeft(p, placeholder+" \t") // the placeholder's text ends with its own semicolon
			p = strings.TrimSpace(p[len(testLabel.FindString(p)):])
			m := testOpcode.FindStringSubmatch(p)
			if m == nil {
				if p != "" && p[0] != '.' && ptxtext.Registers.MatchString(p) {
					t.Errorf("%s: %q is no instruction", where, p)
				}
				continue
			}
			p = testGuard.ReplaceAllString(p, "")
			instances := []string{p}
			if strings.Contains(m[2], placeholder) {
				instances = nil
				for _, part := range formattedOpcodes[m[2]] {
					instances = append(instances, strings.Replace(p, placeholder, part, 1))
				}
			}
			if len(instances) == 0 {
				t.Errorf("%s: no instances of %q are known", where, m[2])
			}
			for _, in := range instances {
				s, ok := ptxtext.Parse("\t" + strings.ReplaceAll(in, placeholder, "0") + ";")
				if !ok {
					t.Errorf("%s: %q is no instruction", where, in)
					continue
				}
				all.add(s, where)
			}
		}
	}
}
