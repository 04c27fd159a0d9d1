package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Param is a parameter of a kernel.
type Param struct {
	Name  string
	Type  string // "u32", "f32" or "u64", which includes pointers
	Align int    // alignment in bytes that a pointer must have; 0 if it is not a pointer
}

func (p Param) bytes() int {
	if p.Type == "u64" {
		return 8
	}
	return 4
}

func (b *Builder) param(name, typ string, align int) {
	if !isName(name) {
		b.fail("%q cannot name a parameter", name)
	}
	for _, p := range b.params {
		if p.Name == name {
			b.fail("two parameters are named %q", name)
		}
	}
	b.params = append(b.params, Param{name, typ, align})
}

func loadParam[T Value](b *Builder, name, typ string, align int) T {
	b.param(name, typ, align)
	res, r := fresh[T](b)
	b.emit("ld.param."+typ, 1, one(r), arg{kind: address, ops: []operand{{kind: symbol, name: name}}})
	return res
}

// Global declares a parameter that points to global memory, aligned to align bytes, and emits
// ld.param.
func (b *Builder) Global(name string, align int) Global {
	if align <= 0 || align&(align-1) != 0 {
		b.fail("parameter %q: alignment %d", name, align)
		align = 1
	}
	p := loadParam[U64](b, name, "u64", align)
	return Global{Pointer{b: b, base: p.op, align: align}}
}

// ParamU32 declares a .u32 parameter and emits ld.param.
func (b *Builder) ParamU32(name string) U32 { return loadParam[U32](b, name, "u32", 0) }

// ParamU64 declares a .u64 parameter that is not a pointer and emits ld.param.
func (b *Builder) ParamU64(name string) U64 { return loadParam[U64](b, name, "u64", 0) }

// ParamF32 declares a .f32 parameter and emits ld.param.
func (b *Builder) ParamF32(name string) F32 { return loadParam[F32](b, name, "f32", 0) }

// Kernel is a verified kernel.
type Kernel struct {
	Name       string
	Params     []Param
	MaxThreads int    // per CTA
	MinCTAs    int    // per SM, see the function MinCTAs; 0 if unset
	MinTarget  Target // minimum that its instructions need
	Static     int    // bytes of static shared memory
	Dynamic    bool   // uses dynamic shared memory
	source     *Builder
}

// Arg is a parameter's value. See Addr, Uint, Int and Float.
type Arg struct {
	typ  string
	bits uint64
}

// Addr is a device address, for a pointer; 0 where the kernel says that one may be left out.
func Addr[A ~uint64](a A) Arg { return Arg{"u64", uint64(a)} }

// Uint is a 32-bit number. It panics if n does not fit.
func Uint[N ~int | ~uint32](n N) Arg {
	if int64(n) < 0 || int64(n) > math.MaxUint32 {
		panic(fmt.Sprintf("ptx: %d is no uint32", int64(n)))
	}
	return Arg{"u32", uint64(n)}
}

// Float is a float32.
func Float(x float32) Arg { return Arg{"f32", uint64(math.Float32bits(x))} }

// Launch is a launch of a kernel with its arguments, packed as drivers take them.
type Launch struct {
	Kernel *Kernel
	Grid   [3]uint32
	Block  [3]uint32
	Shared uint32 // bytes of dynamic shared memory
	Params []byte
}

// Launch checks the arguments against the entry's parameters, in number, type and
// alignment, and the shape against the kernel's limits.
func (k *Kernel) Launch(grid [3]uint32, threads int, shared int, args ...Arg) (Launch, error) {
	l := Launch{Kernel: k, Grid: grid, Block: [3]uint32{uint32(threads), 1, 1}, Shared: uint32(shared)}
	switch {
	case grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[1] > 65535 || grid[2] > 65535 || grid[0] > math.MaxInt32:
		return l, fmt.Errorf("ptx: kernel %s: a grid of %v CTAs", k.Name, grid)
	case threads <= 0 || threads > k.MaxThreads:
		return l, fmt.Errorf("ptx: kernel %s: a CTA of %d threads, at most %d", k.Name, threads, k.MaxThreads)
	case shared < 0 || shared > 0 && !k.Dynamic:
		return l, fmt.Errorf("ptx: kernel %s: %d bytes of dynamic shared memory, which it does not use", k.Name, shared)
	case len(args) != len(k.Params):
		return l, fmt.Errorf("ptx: kernel %s: %d arguments for %d parameters", k.Name, len(args), len(k.Params))
	}
	l.Params = make([]byte, 0, 8*len(args))
	for i, p := range k.Params {
		a := args[i]
		if a.typ != p.Type {
			return l, fmt.Errorf("ptx: kernel %s: parameter %s is %s, not %s", k.Name, p.Name, p.Type, a.typ)
		}
		if p.Align > 0 && a.bits%uint64(p.Align) != 0 {
			return l, fmt.Errorf("ptx: kernel %s: parameter %s: address %#x is not a multiple of %d", k.Name, p.Name, a.bits, p.Align)
		}
		l.Params = pack(l.Params, a.bits, p.bytes())
	}
	return l, nil
}

// pack appends a number of size bytes at the next multiple of its size.
func pack(buf []byte, bits uint64, size int) []byte {
	for len(buf)%size != 0 {
		buf = append(buf, 0)
	}
	if size == 8 {
		return binary.LittleEndian.AppendUint64(buf, bits)
	}
	return binary.LittleEndian.AppendUint32(buf, uint32(bits))
}
