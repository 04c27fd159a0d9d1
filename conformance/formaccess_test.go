package conformance

import (
	"fmt"
	"strconv"
	"strings"
)

// formOut is where a kernel finds the address of its output.
const formOut = "%d5"

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

func vectorOf(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf("v%d.", n)
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
		return n * 4
	}
	return n * elementBytes(typ)
}

func narrow(typ string) bool {
	return elementBytes(typ) == 1 || typ == "u16" || typ == "s16"
}

// extended are loaded elements as their registers hold them.
func extended(f form, b []byte) []byte {
	typ, _ := element(f.op)
	b = b[:accessSize(f)]
	if !narrow(typ) {
		return b
	}
	t, _ := intTypeOf(typ)
	list := unpacked(elementBytes(typ), b)
	for i, v := range list {
		list[i] = t.extend(v)
	}
	return packed("b32", list)
}

// registersOf are the registers that an access loads or stores.
func registersOf(op string) []string {
	typ, n := element(op)
	prefix := map[int]string{1: "%r", 2: "%r", 4: "%r", 8: "%d1"}[elementBytes(typ)]
	if typ == "b16" || typ == "f16" {
		prefix = "%h"
	}
	var regs []string
	for i := range n {
		regs = append(regs, fmt.Sprintf("%s%d", prefix, i+1))
	}
	return regs
}

// braced writes one operand, or a vector of several.
func braced(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return "{" + strings.Join(list, ", ") + "}"
}

func target(op string) string { return braced(registersOf(op)) }

// numbersOf says which of the values that an access stores are numbers.
func numbersOf(f form) (kinds string) {
	_, kinds, _ = strings.Cut(f.args, "number ")
	return kinds
}

// formNumber is the number that a form writes as its value k, of a type.
func formNumber(typ string, k int) uint64 {
	if format, ok := floatFormats[typ]; ok {
		return format.near(1.5 + float64(k))
	}
	return uint64(0x5a + k)
}

// source names what an access stores: registers, and numbers where the form has them.
func source(f form) string {
	typ, _ := element(f.op)
	list := registersOf(f.op)
	for k, kind := range numbersOf(f) {
		if kind == '1' {
			list[k] = literal(typ, formNumber(typ, k))
		}
	}
	return braced(list)
}

// stored is what an access leaves in memory when its registers hold these bytes.
func stored(f form, b []byte) []byte {
	typ, _ := element(f.op)
	size := elementBytes(typ)
	out := append([]byte(nil), b[:accessSize(f)]...)
	for k, kind := range numbersOf(f) {
		if kind == '1' {
			copy(out[size*k:], packed("b64", []uint64{formNumber(typ, k)})[:size])
		}
	}
	return out
}

// plain is an access of the same size in a space with nothing special.
func plain(access, space, op string) string {
	typ, n := element(op)
	if access == "st" && typ[0] == 's' {
		typ = "u" + typ[1:]
	}
	return access + "." + space + "." + vectorOf(n) + typ
}

// storeBits stores what an access left in registers to the thread's place in out.
func storeBits(op, regs string) string {
	typ, n := element(op)
	size := n * elementBytes(typ)
	if narrow(typ) {
		typ, size = "b32", n*4
	}
	return address("%d9", formOut, size) + "\tst.global." + vectorOf(n) + "b" + typ[1:] + " [%d9], " + regs + ";\n"
}

// policy is what makes a cache hint and the operand that it adds, or nothing.
func policy(f form) (before, operand string) {
	if !strings.Contains(f.op, "L2::cache_hint") {
		return "", ""
	}
	return "\tcreatepolicy.fractional.L2::evict_last.b64 %d20;\n", ", %d20"
}
