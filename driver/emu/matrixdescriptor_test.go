package emu

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
)

// These tests multiply with K = 32, by two wgmma instructions. The second one accumulates.
const productK = 32

// tileLayout is a layout of a matrix of f16 or bf16 [size, productK] in shared memory.
type tileLayout struct {
	line       int // bytes: 16 without swizzling, 32, 64 or 128
	transposed bool
}

// offsets returns the leading and the stride offset of the layout, and how many bytes after the
// matrix its k from 16 on begin.
func (l tileLayout) offsets(size int) (leading, stride, next int) {
	switch {
	case l.line == 16 && l.transposed:
		return size / 8 * 128, 128, 2 * size / 8 * 128
	case l.line == 16:
		return size * 16, 128, 2 * size * 16
	case l.transposed:
		return productK / 8 * 8 * l.line, 8 * l.line, 2 * 8 * l.line
	case l.line == 32:
		return 16, 8 * 32, size * 32
	}
	return 16, 8 * l.line, 32
}

// at is the offset of an element. The cases are the canonical layouts of the PTX ISA with T = 8, for
// 16 of K at a time.
func (l tileLayout) at(size, row, k int) int {
	leading, stride, next := l.offsets(size)
	step := k / 16 * next
	k %= 16
	at := 0
	switch {
	case l.line == 16 && l.transposed: // ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))
		at = row%8*2 + row/8*stride + k%8*16 + k/8*leading
	case l.line == 16: // ((8,m),(T,2)):((1T,SBO),(1,LBO))
		at = row%8*16 + row/8*stride + k%8*2 + k/8*leading
	case l.transposed: // ((T,w,m),(8,k)):((1,T,LBO),(wT,SBO)) for lines of w 16 bytes
		n := l.line / 2
		at = row%n*2 + row/n*leading + k%8*l.line + k/8*stride
	default: // ((8,m),(T,2)):((wT,SBO),(1,T))
		at = row%8*l.line + row/8*stride + k*2
	}
	at += step
	return at ^ at>>7&(l.line/16-1)<<4
}

// bytes is enough for the layout of a matrix.
func (l tileLayout) bytes(size int) int { return max(size*productK*2, size*l.line) }

// descriptor is the PTX ISA's for a matrix at address 0.
func (l tileLayout) descriptor(size int) uint64 {
	leading, stride, _ := l.offsets(size)
	return uint64(leading)>>4<<16 | uint64(stride)>>4<<32 | map[int]uint64{16: 0, 128: 1, 64: 2, 32: 3}[l.line]<<62
}

var tileLayouts = []tileLayout{{16, false}, {32, false}, {64, false}, {128, false}, {16, true}, {32, true}, {64, true}, {128, true}}

// productBody multiplies A, in 16 bytes of registers per thread for each k16 or in shared memory, by
// B in shared memory. The tiles, A first, are copied to shared memory.
const productBody = `
.visible .entry k(.param .u64 tiles, .param .u64 a, .param .u64 out)
{
	.reg .b32 %r<8>; .reg .b64 %rd<12>; .reg .pred %p<4>; .reg .b32 %a<8>; .reg .f32 %c<128>;
	.shared .align 1024 .b8 b[40960];
	ld.param.u64 %rd0, [tiles]; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [out];
	mov.u32 %r1, %tid.x; mov.u32 %r2, b; mad.wide.u32 %rd3, %r1, 16, %rd0; mad.lo.u32 %r3, %r1, 16, %r2; mov.u32 %r4, 0;
COPY:
	cp.async.cg.shared.global [%r3], [%rd3], 16;
	add.u64 %rd3, %rd3, 2048; add.u32 %r3, %r3, 2048; add.u32 %r4, %r4, 2048; setp.lt.u32 %p0, %r4, 40960;
	@%p0 bra COPY;
	cp.async.wait_all;
	fence.proxy.async;
	bar.sync 0;
	mad.wide.u32 %rd3, %r1, 32, %rd1;
	ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%rd3]; ld.global.v4.u32 {%a4, %a5, %a6, %a7}, [%rd3+16];
	shr.u32 %r5, %r2, 4; cvt.u64.u32 %rd4, %r5;
	or.b64 %rd5, %rd4, DESCRIPTOR_A; add.u64 %rd6, %rd5, NEXT_A;
	add.u64 %rd7, %rd4, START_B; or.b64 %rd7, %rd7, DESCRIPTOR_B; add.u64 %rd8, %rd7, NEXT_B;
	setp.ne.u32 %p1, 0, 0; setp.eq.u32 %p2, 0, 0;
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0}, {%a0, %a1, %a2, %a3}, %rd7, %p1, 1, 1, 0;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0}, {%a4, %a5, %a6, %a7}, %rd8, %p2, 1, 1, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	mad.wide.u32 %rd3, %r1, BYTES, %rd2;
`

// checkProduct compares a product of small integers with their sums. If a is nil, A is in registers.
func checkProduct(t *testing.T, name string, columns int, bf16 bool, a *tileLayout, b tileLayout) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(columns)))
	typ, code := "f16", func(n int) uint32 { return uint32(alu.F32ToF16(float32(n))) }
	if bf16 {
		typ, code = "bf16", func(n int) uint32 { return uint32(alu.F32ToBF16(float32(n))) }
	}
	tiles, fragments := make([]uint32, 40960/4), make([]uint32, 128*8)
	put := func(words []uint32, at, n int) { words[at/4] |= code(n) << (at % 4 * 8) }
	var mA [64][productK]int
	mB := make([][productK]int, columns)
	startB := 0
	replace := []string{"m64n8k16.f32.f16.f16", fmt.Sprintf("m64n%dk16.f32.%s.%s", columns, typ, typ), "{%c0}", registerList("%c", columns/2), "BYTES", fmt.Sprint(2 * columns)}
	if a == nil {
		replace = append(replace, "DESCRIPTOR_A", "0", "NEXT_A", "0", "1, 1, 0", fmt.Sprintf("1, 1, %d", one(b.transposed)))
	} else {
		_, _, next := a.offsets(64)
		startB = (a.bytes(64) + 1023) &^ 1023
		replace = append(replace, "{%a0, %a1, %a2, %a3}, %rd7", "%rd5, %rd7", "{%a4, %a5, %a6, %a7}, %rd8", "%rd6, %rd8",
			"DESCRIPTOR_A", fmt.Sprint(a.descriptor(64)), "NEXT_A", fmt.Sprint(next/16), "1, 1, 0", fmt.Sprintf("1, 1, %d, %d", one(a.transposed), one(b.transposed)))
	}
	_, _, next := b.offsets(columns)
	replace = append(replace, "DESCRIPTOR_B", fmt.Sprint(b.descriptor(columns)), "START_B", fmt.Sprint(startB/16), "NEXT_B", fmt.Sprint(next/16))
	for k := range productK {
		for row := range mA {
			mA[row][k] = random.IntN(17) - 8
			if a != nil {
				put(tiles, a.at(64, row, k), mA[row][k])
			}
			thread, register := row/16*32+row%8*4+k%8/2, k/16*4+row%16/8+k%16/8*2
			put(fragments, 32*thread+4*register+k%2*2, mA[row][k])
		}
		for column := range mB {
			mB[column][k] = random.IntN(17) - 8
			put(tiles, startB+b.at(columns, column, k), mB[column][k])
		}
	}
	text := sm90a + strings.NewReplacer(replace...).Replace(productBody)
	for i := range columns / 2 {
		text += fmt.Sprintf("\tst.global.f32 [%%rd3+%d], %%c%d;\n", 4*i, i)
	}
	out, err := kernelRun{ptx: text + "\tret;\n}\n", block: 128, args: []any{tiles, fragments, 128 * columns / 2}}.run(t)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for i, got := range out[2] {
		thread, r := i/(columns/2), i%(columns/2)
		lane := thread % 32
		row, column := thread/32*16+lane/4+r%4/2*8, r/4*8+lane%4*2+r%2
		sum := 0
		for k := range productK {
			sum += mA[row][k] * mB[column][k]
		}
		if float32Of(uint64(got)) != float32(sum) {
			t.Fatalf("%s: element (%d, %d) is %v, want %d", name, row, column, float32Of(uint64(got)), sum)
		}
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// registerList formats n registers as a vector.
func registerList(prefix string, n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// TestWGMMALayouts multiplies matrices in all layouts of A and B.
func TestWGMMALayouts(t *testing.T) {
	for i, b := range tileLayouts {
		checkProduct(t, fmt.Sprintf("A in registers, B %+v", b), 64, i%2 == 0, nil, b)
		for j, a := range tileLayouts {
			checkProduct(t, fmt.Sprintf("A %+v, B %+v", a, b), 64, (i+j)%2 == 0, &a, b)
		}
	}
	for n := 8; n <= 256; n += 8 {
		checkProduct(t, fmt.Sprintf("%d columns", n), n, n%16 == 0, nil, tileLayouts[n/8%5])
	}
}
